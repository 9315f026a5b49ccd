"""The sizing page's figures follow from its formula."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eccache.domain.entry_format import ALIGNMENT, header_block
from eccache.domain.entry_ref import EntryRef
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec

PAGE = Path(__file__).parents[3] / "docs" / "sizing.md"
HALF_NBYTES = 2
MEGA = 10**6


def table(section: str) -> list[list[str]]:
    """The cells of the rows of the first table below a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def entry_nbytes(rows: int, width: int) -> int:
    """The physical bytes of an entry by the page's formula."""
    blocks = -(-(rows * width * HALF_NBYTES + ALIGNMENT) // ALIGNMENT)
    return blocks * ALIGNMENT


SIZES = table("Entry size by model and media")


@pytest.mark.parametrize("cells", SIZES, ids=lambda cells: f"{cells[0]}, {cells[1]}")
def test_an_entrys_size_is_its_rows_times_its_width(cells: list[str]) -> None:
    """Each line of the table is what the formula gives, to the digit that is shown."""
    _, _, rows, width, shown = cells
    assert f"{entry_nbytes(int(rows), int(width)) / MEGA:.1f}" == shown


def test_the_formula_is_that_of_real_entries() -> None:
    """A frame is a header block of one 4,096-byte unit and the payload."""
    spec = TensorSpec("bfloat16", (1369, 3584))
    ref = EntryRef.for_mm_hash(Namespace.from_ingredients({}), "m" * 255, "h" * 300, "bfloat16")
    nbytes = len(header_block(ref, spec, {"created": "1764500000"})) + spec.nbytes
    assert 1369 * 3584 * HALF_NBYTES + ALIGNMENT == nbytes


def test_the_rows_of_a_qwen_image_follow_from_its_pixels() -> None:
    """Sides rounded to multiples of a merged patch, one row for each."""
    seen = 0
    for model, media, rows, *_ in SIZES:
        match = re.search(r"image (\d+) \D (\d+)", media)
        if not match or not model.startswith("Qwen"):
            continue
        unit = 32 if model.startswith("Qwen3") else 28
        assert round(int(match[1]) / unit) * round(int(match[2]) / unit) == int(rows)
        seen += 1
    assert 6 == seen


def test_the_disk_for_a_number_of_inputs_follows_from_the_entry() -> None:
    """Each cell is inputs times entry, in GiB."""
    entries = [entry_nbytes(256, 2560), entry_nbytes(1369, 3584)]
    entries += [entry_nbytes(4096, 3584), entry_nbytes(4096, 5120)]
    for inputs, *cells in table("Disk for N inputs"):
        count = int(inputs.replace(",", ""))
        assert [f"{count * nbytes / 2**30:,.1f} GiB" for nbytes in entries] == cells
