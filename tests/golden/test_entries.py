"""Entries written by every released version are read for ever, and written alike."""

from __future__ import annotations

import pytest

from eccache.domain.entry_format import FrameError, FrameFault, open_verified
from tests.golden.entries import (
    FIELDS,
    FOLDER,
    OTHER_VERSIONS,
    SPECS,
    mm_hash_of,
    path_of,
    payload_of,
    ref_of,
    written_now,
)


@pytest.mark.parametrize("name", SPECS)
def test_an_entry_of_format_1_is_read(name: str) -> None:
    """Identity, shape, dtype, fields and payload, from a file that is never written again."""
    frame = bytearray(path_of(name).read_bytes())
    header = open_verified(memoryview(frame), ref_of(name))
    assert SPECS[name] == header.spec
    assert FIELDS == dict(header.fields)
    assert mm_hash_of(name).encode("utf-8", "replace").decode() == header.excerpt
    assert payload_of(name) == frame[header.block_nbytes :]


@pytest.mark.parametrize("name", SPECS)
def test_an_entry_is_written_as_it_always_was(name: str) -> None:
    """To the byte: two versions of eccache that store one output write one file."""
    assert path_of(name).read_bytes() == written_now(name)


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_an_entry_of_another_version_is_a_miss_and_no_damage(version: str) -> None:
    """During a rolling upgrade the old and the new leave each other's entries alone."""
    frame = bytearray(path_of("any", version).read_bytes())
    with pytest.raises(FrameError) as caught:
        open_verified(memoryview(frame), ref_of("any"))
    assert caught.value.fault is FrameFault.VERSION
    assert not caught.value.fault.is_damage


def test_every_golden_file_is_tested() -> None:
    """Nothing in the folder is left over from a test that is gone."""
    expected = {path_of(name) for name in SPECS}
    expected |= {path_of("any", version) for version in OTHER_VERSIONS}
    assert expected == set(FOLDER.glob("v*/*"))
