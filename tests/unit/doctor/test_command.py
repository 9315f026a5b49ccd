"""`eccache doctor` as an operator or a script calls it, on real directories."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eccache.app.bootstrap.stores import open_store
from eccache.app.bootstrap.upkeep import try_out_root
from eccache.app.cli import main
from eccache.app.config import CacheConfig
from eccache.app.doctor import gather
from eccache.app.telemetry import LocalTelemetry
from eccache.domain.errors import ConfigError, StoreFault
from eccache.domain.namespace import Namespace
from eccache.ports.inspection import ServerFacts
from eccache.testing.clock import ManualClock
from eccache.testing.frames import frame_of, ref_of
from tests.unit.doctor.subjects import INGREDIENTS, server

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Call `eccache doctor` in an environment that configures nothing."""
    for name in [name for name in os.environ if name.startswith(("ECCACHE_", "LMCACHE_"))]:
        monkeypatch.delenv(name)

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["doctor", *map(str, arguments)])

    return call


@pytest.fixture
def known_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM whose arguments were looked at already; vLLM itself is asked in another test."""

    def inspect(arguments: tuple[str, ...]) -> ServerFacts:
        return server(model=arguments[0], extra_config={"max_local_disk_size": 1})

    monkeypatch.setattr(gather, "inspect_vllm", inspect)


def fill(root: Path, **ingredients: str) -> Namespace:
    """Store an entry of a server that differs in *ingredients*."""
    namespace = Namespace.from_ingredients(INGREDIENTS | ingredients)
    clock = ManualClock()
    config = CacheConfig(local_disk=str(root), min_free_space_ratio=0.0)
    store = open_store(config, namespace, clock, LocalTelemetry(clock))
    ref = ref_of("picture", namespace=namespace)
    store.put(ref, frame_of(ref))
    return namespace


def below(root: Path) -> set[str]:
    """Everything below a directory, by path."""
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_the_effective_configuration_is_shown_with_sources(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_server: None
) -> None:
    """Each value says where it came from: the environment, vLLM's arguments, the option, or nowhere."""
    monkeypatch.setenv("ECCACHE_EPOCH", "spring")
    found = json.loads(invoke("--path", tmp_path, "--json", "--", "org/vlm").stdout)
    rows = {row["name"]: (row["value"], row["source"]) for row in found["configuration"]}
    assert ("spring", "environment variable ECCACHE_EPOCH") == rows["epoch"]
    assert str(tmp_path) == rows["local_disk"][0]
    assert "ec_connector_extra_config" in rows["max_local_disk_size"][1]
    assert ("5.0", "default") == rows["lookup_timeout_seconds"]
    text = invoke("--path", tmp_path, "--", "org/vlm").stdout
    assert "environment variable ECCACHE_EPOCH" in text


def test_the_namespace_is_the_one_that_the_server_will_use(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_server: None
) -> None:
    """Fingerprint and ingredients are shown, the epoch among them; waiving the version is heeded."""
    monkeypatch.setenv("ECCACHE_EPOCH", "spring")
    monkeypatch.setenv("ECCACHE_IGNORE_VLLM_VERSION", "true")
    found = json.loads(invoke("--path", tmp_path, "--json", "--", "org/vlm").stdout)
    expected = Namespace.from_ingredients(INGREDIENTS | {"vllm": "", "epoch": "spring"})
    assert expected.fingerprint == found["namespace"]["fingerprint"]
    assert dict(expected.ingredients) == found["namespace"]["ingredients"]


def test_a_cold_server_beside_entries_of_another_revision_is_explained(
    invoke: Invoke, tmp_path: Path, known_server: None
) -> None:
    """Why there are no hits: the entries that are there are of a server that differs in this."""
    other = fill(tmp_path / "ec", revision="old")
    result = invoke("--path", tmp_path / "ec", "--json", "--model", "org/vlm")
    (finding,) = (f for f in json.loads(result.stdout)["findings"] if f["check"] == "namespace")
    assert "warning" == finding["severity"]
    assert other.fingerprint in finding["summary"]
    assert "revision: old against abc" in finding["cause"]


def test_a_warm_server_is_told(invoke: Invoke, tmp_path: Path, known_server: None) -> None:
    """Its entries are there."""
    fill(tmp_path / "ec")
    assert "this server starts warm" in invoke("--path", tmp_path / "ec", "--", "org/vlm").stdout


def test_exit_codes_are_for_scripts(invoke: Invoke, tmp_path: Path) -> None:
    """0 without errors, 1 with one; warnings count with --strict."""
    warned = tmp_path / "warned"
    warned.mkdir()
    warned.chmod(0o777)
    assert 0 == invoke("--path", warned).exit_code
    assert 1 == invoke("--path", warned, "--strict").exit_code
    file = tmp_path / "file"
    file.touch()
    result = invoke("--path", file)
    assert 1 == result.exit_code
    assert "error    root" in result.stdout
    assert "remedy" in result.stdout
    assert "1 error, 0 warnings\n" in result.stdout


def test_where_vllm_cannot_be_asked_the_written_settings_are_examined(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that the operator named is looked at, not the default; and the error is told."""

    def refuse(_arguments: tuple[str, ...]) -> ServerFacts:
        raise ConfigError("vLLM can't be imported here.", remedy="mend this environment.")

    monkeypatch.setattr(gather, "inspect_vllm", refuse)
    transfer = json.dumps({"ec_connector_extra_config": {"local_disk": str(tmp_path)}})
    for written in (["--ec-transfer-config", transfer], [f"--ec_transfer_config={transfer}"]):
        result = invoke("--json", "--", "org/vlm", *written)
        assert 1 == result.exit_code, result.output
        assert str(tmp_path) == json.loads(result.stdout)["root"]
        assert "asking vLLM" in result.stderr
    for wrong in ([], ["--ec-transfer-config"], ["--ec-transfer-config", "{'a': 1}"]):
        assert {} == gather.written_extra_config(["org/vlm", *wrong])
    no_map = json.dumps({"ec_connector_extra_config": "local_disk"})
    assert {} == gather.written_extra_config(["org/vlm", "--ec-transfer-config", no_map])


@pytest.mark.parametrize("prefix", ["ec", "kv"])
def test_the_option_of_the_kv_cache_is_told_from_the_right_one(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """vLLM, whose words would not help, is not asked; the directory that was meant is looked at."""
    monkeypatch.setattr(gather, "inspect_vllm", lambda _arguments: pytest.fail("vLLM was asked"))
    transfer = json.dumps(
        {
            f"{prefix}_connector": "ECCacheConnector",
            f"{prefix}_connector_extra_config": {"local_disk": str(tmp_path)},
        }
    )
    for written in (
        ["--kv-transfer-config", transfer],
        [f"--kv_transfer_config={transfer}"],
    ):
        result = invoke("--json", "--", "org/vlm", *written)
        assert 1 == result.exit_code, result.output
        found = json.loads(result.stdout)
        (finding,) = (f for f in found["findings"] if f["severity"] == "error")
        assert "the cache's connector is given to the wrong option" == finding["summary"]
        assert str(tmp_path) == found["root"]
    dotted = ["org/vlm", "--kv-transfer-config.kv_connector", "ECCacheConnector"]
    assert gather.is_given_to_the_kv_cache(dotted)


def test_a_connector_of_the_kv_cache_is_nobodys_slip() -> None:
    """It may stand beside the encoder cache's, and its settings are its own."""
    others = json.dumps(
        {"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": {"a": 1}}
    )
    arguments = ["org/vlm", "--kv-transfer-config", others]
    assert not gather.is_given_to_the_kv_cache(arguments)
    assert {} == gather.written_extra_config(arguments)


def test_the_self_tests_warnings_are_findings_alone(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store logs meanwhile is not printed between them, where nobody configured logging."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("eccache"), "handlers", [])
    (tmp_path / "ec").mkdir()
    (tmp_path / "ec").chmod(0o777)
    result = invoke("--path", tmp_path / "ec")
    assert "everybody can write" in result.stdout
    assert "" == result.stderr


def test_a_root_that_may_not_be_read_is_a_finding(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a wrong command line, though the path was given on it."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    result = invoke("--path", tmp_path)
    assert 1 == result.exit_code, result.output
    assert "can't be read" in result.stdout


def test_the_remote_tier_is_asked_where_there_is_one_and_may_be(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not without LMCache, which another finding says; and not where nothing may be tried out."""
    asked: list[object] = []

    def answer(config: CacheConfig) -> str:
        asked.append(config.lmcache["remote_url"])
        return "RemoteBackend"

    monkeypatch.setattr(gather, "try_out_tier", answer)
    monkeypatch.setattr("eccache.app.doctor.machine._version", lambda name: "9.0" if name else None)
    invoke("--path", tmp_path)
    monkeypatch.setenv("LMCACHE_REMOTE_URL", "redis://cache:6379")
    invoke("--path", tmp_path, "--no-self-test")
    assert [] == asked
    assert "redis://cache:6379 answers" in invoke("--path", tmp_path).stdout
    assert ["redis://cache:6379"] == asked
    monkeypatch.setattr("eccache.app.doctor.machine._version", lambda _name: None)
    result = invoke("--path", tmp_path, "--strict")
    assert 1 == result.exit_code
    assert "LMCache is configured and not installed" in result.stdout
    assert ["redis://cache:6379"] == asked


def test_a_configuration_that_cannot_be_used_is_a_finding(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not end the examination: the other checks still report."""
    monkeypatch.setenv("ECCACHE_DURABILITY", "for ever")
    result = invoke("--path", tmp_path, "--json")
    assert 1 == result.exit_code
    found = json.loads(result.stdout)
    assert 1 == found["errors"]
    assert {"versions", "configuration"} == {finding["check"] for finding in found["findings"]}


def test_examining_leaves_nothing_behind(invoke: Invoke, tmp_path: Path) -> None:
    """Neither in a used root, nor in an empty one; and a missing one is not made."""
    used, fresh, missing = tmp_path / "used", tmp_path / "fresh", tmp_path / "missing"
    fill(used)
    fresh.mkdir(mode=0o700)
    before = below(used)
    for root in (used, fresh, missing):
        result = invoke("--path", root)
        assert 0 == result.exit_code, result.output
    assert before == below(used)
    assert set() == below(fresh)
    assert not missing.exists()


def test_the_self_test_leaves_what_was_there(tmp_path: Path) -> None:
    """Empty places of a store that were there stay, and so does a table that has something to account for."""
    opened, counted = tmp_path / "opened", tmp_path / "counted"
    (opened / "v1" / "unfinished").mkdir(parents=True)
    fill(counted)
    (counted / "v1" / "usage").unlink()
    before = below(counted)
    for root in (opened, counted):
        root.chmod(0o700)
        try_out_root(str(root), CacheConfig(local_disk=str(root)))
    assert {"v1", "v1/unfinished"} == below(opened)
    assert before | {"v1/usage"} == below(counted)


def test_a_root_inside_a_store_is_named_and_not_tried_out(invoke: Invoke, tmp_path: Path) -> None:
    """The error names the root that was meant, and no second store is made in the first."""
    root = tmp_path / "ec"
    namespace = fill(root)
    before = below(root)
    for place in (root / "v1", root / "v1" / namespace.fingerprint):
        result = invoke("--path", place)
        assert 1 == result.exit_code, result.output
        assert f"{place} is inside a store" in result.stdout
        assert f"set local_disk to {root}." in result.stdout
        assert "1 error, " in result.stdout
    assert before == below(root)


def test_a_directory_that_is_only_called_like_a_stores_own_is_a_root(
    invoke: Invoke, tmp_path: Path
) -> None:
    """A release's directory, for instance."""
    (tmp_path / "v2").mkdir(mode=0o700)
    assert 0 == invoke("--path", tmp_path / "v2").exit_code


def test_the_self_test_really_stores(invoke: Invoke, tmp_path: Path) -> None:
    """It fails where putting fails, and can be left out."""
    root = tmp_path / "ec"
    fill(root)
    assert "a small entry was stored" in invoke("--path", root).stdout
    assert "self-test" not in invoke("--path", root, "--no-self-test").stdout
    shutil.rmtree(root / "v1" / "unfinished")
    (root / "v1" / "unfinished").touch()
    with pytest.raises(StoreFault, match="put failed"):
        try_out_root(str(root), CacheConfig(local_disk=str(root)))


def test_the_self_test_evicts_nothing(invoke: Invoke, tmp_path: Path) -> None:
    """Neither where the store is above the cap that is known here, nor where the disk is at its floor."""
    root = tmp_path / "ec"
    fill(root)
    before = below(root)
    for config in (
        CacheConfig(local_disk=str(root), max_local_disk_size=0.000001),
        CacheConfig(local_disk=str(root), min_free_space_ratio=0.999999),
    ):
        try_out_root(str(root), config)
        assert before == below(root)


def test_variables_before_the_command_are_those_of_what_is_examined(tmp_path: Path) -> None:
    """As a shell and `env` take them, from the start of the interpreter on; values are not repeated."""
    (tmp_path / "module_of_the_server.py").write_text("")
    root = tmp_path / "ec"
    examined = subprocess.run(
        [
            *(sys.executable, "-c", _DOCTOR, "doctor", "--json", "--"),
            *("ECCACHE_EPOCH=a secret", "/usr/bin/env", f"ECCACHE_LOCAL_DISK={root}"),
            f"PYTHONPATH={os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == examined.returncode, examined.stderr
    found = json.loads(examined.stdout)
    rows = {row["name"]: (row["value"], row["source"]) for row in found["configuration"]}
    assert ("a secret", "environment variable ECCACHE_EPOCH") == rows["epoch"]
    assert str(root) == found["root"]
    told = "with the variables before the command: ECCACHE_EPOCH, ECCACHE_LOCAL_DISK, PYTHONPATH"
    assert [told, "imported"] == examined.stderr.splitlines()


_DOCTOR = """
import importlib.util, sys
from eccache.app.cli import main
if importlib.util.find_spec("module_of_the_server"):
    print("imported", file=sys.stderr)
main()
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--", "env", "-i", "vllm", "serve", "org/vlm"], "not -i: leave it out"),
        (["A=B", "--", "vllm", "serve", "org/vlm"], "Write -- before"),
        (["A=B", "vllm", "serve", "org/vlm"], "Write -- before"),
    ],
)
def test_variables_that_are_not_understood_are_refused(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    """Another environment than the server's is not examined in silence."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "eccache", "doctor", *words])
    result = invoke(*words)
    assert 2 == result.exit_code, result.output
    assert why in " ".join(result.stderr.split())


def test_the_program_is_run_anew_as_it_was_without_the_variables(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of both sides stay where they were."""
    words = ["--strict", "--", "env", "A=1", "B=x=y", "vllm", "serve", "org/vlm", "--config", "C=2"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "eccache", "doctor", *words])
    started: list[tuple[list[str], dict[str, str]]] = []

    def execve(_path: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append((arguments, environment))
        sys.exit(0)

    monkeypatch.setattr(os, "execve", execve)
    invoke(*words)
    ((arguments, environment),) = started
    kept = ["--strict", "--", "vllm", "serve", "org/vlm", "--config", "C=2"]
    assert ["python", "eccache", "doctor", *kept] == arguments
    assert ("1", "x=y") == (environment["A"], environment["B"])
    assert "C" not in environment


def test_the_difference_of_two_namespaces(invoke: Invoke, tmp_path: Path) -> None:
    """By fingerprint, its start, directory or file: the ingredients that differ, and only those."""
    root = tmp_path / "ec"
    first, second = fill(root), fill(root, revision="old", quantization="fp8")
    folder = root / "v1" / second.fingerprint
    for name in (second.fingerprint, second.fingerprint[:8], folder, folder / "namespace.json"):
        result = invoke("--path", root, "--json", "--diff", first.fingerprint, name)
        assert 1 == result.exit_code, result.output
        found = json.loads(result.stdout)
        assert (first.fingerprint, second.fingerprint) == (found["first"], found["second"])
        assert [
            {"name": "quantization", "first": None, "second": "fp8"},
            {"name": "revision", "first": "abc", "second": "old"},
        ] == found["differences"]
    text = invoke("--path", root, "--diff", first.fingerprint, second.fingerprint).stdout
    assert ["quantization", "(none)", "fp8"] == text.splitlines()[1].split()


def test_a_namespace_does_not_differ_from_itself(invoke: Invoke, tmp_path: Path) -> None:
    """Exit code 0, as `diff` has it."""
    namespace = fill(tmp_path / "ec")
    twice = (namespace.fingerprint, namespace.fingerprint)
    result = invoke("--path", tmp_path / "ec", "--diff", *twice)
    assert 0 == result.exit_code
    assert "the same ingredients" in result.stdout


@pytest.mark.parametrize("name", ["ffffffffffffffff", "", "/not/there", "broken.json"])
def test_a_namespace_that_is_not_there_is_told(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With exit code 3 and what there is instead."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("[]")
    first = fill(tmp_path / "ec")
    fill(tmp_path / "ec", revision="old")
    result = invoke("--path", tmp_path / "ec", "--diff", first.fingerprint, name)
    assert 3 == result.exit_code, result.output
    assert "Remedy:" in result.stderr
    assert "Traceback" not in result.output
