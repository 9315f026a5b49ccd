"""Does the remote tier answer?"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from eccache.app.config.redaction import for_people
from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.subject import Subject
from eccache.domain.errors import ConfigError, StoreFault

CHECK = "remote tier"
_URL: Final = "remote_url"
_EXAMPLE: Final = "redis://cache:6379"
_SCHEMES: Final = (
    *(
        "audit",
        "azure",
        "bigtable",
        "blackhole",
        "eic",
        "external",
        "fs",
        "hf3fs",
        "infinistore",
        "lm",
    ),
    *(
        "mock",
        "mooncakestore",
        "plugin",
        "redis",
        "redis-cluster",
        "redis-sentinel",
        "rediss",
        "resp",
    ),
    *("s3", "sagemaker-hyperpod", "unix", "valkey"),
)
_NEAR: Final = 0.75
_UNKNOWN_SCHEME: Final = "No adapter found"
_NEVER: Final = re.compile(
    r"(?:LMCache's \w+ is not connected: )?"
    r"(?:AssertionError|ImportError|ModuleNotFoundError|TypeError|ValueError): "
)
"""Faults of the set-up, which no server that comes back would mend."""


def check_remote_tier(subject: Subject) -> Iterator[Finding]:
    """Report a URL that is none, and a tier that does not answer."""
    config = subject.config
    if config is None or not config.enabled:
        return
    url = config.lmcache.get(_URL)
    if isinstance(url, str) and url and "://" not in url:
        yield error(
            CHECK,
            "remote_url is no URL",
            "it has no :// between scheme and host, so that LMCache connects to nothing.",
            f"write scheme, host and port, for instance {_EXAMPLE}",
        )
        return
    if subject.try_tier is None:  # LMCache, which knows its schemes, is missing or may not be asked
        if isinstance(url, str):
            yield from _slips(url)
        return
    shown = for_people(_URL, url) if url else "LMCache"
    try:
        parts = subject.try_tier()
    except ConfigError as wrong:
        yield error(CHECK, f"{shown} can't be opened", wrong.cause, wrong.remedy)
    except Exception as failed:  # noqa: BLE001 - whatever it is, it is the finding
        cause = (
            failed.cause if isinstance(failed, StoreFault) else f"{type(failed).__name__}: {failed}"
        )
        yield _fault_of(shown, for_people("cause", cause).rstrip("."))
    else:
        yield ok(CHECK, f"{shown} answers ({parts})")


def _slips(url: str) -> Iterator[Finding]:
    """Report a scheme that is nearly one of LMCache's; any other may be a plug-in's."""
    scheme, separator, _ = url.partition("://")
    near = difflib.get_close_matches(scheme.lower(), _SCHEMES, n=1, cutoff=_NEAR)
    if separator and near and scheme.lower() not in _SCHEMES:
        yield warning(
            CHECK,
            f"{scheme}:// is no scheme of LMCache's own",
            "unless a plug-in has it, the tier connects to nothing.",
            f"write {near[0]}://, which is the nearest; nothing, if a plug-in has it.",
        )


def _fault_of(shown: str, cause: str) -> Finding:
    if _UNKNOWN_SCHEME in cause:
        return error(
            CHECK,
            f"{shown} has a scheme that LMCache does not know",
            f"{cause}.",
            f"write a scheme that it knows, for instance {_EXAMPLE}; it says which in its documentation of "
            "storage back ends.",
        )
    if _NEVER.match(cause):
        return error(
            CHECK,
            f"{shown} can't be opened",
            f"{cause}.",
            f"install what it names, or correct the configuration; a URL is like {_EXAMPLE}",
        )
    return warning(
        CHECK,
        f"{shown} does not answer",
        f"{cause}; every look-up there is a miss, and what is stored stays on this host.",
        "look whether it runs, whether host, port and password are right, and whether this host may connect "
        "to it (firewall, network policy).",
    )
