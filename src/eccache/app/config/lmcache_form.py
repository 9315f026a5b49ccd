"""What a source in LMCache's form means to eccache.

LMCache's file and environment hold the settings of its KV cache too, lists of disks, and zeros for
what was not chosen. An LMCache user changes nothing in them.
"""

from __future__ import annotations

import attrs

from eccache.app.config.disk_path import split_paths
from eccache.app.config.lmcache_keys import KV_KEYS, TIER_KEYS
from eccache.app.config.names import FIELDS, LMCACHE_MAP, nearest_setting
from eccache.app.config.report import Report
from eccache.app.config.sources import Given, Reader

_SIZES = ("max_local_cpu_size", "max_local_disk_size")


def as_eccache_takes_it(item: Given, report: Report) -> Given | None:
    """Return what *item* is to eccache; None where it is nothing.

    Args:
        item: one value of a source in LMCache's form.
        report: told of what an operator may have meant otherwise.
    """
    if item.key in TIER_KEYS or item.key == LMCACHE_MAP:
        return item
    if item.key in KV_KEYS:
        return None
    if item.key in FIELDS:
        return _setting(item, report)
    if item.reader is Reader.LMCACHE_FORM:
        return item  # Nobody else reads it: a slip, which is refused later.
    nearest = nearest_setting(item.key)
    report(
        "config.key.dropped",
        warning=nearest is not None,
        key=item.key,
        source=item.source,
        nearest=nearest or "",
    )
    return None


def _setting(item: Given, report: Report) -> Given | None:
    if item.value is None:
        return None
    if item.key in _SIZES and _is_zero(item.value):
        report("config.value.dropped", warning=False, key=item.key, source=item.source, value="0")
        return None
    if item.key == "local_disk" and isinstance(item.value, str):
        first, *others = split_paths(item.value) or [""]
        if others:
            report(
                "config.value.shortened",
                warning=True,
                key=item.key,
                source=item.source,
                used=first,
                unused=", ".join(others),
            )
        return attrs.evolve(item, value=first)
    return item


def _is_zero(value: object) -> bool:
    try:
        return float(str(value)) == 0
    except ValueError:
        return False
