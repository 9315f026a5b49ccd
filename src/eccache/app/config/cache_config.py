"""The whole configuration as one frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from eccache.app.config import rules
from eccache.app.config.setting import (
    directory,
    flag,
    passed_through,
    seconds,
    setting,
    size,
    threads,
)
from eccache.domain.errors import ConfigError

GIB = 1 << 30


@attrs.frozen(kw_only=True)
class CacheConfig:
    """Everything that can be configured. Immutable, hashable, picklable.

    Sizes are GiB, times are seconds. `docs/configuration.md` is the table of all fields.

    Raises:
        ConfigError: a value can't be used, or neither `local_disk` nor `local_cpu` is on; says which
            one, why, and what to write instead.
    """

    enabled: bool = flag(
        "False switches the cache off: nothing is stored, every get misses.", default=True
    )

    local_cpu: bool = flag(
        "Whether host memory may hold entries; they live there where `local_disk` is not set.",
        default=True,
    )
    max_local_cpu_size: float = size(
        "Host memory for entries without `local_disk`, and for promised copies.", default=1.0
    )
    local_disk: str | None = directory(
        "Directory of the entries, a path or a `file://` URL; none: they live in host memory only."
    )
    max_local_disk_size: float = size(
        "Physical bytes that the entries may occupy on disk.", default=64.0
    )
    min_free_space_ratio: float = setting(
        "Share of the file system that is left free, whatever `max_local_disk_size` says.",
        rules.number(at_least=0, below=1),
        default=0.05,
        unit="ratio",
    )
    durability: Literal["process", "power"] = setting(
        "What a stored entry survives: the end of the process, or (`power`) a power cut too.",
        rules.one_of("process", "power"),
        default="process",
    )
    shared_group: bool = flag(
        "Files 0660 and directories 2770, for users who share a group; else 0600 and 0700.",
        default=False,
    )

    write_queue_size: float = size(
        "Bytes of accepted puts that are not stored yet; beyond it `put` returns False.",
        default=1.0,
    )
    writer_threads: int = threads("Threads that store entries in the background.", default=2)
    lookup_threads: int = threads(
        "Threads that fetch and verify entries for the scheduler.", default=4
    )
    store_timeout_seconds: float = seconds(
        "Time for one get or put of a store; afterwards it is a counted timeout and a miss.",
        default=10.0,
    )
    probe_timeout_seconds: float = seconds(
        "Time that the scheduler waits for the answer whether an entry exists.", default=0.05
    )
    close_timeout_seconds: float = seconds(
        "Time that `close` waits for accepted puts and for threads.", default=30.0
    )

    lookup_timeout_seconds: float = seconds(
        "Time for which a request may be deferred while its entries are fetched.", default=5.0
    )
    max_deferred_requests: int | None = setting(
        "Requests that may be deferred at a time; none: as many as the scheduler runs at once.",
        rules.number(at_least=0, whole=True),
        default=None,
        optional=True,
    )
    max_promised_size: float | None = size(
        "Host memory for promised copies; none: as much as `max_local_cpu_size`.", default=None
    )
    promise_ttl_seconds: float = seconds(
        "Age at which a promised copy that nobody loads is given up.", default=60.0
    )
    load_ack_timeout_seconds: float = seconds(
        "Time after which a copy handed to the workers is closed though not every rank has loaded it; "
        "longer than any step takes, since a rank that comes later ends the engine.",
        default=600.0,
    )

    trust_client_ids: bool | str = setting(
        "Whether ids chosen by clients may be stored: false, true, or a pattern of those that may.",
        rules.client_id_trust,
        default=False,
    )
    bind_content: bool = flag(
        "Whether entries are bound to a digest of pixels, frames or samples, where those are at hand.",
        default=True,
    )
    isolate_salted: bool = flag(
        "Whether requests with a cache salt share with their own salt; else they are bypassed.",
        default=False,
    )
    epoch: str = setting(
        "Any text; entries stored under another one are not served.", rules.text, default=""
    )
    fixed_weights: bool = flag(
        "Your word that nothing replaces the weights of a running server, whatever it looks like.",
        default=False,
    )
    ignore_vllm_version: bool = flag(
        "Whether servers of different vLLM versions may share entries.", default=False
    )
    ignore_encoder_split: bool = flag(
        "Whether servers that split the encoder over different numbers of ranks may share entries.",
        default=False,
    )

    tier_open_timeout_seconds: float = seconds(
        "Time that a start waits for a store to open; afterwards a remote tier opens in the background, "
        "and a local store whose file system hangs is left out.",
        default=60.0,
    )
    lmcache_pool_size: float = size(
        "Host memory for bytes on their way to and from LMCache, in each process, touched at once.",
        default=0.5,
    )
    lmcache: Mapping[str, Any] = passed_through(
        "LMCache's own keys (`remote_url`, NIXL, ...); they build the LMCache tier."
    )

    def __attrs_post_init__(self) -> None:
        if self.local_disk is None and not self.local_cpu:
            msg = "neither local_disk nor local_cpu is on, so there is no place for entries."
            raise ConfigError(
                msg,
                remedy="set local_disk to a directory, or local_cpu to true; to switch the cache "
                "off, set enabled to false.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy can't be pickled; the constructor makes it anew.
        values = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        return _rebuilt, (values | {"lmcache": dict(self.lmcache)},)

    @property
    def max_local_cpu_nbytes(self) -> int:
        """`max_local_cpu_size` in bytes."""
        return int(self.max_local_cpu_size * GIB)

    @property
    def max_local_disk_nbytes(self) -> int:
        """`max_local_disk_size` in bytes."""
        return int(self.max_local_disk_size * GIB)

    @property
    def max_promised_nbytes(self) -> int:
        """`max_promised_size` in bytes, or what it falls back to."""
        return int((self.max_promised_size or self.max_local_cpu_size) * GIB)

    @property
    def write_queue_nbytes(self) -> int:
        """`write_queue_size` in bytes."""
        return int(self.write_queue_size * GIB)


def _rebuilt(values: dict[str, Any]) -> CacheConfig:
    return CacheConfig(**values)
