"""Where settings come from, which source wins, and what becomes of unknown keys."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from eccache.app.config import CacheConfig, load_config, load_config_with_sources
from eccache.app.config.lmcache_keys import KV_KEYS, TIER_KEYS
from eccache.app.config.report import log_report
from eccache.domain.errors import ConfigError

GUIDE = """\
chunk_size: 256
local_cpu: true
max_local_cpu_size: 2          # GiB
local_disk: "file:///var/lmcache/ec"
max_local_disk_size: 16        # GiB
"""

MakeFile = Callable[[str], str]


@pytest.fixture
def yaml_file(tmp_path: Path) -> MakeFile:
    """Write text to a file and return its path."""

    def make(text: str) -> str:
        path = tmp_path / "lmcache.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return make


class Reports:
    """Keeps what was reported."""

    def __init__(self) -> None:
        self.events: list[tuple[str, bool, dict[str, str]]] = []

    def __call__(self, event: str, *, warning: bool, **fields: str) -> None:
        """Keep one."""
        self.events.append((event, warning, fields))


def test_a_user_of_lmcache_changes_nothing(yaml_file: MakeFile) -> None:
    """The file of LMCache's guide, under its own variable, means here what it means there."""
    reports = Reports()
    config = load_config(environ={"LMCACHE_CONFIG_FILE": yaml_file(GUIDE)}, report=reports)
    expected = CacheConfig(
        local_cpu=True,
        max_local_cpu_size=2,
        local_disk="/var/lmcache/ec",
        max_local_disk_size=16,
    )
    assert expected == config
    assert [] == reports.events


def test_without_any_source_the_defaults_hold() -> None:
    """One GiB of host memory, no implicit path; 64 GiB of disk once a path is set."""
    assert CacheConfig() == load_config(environ={})
    assert load_config(environ={}).local_disk is None
    assert load_config(environ={}).max_local_cpu_size == 1.0
    assert load_config(environ={}, local_disk="/x").max_local_disk_size == 64.0


# (file, environment, ec_connector_extra_config, arguments) -> max_local_disk_size, source
PRECEDENCE: list[tuple[str, dict[str, str], dict[str, object], dict[str, Any], float, str]] = [
    ("", {}, {}, {}, 64.0, "default"),
    (GUIDE, {}, {}, {}, 16.0, "key max_local_disk_size of {file}"),
    (
        GUIDE,
        {"LMCACHE_MAX_LOCAL_DISK_SIZE": "17"},
        {},
        {},
        17.0,
        "environment variable LMCACHE_MAX_LOCAL_DISK_SIZE",
    ),
    (
        GUIDE + "ec_max_local_disk_size: 18\n",
        {"LMCACHE_MAX_LOCAL_DISK_SIZE": "17"},
        {},
        {},
        18.0,
        "key ec_max_local_disk_size of {file}",
    ),
    (
        GUIDE + "ec: {max_local_disk_size: 19}\n",
        {"LMCACHE_MAX_LOCAL_DISK_SIZE": "17"},
        {},
        {},
        19.0,
        "key ec.max_local_disk_size of {file}",
    ),
    (
        "EC: {MAX_LOCAL_DISK_SIZE: 19}\n",
        {},
        {},
        {},
        19.0,
        "key EC.MAX_LOCAL_DISK_SIZE of {file}",
    ),
    (
        "ec: {max_local_disk_size: 19}\nec_max_local_disk_size: 18\n",
        {"LMCACHE_EC_MAX_LOCAL_DISK_SIZE": "64"},
        {},
        {},
        64.0,
        "environment variable LMCACHE_EC_MAX_LOCAL_DISK_SIZE",
    ),
    (
        "ec: {max_local_disk_size: 19}\n",
        {"LMCACHE_EC_MAX_LOCAL_DISK_SIZE": "20", "ECCACHE_MAX_LOCAL_DISK_SIZE": "'21'"},
        {},
        {},
        21.0,
        "environment variable ECCACHE_MAX_LOCAL_DISK_SIZE",
    ),
    (
        GUIDE,
        {"ECCACHE_MAX_LOCAL_DISK_SIZE": "21"},
        {"max_local_disk_size": 22},
        {},
        22.0,
        "key max_local_disk_size of ec_connector_extra_config",
    ),
    (
        GUIDE,
        {"ECCACHE_MAX_LOCAL_DISK_SIZE": "21"},
        {"max_local_disk_size": 22},
        {"max_local_disk_size": 23},
        23.0,
        "argument max_local_disk_size",
    ),
]


@pytest.mark.parametrize(
    ("text", "environ", "extra", "arguments", "expected", "source"), PRECEDENCE
)
def test_the_later_source_wins_and_is_named(
    yaml_file: MakeFile,
    text: str,
    environ: dict[str, str],
    extra: dict[str, object],
    arguments: dict[str, Any],
    expected: float,
    source: str,
) -> None:
    """Each source overrides those before it, and the effective value says where it came from."""
    path = yaml_file(text)
    loaded = load_config_with_sources(
        extra, environ={"LMCACHE_CONFIG_FILE": path, **environ}, **arguments
    )
    assert expected == loaded.config.max_local_disk_size
    assert source.format(file=path) == loaded.sources["max_local_disk_size"]


def test_eccache_can_be_given_a_file_of_its_own(tmp_path: Path) -> None:
    """With both variables set, the file that names eccache is the one that is read."""
    own, shared = tmp_path / "own.yaml", tmp_path / "shared.yaml"
    own.write_text("local_disk: /own\nchunk_size: 256\n", encoding="utf-8")
    shared.write_text("local_disk: /shared\nmax_local_disk_size: 3\n", encoding="utf-8")
    environ = {"ECCACHE_CONFIG_FILE": str(own), "LMCACHE_CONFIG_FILE": str(shared)}
    config = load_config(environ=environ)
    assert config.local_disk == "/own"
    assert config.max_local_disk_size == 64.0


SHARED = ["local_dsk: /x\n", "ec_local_dsk: /x\n", "ec: {local_dsk: /x}\n"]


@pytest.mark.parametrize("text", SHARED)
def test_an_unknown_key_of_a_shared_file_is_reported_and_dropped(
    yaml_file: MakeFile, text: str
) -> None:
    """A file that LMCache reads too may hold what only LMCache knows; a slip is still seen."""
    reports = Reports()
    config = load_config(environ={"LMCACHE_CONFIG_FILE": yaml_file(text)}, report=reports)
    assert CacheConfig() == config
    ((event, warning, fields),) = reports.events
    assert ("config.key.dropped", True) == (event, warning)
    assert ("local_dsk", "local_disk") == (fields["key"], fields["nearest"])


@pytest.mark.parametrize("name", ["LMCACHE_LOCAL_DSK", "LMCACHE_EC_LOCAL_DSK"])
def test_an_unknown_variable_shared_with_lmcache_is_reported_and_dropped(name: str) -> None:
    """The same for the environment."""
    reports = Reports()
    assert CacheConfig() == load_config(environ={name: "/x"}, report=reports)
    assert ["config.key.dropped"] == [event for event, _, _ in reports.events]


def test_what_is_near_no_setting_is_no_warning() -> None:
    """LMCache has variables that are no settings; they are worth a line, not an operator's time."""
    reports = Reports()
    load_config(environ={"LMCACHE_TRACK_USAGE": "false"}, report=reports)
    assert [False] == [warning for _, warning, _ in reports.events]


@pytest.mark.parametrize(
    ("environ", "extra", "arguments"),
    [
        ({"ECCACHE_LOCAL_DSK": "/x"}, {}, {}),
        ({}, {"local_dsk": "/x"}, {}),
        ({}, {}, {"local_dsk": "/x"}),
    ],
)
def test_an_unknown_key_of_eccaches_own_sources_stops_the_start(
    environ: dict[str, str], extra: dict[str, object], arguments: dict[str, Any]
) -> None:
    """Where a key can only be meant for eccache, a slip is an error that names the nearest key."""
    with pytest.raises(ConfigError, match="local_dsk: there is no such setting") as caught:
        load_config(extra, environ=environ, **arguments)
    assert "local_disk" in caught.value.remedy


def test_an_unknown_key_of_eccaches_own_file_stops_the_start(yaml_file: MakeFile) -> None:
    """The same for a file that ECCACHE_CONFIG_FILE names."""
    with pytest.raises(ConfigError, match="local_dsk: there is no such setting"):
        load_config(environ={"ECCACHE_CONFIG_FILE": yaml_file("local_dsk: /x\n")})


def test_a_key_near_none_is_refused_with_a_pointer_to_the_table() -> None:
    """Where nothing is near, the message says where the settings are listed."""
    with pytest.raises(ConfigError, match=r"docs/configuration\.md"):
        load_config({"zzz": 1}, environ={})


def test_a_key_of_the_kv_cache_is_refused_as_such() -> None:
    """Nobody is left to wonder why `chunk_size` has no influence."""
    with pytest.raises(ConfigError, match="LMCache's KV cache"):
        load_config({"chunk_size": 256}, environ={})


def test_keys_of_the_lmcache_tier_are_passed_through(yaml_file: MakeFile) -> None:
    """What builds the LMCache tier arrives there as it was written, from every source."""
    text = 'remote_url: "redis://h:1"\nextra_config: {enable_nixl_storage: true}\n'
    loaded = load_config_with_sources(
        {"nixl_buffer_size": 1024, "lmcache": {"some_later_key": [1]}},
        environ={
            "LMCACHE_CONFIG_FILE": yaml_file(text + "ec_remote_url: 'redis://h:2'\n"),
            "LMCACHE_EC_REMOTE_SERDE": "naive",
            "ECCACHE_BLOCKING_TIMEOUT_SECS": "20",
            "ECCACHE_LMCACHE": '{"cache_policy": "LRU"}',
        },
    )
    expected = {
        "remote_url": "redis://h:2",
        "extra_config": {"enable_nixl_storage": True},
        "remote_serde": "naive",
        "blocking_timeout_secs": "20",
        "cache_policy": "LRU",
        "nixl_buffer_size": 1024,
        "some_later_key": [1],
    }
    assert expected == dict(loaded.config.lmcache)
    assert "environment variable LMCACHE_EC_REMOTE_SERDE" == loaded.sources["lmcache.remote_serde"]
    assert "key lmcache of ec_connector_extra_config" == loaded.sources["lmcache.some_later_key"]


def test_a_size_of_zero_in_a_shared_source_is_one_not_chosen(yaml_file: MakeFile) -> None:
    """LMCache writes 0 for "the default"; in eccache's own sources it is a mistake."""
    reports = Reports()
    text = "local_disk: /x\nmax_local_disk_size: 0.0\nmax_local_cpu_size: '0'\n"
    config = load_config(environ={"LMCACHE_CONFIG_FILE": yaml_file(text)}, report=reports)
    assert CacheConfig(local_disk="/x") == config
    assert ["config.value.dropped"] * 2 == [event for event, _, _ in reports.events]


def test_a_setting_without_a_value_in_a_shared_source_is_one_not_chosen(
    yaml_file: MakeFile,
) -> None:
    """An empty line of a YAML file changes nothing."""
    path = yaml_file("local_disk:\nmax_local_disk_size: null\n")
    assert CacheConfig() == load_config(environ={"LMCACHE_CONFIG_FILE": path})


@pytest.mark.parametrize(
    ("text", "expected"), [("'/a, file:///b'", "/a"), ("/a", "/a"), ("''", None)]
)
def test_of_several_directories_in_a_shared_source_the_first_is_used(
    yaml_file: MakeFile, text: str, expected: str | None
) -> None:
    """LMCache spreads over several disks; eccache has one root, and says so."""
    reports = Reports()
    path = yaml_file(f"local_disk: {text}\n")
    config = load_config(environ={"LMCACHE_CONFIG_FILE": path}, report=reports)
    assert expected == config.local_disk
    assert ("file" in text) == bool(reports.events)


def test_a_bad_value_in_a_shared_source_stops_the_start(yaml_file: MakeFile) -> None:
    """A value that cannot be meant is never replaced by a default in silence."""
    path = yaml_file("max_local_disk_size: plenty\n")
    with pytest.raises(ConfigError, match=f"in key max_local_disk_size of {path}"):
        load_config(environ={"LMCACHE_CONFIG_FILE": path})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\n", "is no valid YAML"),
        ("- a\n- b\n", "holds a list"),
        ("just text\n", "holds a str"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    yaml_file: MakeFile, text: str, said: str
) -> None:
    """A file that was named is read, or the start is stopped."""
    with pytest.raises(ConfigError, match=said) as caught:
        load_config(environ={"LMCACHE_CONFIG_FILE": yaml_file(text)})
    assert caught.value.remedy != ""


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong path is not an empty configuration."""
    path = str(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="LMCACHE_CONFIG_FILE names"):
        load_config(environ={"LMCACHE_CONFIG_FILE": path})


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are named as such."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="ECCACHE_CONFIG_FILE names"):
        load_config(environ={"ECCACHE_CONFIG_FILE": str(path)})


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_an_empty_file_configures_nothing(yaml_file: MakeFile, text: str) -> None:
    """An empty file is an empty configuration."""
    assert CacheConfig() == load_config(environ={"LMCACHE_CONFIG_FILE": yaml_file(text)})


def test_keys_that_are_no_text_are_dropped_or_refused(yaml_file: MakeFile) -> None:
    """YAML allows numbers as keys; they are unknown keys like others."""
    reports = Reports()
    path = yaml_file("1: 2\nec: {3: 4}\nec: 5\n")
    load_config(environ={"LMCACHE_CONFIG_FILE": path}, report=reports)
    assert ["1", "ec"] == [fields["key"] for _, _, fields in reports.events]


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an injected environment, the process's own counts."""
    monkeypatch.setenv("ECCACHE_EPOCH", "seven")
    assert load_config().epoch == "seven"


def test_every_setting_has_a_source_and_is_shown() -> None:
    """`doctor` can print each effective value with where it came from, without secrets."""
    loaded = load_config_with_sources({"remote_url": "redis://u:pw@h:1"}, environ={})
    names = {field.name for field in attrs.fields(CacheConfig)} - {"lmcache"}
    rows = {name: (value, source) for name, value, source in loaded.rows()}
    assert names | {"lmcache.remote_url"} == set(rows)
    assert ("64.0", "default") == rows["max_local_disk_size"]
    assert (
        "redis://***@h:1",
        "key remote_url of ec_connector_extra_config",
    ) == rows["lmcache.remote_url"]


def test_no_key_is_sorted_twice() -> None:
    """A key steers eccache, builds the LMCache tier, or is the KV cache's: one of the three."""
    fields = {field.name for field in attrs.fields(CacheConfig)}
    assert frozenset() == TIER_KEYS & KV_KEYS
    assert set() == fields & (TIER_KEYS | KV_KEYS)


def test_reports_go_to_the_hosts_logging(caplog: pytest.LogCaptureFixture) -> None:
    """A line with the event and its values, at the level that it deserves."""
    with caplog.at_level(logging.INFO, logger="eccache.config"):
        log_report("config.key.dropped", warning=True, key="x")
        log_report("config.key.dropped", warning=False, key="y")
    assert [
        ("eccache.config", logging.WARNING, "config.key.dropped key='x'"),
        ("eccache.config", logging.INFO, "config.key.dropped key='y'"),
    ] == caplog.record_tuples
