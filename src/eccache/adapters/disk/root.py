"""Opening a root: is it a directory, is it ours, who else can write to it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Final

from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.layout import NOT_THERE, Layout, parent
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.policy import DiskPolicy
from eccache.adapters.disk.switch import is_switched_off, switched_off_cause, switched_off_remedy
from eccache.domain.errors import ConfigError
from eccache.ports.file_operations import FileOperations

_MISCONFIGURED: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
_PARENT_MODE: Final = 0o755


def open_root(
    layout: Layout,
    files: FileOperations,
    directories: Directories,
    policy: DiskPolicy,
    notices: Notices,
) -> None:
    """Make the root if it is missing, and refuse one that can't be trusted.

    What may pass by itself (a read-only mount, a full disk, a failing medium) is said and costs misses;
    what only an operator can mend stops the start.

    Raises:
        ConfigError: the root is no directory, can't be made, belongs to someone else, or is switched off.
    """
    try:
        _make_parents(files, parent(layout.root))
        directories.make(layout.version)
    except OSError as error:
        if error.errno in _MISCONFIGURED:
            raise ConfigError(
                f"the cache directory {layout.root!r} can't be made: {error.strerror}",
                remedy="name a directory that this user may create or write to",
            ) from error
        notices.warn("store.root.not_writable", cause=str(error.strerror))
    if is_switched_off(files, layout):
        raise ConfigError(
            switched_off_cause(layout),
            remedy=f"{switched_off_remedy(layout)}; to start without the cache, set enabled to false",
        )
    for path in (layout.root, layout.version):
        _check(path, files, policy, notices)


def _check(path: str, files: FileOperations, policy: DiskPolicy, notices: Notices) -> None:
    try:
        status = files.status(f"{path}/." if policy.follow_root_link else path)
    except OSError as error:
        if error.errno in NOT_THERE - {errno.ENOENT}:
            raise _not_a_directory(path) from error
        notices.warn("store.root.unreadable", cause=str(error.strerror))
        return
    _require_ours(path, status, files.user(), shared_group=policy.shared_group)
    if status.st_mode & stat.S_IWOTH:
        notices.warn(
            "store.root.world_writable",
            path=path,
            remedy=f"chmod o-w {path}: whoever can write there can change what is served",
        )


def _require_ours(path: str, status: os.stat_result, user: int, *, shared_group: bool) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise _not_a_directory(path)
    if status.st_uid != user and not shared_group:
        raise ConfigError(
            f"the cache directory {path!r} belongs to user {status.st_uid}, not to this one ({user})",
            remedy="name another directory, or change its owner; where several users are meant to "
            "share it through a group, set shared_group",
        )


def _not_a_directory(path: str) -> ConfigError:
    return ConfigError(
        f"the cache directory {path!r} is no directory",
        remedy="name a directory, or remove what is there",
    )


def _make_parents(files: FileOperations, path: str) -> None:
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = parent(path)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            files.make_directory(directory, _PARENT_MODE)
