"""What an operator decides about a store on disk."""

from __future__ import annotations

import enum

import attrs


class Durability(enum.Enum):
    """What a stored entry survives."""

    PROCESS = "process"
    """The death of any process."""
    POWER = "power"
    """That of the machine too: nothing is reported stored before it is on the medium."""


@attrs.frozen(kw_only=True)
class DiskPolicy:
    """Bounds and modes of a store. Every process that shares a root should use the same.

    Attributes:
        capacity_nbytes: physical bytes that entries, unfinished writes and quarantine may occupy; the
            length of a file counts at the least. Directories, at most 4,097 a namespace, are not counted.
        free_space_ratio: share of the file system that is left free, 0 to below 1.
        evicts: whether entries give way to a put; if not, one that finds no room fails.
        durability: what a stored entry survives.
        shared_group: files 0660 and directories 2770, for users who share a group; else 0600 and 0700,
            and a root of another user is refused.
        follow_root_link: whether the root may be a symbolic link. Not where others could make it.
        touch_seconds: the time of last use is as coarse as this.
        future_seconds: a time of last use further ahead than this is not believed.
        stale_temporary_seconds: an unfinished write that is this old has no writer any more.
        quarantine_ratio: share of the capacity that damaged entries may keep.
        quarantine_entries: number of damaged entries that are kept.
    """

    capacity_nbytes: int = attrs.field(validator=attrs.validators.ge(0))
    free_space_ratio: float = attrs.field(
        default=0.05, validator=[attrs.validators.ge(0), attrs.validators.lt(1)]
    )
    evicts: bool = True
    durability: Durability = attrs.field(default=Durability.PROCESS, converter=Durability)
    shared_group: bool = False
    follow_root_link: bool = True
    touch_seconds: float = 5.0
    future_seconds: float = 120.0
    stale_temporary_seconds: float = 3600.0
    quarantine_ratio: float = 0.01
    quarantine_entries: int = 16

    @property
    def file_mode(self) -> int:
        """Permission bits of files."""
        return 0o660 if self.shared_group else 0o600

    @property
    def directory_mode(self) -> int:
        """Permission bits of directories; set-group-id hands the shared group down."""
        return 0o2770 if self.shared_group else 0o700

    @property
    def quarantine_nbytes(self) -> int:
        """Physical bytes that damaged entries may keep."""
        return int(self.capacity_nbytes * self.quarantine_ratio)
