"""What the promise ledger remembers of an input and of a request."""

from __future__ import annotations

import math

import attrs

from eccache.app.promises.lookup_job import LookupJob
from eccache.domain.promise import PromiseState
from eccache.ports.lookup import Item


@attrs.define(eq=False)
class Promise:
    """One input that at least one request waits for or holds.

    Attributes:
        mm_hash: the input's id.
        state: PENDING or READY for as long as the ledger finds it under its id.
        claims: while PENDING the requests that wait, while READY those that hold the copy.
        job: the look-up under way; None while there is none, e.g. between two polls.
        retry_at: monotonic seconds before which an entry on its way is not looked for again.
        wants_nbytes: size of the copy that there was no room for; 0 if that is not what it waits for.
        gives_up_at: monotonic seconds at which a READY promise is too old.
    """

    mm_hash: str
    state: PromiseState = PromiseState.PENDING
    claims: dict[str, Item] = attrs.field(factory=dict)
    job: LookupJob | None = None
    retry_at: float = 0.0
    wants_nbytes: int = 0
    gives_up_at: float = math.inf


@attrs.define(eq=False)
class Request:
    """A live request.

    Attributes:
        request_id: the framework's id of it.
        settled: it was answered True, so the next call starts a new round.
        deadline: monotonic seconds after which it waits no longer; infinite before it has to wait.
        missed: inputs that are not looked up again in this round.
        absent: those of them that were looked for, and are not to be had.
        claims: inputs whose promise it waits for or holds.
    """

    request_id: str
    settled: bool = False
    deadline: float = math.inf
    missed: set[str] = attrs.field(factory=set)
    absent: set[str] = attrs.field(factory=set)
    claims: set[str] = attrs.field(factory=set)

    def new_round(self) -> None:
        """Forget what was missed; wait, if need be, for a whole deadline again."""
        self.settled = False
        self.deadline = math.inf
        self.missed.clear()
        self.absent.clear()
