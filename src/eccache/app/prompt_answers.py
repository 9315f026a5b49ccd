"""What can be told on the caller's own thread, because nobody has to be waited for."""

from __future__ import annotations

from typing import Protocol

import attrs

from eccache.app.verified_read import Reading, verified
from eccache.domain.entry_format import FrameError
from eccache.domain.entry_ref import EntryRef


class PromptStore(Protocol):
    """A store on this machine's own memory and disks. Neither method raises or waits for a medium."""

    def contains(self, ref: EntryRef) -> bool:
        """Return whether something is stored under *ref*'s name."""
        ...

    def cached_frame(self, ref: EntryRef) -> memoryview | None:
        """Return the bytes under *ref*'s name if they are few and in memory; None: ask properly."""
        ...


@attrs.frozen
class PromptAnswers:
    """What the local store can tell at once, where there is one that can. Any thread may ask.

    Attributes:
        local: that store; None: nothing is told.
        alone: what it doesn't have is nowhere.
    """

    local: PromptStore | None = None
    alone: bool = True

    def contains(self, ref: EntryRef) -> bool | None:
        """Return whether something is stored under *ref*'s name; None if that can't be told now."""
        if self.local is None:
            return None
        return self.local.contains(ref) or (False if self.alone else None)

    def read(self, ref: EntryRef) -> Reading | None:
        """Return a verified hit; None if *ref* is to be read properly.

        So it is where the entry is absent, or damaged: what that is, and what follows, is told there.
        """
        frame = None if self.local is None else self.local.cached_frame(ref)
        if frame is None:
            return None
        try:
            return verified(frame, ref)
        except FrameError:
            return None
