"""Promised copies and the budget that bounds them."""

from __future__ import annotations

import threading

from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.lookup import Content, Item
from eccache.ports.shared_copy import SharedCopy
from eccache.ports.telemetry import Telemetry

_EMBEDS_RANK = 2


class CopyBudget:
    """Bounds bytes and number of the copies that exist. Any thread may call it.

    Args:
        max_nbytes: bytes of all copies together.
        max_copies: number of copies.
        telemetry: is told `promised_bytes` whenever that changes.
    """

    def __init__(self, max_nbytes: int, max_copies: int, telemetry: Telemetry) -> None:
        self._max_nbytes = max_nbytes
        self._max_copies = max_copies
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._nbytes = 0
        self._copies = 0

    @property
    def nbytes(self) -> int:
        """Bytes charged now."""
        return self._nbytes

    @property
    def copies(self) -> int:
        """Copies charged now."""
        return self._copies

    def reserve(self, nbytes: int) -> bool:
        """Charge one copy of *nbytes*; False if there is no room for it now."""
        with self._lock:
            if not self._has_room(nbytes):
                return False
            self._nbytes += nbytes
            self._copies += 1
            self._telemetry.observe("promised_bytes", self._nbytes)
            return True

    def release(self, nbytes: int) -> None:
        """Give back what one `reserve` charged, once the memory itself is given back."""
        with self._lock:
            self._nbytes -= nbytes
            self._copies -= 1
            self._telemetry.observe("promised_bytes", self._nbytes)

    def has_room(self, nbytes: int) -> bool:
        """Return whether one more copy of *nbytes* has room now: advisory, another thread may take it."""
        with self._lock:
            return self._has_room(nbytes)

    def could_hold(self, nbytes: int, copies: int) -> bool:
        """Return whether *copies* of *nbytes* together had room, if there were no others."""
        return nbytes <= self._max_nbytes and copies <= self._max_copies

    def _has_room(self, nbytes: int) -> bool:
        return self._nbytes + nbytes <= self._max_nbytes and self._copies < self._max_copies


class PromisedCopy:
    """A sealed, verified copy of an entry, charged to a budget until it is closed.

    Args:
        copy: owned from now on.
        budget: was charged with its bytes.
        spec: of the tensor in it.
        content: what it was made of, as its entry says.

    Attributes:
        users: the promises and loads that rest on it; counted by the ledger, on its one thread.
    """

    def __init__(
        self,
        copy: SharedCopy,
        budget: CopyBudget,
        spec: TensorSpec,
        content: str | None = None,
    ) -> None:
        self._copy = copy
        self._budget = budget
        self._spec = spec
        self._content = content
        self._open = threading.Lock()
        self.users = 0

    @property
    def nbytes(self) -> int:
        """Length of the whole frame in bytes."""
        return self._copy.nbytes

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._copy.pid

    @property
    def fd(self) -> int:
        """Its descriptor in that process."""
        return self._copy.fd

    @property
    def rows(self) -> int | None:
        """Rows of the encoder output in it; None where the tensor is no `[rows, width]`."""
        shape = self._spec.shape
        return shape[0] if len(shape) == _EMBEDS_RANK else None

    def serves(self, item: Item) -> bool:
        """Return whether it is what *item* needs: of the right shape, element type and content."""
        return (
            self.rows == item.num_embeds
            and item.width in (None, self._spec.shape[-1])
            and item.dtype in (None, self._spec.dtype)
            and self._is_of(item.content)
        )

    def _is_of(self, content: Content | None) -> bool:
        if content is None:
            return True
        return self._content is not None and self._content == content.digest()

    def close(self) -> None:
        """Give memory and budget back. Idempotent; takes milliseconds, so not on the scheduler's thread."""
        if self._open.acquire(blocking=False):
            nbytes = self._copy.nbytes
            self._copy.close()
            self._budget.release(nbytes)
