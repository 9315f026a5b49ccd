"""`eccache stat` and `eccache ls` tell what is there, and change nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from eccache.adapters.system import SystemFiles
from eccache.app.bootstrap.stores import open_store
from eccache.app.cli.output import iso_time
from eccache.app.config import CacheConfig
from eccache.app.telemetry import LocalTelemetry
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec
from tests.unit.cli.conftest import NOW, Filled, Invoke, document

HEADER_NBYTES = 4096
ROW_NBYTES = 128


def occupied(rows: int) -> int:
    """The physical bytes of an entry of so many rows."""
    return HEADER_NBYTES + -(-rows * ROW_NBYTES // HEADER_NBYTES) * HEADER_NBYTES


def test_stat_counts_entries_and_bytes_by_namespace(filled: Filled, invoke: Invoke) -> None:
    """A program reads entries and physical bytes of the whole and of each namespace, largest first."""
    result = invoke("stat", "--path", filled.root, "--json")
    assert 0 == result.exit_code, result.output
    found = document(result)
    assert str(filled.root) == found["path"]
    assert 4 == found["entries"]
    assert sum(map(occupied, (100, 400, 200, 50))) == found["bytes_stored"]
    first, second = found["namespaces"]
    assert filled.alpha.fingerprint == first["fingerprint"]
    assert {"model": "org/alpha", "revision": "one"} == first["ingredients"]
    assert (3, sum(map(occupied, (100, 400, 200)))) == (first["entries"], first["bytes"])
    assert "2027-01-14T08:00:00Z" == second["last_used"]
    assert (1, occupied(50)) == (second["entries"], second["bytes"])


def test_stat_shows_a_person_the_same(filled: Filled, invoke: Invoke) -> None:
    """The table names each namespace in words, with what it occupies and when it was last used."""
    result = invoke("stat", "--path", filled.root)
    assert 0 == result.exit_code, result.output
    assert "org/alpha revision=one" in result.stdout
    assert "org/beta revision=two" in result.stdout
    (line,) = (line for line in result.stdout.splitlines() if filled.beta.fingerprint in line)
    assert [filled.beta.fingerprint, "1", "12.0", "KiB", "1", "d"] == line.split()[:6]


def test_stat_shows_the_cap_only_where_it_is_configured(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default cap need not be the servers'; a configured one is shown with the share used."""
    assert document(invoke("stat", "--path", filled.root, "--json"))["capacity_bytes"] is None
    monkeypatch.setenv("ECCACHE_MAX_LOCAL_DISK_SIZE", "0.001")
    assert 1073741 == document(invoke("stat", "--path", filled.root, "--json"))["capacity_bytes"]
    assert "(11%)" in invoke("stat", "--path", filled.root).stdout


def test_stat_counts_what_is_no_entry(filled: Filled, invoke: Invoke) -> None:
    """Unfinished writes, quarantine and other format versions are told apart from entries."""
    for name in ("v1/unfinished/abc", "v1/quarantine/def", "v2/whatever/ghi"):
        path = filled.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(5000))
    found = document(invoke("stat", "--path", filled.root, "--json"))
    assert 4 == found["entries"]
    amount = {"count": 1, "bytes": 8192}
    assert amount == found["unfinished"]
    assert amount == found["quarantined"]
    assert {"2": amount} == found["other_formats"]


def test_the_configured_directory_is_the_default(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--path` a command acts on the configured store."""
    monkeypatch.setenv("ECCACHE_LOCAL_DISK", str(filled.root))
    assert 4 == document(invoke("stat", "--json"))["entries"]


@pytest.mark.parametrize("command", ["stat", "ls", "verify", "gc", "purge"])
@pytest.mark.parametrize("what", ["nothing", "an empty directory", "a file"])
def test_where_there_is_no_store_cause_and_remedy_are_named(
    invoke: Invoke, tmp_path: Path, command: str, what: str
) -> None:
    """A wrong path is an error with exit code 3, not an empty store; and none is made there."""
    path = tmp_path / "wrong"
    if what == "an empty directory":
        path.mkdir()
    elif what == "a file":
        path.write_text("")
    arguments = ["--all", "--yes"] if command == "purge" else []
    result = invoke(command, "--path", path, *arguments)
    assert 3 == result.exit_code, result.output
    assert "there is no store at" in result.stderr
    why = {"nothing": "nothing is there", "a file": "it is no directory"}
    assert why.get(what, "there is no directory v1 in it") in result.stderr
    assert "Remedy: name the directory" in result.stderr
    assert "Traceback" not in result.output
    assert [] == list(path.iterdir() if path.is_dir() else [])


def test_a_store_that_may_not_be_read_is_no_wrong_command_line(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause and remedy with exit code 3, not a usage error: the path is right, the user is not."""

    def refused(path: object, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "scandir", refused)
    result = invoke("stat", "--path", filled.root)
    assert 3 == result.exit_code, result.output
    assert "Permission denied" in result.stderr
    assert "Remedy:" in result.stderr


def test_a_wrong_configuration_is_explained(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server would refuse, a command refuses in the same words."""
    monkeypatch.setenv("ECCACHE_LOCAL_DSK", "/x")
    result = invoke("stat", "--path", filled.root)
    assert 3 == result.exit_code
    assert "there is no such setting" in result.stderr
    assert "write local_disk" in result.stderr


def test_ls_tells_what_an_entry_is(filled: Filled, invoke: Invoke) -> None:
    """Model, dtype, shape, times, size and id of every entry, from its name and its header."""
    entries = document(invoke("ls", "--path", filled.root, "--json"))
    assert ["picture-9", "picture-2", "picture-1", "picture-0"] == [e["mm_hash"] for e in entries]
    newest = entries[0]
    assert "org/beta" == newest["model"]
    assert "bfloat16" == newest["dtype"]
    assert [50, 64] == newest["shape"]
    assert occupied(50) == newest["bytes"]
    assert "2027-01-14T08:00:00Z" == newest["created"] == newest["last_used"]
    assert filled.beta.fingerprint == newest["namespace"]
    assert Path(newest["path"]).is_file()
    assert newest["fault"] is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sort", "used"], "9210"),
        (["--sort", "used", "--reverse"], "0129"),
        (["--sort", "age"], "9210"),
        (["--sort", "size"], "1209"),
        (["--sort", "shape"], "1209"),
        (["--sort", "size", "--reverse", "--limit", "2"], "90"),
        (["--sort", "size", "--limit", "2"], "12"),
        (["--sort", "model", "--reverse", "--limit", "1"], "9"),
    ],
)
def test_ls_sorts_and_limits(
    filled: Filled, invoke: Invoke, arguments: list[str], expected: str
) -> None:
    """Largest and latest come first; `--reverse` turns that round; `--limit` cuts after sorting."""
    entries = document(invoke("ls", "--path", filled.root, "--json", *arguments))
    assert expected == "".join(entry["mm_hash"][-1] for entry in entries)


def test_ls_of_one_namespace(filled: Filled, invoke: Invoke) -> None:
    """The start of a fingerprint is enough."""
    start = filled.beta.fingerprint[:6]
    entries = document(invoke("ls", "--path", filled.root, "--namespace", start, "--json"))
    assert ["picture-9"] == [entry["mm_hash"] for entry in entries]


def test_ls_shows_ages_and_sizes_to_a_person(filled: Filled, invoke: Invoke) -> None:
    """The table has a line an entry, in words."""
    result = invoke("ls", "--path", filled.root)
    lines = result.stdout.splitlines()
    assert 5 == len(lines)
    assert ["org/beta", "bfloat16", "50x64", "1", "d", "1", "d", "12.0", "KiB"] == lines[1].split()[
        :9
    ]
    assert "4 entries" in result.stderr


def test_ls_marks_an_entry_whose_header_cannot_be_read(filled: Filled, invoke: Invoke) -> None:
    """A damaged header is told, and the others are listed all the same."""
    broken = next(filled.root.rglob("org%2Fbeta*"))
    broken.write_bytes(b"x" * 5000)
    os.utime(broken, (NOW, NOW))
    entries = document(invoke("ls", "--path", filled.root, "--json"))
    assert [True, False, False, False] == [bool(entry["fault"]) for entry in entries]
    assert "org/beta" == entries[0]["model"]
    assert " !  " in invoke("ls", "--path", filled.root).stdout


@pytest.mark.parametrize("created", ["inf", "nan", "1e300", "-1", "9" * 400, "never", ""])
def test_ls_believes_no_time_that_is_none(filled: Filled, invoke: Invoke, created: str) -> None:
    """A header is shown unverified; a time that can't be one is not known, in a table and in JSON."""
    ref = EntryRef.for_mm_hash(filled.alpha, "org/alpha", "odd", "uint8")
    spec = TensorSpec("uint8", (1,))
    frame = FreshFrame(ref, spec, memoryview(bytearray(1)), {"created": created})
    filled.stores[filled.alpha.fingerprint].put(ref, frame)
    shown = document(invoke("ls", "--path", filled.root, "--json", "--sort", "age"))
    assert [None] == [entry["created"] for entry in shown if entry["mm_hash"] == "odd"]
    assert 0 == invoke("ls", "--path", filled.root).exit_code


def test_a_time_of_use_may_be_any_number() -> None:
    """Some file systems keep 64 bits of seconds."""
    assert "2027-01-15T08:00:00Z" == iso_time(1_800_000_000)
    assert [None] * 4 == [iso_time(seconds) for seconds in (None, 1e300, float("nan"), 2.0**62)]


def test_ls_marks_an_entry_that_becomes_shorter(
    filled: Filled, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody truncates it while it is looked at: a fault of the entry, not of the command."""
    read = SystemFiles.read

    def read_less(self: SystemFiles, descriptor: int, target: memoryview, offset: int) -> int:
        return read(self, descriptor, target[: max(0, 50 - offset)], offset)

    monkeypatch.setattr(SystemFiles, "read", read_less)
    shown = document(invoke("ls", "--path", filled.root, "--json"))
    assert ["truncated: it became shorter"] * 4 == [entry["fault"] for entry in shown]


def test_what_a_client_named_cannot_steer_the_terminal(filled: Filled, invoke: Invoke) -> None:
    """Control characters of an id are shown as question marks."""
    filled.put(filled.alpha, "\x1b[31mred\x1b[0m\n", 10)
    result = invoke("ls", "--path", filled.root)
    assert "\x1b" not in result.stdout
    assert "?[31mred?[0m?" in result.stdout


def test_looking_changes_nothing(filled: Filled, invoke: Invoke) -> None:
    """Neither `stat` nor `ls` touches a file, its times, or what is in a directory."""

    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_ino)
            for path in [filled.root, *filled.root.rglob("*")]
        }

    before = state()
    invoke("stat", "--path", filled.root)
    invoke("ls", "--path", filled.root)
    assert before == state()


def test_a_namespace_without_description_is_listed(filled: Filled, invoke: Invoke) -> None:
    """A description that is missing, damaged or another's costs the words, not the numbers."""
    directory = filled.root / "v1" / filled.beta.fingerprint
    for content in (None, b"{", b"[]", b'{"fingerprint": "0000000000000000", "ingredients": {}}'):
        (directory / "namespace.json").unlink(missing_ok=True)
        if content is not None:
            (directory / "namespace.json").write_bytes(content)
        found = document(invoke("stat", "--path", filled.root, "--json"))
        assert [filled.alpha.fingerprint, filled.beta.fingerprint] == [
            namespace["fingerprint"] for namespace in found["namespaces"]
        ]
        assert {} == found["namespaces"][1]["ingredients"]
        assert 1 == found["namespaces"][1]["entries"]


def test_a_programs_own_namespace_is_told_by_its_models_and_all_ingredients(
    filled: Filled, invoke: Invoke
) -> None:
    """A library's user names the model apart from the identity: it is in the names of the entries."""
    for ingredients in ({}, {"revision": "abc", "tower": "left", "empty": ""}):
        namespace = Namespace.from_ingredients(ingredients)
        config = CacheConfig(local_disk=str(filled.root), min_free_space_ratio=0.0)
        filled.stores[namespace.fingerprint] = open_store(
            config, namespace, filled.clock, LocalTelemetry(filled.clock)
        )
        filled.put(namespace, "own-0", 10, model="my/model")
    found = document(invoke("stat", "--path", filled.root, "--json"))["namespaces"]
    assert [[], [], ["my/model"], ["my/model"]] == [namespace["models"] for namespace in found]
    text = invoke("stat", "--path", filled.root).stdout
    assert re.search(r"  my/model$", text, re.MULTILINE)
    assert re.search(r"  my/model revision=abc tower=left$", text, re.MULTILINE)
    namespace = Namespace.from_ingredients({})
    for number in range(4):
        filled.put(namespace, f"own-{number}", 10, model=f"a/{number}")
    text = invoke("stat", "--path", filled.root).stdout
    assert re.search(r"  a/0 a/1 a/2 and 2 more models$", text, re.MULTILINE)


def test_of_vllms_ingredients_the_telling_ones_are_shown(filled: Filled, invoke: Invoke) -> None:
    """It has dozens, which `--json` and the doctor list."""
    ingredients = {"model": "org/vlm", "vllm": "0.32.0", "processor_arguments": "{}"}
    namespace = Namespace.from_ingredients(ingredients)
    config = CacheConfig(local_disk=str(filled.root), min_free_space_ratio=0.0)
    filled.stores[namespace.fingerprint] = open_store(
        config, namespace, filled.clock, LocalTelemetry(filled.clock)
    )
    filled.put(namespace, "own-0", 10, model="org/vlm")
    text = invoke("stat", "--path", filled.root).stdout
    assert re.search(r"  org/vlm vllm=0.32.0$", text, re.MULTILINE)


def test_a_root_that_is_a_link_is_followed(filled: Filled, invoke: Invoke, tmp_path: Path) -> None:
    """An operator may name the store by a link, as servers may."""
    link = tmp_path / "link"
    link.symlink_to(filled.root)
    assert 4 == document(invoke("stat", "--path", link, "--json"))["entries"]


def test_times_are_those_of_the_store(filled: Filled, invoke: Invoke) -> None:
    """An entry that was used later is newer in both commands."""
    used = filled.put(filled.beta, "picture-5", 10, model="org/beta")
    os.utime(used, (NOW - 60, NOW - 60))
    entries = document(invoke("ls", "--path", filled.root, "--json"))
    assert "picture-5" == entries[0]["mm_hash"]
