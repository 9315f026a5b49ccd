"""The list of checks, in the order in which a reader wants their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from eccache.app.doctor.configuration import check_configuration
from eccache.app.doctor.file_system import check_file_system, check_self_test
from eccache.app.doctor.finding import Finding
from eccache.app.doctor.memory import check_memory
from eccache.app.doctor.namespaces import check_namespace
from eccache.app.doctor.remote_tier import check_remote_tier
from eccache.app.doctor.root import check_root
from eccache.app.doctor.server import check_server
from eccache.app.doctor.space import check_space
from eccache.app.doctor.subject import Subject
from eccache.app.doctor.versions import check_versions

Check = Callable[[Subject], Iterable[Finding]]
"""Looks at one thing. Changes nothing (the self-test puts back what it changed)."""

CHECKS: Final[tuple[Check, ...]] = (
    check_versions,
    check_configuration,
    check_server,
    check_root,
    check_file_system,
    check_space,
    check_memory,
    check_self_test,
    check_remote_tier,
    check_namespace,
)


def examine(subject: Subject) -> tuple[Finding, ...]:
    """Return what all checks find."""
    return tuple(finding for check in CHECKS for finding in check(subject))
