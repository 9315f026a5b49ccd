"""What a setting may be, and what is said where it may not."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

from eccache.app.config import CacheConfig, load_config
from eccache.app.config.redaction import for_people
from eccache.domain.errors import ConfigError

NAN = float("nan")

REFUSED: list[tuple[dict[str, object], str]] = [
    ({"max_local_disk_size": -1}, "max_local_disk_size: -1.0 is out of bounds"),
    ({"max_local_disk_size": 0}, "a number of GiB above 0"),
    ({"max_local_disk_size": NAN}, "max_local_disk_size: nan is not finite"),
    ({"max_local_disk_size": float("inf")}, "is not finite"),
    ({"max_local_disk_size": 1e300}, "is too large"),
    ({"max_local_disk_size": 10**400}, "is too large"),
    ({"close_timeout_seconds": 1e12}, "a number of seconds above 0 and below 1,000,000,000"),
    ({"writer_threads": 10**400}, "is too large"),
    ({"max_local_disk_size": "64 GB"}, "'64 GB' is no number"),
    ({"max_local_disk_size": True}, "True is no number"),
    ({"max_local_disk_size": None}, "None is no number"),
    ({"max_local_cpu_size": -0.5}, "max_local_cpu_size: -0.5 is out of bounds"),
    ({"max_promised_size": 0}, "max_promised_size: 0.0 is out of bounds"),
    ({"write_queue_size": "much"}, "'much' is no number"),
    ({"min_free_space_ratio": 1}, "at least 0 and below 1"),
    ({"min_free_space_ratio": -0.1}, "at least 0 and below 1"),
    ({"lookup_timeout_seconds": 0}, "a number of seconds above 0"),
    ({"promise_ttl_seconds": NAN}, "is not finite"),
    ({"writer_threads": 0}, "a whole number at least 1"),
    ({"writer_threads": 1.5}, "1.5 is no whole number"),
    ({"writer_threads": "two"}, "'two' is no whole number"),
    ({"writer_threads": True}, "True is no whole number"),
    ({"max_deferred_requests": -1}, "a whole number at least 0"),
    ({"durability": "forever"}, "write 'process' or 'power'"),
    ({"durability": 3}, "write 'process' or 'power'"),
    ({"local_cpu": "maybe"}, "write true or false"),
    ({"local_cpu": 2}, "write true or false"),
    ({"enabled": None}, "write true or false"),
    ({"epoch": True}, "epoch: True is no text"),
    ({"epoch": ["a"]}, "write it in quotes"),
    ({"trust_client_ids": "user-("}, "is no regular expression"),
    ({"trust_client_ids": ""}, "is neither a flag nor a pattern"),
    ({"trust_client_ids": 7}, "is neither a flag nor a pattern"),
    ({"local_disk": "s3://bucket/x"}, "is no file:// URL"),
    ({"local_disk": "redis://h:1"}, "a remote store is named by remote_url"),
    ({"local_disk": "file://host/x"}, "write three slashes"),
    ({"local_disk": "file://relative"}, "write three slashes"),
    ({"local_disk": "file:///x?y=1"}, "has a query or a fragment"),
    ({"local_disk": "/a,/b"}, "names several directories"),
    ({"local_disk": "/a, file:///b"}, "names several directories"),
    ({"local_disk": "/a\0b"}, "has a NUL character"),
    ({"local_disk": "/a\ud800b"}, "has a character that no path has"),
    ({"local_disk": "file:///a%00b"}, "has a NUL character"),
    ({"local_disk": "~no-such-user-here/x"}, "an unknown user's home"),
    ({"local_disk": 7}, "is no path"),
    ({"local_disk": b"/x"}, "is no path"),
    ({"lmcache": "remote_url"}, "is no mapping of names to values"),
    ({"lmcache": {1: 2}}, "is no mapping of names to values"),
    ({"local_cpu": False}, "neither local_disk nor local_cpu is on"),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_value_that_cannot_be_used_is_refused_with_cause_and_remedy(
    values: dict[str, object], said: str
) -> None:
    """Whoever configures nonsense learns which setting, why, and what to write instead."""
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load_config(values, environ={})
    assert caught.value.remedy != ""
    assert next(iter(values)) in caught.value.cause


@pytest.mark.parametrize(
    "values",
    [values for values, _ in REFUSED if not isinstance(next(iter(values.values())), dict)],
    ids=str,
)
def test_the_constructor_refuses_what_the_sources_refuse(values: dict[str, object]) -> None:
    """A program's own mistakes are found like those of a file."""
    with pytest.raises(ConfigError):
        CacheConfig(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "shown", "meant"),
    [
        (68719476736, "68719476736", "write 64 if"),
        ("2147483648000", "2147483648000", "write 2000 if"),
        (10**9, "1000000000", "write 0.93 if"),
        (10**400, "1" + "0" * 79 + "...", "above 0 and below 1,000,000,000"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bytes_given_for_gib_are_told(written: object, shown: str, meant: str) -> None:
    """The value is the user's own, and what he probably meant is in the unit that is wanted."""
    with pytest.raises(ConfigError) as refused:
        load_config({"max_local_disk_size": written}, environ={})
    assert f"max_local_disk_size: {shown}" in refused.value.cause
    assert meant in refused.value.remedy


READ: list[tuple[dict[str, object], str, object]] = [
    ({"local_cpu": "True"}, "local_cpu", True),
    ({"local_cpu": "false", "local_disk": "/x"}, "local_cpu", False),
    ({"local_cpu": "0", "local_disk": "/x"}, "local_cpu", False),
    ({"local_cpu": 1}, "local_cpu", True),
    ({"shared_group": " ON "}, "shared_group", True),
    ({"isolate_salted": "yes"}, "isolate_salted", True),
    ({"max_local_disk_size": "16"}, "max_local_disk_size", 16.0),
    ({"max_local_disk_size": " 0.5 "}, "max_local_disk_size", 0.5),
    ({"max_local_disk_size": 3}, "max_local_disk_size", 3.0),
    ({"writer_threads": "3"}, "writer_threads", 3),
    ({"max_deferred_requests": "8"}, "max_deferred_requests", 8),
    ({"max_deferred_requests": "none"}, "max_deferred_requests", None),
    ({"max_deferred_requests": 0}, "max_deferred_requests", 0),
    ({"max_promised_size": ""}, "max_promised_size", None),
    ({"max_promised_size": "2"}, "max_promised_size", 2.0),
    ({"durability": " Power"}, "durability", "power"),
    ({"epoch": 7}, "epoch", "7"),
    ({"epoch": "true"}, "epoch", "true"),
    ({"trust_client_ids": "true"}, "trust_client_ids", True),
    ({"trust_client_ids": "tenant-[0-9]+"}, "trust_client_ids", "tenant-[0-9]+"),
    ({"local_disk": "/var/cache/ec"}, "local_disk", "/var/cache/ec"),
    ({"local_disk": "/var//cache/x/../ec/"}, "local_disk", "/var/cache/ec"),
    ({"local_disk": "file:///var/lmcache/ec"}, "local_disk", "/var/lmcache/ec"),
    ({"local_disk": "FILE://localhost/a%20b"}, "local_disk", "/a b"),
    ({"local_disk": "file:///a,b"}, "local_disk", "/a,b"),
    ({"local_disk": Path("/var/ec")}, "local_disk", "/var/ec"),
    ({"local_disk": "  "}, "local_disk", None),
    ({"local_disk": None}, "local_disk", None),
    ({"lmcache": '{"remote_url": "fs://h:1/x"}'}, "lmcache", {"remote_url": "fs://h:1/x"}),
]


@pytest.mark.parametrize(("values", "name", "expected"), READ, ids=lambda value: str(value)[:50])
def test_a_value_means_what_it_says(values: dict[str, object], name: str, expected: object) -> None:
    """Numbers and flags may be text, since an environment knows nothing else."""
    config = load_config(values, environ={})
    assert expected == getattr(config, name)
    assert type(expected) is type(getattr(config, name)) or name == "lmcache"


def test_a_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` means the home directory, in a path."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert CacheConfig(local_disk="~/ec").local_disk == "/home/someone/ec"


def test_a_relative_path_is_fixed_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later change of the current directory moves no cache."""
    monkeypatch.chdir(tmp_path)
    config = CacheConfig(local_disk="here/ec")
    monkeypatch.chdir("/")
    assert str(tmp_path / "here" / "ec") == config.local_disk


def test_every_bad_setting_is_named_at_once() -> None:
    """Nobody has to start a server five times to find five mistakes."""
    bad = {"max_local_disk_size": -1, "writer_threads": "x", "durability": "z", "lokal_disk": "/x"}
    with pytest.raises(ConfigError) as caught:
        load_config(bad, environ={})
    for name in bad:
        assert f"{name}: " in caught.value.cause
        assert f"key {name} of ec_connector_extra_config" in caught.value.cause
    assert "write local_disk, which is the nearest" in caught.value.remedy


def test_a_config_is_a_value() -> None:
    """Equal settings are equal, hash alike, survive pickling and copying, and cannot be changed."""
    config = CacheConfig(local_disk="/x", lmcache={"remote_url": "redis://h:1"})
    same = CacheConfig(local_disk="file:///x", lmcache={"remote_url": "redis://h:1"})
    assert config == same
    assert hash(config) == hash(same)
    assert config == pickle.loads(pickle.dumps(config))  # noqa: S301 - made in this line
    assert config == copy.deepcopy(config)
    assert config != CacheConfig(local_disk="/x")
    with pytest.raises(AttributeError):
        config.local_disk = "/y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.lmcache["remote_url"] = "other"  # type: ignore[index]


def test_sizes_are_gib() -> None:
    """A size of 1 is 2**30 bytes, and promised copies get the memory's share by default."""
    config = CacheConfig(
        max_local_cpu_size=2, max_local_disk_size=0.5, write_queue_size=0.25, max_promised_size=None
    )
    assert 2 << 30 == config.max_local_cpu_nbytes
    assert 1 << 29 == config.max_local_disk_nbytes
    assert 1 << 28 == config.write_queue_nbytes
    assert 2 << 30 == config.max_promised_nbytes
    assert 1 << 30 == CacheConfig(max_promised_size=1).max_promised_nbytes


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("remote_url", "redis://user:pw@host:1/0", "redis://***@host:1/0"),
        ("remote_url", "s3://b?region=x&secret_key=abc", "s3://b?region=x&secret_key=***"),
        (
            "extra_config",
            {"a": {"s3_access_key": "abc", "b": 1}},
            "{'a': {'s3_access_key': '***', 'b': 1}}",
        ),
        ("extra_config", '{"password": "abc"}', '{"password": "***"}'),
        ("extra_config", '{"password": "abc"', "***"),
        ("urls", ["redis://u:p@h", "redis://h"], "['redis://***@h', 'redis://h']"),
        ("api_token", "abc", "***"),
        ("api_token", None, "None"),
        ("max_local_disk_size", 64.0, "64.0"),
    ],
)
def test_secrets_are_not_shown(name: str, value: object, shown: str) -> None:
    """What people paste into a bug report lets nobody in."""
    assert shown == for_people(name, value)


def test_an_error_shows_no_secret() -> None:
    """A refused URL is shown without its password."""
    with pytest.raises(ConfigError) as caught:
        CacheConfig(local_disk="redis://user:pw@host")
    assert "pw" not in str(caught.value)


def test_a_long_value_is_shown_in_part() -> None:
    """A message stays a message, whatever was written."""
    with pytest.raises(ConfigError) as caught:
        CacheConfig(durability="x" * 10_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300
