"""Is there host memory for promised copies, and for entries where no disk is configured?"""

from __future__ import annotations

from collections.abc import Iterator

from eccache.app.amounts import shown_bytes
from eccache.app.config import CacheConfig
from eccache.app.config.cache_config import GIB
from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.space import SIZES, SMALL_NBYTES, existing_part
from eccache.app.doctor.subject import Subject

CHECK = "memory"
_USABLE = 0.9
"""Of what is free; others use it too."""
_CONTAINER = (
    "in Docker --shm-size=2g; in Kubernetes an emptyDir with medium: Memory mounted at /dev/shm"
)


def check_memory(subject: Subject) -> Iterator[Finding]:
    """Report shared memory that is smaller than the cap, and promised copies above what is available."""
    config = subject.config
    if config is None:
        return
    if config.local_disk is None and subject.root is not None:
        yield from _check_shared_memory(subject, subject.root, config.max_local_cpu_nbytes)
    yield from _small_limits(config)
    available_nbytes = subject.machine.available_memory_nbytes
    promised_nbytes = config.max_promised_nbytes
    if available_nbytes is None or promised_nbytes < SMALL_NBYTES:
        return
    if promised_nbytes > available_nbytes:
        yield warning(
            CHECK,
            f"promised copies may take {shown_bytes(promised_nbytes)}",
            f"only {shown_bytes(available_nbytes)} of memory are available to this container; what exceeds a "
            "container's memory ends it.",
            "raise the container's memory limit, or lower max_promised_size.",
        )
    else:
        yield ok(
            CHECK,
            f"{shown_bytes(available_nbytes)} available; promised copies take at most "
            f"{shown_bytes(promised_nbytes)}",
        )


def _small_limits(config: CacheConfig) -> Iterator[Finding]:
    """Report memory that is smaller than an encoder output may be: such outputs never pass through it."""
    promised = "max_promised_size"
    if config.max_promised_size is None:
        promised += " or max_local_cpu_size, which it follows"
    limits = [
        (config.write_queue_nbytes, "puts under way", "stored", "write_queue_size"),
        (config.max_promised_nbytes, "promised copies", "served to vLLM", promised),
    ]
    if config.lmcache.get("remote_url"):
        pool_nbytes = int(config.lmcache_pool_size * GIB)
        limits.append((pool_nbytes, "LMCache's pool", "stored remotely", "lmcache_pool_size"))
    if config.local_disk is None:
        cap_nbytes = config.max_local_cpu_nbytes
        limits.append((cap_nbytes, "entries in memory", "stored", "max_local_cpu_size"))
    for nbytes, what, done, name in limits:
        if nbytes < SMALL_NBYTES:
            yield warning(
                CHECK,
                f"only {shown_bytes(nbytes)} for {what}",
                f"{SIZES}: larger ones are never {done}.",
                f"raise {name}; it is in GiB.",
            )


def _check_shared_memory(subject: Subject, root: str, cap_nbytes: int) -> Iterator[Finding]:
    place = existing_part(root)
    mount = subject.machine.mount_of(place)
    if mount is not None and mount.kind != "tmpfs":
        yield warning(
            CHECK,
            f"{place} is no tmpfs but {mount.kind}",
            "no local_disk is set, so entries are meant to be in memory.",
            "mount a tmpfs there, or set local_disk to a directory.",
        )
    try:
        space = subject.machine.space(place)
    except OSError as failed:
        yield error(
            CHECK,
            f"the room on {place} can't be told",
            f"the system says: {failed.strerror}.",
            "mount a tmpfs there, or set local_disk to a directory.",
        )
        return
    usable_nbytes = int(space.free_nbytes * _USABLE) + subject.stored_nbytes
    if usable_nbytes < cap_nbytes:
        yield warning(
            CHECK,
            f"shared memory holds {shown_bytes(usable_nbytes)} of the {shown_bytes(cap_nbytes)} wanted",
            f"no local_disk is set, and {place} has {shown_bytes(space.free_nbytes)} free.",
            f"enlarge it ({_CONTAINER}), lower max_local_cpu_size, or set local_disk to a directory.",
        )
    else:
        yield ok(
            CHECK,
            f"{shown_bytes(usable_nbytes)} of shared memory for a cap of {shown_bytes(cap_nbytes)}; "
            "entries end with the host",
        )
