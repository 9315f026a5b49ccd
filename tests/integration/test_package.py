"""What users install: the built wheel, its contents, and how it behaves where nothing else is."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
HELP_SECONDS = 0.3
"""What `eccache --help` may take, interpreter included."""


@attrs.frozen
class Built:
    """The two distributions, as they would be published."""

    wheel: Path
    sdist: Path


def build(project: Path, target: Path, *kinds: str) -> None:
    """Build *kinds* of distributions of *project* into *target*, with the installed build back end."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    for kind in kinds:
        command += ["-t", kind]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both distributions of the tree as it is."""
    target = tmp_path_factory.mktemp("dist")
    build(ROOT, target, "sdist", "wheel")
    (wheel,) = target.glob("*.whl")
    (sdist,) = target.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def bare_environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, what it requires, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(home / "bin" / "python")),
            *("install", "--quiet", "--disable-pip-version-check", str(built.wheel)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stdout + result.stderr
    return home / "bin"


def digests(wheel: Path) -> dict[str, str]:
    """The digest of every file of a wheel by name, less the list of digests itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/RECORD")
        }


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The fields of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(archive.read(name).decode())
    return {key: message.get_all(key, []) for key in message}


def test_the_wheel_has_every_module_and_the_type_marker_and_nothing_else(built: Built) -> None:
    """What is in the source tree is installed, with `py.typed`, the licence, and no test."""
    expected = {
        str(path.relative_to(SOURCES))
        for path in (SOURCES / "eccache").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    installed = {name for name in names if ".dist-info/" not in name}
    assert expected == installed
    assert "eccache/py.typed" in installed
    about = {name.partition(".dist-info/")[2] for name in names - installed}
    assert {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"} == about


def test_the_wheel_says_what_it_is(built: Built) -> None:
    """Version, licence, Python and typing stand in the metadata; the version is the one in the code."""
    import eccache

    fields = metadata(built.wheel)
    assert [eccache.__version__] == fields["Version"]
    assert ["Apache-2.0"] == fields["License-Expression"]
    assert [">=3.11"] == fields["Requires-Python"]
    assert "Typing :: Typed" in fields["Classifier"]
    assert ["text/markdown"] == fields["Description-Content-Type"]


def test_no_requirement_of_the_core_has_an_upper_bound(built: Built) -> None:
    """Installing beside a serving framework moves none of the framework's pins."""
    core = [line for line in metadata(built.wheel)["Requires-Dist"] if "extra ==" not in line]
    assert core
    assert [] == [line for line in core if "<" in line or "==" in line or "~=" in line]


def test_the_sdist_has_what_tests_docs_and_deployment_need(built: Built) -> None:
    """From the sdist alone one can build, test, read and deploy."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in (
        "pyproject.toml",
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "Makefile",
        "src/eccache/py.typed",
        "tests/conftest.py",
        "docs/index.md",
        "docs/conf.py",
        "deploy/grafana/eccache.json",
    ):
        assert wanted in names
    assert [] == [name for name in names if "__pycache__" in name or name.startswith(".venv")]


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    """A wheel that is built from the sdist has the files of the one built from the tree, byte for byte."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = tmp_path.iterdir()
    build(project, tmp_path / "dist", "wheel")
    (rebuilt,) = (tmp_path / "dist").glob("*.whl")
    assert digests(built.wheel) == digests(rebuilt)


def test_help_is_quick_in_an_empty_environment(bare_environment: Path) -> None:
    """`eccache --help` answers in 0.3 s: commands are loaded when they are run."""
    seconds = []
    for _ in range(7):
        begin = time.perf_counter()
        result = subprocess.run(
            [bare_environment / "eccache", "--help"], capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - begin)
        assert "doctor" in result.stdout
    # The quickest: what others on the machine do makes it slower, never quicker.
    assert min(seconds) < HELP_SECONDS, seconds


def test_every_command_explains_itself_in_an_empty_environment(bare_environment: Path) -> None:
    """No command needs a host framework to say what it does."""
    for command in ("demo", "doctor", "gc", "ls", "purge", "stat", "verify"):
        result = subprocess.run(
            [bare_environment / "eccache", command, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert 0 == result.returncode, result.stdout + result.stderr
        assert "--json" in result.stdout


def test_the_version_is_the_same_from_everywhere(bare_environment: Path, built: Built) -> None:
    """Command, module and metadata agree."""
    (version,) = metadata(built.wheel)["Version"]
    program = (
        "import eccache, importlib.metadata as m; print(eccache.__version__, m.version('eccache'))"
    )
    by_command = subprocess.run(
        [bare_environment / "eccache", "--version"], capture_output=True, text=True, check=True
    )
    by_module = subprocess.run(
        [bare_environment / "python", "-c", program], capture_output=True, text=True, check=True
    )
    assert f"eccache, version {version}" == by_command.stdout.strip()
    assert f"{version} {version}" == by_module.stdout.strip()


def test_a_users_type_checker_sees_the_types(bare_environment: Path, tmp_path: Path) -> None:
    """mypy, run on a user's program, takes the types from the installed package."""
    program = tmp_path / "program.py"
    program.write_text("import eccache\nreveal_type(eccache.load_config().max_local_disk_size)\n")
    result = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--cache-dir"),
            *(str(tmp_path / "cache"), "--python-executable", str(bare_environment / "python")),
            str(program),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Revealed type is "float"' in result.stdout.replace("builtins.", ""), result.stdout
    assert 0 == result.returncode, result.stdout + result.stderr


def test_the_changelog_has_a_place_for_the_current_version() -> None:
    """A version that is not released yet is under `Unreleased`; a released one has its heading."""
    import eccache

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = "Unreleased" if ".dev" in eccache.__version__ else eccache.__version__
    assert f"## [{heading}]" in text


def test_the_build_back_end_is_the_one_that_is_tested() -> None:
    """What builds a release is what built the distributions of these tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirement = project["build-system"]["requires"]
    assert requirement == ["hatchling>=1.26"]
    assert set(requirement) <= set(project["project"]["optional-dependencies"]["dev"])
