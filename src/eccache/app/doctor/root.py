"""May the directory of the entries be used by this user, and by nobody else?"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.space import existing_part, kernels_own
from eccache.app.doctor.subject import Subject
from eccache.domain.namespace import FORMAT_VERSION

CHECK = "root"
_OWN_DIRECTORY: Final = re.compile(r"v[0-9]+")
"""What a store makes in its root, by the version of its format."""


def check_root(subject: Subject) -> Iterator[Finding]:
    """Report a root that is missing, is no directory, is another user's, or that others can write to."""
    if subject.root is None or subject.config is None:
        return
    path = Path(subject.root)
    misplaced = _misplaced(subject, path)
    if misplaced is not None:
        yield misplaced
        return
    try:
        status = path.stat()
    except FileNotFoundError:
        yield from _missing(subject, path)
        return
    except NotADirectoryError:
        yield error(
            CHECK,
            f"{path} can't be made",
            f"{existing_part(subject.root)}, above it, is a file.",
            "set local_disk to a directory, or to a place where one can be made.",
        )
        return
    except OSError as failed:
        yield error(
            CHECK,
            f"{path} can't be looked at",
            f"the system says: {failed.strerror}.",
            "give this user permission to enter every directory above it, or name another one.",
        )
        return
    if not stat.S_ISDIR(status.st_mode):
        yield error(
            CHECK,
            f"{path} is no directory",
            "something else has that name.",
            "remove it, or set local_disk to a directory.",
        )
        return
    yield from _permissions(subject, path, status)


def _misplaced(subject: Subject, path: Path) -> Finding | None:
    """Return what is wrong with the root's place, whatever is there."""
    kernels = kernels_own(subject)
    if kernels is not None:
        return error(
            CHECK,
            f"{path} is no place for files",
            f"{kernels.point} is a {kernels.kind} file system, which shows the kernel and keeps nothing.",
            "set local_disk to a directory on a disk.",
        )
    around = store_around(subject)
    if around is not None:
        return error(
            CHECK,
            f"{path} is inside a store",
            f"{around} is the store's root, and its entries are not found from here; another one would be "
            "made within.",
            f"set local_disk to {around}.",
        )
    return None


def is_switched_off(subject: Subject) -> bool:
    """Return whether a file stands where the store's own directory would."""
    # What can't be looked at is said elsewhere, and `Path` would raise.
    return subject.root is not None and os.path.isfile(f"{subject.root}/v{FORMAT_VERSION}")  # noqa: PTH113


def store_around(subject: Subject) -> Path | None:
    """Return the root of the store whose own directories the root is among; None if it is in none."""
    if subject.root is None:
        return None
    path = Path(subject.root)
    for place in (path, *path.parents):
        if _OWN_DIRECTORY.fullmatch(place.name) and (
            os.path.isfile(place / "usage") or os.path.isdir(place / "unfinished")  # noqa: PTH112, PTH113
        ):
            return place.parent
    return None


def _missing(subject: Subject, path: Path) -> Iterator[Finding]:
    if path.is_symlink():
        yield error(
            CHECK,
            f"{path} is a link that leads nowhere",
            f"{path.readlink()} is not there: nothing can be stored or read.",
            "mount what holds it, or make that directory.",
        )
        return
    above = existing_part(str(path))
    if subject.machine.is_read_only(above):
        yield error(
            CHECK,
            f"{path} is not there and can't be made",
            f"{above} is on a file system that is mounted read only.",
            f"mount it writable, mount a writable volume at {path}, or set local_disk to a directory "
            "on another file system.",
        )
        return
    if os.access(above, os.W_OK | os.X_OK):
        yield ok(CHECK, f"{path} is not there yet; the first server makes it")
        return
    yield error(
        CHECK,
        f"{path} is not there and can't be made",
        f"this user may not write to {above}.",
        f"make it beforehand and give it to this user: install -d -m 0700 -o {os.geteuid()} {path}",
    )


def _permissions(subject: Subject, path: Path, status: os.stat_result) -> Iterator[Finding]:
    assert subject.config is not None  # noqa: S101 - check_root looked
    shared = subject.config.shared_group
    if status.st_uid != subject.machine.user and not shared:
        yield error(
            CHECK,
            f"{path} belongs to another user",
            f"its owner is uid {status.st_uid}, this process is uid {subject.machine.user}; what another "
            "user wrote is not served.",
            f"chown -R {subject.machine.user} {path}, run as uid {status.st_uid}, or set shared_group where "
            "several users are meant to share it through a group.",
        )
        return
    if is_switched_off(subject):
        yield error(
            CHECK,
            f"{path} is switched off",
            f"v{FORMAT_VERSION} is a file there, which is how an operator switches the cache off for all "
            "servers at once; one that starts now is refused.",
            f"rm {path}/v{FORMAT_VERSION}, and move back what stood in its place.",
        )
        return
    if status.st_mode & stat.S_IWOTH:
        yield warning(
            CHECK,
            f"everybody can write to {path}",
            "whoever can write there can change what is served: digests guard against faults, not "
            "against attackers.",
            f"chmod o-w {path}",
        )
    if not os.access(path, os.R_OK | os.X_OK):
        yield error(
            CHECK,
            f"{path} can't be read",
            f"its mode is {stat.S_IMODE(status.st_mode):04o}.",
            f"chmod u+rwx {path}",
        )
    elif subject.machine.is_read_only(str(path)):
        yield ok(CHECK, f"{path} can be read")  # the check of the file system says the rest
    elif not os.access(path, os.W_OK):
        yield warning(
            CHECK,
            f"{path} can't be written to",
            "entries that are there are served; nothing is stored, nothing evicted.",
            "nothing, where it is meant to be read only; else give this user write permission.",
        )
    else:
        yield ok(CHECK, f"{path} is this user's, mode {stat.S_IMODE(status.st_mode):04o}")
