"""What an operator asks of a root: the disk store's side of `ports.maintenance`."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

import attrs

from eccache.adapters.disk.faults import store_fault
from eccache.adapters.disk.layout import SHARDS, physical_nbytes, scan_if_there
from eccache.adapters.disk.namespace_file import described_namespaces
from eccache.adapters.disk.parts import DiskParts
from eccache.adapters.disk.switch import is_switched_off, switched_off_cause, switched_off_remedy
from eccache.adapters.disk.upkeep.listing import described_entry, listed_entry, model_of
from eccache.adapters.disk.upkeep.verification import EntryReader, GoneError
from eccache.adapters.disk.upkeep.walk import (
    EntryFile,
    Shard,
    entry_shards,
    format_versions,
    other_formats,
    remove_empty_directories,
    remove_tree,
    tree_amount,
)
from eccache.domain.entry_format import FrameError
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import FORMAT_VERSION
from eccache.ports.maintenance import (
    Amount,
    CollectReport,
    NamespaceSummary,
    Problem,
    Progress,
    Selection,
    StoredEntry,
    StoreSummary,
    Subset,
    VerifyReport,
)

_NO_STORE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class DiskMaintenance:
    """Implements `ports.maintenance.StoreMaintenance` on one root. Makes none that is not there.

    Args:
        parts: of the root.
        keeps_cap: whether `collect` evicts what is above the policy's capacity. Not where the capacity is
            a default that no server may have.

    Raises:
        ConfigError: there is no store at the root, or it is switched off.
    """

    def __init__(self, parts: DiskParts, *, keeps_cap: bool) -> None:
        self._parts = parts
        self._files = parts.files
        self._layout = parts.layout
        self._keeps_cap = keeps_cap
        root = self._layout.root
        if is_switched_off(self._files, self._layout):
            raise ConfigError(
                f"{switched_off_cause(self._layout)}.",
                remedy=f"{switched_off_remedy(self._layout)}.",
            )
        try:
            versions = format_versions(self._files, root)
        except OSError as error:
            if error.errno in _NO_STORE:
                why = "nothing is there" if error.errno == errno.ENOENT else "it is no directory"
                raise _no_store(root, why) from error
            raise store_fault("open", error) from error
        if not versions:
            raise _no_store(root, "there is no directory v1 in it")

    def summary(self) -> StoreSummary:
        """Return what the store holds, from a scan of its directories."""
        root = self._layout.root
        try:
            described = described_namespaces(self._files, self._layout)
            amounts = {namespace.fingerprint: Amount() for namespace in described}
            latest: dict[str, float] = {}
            models: dict[str, set[str]] = {
                namespace.fingerprint: set()
                for namespace in described
                if not namespace.ingredients.get("model")
            }
            for shard in entry_shards(self._files, self._layout):
                name = shard.namespace
                amounts[name] = amounts.get(name, Amount()) + shard.amount()
                used = max((status.st_mtime for _, status in shard.found), default=0.0)
                latest[name] = max(latest.get(name, 0.0), used)
                if name in models:
                    models[name].update(model_of(file) for file, _ in shard.found)
            space = self._files.space(root)
            others = other_formats(self._files, root)
        except OSError as error:
            raise store_fault("scan", error) from error
        return StoreSummary(
            root=root,
            namespaces=tuple(
                NamespaceSummary(
                    fingerprint=namespace.fingerprint,
                    ingredients=namespace.ingredients,
                    entries=amounts[namespace.fingerprint],
                    last_used_seconds=latest.get(namespace.fingerprint) or None,
                    models=tuple(sorted(filter(None, models.get(namespace.fingerprint, ())))),
                )
                for namespace in described
            ),
            unfinished=self._amount_in(self._layout.temporary),
            quarantined=self._amount_in(self._layout.quarantine),
            other_formats={
                version: tree_amount(self._files, directory)
                for version, directory in others.items()
            },
            free_nbytes=space.free_nbytes,
            total_nbytes=space.total_nbytes,
        )

    def entries(self) -> Iterator[StoredEntry]:
        """Yield every entry as its directory has it, one directory at a time."""
        try:
            for shard in entry_shards(self._files, self._layout):
                yield from map(listed_entry, shard.files())
        except OSError as error:
            raise store_fault("scan", error) from error

    def described(self, entry: StoredEntry) -> StoredEntry:
        """Return *entry* with what its header says, which is its first block."""
        return described_entry(self._files, entry)

    def verify(self, subset: Subset, *, repair: bool, progress: Progress) -> VerifyReport:
        """Read every entry of *subset*, in pieces, and check its digest and its identity."""
        if repair:
            self._require_ours()
        problems: list[Problem] = []
        verified = Amount()
        total_nbytes = self._expected_nbytes(subset)
        reader = EntryReader(self._files)

        def unreadable(path: str, error: OSError) -> None:
            problems.append(Problem(path, f"can't be read: {error.strerror}"))

        try:
            for shard in entry_shards(
                self._files, self._layout, wanted=subset.has, unreadable=unreadable
            ):
                for file in shard.files():
                    try:
                        problem = self._problem(reader, file, repair=repair)
                    except GoneError:
                        continue
                    if problem is not None:
                        problems.append(problem)
                    verified += Amount(1, file.nbytes)
                    progress(verified.nbytes, max(total_nbytes, verified.nbytes))
        except OSError as error:
            raise store_fault("scan", error) from error
        return VerifyReport(verified, tuple(problems))

    def collect(self, *, progress: Progress) -> CollectReport:
        """Remove what killed processes left, count anew, and keep the bounds."""
        self._require_ours()
        try:
            unfinished = self._amount_in(self._layout.temporary)
            self._parts.temporaries.collect()
            quarantined = self._amount_in(self._layout.quarantine)
            self._parts.quarantine.keep_bounds()
            self._parts.accounting.rebuild(progress)
            evicted = self._evicted()
            directories = remove_empty_directories(self._files, self._layout)
        except OSError as error:
            raise store_fault("collect", error) from error
        return CollectReport(
            unfinished=_less(unfinished, self._amount_in(self._layout.temporary)),
            quarantined=_less(quarantined, self._amount_in(self._layout.quarantine)),
            evicted=evicted,
            directories=directories,
        )

    def select(self, selection: Selection) -> Amount:
        """Return what `purge` would remove."""
        try:
            amount = sum((shard.amount() for shard in self._selected(selection)), Amount())
            for directory in self._selected_formats(selection):
                amount += tree_amount(self._files, directory)
            if selection == Selection():
                amount += tree_amount(self._files, self._layout.quarantine)
        except OSError as error:
            raise store_fault("scan", error) from error
        return amount

    def purge(self, selection: Selection, *, progress: Progress) -> Amount:
        """Remove the entries of *selection*, shard by shard."""
        self._require_ours()
        purged = Amount()
        try:
            for shard in self._selected(selection):
                for file in shard.files():
                    with contextlib.suppress(OSError):
                        self._files.unlink(file.path)
                        purged += Amount(1, file.nbytes)
                self._parts.accounting.rescan(shard.index)
                progress(shard.index + 1, SHARDS)
            for directory in self._selected_formats(selection):
                purged += remove_tree(self._files, directory)
            if selection == Selection():
                purged += remove_tree(self._files, self._layout.quarantine)
                self._parts.temporaries.collect()
            remove_empty_directories(self._files, self._layout)
        except OSError as error:
            raise store_fault("purge", error) from error
        return purged

    def _problem(self, reader: EntryReader, file: EntryFile, *, repair: bool) -> Problem | None:
        try:
            reader.check(file)
        except OSError as error:
            return Problem(file.path, f"can't be read: {error.strerror}")
        except FrameError as damaged:
            repaired = repair and self._repaired(file)
            return Problem(file.path, str(damaged), repaired)
        return None

    def _repaired(self, file: EntryFile) -> bool:
        """Quarantine *file* unless it was replaced or removed since it was read."""
        try:
            if self._files.status(file.path).st_ino == file.status.st_ino:
                self._parts.quarantine.take(file.path)
                self._parts.accounting.rescan(file.shard)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def _evicted(self) -> Amount:
        if not self._keeps_cap:
            return Amount()
        before = self._stored()
        self._parts.admission.settle(0)
        return _less(before, self._stored())

    def _stored(self) -> Amount:
        usage = self._parts.accounting.usage()
        return Amount(sum(usage.entries), sum(usage.nbytes))

    def _selected(self, selection: Selection) -> Iterator[Shard]:
        """Yield the shards that have selected entries, with those alone."""
        if selection.format_version not in (None, FORMAT_VERSION):
            return
        since = selection.unused_since_seconds
        for shard in entry_shards(self._files, self._layout):
            if selection.namespaces is None or shard.namespace in selection.namespaces:
                found = [
                    (name, status)
                    for name, status in shard.found
                    if since is None or status.st_mtime < since
                ]
                if found:
                    yield attrs.evolve(shard, found=found)

    def _selected_formats(self, selection: Selection) -> list[str]:
        """Return the directories of other format versions that are selected; as a whole or not at all."""
        if selection.namespaces is not None or selection.unused_since_seconds is not None:
            return []
        others = other_formats(self._files, self._layout.root)
        wanted = selection.format_version
        return [path for version, path in others.items() if wanted in (None, version)]

    def _amount_in(self, directory: str) -> Amount:
        amount = Amount()
        with contextlib.suppress(OSError):
            for _, status in scan_if_there(self._files, directory):
                amount += Amount(1, physical_nbytes(status))
        return amount

    def _expected_nbytes(self, subset: Subset) -> int:
        with contextlib.suppress(OSError):
            usage = self._parts.accounting.peek()
            if usage is not None:
                return sum(nbytes for index, nbytes in enumerate(usage.nbytes) if subset.has(index))
        return 0

    def _require_ours(self) -> None:
        """Refuse to write as another user: what is made then could not be used by the servers.

        Raises:
            ConfigError: the root is another user's, or can't be looked at.
        """
        root = self._layout.root
        try:
            owner = self._files.status(f"{root}/.").st_uid
        except OSError as error:
            raise store_fault("open", error) from error
        user = self._files.user()
        if owner != user and not self._parts.policy.shared_group:
            raise ConfigError(
                f"the store {root!r} belongs to user {owner}, and this is user {user}; files that this "
                "user made there could not be used by the servers.",
                remedy=f"run the command as that user: sudo -u '#{owner}' eccache ...",
            )


def _less(before: Amount, after: Amount) -> Amount:
    """Return what went; what others added meanwhile does not make it negative."""
    return Amount(max(0, before.count - after.count), max(0, before.nbytes - after.nbytes))


def _no_store(root: str, why: str) -> ConfigError:
    return ConfigError(
        f"there is no store at {os.fsdecode(root)!r}: {why}.",
        remedy="name the directory that servers have as local_disk, with --path or in the configuration.",
    )
