"""What an operator should hear, and how often: once for each store."""

from __future__ import annotations

from eccache.ports.telemetry import Level, Telemetry


class Notices:
    """Says each thing once. Any thread may call it.

    Args:
        telemetry: where events go.
        root: named in each event.
    """

    def __init__(self, telemetry: Telemetry, root: str) -> None:
        self._telemetry = telemetry
        self._root = root
        self._said: set[str] = set()

    def once(self, event: str, **fields: object) -> None:
        """Report *event* as a warning, unless this store has done so."""
        if event not in self._said:
            self._said.add(event)
            self.warn(event, **fields)

    def warn(self, event: str, **fields: object) -> None:
        """Report *event* as a warning; the telemetry holds back repetitions."""
        self._telemetry.event(Level.WARNING, event, root=self._root, **fields)
