"""The documented table of settings is complete and right."""

from __future__ import annotations

from pathlib import Path

import attrs

from eccache.app.config import CacheConfig

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def shown(default: object) -> str:
    """The default as the page writes it."""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) or "empty"


def test_the_page_has_every_setting_with_its_unit_default_and_meaning() -> None:
    """Whoever reads the table knows every bound, deadline and age, and what it is by default."""
    config = CacheConfig()
    expected = []
    for field in attrs.fields(CacheConfig):
        default = getattr(config, field.name)
        text = shown(dict(default) or "" if field.name == "lmcache" else default)
        unit, meaning = field.metadata["unit"] or "-", field.metadata["meaning"]
        expected.append(f"| `{field.name}` | {unit} | {text} | {meaning} |")
    section = PAGE.read_text(encoding="utf-8").split("## Settings")[1].split("## Sources")[0]
    assert expected == [line for line in section.splitlines() if line.startswith("| `")]


def test_every_bound_deadline_and_age_has_its_unit_in_its_name() -> None:
    """A reader of a configuration never guesses a unit: sizes are GiB, times end in `_seconds`."""
    for field in attrs.fields(CacheConfig):
        assert (field.metadata["unit"] == "GiB") == field.name.endswith("_size")
        assert (field.metadata["unit"] == "s") == field.name.endswith("_seconds")
        assert (field.metadata["unit"] == "ratio") == field.name.endswith("_ratio")
