"""`eccache gc` and `eccache purge` remove what was asked for, and nothing else."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import click
import pytest

from eccache.app.cli.failure import failures_explained
from tests.unit.cli.conftest import NOW, Filled, Invoke, document


def entries(root: Path) -> set[str]:
    """The names of all entries."""
    return {path.name for path in root.rglob("*.safetensors")}


def unfinished(filled: Filled, name: str) -> Path:
    """A file as a killed process leaves it."""
    path = filled.root / "v1" / "unfinished" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(5000))
    now = filled.clock.unix()
    os.utime(path, (now, now))
    return path


def test_gc_removes_what_killed_processes_left(filled: Filled, invoke: Invoke) -> None:
    """An unfinished write whose writer is gone goes; one whose writer lives stays."""
    dead, alive = unfinished(filled, "dead"), unfinished(filled, "alive")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.utime(alive, (NOW, NOW))
        found = document(invoke("gc", "--path", filled.root, "--json"))
        assert {"count": 1, "bytes": 8192} == found["unfinished"]
        assert not dead.exists()
        assert alive.exists()
    assert 4 == len(entries(filled.root))


def test_gc_counts_anew(filled: Filled, invoke: Invoke) -> None:
    """Entries that were removed behind the store's back are not counted any more."""
    store = filled.stores[filled.alpha.fingerprint]
    assert 4 == store.stats().entries
    next(filled.root.rglob("*.safetensors")).unlink()
    assert 4 == store.stats().entries
    invoke("gc", "--path", filled.root)
    assert 3 == store.stats().entries


@pytest.mark.parametrize("text", ["64GB", "64 GiB", "0", "-1", "nan", "inf", ""])
def test_a_size_that_is_none_is_a_usage_error(filled: Filled, invoke: Invoke, text: str) -> None:
    """A slip in a cap removes nothing, and the unit is named."""
    result = invoke("gc", "--path", filled.root, "--max-size", text)
    assert 2 == result.exit_code
    assert f"{text!r} is no size; write a number of GiB above 0: 64." in result.stderr
    assert 4 == len(entries(filled.root))


def test_gc_keeps_a_cap_that_is_named(filled: Filled, invoke: Invoke) -> None:
    """The least recently used entries go until the rest fits."""
    cap_nbytes = 60 * 1024
    result = invoke("gc", "--path", filled.root, "--max-size", cap_nbytes / 2**30, "--json")
    found = document(result)
    assert found["evicted"]["count"] >= 1
    left = sum(path.stat().st_blocks * 512 for path in filled.root.rglob("*.safetensors"))
    assert left <= cap_nbytes
    assert filled.has(filled.beta, "picture-9", model="org/beta")
    assert not filled.has(filled.alpha, "picture-0")


def test_gc_evicts_nothing_where_no_cap_is_configured(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default cap is a guess about the servers', and a guess deletes nothing."""
    from eccache.app.config import CacheConfig

    monkeypatch.setattr(CacheConfig, "max_local_disk_nbytes", 4096)
    found = document(invoke("gc", "--path", filled.root, "--json"))
    assert 0 == found["evicted"]["count"]
    assert found["capacity_bytes"] is None
    assert 4 == len(entries(filled.root))
    monkeypatch.setenv("ECCACHE_MAX_LOCAL_DISK_SIZE", "0.00001")
    assert 4 == document(invoke("gc", "--path", filled.root, "--json"))["evicted"]["count"]


def test_gc_removes_empty_directories(filled: Filled, invoke: Invoke) -> None:
    """A namespace without entries leaves nothing behind, and comes back with the next put."""
    next(filled.root.rglob("org%2Fbeta*")).unlink()
    found = document(invoke("gc", "--path", filled.root, "--json"))
    assert 2 == found["directories"]
    assert not (filled.root / "v1" / filled.beta.fingerprint).exists()
    filled.put(filled.beta, "picture-9", 50, model="org/beta")
    assert (filled.root / "v1" / filled.beta.fingerprint / "namespace.json").exists()


def test_gc_leaves_what_is_not_ours(filled: Filled, invoke: Invoke) -> None:
    """A file that somebody put beside the shards of a namespace stays, and so does its directory."""
    next(filled.root.rglob("org%2Fbeta*")).unlink()
    notes = filled.root / "v1" / filled.beta.fingerprint / "notes.txt"
    notes.write_text("mine")
    assert 1 == document(invoke("gc", "--path", filled.root, "--json"))["directories"]
    assert "mine" == notes.read_text()


def test_gc_tells_a_person_what_went(filled: Filled, invoke: Invoke) -> None:
    """Each kind of thing has its line."""
    unfinished(filled, "dead")
    text = invoke("gc", "--path", filled.root).stdout
    assert "unfinished writes  1 (8.0 KiB)" in text
    assert "no cap is configured" in text


def test_purge_removes_one_namespace(filled: Filled, invoke: Invoke) -> None:
    """By the start of its fingerprint; its directory goes too, the other namespace stays whole."""
    start = filled.alpha.fingerprint[:5]
    result = invoke("purge", "--path", filled.root, "--namespace", start, "--yes", "--json")
    assert 0 == result.exit_code, result.output
    assert 3 == document(result)["removed"]["count"]
    assert not (filled.root / "v1" / filled.alpha.fingerprint).exists()
    assert filled.has(filled.beta, "picture-9", model="org/beta")
    assert 1 == filled.stores[filled.beta.fingerprint].stats().entries


def test_purge_removes_what_was_not_used_for_so_long(filled: Filled, invoke: Invoke) -> None:
    """Entries used 4, 3, 2 and 1 days ago: `2.5d` means the first two."""
    result = invoke("purge", "--path", filled.root, "--older-than", "2.5d", "--yes", "--json")
    assert 2 == document(result)["removed"]["count"]
    assert [False, False, True] == [filled.has(filled.alpha, f"picture-{n}") for n in range(3)]


def test_purge_combines_what_is_given(filled: Filled, invoke: Invoke) -> None:
    """An entry must meet all of it."""
    arguments = ["--namespace", filled.beta.fingerprint, "--older-than", "36h", "--yes", "--json"]
    result = invoke("purge", "--path", filled.root, *arguments)
    assert 0 == document(result)["removed"]["count"]
    assert 4 == len(entries(filled.root))


def test_purge_of_another_format_version(filled: Filled, invoke: Invoke, tmp_path: Path) -> None:
    """Its directory goes as a whole, no link is followed out of it, this version stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    future = filled.root / "v2" / "deep" / "deeper"
    future.mkdir(parents=True)
    (future / "entry").write_bytes(bytes(5000))
    (future / "link").symlink_to(outside)
    (filled.root / "v2x").mkdir()
    (filled.root / "notes.txt").write_text("mine")
    arguments = ["--format-version", "2", "--yes", "--json"]
    result = invoke("purge", "--path", filled.root, *arguments)
    assert {"count": 1, "bytes": 8192} == document(result)["removed"]
    assert not (filled.root / "v2").exists()
    assert (outside / "precious").exists()
    assert {"v1", "v2x", "notes.txt"} == {path.name for path in filled.root.iterdir()}
    assert 4 == len(entries(filled.root))


def test_purge_of_this_format_version_leaves_others(filled: Filled, invoke: Invoke) -> None:
    """Version 1 goes, what a newer release wrote stays."""
    (filled.root / "v2").mkdir()
    (filled.root / "v2" / "entry").write_bytes(bytes(10))
    result = invoke("purge", "--path", filled.root, "--format-version", "1", "--yes", "--json")
    assert 4 == document(result)["removed"]["count"]
    assert (filled.root / "v2" / "entry").exists()


def test_purge_of_everything(filled: Filled, invoke: Invoke) -> None:
    """Entries, quarantine and other versions go; what is not the store's stays; servers go on."""
    (filled.root / "v2").mkdir()
    (filled.root / "v2" / "entry").write_bytes(bytes(10))
    (filled.root / "notes.txt").write_text("mine")
    quarantine = filled.root / "v1" / "quarantine"
    quarantine.mkdir()
    (quarantine / "bad").write_bytes(bytes(10))
    result = invoke("purge", "--path", filled.root, "--all", "--yes", "--json")
    assert 6 == document(result)["removed"]["count"]
    assert {"v1", "notes.txt"} == {path.name for path in filled.root.iterdir()}
    assert set() == entries(filled.root)
    assert 0 == filled.stores[filled.alpha.fingerprint].stats().entries
    filled.put(filled.alpha, "picture-0", 100)
    assert filled.has(filled.alpha, "picture-0")


def test_purge_asks_and_takes_no_for_an_answer(filled: Filled, invoke: Invoke) -> None:
    """What it would remove is shown; anything but yes removes nothing."""
    for answer in ("n\n", "\n"):
        result = invoke("purge", "--path", filled.root, "--all", said=answer)
        assert 3 == result.exit_code
        assert "Remove 4 files, 120.0 KiB?" in result.stderr
        assert "nothing was removed" in result.stderr
        assert 4 == len(entries(filled.root))
    assert 0 == invoke("purge", "--path", filled.root, "--all", said="y\n").exit_code
    assert set() == entries(filled.root)


def test_purge_asks_about_quarantine_too(filled: Filled, invoke: Invoke) -> None:
    """What is kept for inspection goes with everything else, and not without a question."""
    assert 0 == invoke("purge", "--path", filled.root, "--all", "--yes").exit_code
    result = invoke("purge", "--path", filled.root, "--all", said="")
    assert (0, "removed 0 files, 0 B\n") == (result.exit_code, result.stdout)
    assert "nothing to remove matches" in result.stderr
    bad = filled.root / "v1" / "quarantine" / "bad"
    bad.parent.mkdir()
    bad.write_bytes(bytes(10))
    result = invoke("purge", "--path", filled.root, "--all", said="n\n")
    assert 3 == result.exit_code
    assert "Remove 1 file, 4.0 KiB?" in result.stderr
    assert bad.exists()


def test_whoever_stops_the_question_is_told_so(
    invoke: Invoke, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C at the question is an interruption, and no wrong command line."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def stop(*_: object, **__: object) -> bool:
        try:
            interrupt()
        except KeyboardInterrupt:
            raise click.Abort from None  # as click does
        return True

    monkeypatch.setattr(click, "confirm", stop)
    result = invoke("purge", "--path", filled.root, "--all")
    assert 130 == result.exit_code
    assert "interrupted" in result.stderr


def test_purge_without_an_answer_removes_nothing(filled: Filled, invoke: Invoke) -> None:
    """A script that forgot --yes and has no input is stopped, not obeyed."""
    result = invoke("purge", "--path", filled.root, "--all", said="")
    assert 2 == result.exit_code
    assert "asks before it removes anything" in result.stderr
    assert "--yes" in result.stderr
    assert 4 == len(entries(filled.root))


@pytest.mark.parametrize(
    "arguments", [[], ["--all", "--namespace", "a"], ["--all", "--older-than", "1d"], ["--yes"]]
)
def test_purge_needs_to_be_told_what(filled: Filled, invoke: Invoke, arguments: list[str]) -> None:
    """Neither nothing nor a contradiction is taken for everything."""
    result = invoke("purge", "--path", filled.root, *arguments)
    assert 2 == result.exit_code
    assert "Say what to remove" in result.stderr
    assert 4 == len(entries(filled.root))


@pytest.mark.parametrize("text", ["7", "d", "7 years", "-1d", "7d7d"])
def test_an_age_that_is_none_is_a_usage_error(filled: Filled, invoke: Invoke, text: str) -> None:
    """A slip in an age never removes anything."""
    result = invoke("purge", "--path", filled.root, "--older-than", text, "--yes")
    assert 2 == result.exit_code
    assert "write a number and" in result.stderr


@pytest.mark.parametrize("start", ["", "f", "nothing"])
def test_a_fingerprint_must_mean_exactly_one(filled: Filled, invoke: Invoke, start: str) -> None:
    """The start of two namespaces, or of none, removes nothing and names those that are there."""
    result = invoke("purge", "--path", filled.root, "--namespace", start, "--yes")
    assert 3 == result.exit_code
    assert filled.alpha.fingerprint in result.stderr
    assert 4 == len(entries(filled.root))


@pytest.mark.parametrize("command", [["gc"], ["purge", "--all", "--yes"], ["verify", "--repair"]])
def test_nothing_is_written_as_another_user(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Files of root's in a server's store would lock the server out: refused, with what to type."""
    owner = filled.root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    result = invoke(*command, "--path", filled.root)
    assert 3 == result.exit_code
    assert f"belongs to user {owner}" in result.stderr
    assert f"sudo -u '#{owner}' eccache" in result.stderr
    assert 4 == len(entries(filled.root))


def test_looking_is_allowed_to_every_user(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stat`, `ls` and `verify` write nothing, so whoever may read may run them."""
    monkeypatch.setattr(os, "geteuid", lambda: filled.root.stat().st_uid + 1)
    for command in ("stat", "ls", "verify"):
        assert 0 == invoke(command, "--path", filled.root).exit_code


def test_an_interrupted_command_says_so() -> None:
    """Control-C ends with 130, as a shell expects, and without a traceback."""
    with pytest.raises(Exception, match="interrupted") as stopped, failures_explained():
        raise KeyboardInterrupt
    assert 130 == getattr(stopped.value, "exit_code", None)


@pytest.mark.parametrize(
    "command", [["stat"], ["ls"], ["verify"], ["gc"], ["purge", "--all", "--yes"]]
)
def test_a_store_that_is_switched_off_is_told_from_none(
    filled: Filled, invoke: Invoke, command: list[str]
) -> None:
    """An operator put a file in the directory's place: that is said, and how to switch it on."""
    version = filled.root / "v1"
    version.rename(filled.root / "off")
    version.touch()
    result = invoke(*command, "--path", filled.root)
    assert 3 == result.exit_code
    assert f"the cache is switched off: {version} is a file" in result.stderr
    assert f"rm {version}" in result.stderr
    assert 4 == len(list((filled.root / "off").rglob("*.safetensors")))
