"""Damage on the medium, through the store and the one place that verifies."""

import os
from pathlib import Path

import pytest

from eccache.adapters.disk.layout import Layout
from eccache.app.verified_read import read_verified
from eccache.domain.errors import StoreFault
from eccache.domain.outcomes import LookupOutcome, PutOutcome
from eccache.testing.frames import ref_of
from tests.unit.disk.places import disk_store, policy_of, put

REF = ref_of("an input")


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """The file of an entry."""
    assert PutOutcome.STORED is put(disk_store(tmp_path), REF, rows=1)
    return Path(Layout(str(tmp_path)).entry(REF))


def test_every_flipped_bit_of_a_byte_is_corrupt(tmp_path: Path, entry: Path) -> None:
    """In the header's text, in its padding and in the payload: out of sight, into quarantine."""
    store = disk_store(tmp_path, policy=policy_of(quarantine_entries=2))
    whole = entry.read_bytes()
    offsets = [*range(0, 600, 7), *range(600, len(whole), 101), len(whole) - 1]
    for offset in offsets:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << offset % 8
        entry.write_bytes(damaged)
        assert LookupOutcome.CORRUPT is read_verified(store, REF).outcome
        assert LookupOutcome.MISS is read_verified(store, REF).outcome
    assert len(offsets) == store.stats().quarantined


def test_every_length_is_corrupt(tmp_path: Path, entry: Path) -> None:
    """From nothing to a byte short, and a byte too long."""
    store = disk_store(tmp_path, policy=policy_of(quarantine_entries=2))
    whole = entry.read_bytes()
    for nbytes in [*range(0, len(whole), 13), len(whole) - 1, len(whole) + 1]:
        entry.write_bytes((whole + b"\0")[:nbytes])
        assert LookupOutcome.CORRUPT is read_verified(store, REF).outcome


def test_another_inputs_entry_is_a_miss_and_stays(tmp_path: Path, entry: Path) -> None:
    """A file that somebody copied to another name is whole, and not what is asked for."""
    store = disk_store(tmp_path)
    other = Path(Layout(str(tmp_path)).entry(ref_of("another")))
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(entry.read_bytes())
    assert LookupOutcome.MISS is read_verified(store, ref_of("another")).outcome
    assert other.exists()


def test_a_file_cut_while_it_is_leased_is_read_as_far_as_it_goes(
    tmp_path: Path, entry: Path
) -> None:
    """`read_into` gives fewer bytes, or other ones, and never a signal."""
    lease = disk_store(tmp_path).get(REF)
    assert lease is not None
    os.truncate(entry, 100)
    target = bytearray(lease.nbytes)
    assert 100 == lease.read_into(memoryview(target))
    assert 0 == lease.read_into(memoryview(target), 200)
    with pytest.raises(StoreFault, match="map failed"):
        lease.view()
    lease.close()
