"""Is the configuration one that works, and is it the one that was meant?"""

from __future__ import annotations

from collections.abc import Iterator

from eccache.app.config.loading import DEFAULT
from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.subject import Subject

CHECK = "configuration"


def check_configuration(subject: Subject) -> Iterator[Finding]:
    """Report a configuration that stops a start, one that switches the cache off, and likely slips."""
    if subject.config_error is not None:
        wrong = subject.config_error
        yield error(CHECK, "the configuration can't be used", wrong.cause, wrong.remedy)
    for dropped in subject.dropped:
        yield warning(
            CHECK,
            f"{dropped.key} has no effect",
            f"there is no such setting (in {dropped.source}), and LMCache has none of this name either "
            "that matters here.",
            f"write {dropped.nearest}, which is the nearest, or remove it."
            if dropped.nearest
            else "remove it.",
        )
    if subject.loaded is None:
        return
    if not subject.loaded.config.enabled:
        yield error(
            CHECK,
            "the cache is switched off",
            f"enabled is false (from {subject.loaded.sources['enabled']}).",
            "set enabled to true, or remove it.",
        )
    given = sum(source != DEFAULT for source in subject.loaded.sources.values())
    yield ok(CHECK, f"can be used; {given} of its values are not defaults")
