"""Where the loading of a configuration tells what it dropped."""

from __future__ import annotations

import logging
from typing import Protocol

_LOGGER = logging.getLogger("eccache.config")


class Report(Protocol):
    """Takes one event. Never raises."""

    def __call__(self, event: str, *, warning: bool, **fields: str) -> None:
        """Report *event*, named `component.subject.outcome`, with its values.

        Args:
            event: e.g. `"config.key.dropped"`.
            warning: an operator may want to act.
            fields: its values.
        """
        ...


def log_report(event: str, *, warning: bool, **fields: str) -> None:
    """Report to the logger `eccache.config`, through whatever logging the host has set up."""
    level = logging.WARNING if warning else logging.INFO
    if _LOGGER.isEnabledFor(level):
        values = " ".join(f"{name}={value!r}" for name, value in fields.items())
        _LOGGER.log(level, "%s %s", event, values)
