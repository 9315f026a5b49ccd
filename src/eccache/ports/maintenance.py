"""Maintenance port: what an operator asks of a store that servers are using meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs


class Progress(Protocol):
    """Is told how far a long operation has come. Never raises."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of *done* of *total*, in the operation's own unit; both may grow."""
        ...


@attrs.frozen
class Amount:
    """How many of something, and what they occupy.

    Attributes:
        count: how many.
        nbytes: physical bytes.
    """

    count: int = 0
    nbytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        """Return both together."""
        return Amount(self.count + other.count, self.nbytes + other.nbytes)


@attrs.frozen(kw_only=True)
class NamespaceSummary:
    """The entries of one namespace.

    Attributes:
        fingerprint: 16 hex digits.
        ingredients: what it was made of; empty where nobody wrote that down.
        entries: how many there are.
        last_used_seconds: Unix time of the latest use; None where there is no entry.
        models: those that the entries' names say, in order; only where no ingredient names the model.
    """

    fingerprint: str
    ingredients: Mapping[str, str]
    entries: Amount
    last_used_seconds: float | None
    models: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class StoreSummary:
    """What a store holds.

    Attributes:
        root: where it is.
        namespaces: those of this format version.
        unfinished: writes under way, and what killed processes left.
        quarantined: damaged entries that are kept for inspection.
        other_formats: what directories of other format versions occupy, by version.
        free_nbytes: what may still be written on its file system.
        total_nbytes: what its file system holds in all.
    """

    root: str
    namespaces: tuple[NamespaceSummary, ...]
    unfinished: Amount
    quarantined: Amount
    other_formats: Mapping[int, Amount]
    free_nbytes: int
    total_nbytes: int

    @property
    def entries(self) -> Amount:
        """All entries of this format version."""
        return sum((namespace.entries for namespace in self.namespaces), Amount())


@attrs.frozen(kw_only=True)
class StoredEntry:
    """One entry: what its place says of it, and once it is described, what its header says.

    The header is parsed, the payload not verified.

    Attributes:
        namespace: fingerprint, from the place where it is.
        name: `file_name` of its key without the suffix.
        path: of its file.
        nbytes: physical bytes.
        last_used_seconds: Unix time, as coarse as the store keeps it.
        model: name or path, from the name.
        dtype: torch's name of the element type; empty until described.
        shape: of the tensor; empty until described.
        mm_hash: the first characters of the input's id; empty until described.
        created_seconds: Unix time at which it was made; None where it does not say.
        fault: why the header can't be read; empty where it can.
    """

    namespace: str
    name: str
    path: str
    nbytes: int
    last_used_seconds: float
    model: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    mm_hash: str = ""
    created_seconds: float | None = None
    fault: str = ""


@attrs.frozen
class Subset:
    """One of several parts that a store is divided into, which together are all of it.

    Attributes:
        number: which, from 1.
        parts: of how many.
    """

    number: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    parts: int = attrs.field(default=1, validator=attrs.validators.ge(1))

    def __attrs_post_init__(self) -> None:
        if self.number > self.parts:
            msg = f"there is no part {self.number} of {self.parts}"
            raise ValueError(msg)

    def has(self, index: int) -> bool:
        """Return whether the shard of this index belongs to the part."""
        return index % self.parts == self.number - 1


@attrs.frozen
class Problem:
    """An entry that did not pass verification.

    Attributes:
        path: of its file.
        fault: what is wrong with it.
        repaired: it is in quarantine now, or removed if it was too large for that.
    """

    path: str
    fault: str
    repaired: bool = False


@attrs.frozen
class VerifyReport:
    """What a verification came to.

    Attributes:
        verified: entries that were read as a whole, the damaged ones included.
        problems: those that did not pass.
    """

    verified: Amount
    problems: tuple[Problem, ...]


@attrs.frozen(kw_only=True)
class CollectReport:
    """What a collection removed.

    Attributes:
        unfinished: files that killed processes left.
        quarantined: damaged entries above the bounds of quarantine.
        evicted: entries above the cap.
        directories: empty ones.
    """

    unfinished: Amount
    quarantined: Amount
    evicted: Amount
    directories: int


@attrs.frozen(kw_only=True)
class Selection:
    """Which entries to purge: those that meet all that is given. An empty selection is everything.

    Attributes:
        namespaces: fingerprints; None: every namespace.
        unused_since_seconds: last used before this Unix time; None: whenever.
        format_version: of this version only; None: of every version.
    """

    namespaces: frozenset[str] | None = None
    unused_since_seconds: float | None = None
    format_version: int | None = None


class StoreMaintenance(Protocol):
    """What an operator asks of one root. One thread at a time.

    Safe beside any number of servers and other operators: what they publish, read, evict or remove
    meanwhile is at the worst left out. A file that can't be looked at is left alone.
    """

    def summary(self) -> StoreSummary:
        """Return what the store holds, from a scan of its directories.

        Raises:
            StoreFault: it can't be looked at.
        """
        ...

    def entries(self) -> Iterator[StoredEntry]:
        """Yield every entry, in no order; reads none.

        Raises:
            StoreFault: the store can't be looked at.
        """
        ...

    def described(self, entry: StoredEntry) -> StoredEntry:
        """Return *entry* with what its header says; reads one block. Never raises."""
        ...

    def verify(self, subset: Subset, *, repair: bool, progress: Progress) -> VerifyReport:
        """Read every entry of *subset* and check its digest and its identity. Touches no recency.

        Args:
            subset: part of the store.
            repair: take what is damaged out of sight. An entry that can't be read stays.
            progress: is told physical bytes.

        Raises:
            StoreFault: the store can't be looked at.
            ConfigError: to be repaired, and not this user's.
        """
        ...

    def collect(self, *, progress: Progress) -> CollectReport:
        """Remove what killed processes left, count anew, and keep the bounds.

        Raises:
            StoreFault: the store can't be looked at.
            ConfigError: it is not this user's.
        """
        ...

    def select(self, selection: Selection) -> Amount:
        """Return what `purge` would remove.

        Raises:
            StoreFault: the store can't be looked at.
        """
        ...

    def purge(self, selection: Selection, *, progress: Progress) -> Amount:
        """Remove the entries of *selection*, and return what that was.

        Args:
            selection: which.
            progress: is told shards.

        Raises:
            StoreFault: the store can't be looked at.
            ConfigError: it is not this user's.
        """
        ...
