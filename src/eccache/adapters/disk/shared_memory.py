"""The store without a disk: the same store on tmpfs, shared by the processes of one user.

Its size is what was asked for or what is really there, whichever is less: containers often give 64 MiB of
shared memory, and a tmpfs larger than the container's memory ends the container, not the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from eccache.adapters.disk.layout import parent
from eccache.adapters.disk.policy import DiskPolicy
from eccache.adapters.disk.store import DiskStore
from eccache.domain.namespace import Namespace
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations
from eccache.ports.telemetry import Level, Telemetry

_USABLE: Final = 0.9
"""Of what is free: others use it too."""


def open_shared_memory_store(
    roots: Sequence[str],
    *,
    policy: DiskPolicy,
    files: FileOperations,
    clock: Clock,
    telemetry: Telemetry,
    available_nbytes: int | None,
    namespace: Namespace | None = None,
) -> DiskStore:
    """Open this user's store in shared memory.

    Where there is less room than the policy's capacity, the capacity is what there is, and a warning says
    what to change.

    Args:
        roots: folders of this user's own, made if missing; taken is the first whose parent folder is
            there. Any but the first is warned of.
        policy: the wanted capacity, and the rest.
        files: file operations.
        clock: for times of last use.
        telemetry: takes warnings.
        available_nbytes: memory that this process may still use; None: unknown.
        namespace: described in words beside its entries.

    Raises:
        ConfigError: the folder belongs to someone else, or can't be made.
    """
    root = next((root for root in roots if files.exists(parent(root))), roots[-1])
    folder = parent(root)
    if root != roots[0]:
        telemetry.event(
            Level.WARNING,
            "store.shared_memory.missing",
            used=root,
            remedy=f"make {parent(roots[0])} a tmpfs, or set local_disk to a directory",
        )

    def opened(capacity_nbytes: int) -> DiskStore:
        return DiskStore(
            root,
            policy=attrs.evolve(policy, capacity_nbytes=capacity_nbytes, follow_root_link=False),
            files=files,
            clock=clock,
            telemetry=telemetry,
            namespace=namespace,
        )

    store = opened(policy.capacity_nbytes)
    room_nbytes = store.stats().nbytes + int(
        _free_nbytes(folder, files, available_nbytes) * _USABLE
    )
    if room_nbytes >= policy.capacity_nbytes:
        return store
    telemetry.event(
        Level.WARNING,
        "store.shared_memory.small",
        wanted_nbytes=policy.capacity_nbytes,
        used_nbytes=room_nbytes,
        remedy=f"enlarge {folder} (docker run --shm-size=2g; in Kubernetes an emptyDir with medium "
        "Memory mounted there), give the container more memory, lower max_local_cpu_size, or set "
        "local_disk to a directory",
    )
    return opened(room_nbytes)


def _free_nbytes(folder: str, files: FileOperations, available_nbytes: int | None) -> int:
    try:
        free_nbytes = files.space(folder).free_nbytes
    except OSError:
        return 0
    return free_nbytes if available_nbytes is None else min(free_nbytes, available_nbytes)
