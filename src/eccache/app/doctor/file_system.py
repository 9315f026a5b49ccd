"""Can the file system do what the store does, and does it keep what is stored?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.root import is_switched_off, store_around
from eccache.app.doctor.space import existing_part, kernels_own
from eccache.app.doctor.subject import Subject
from eccache.domain.errors import ECCacheError

CHECK = "file system"
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs", "glusterfs"}
)
_POPULATE: Final = (5, 14)


def check_file_system(subject: Subject) -> Iterator[Finding]:
    """Report a layer of a container, a network file system, an old kernel, a read-only mount."""
    if subject.root is None or subject.config is None:
        return
    place = existing_part(subject.root)
    mount = subject.machine.mount_of(place)
    if mount is not None and kernels_own(subject) is None:
        read_only = mount.read_only or subject.machine.is_read_only(place)
        if read_only and place == subject.root:  # of a missing one the check of the root says it
            yield warning(
                CHECK,
                f"{mount.point} is mounted read only",
                "entries that are there are served; nothing is stored, nothing evicted.",
                "nothing, if that is meant; else mount it writable.",
            )
        if mount.kind == "overlay":
            yield warning(
                CHECK,
                f"{subject.root} is in the container's own layer",
                "the entries are gone with the container, so that a new one starts cold.",
                f"mount a volume at {subject.root}.",
            )
        elif mount.kind in _NETWORK or mount.kind.startswith("fuse."):
            yield warning(
                CHECK,
                f"{subject.root} is on a network or user-space file system ({mount.kind})",
                "each look-up waits for it, up to the deadlines; locks may do nothing, and then unfinished "
                "writes of killed processes are collected only after an hour.",
                "use a disk of the host, or lower probe_timeout_seconds and store_timeout_seconds.",
            )
        elif not read_only:
            yield ok(CHECK, f"{mount.kind} at {mount.point}")
    if subject.machine.system == "Linux" and subject.machine.kernel < _POPULATE:
        yield warning(
            CHECK,
            f"kernel {'.'.join(map(str, subject.machine.kernel))} can't map safely",
            "before Linux 5.14 a mapping can't be filled with an error instead of a signal, so reads "
            "are copied.",
            "nothing, if reads that take twice as long are all right; else a newer kernel.",
        )


def check_self_test(subject: Subject) -> Iterator[Finding]:
    """Store a small entry in the root, read it back verified, and remove it."""
    if subject.self_test is None or kernels_own(subject) is not None:
        return
    if is_switched_off(subject) or store_around(subject) is not None:
        return
    try:
        subject.self_test()
    except Exception as failed:  # noqa: BLE001 - whatever it is, it is the finding
        cause, remedy = str(failed), ""
        if isinstance(failed, ECCacheError):
            cause, remedy = failed.cause, failed.remedy
        yield error(
            "self-test",
            "an entry could not be stored, read and removed",
            f"{cause}.",
            f"{remedy or 'mend what the findings above say; if none does, look at the system log'}.",
        )
    else:
        yield ok("self-test", "a small entry was stored, read back, verified and removed")
