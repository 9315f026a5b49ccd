"""What passes between the promise ledger, which decides, and the threads that look entries up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

import attrs

from eccache.app.promises.promised_copy import PromisedCopy
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import LookupOutcome
from eccache.ports.lookup import Content


@attrs.define(eq=False)
class LookupJob:
    """One look-up.

    Attributes:
        mm_hash: the input's id.
        ref: its entry.
        deadline: monotonic seconds after which its thread is taken to hang.
        started: monotonic seconds when it was asked for.
        content: what the entry must have been made of; None: the id is all that is known.
        abandoned: nobody wants the answer any more. Set by `Lookups.abandon` alone.
    """

    mm_hash: str
    ref: EntryRef
    deadline: float
    started: float
    content: Content | None = None
    abandoned: bool = False


@attrs.frozen
class NoRoom:
    """The entry is there, but the budget has no room for a copy of it now.

    Attributes:
        nbytes: size of the copy.
    """

    nbytes: int


Finding: TypeAlias = PromisedCopy | NoRoom | LookupOutcome
"""What a look-up came to: a copy, no room for one, or any outcome but `HIT`."""


class Lookups(Protocol):
    """Carries look-ups out. Called from the ledger's thread; nothing here waits or raises."""

    def start(self, job: LookupJob) -> bool:
        """Take *job* on, to begin it at `begin` at the latest; False if it can't be, now."""
        ...

    def begin(self) -> None:
        """Begin what was taken on."""
        ...

    def findings(self) -> Iterable[tuple[LookupJob, Finding]]:
        """Return what was found since the last call, each job once, none that is abandoned."""
        ...

    def abandon(self, job: LookupJob) -> None:
        """Want *job* no more, wherever it stands: a copy that it made or will make is closed."""
        ...

    def dispose(self, copy: PromisedCopy) -> None:
        """Close *copy*, which no promise and no load needs any more."""
        ...

    def close(self) -> None:
        """End what can be ended; a copy that is made later is closed by its thread. Idempotent."""
        ...
