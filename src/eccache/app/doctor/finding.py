"""What a check found out."""

from __future__ import annotations

import enum

import attrs


class Severity(enum.Enum):
    """How much a finding matters."""

    OK = "ok"
    """As it should be, or a fact that a reader wants to know."""
    WARNING = "warning"
    """The cache works, and does less than it could or than was meant."""
    ERROR = "error"
    """There will be no hits, or no start."""


@attrs.frozen
class Finding:
    """One result of one check.

    Attributes:
        check: name of the check.
        severity: how much it matters.
        summary: what was found, in a line.
        cause: what it comes from or leads to; empty where there is nothing to explain.
        remedy: what to do about it; never empty for a warning or an error.
    """

    check: str
    severity: Severity
    summary: str
    cause: str = ""
    remedy: str = attrs.field(default="")

    @remedy.validator
    def _remedy_where_one_is_due(self, _: object, value: str) -> None:
        if self.severity is not Severity.OK and not value:
            msg = f"the finding {self.summary!r} of {self.check!r} has no remedy"
            raise ValueError(msg)


def ok(check: str, summary: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(check, Severity.OK, summary)


def warning(check: str, summary: str, cause: str, remedy: str) -> Finding:
    """Return a finding that an operator may want to act on."""
    return Finding(check, Severity.WARNING, summary, cause, remedy)


def error(check: str, summary: str, cause: str, remedy: str) -> Finding:
    """Return a finding that there will be no hits, or no start."""
    return Finding(check, Severity.ERROR, summary, cause, remedy)
