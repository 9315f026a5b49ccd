"""What a reader can rely on: no module imports itself by a detour, and none is longer than can be read."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
LONGEST = 400
MODULES = {
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCES.rglob("*.py")
}


def imported_at_once(path: Path) -> set[str]:
    """Our modules that importing *path* imports; what its functions import comes later."""
    found: set[str] = set()
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative"
            module = str(statement.module)
            parts = {f"{module}.{alias.name}" for alias in statement.names}
            found |= {part if part in MODULES else module for part in parts}
    return found & MODULES.keys()


def test_no_module_imports_itself_by_a_detour() -> None:
    """Modules have an order in which each needs only those before it."""
    graph = {name: imported_at_once(path) for name, path in MODULES.items()}
    assert len(MODULES) == len(list(TopologicalSorter(graph).static_order()))


def test_no_module_is_too_long() -> None:
    """Beyond that it holds more than one idea."""
    lines = {name: len(path.read_bytes().splitlines()) for name, path in MODULES.items()}
    assert {} == {name: count for name, count in lines.items() if count > LONGEST}
