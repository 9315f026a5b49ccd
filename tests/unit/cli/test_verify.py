"""`eccache verify` finds every kind of damage, and mends on request only."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.upkeep.verification import EntryReader, GoneError
from eccache.adapters.disk.upkeep.walk import EntryFile, entry_shards
from eccache.adapters.system import SystemFiles
from eccache.ports.maintenance import Subset
from tests.unit.cli.conftest import Filled, Invoke, document

Damage = Callable[[Path], object]


def flip_a_bit(path: Path) -> None:
    """Change the last payload byte."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Cut the last byte off."""
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    """Add a byte."""
    os.truncate(path, path.stat().st_size + 1)


def empty(path: Path) -> None:
    """Leave nothing."""
    os.truncate(path, 0)


def lie_about_the_length(path: Path) -> None:
    """Claim a header of 2**63 bytes."""
    path.write_bytes((2**63).to_bytes(8, "little") + path.read_bytes()[8:])


def give_it_another_name(path: Path) -> None:
    """Let a whole entry have the name of another."""
    path.rename(path.with_name(path.name.replace("alpha", "gamma")))


DAMAGES = [flip_a_bit, truncate, lengthen, empty, lie_about_the_length, give_it_another_name]


def largest_entry(filled: Filled) -> Path:
    """The file of the entry with 400 rows."""
    return max(filled.root.rglob("*.safetensors"), key=lambda path: path.stat().st_size)


def test_a_sound_store_passes(filled: Filled, invoke: Invoke) -> None:
    """Every entry and byte is read, and the exit code says that all is well."""
    result = invoke("verify", "--path", filled.root, "--json")
    assert 0 == result.exit_code, result.output
    found = document(result)
    occupied = sum(path.stat().st_blocks * 512 for path in filled.root.rglob("*.safetensors"))
    assert (4, occupied, []) == (found["entries"], found["bytes"], found["damaged"])
    assert "0 damaged" in invoke("verify", "--path", filled.root).stderr


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_named(filled: Filled, invoke: Invoke, damage: Damage) -> None:
    """The exit code is 1, the file is named with what is wrong, the others pass."""
    path = largest_entry(filled)
    damage(path)
    result = invoke("verify", "--path", filled.root, "--json")
    assert 1 == result.exit_code, result.output
    (problem,) = document(result)["damaged"]
    assert path.parent == Path(problem["path"]).parent
    assert problem["fault"]
    assert not problem["repaired"]
    assert 4 == document(result)["entries"]
    assert Path(problem["path"]).exists(), "without --repair nothing is changed"


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_takes_the_damaged_out_of_sight(
    filled: Filled, invoke: Invoke, damage: Damage
) -> None:
    """Repairing exits with 1, since something was found; the next run finds nothing and 3 are left."""
    damage(largest_entry(filled))
    result = invoke("verify", "--path", filled.root, "--repair", "--json")
    assert 1 == result.exit_code, result.output
    (problem,) = document(result)["damaged"]
    assert problem["repaired"]
    assert not Path(problem["path"]).exists()
    after = invoke("verify", "--path", filled.root, "--json")
    assert 0 == after.exit_code, after.output
    assert 3 == document(after)["entries"]
    assert not filled.has(filled.alpha, "picture-1")
    assert filled.has(filled.alpha, "picture-0")


def test_a_repaired_entry_is_not_counted_any_more(filled: Filled, invoke: Invoke) -> None:
    """The accounting of the servers knows at once that the entry is gone."""
    flip_a_bit(largest_entry(filled))
    invoke("verify", "--path", filled.root, "--repair")
    assert 3 == filled.stores[filled.alpha.fingerprint].stats().entries


def test_a_person_is_told_what_damage_means(filled: Filled, invoke: Invoke) -> None:
    """The path, the fault and what to do are in the words that a person reads."""
    flip_a_bit(largest_entry(filled))
    result = invoke("verify", "--path", filled.root)
    assert "digest" in result.stdout
    assert "1 damaged" in result.stderr
    assert "--repair" in result.stderr


def test_an_entry_that_cannot_be_read_is_told_and_never_removed(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error may pass; what it hides is not thrown away, even by --repair."""
    path = largest_entry(filled)
    preadv = os.preadv

    def failing(descriptor: int, *arguments: object) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            raise OSError(5, "Input/output error")
        return preadv(descriptor, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "preadv", failing)
    result = invoke("verify", "--path", filled.root, "--repair", "--json")
    assert 1 == result.exit_code, result.output
    (problem,) = document(result)["damaged"]
    assert "can't be read: Input/output error" == problem["fault"]
    assert not problem["repaired"]
    assert path.exists()


def test_a_directory_that_cannot_be_read_is_told(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be looked into is no pass."""
    shard = largest_entry(filled).parent
    scan = SystemFiles.scan

    def failing(files: SystemFiles, directory: str) -> list[tuple[str, os.stat_result]]:
        if directory == str(shard):
            raise OSError(5, "Input/output error", directory)
        return scan(files, directory)

    monkeypatch.setattr(SystemFiles, "scan", failing)
    result = invoke("verify", "--path", filled.root, "--json")
    assert 1 == result.exit_code, result.output
    assert [str(shard)] == [problem["path"] for problem in document(result)["damaged"]]


def test_verifying_is_no_use_of_an_entry(filled: Filled, invoke: Invoke) -> None:
    """The order in which entries are evicted stays as it was."""
    before = {path: path.stat().st_mtime_ns for path in filled.root.rglob("*.safetensors")}
    invoke("verify", "--path", filled.root)
    assert before == {path: path.stat().st_mtime_ns for path in filled.root.rglob("*.safetensors")}


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_all_subsets_together_are_the_store(filled: Filled, invoke: Invoke, parts: int) -> None:
    """Running 1/T to T/T reads each entry exactly once."""
    entries = [
        document(invoke("verify", "--path", filled.root, "--subset", f"{n}/{parts}", "--json"))
        for n in range(1, parts + 1)
    ]
    assert 4 == sum(found["entries"] for found in entries)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "x/3", "1/x", "-1/2", "1/0"])
def test_a_subset_that_is_none_is_a_usage_error(filled: Filled, invoke: Invoke, text: str) -> None:
    """A slip in the part is told, with an example of what is meant."""
    result = invoke("verify", "--path", filled.root, "--subset", text)
    assert 2 == result.exit_code
    assert "e.g. 1/7" in result.stderr


def found_file(filled: Filled) -> EntryFile:
    """The entry with 400 rows, as a scan has it."""
    shards = entry_shards(SystemFiles(), Layout(str(filled.root)))
    found = (file for shard in shards for file in shard.files())
    return max(found, key=lambda file: file.nbytes)


def test_an_entry_that_went_meanwhile_is_no_problem(filled: Filled) -> None:
    """What is evicted between the look into its directory and the read is left out."""
    file = found_file(filled)
    Path(file.path).unlink()
    with pytest.raises(GoneError):
        EntryReader(SystemFiles()).check(file)


def test_an_entry_that_was_replaced_meanwhile_is_not_judged(filled: Filled) -> None:
    """A new file under the name is another entry, of which the scan knew nothing."""
    file = found_file(filled)
    fresh = Path(file.path).with_suffix(".new")
    fresh.write_bytes(b"not what was scanned")
    fresh.replace(file.path)
    with pytest.raises(GoneError):
        EntryReader(SystemFiles()).check(file)


def test_a_subset_is_one_that_exists() -> None:
    """Part numbers run from 1 to the number of parts."""
    for number, parts in ((0, 1), (2, 1), (1, 0)):
        with pytest.raises(ValueError, match=r"part|must be"):
            Subset(number, parts)


def test_a_terminal_sees_progress_and_a_pipe_does_not(filled: Filled) -> None:
    """On a terminal a bar with amount and rate is drawn; elsewhere nothing is added to what is printed."""
    command = [sys.executable, "-m", "eccache", "verify", "--path", str(filled.root)]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 1 == len(piped.stderr.splitlines())
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        drawn = b""
        with contextlib.suppress(OSError), os.fdopen(leader, "rb", buffering=0) as screen:
            while piece := screen.read(4096):
                drawn += piece
        assert 0 == process.wait()
    text = drawn.decode()
    assert "verifying" in text
    assert "120.0/120.0 KiB" in text
    assert "/s" in text
