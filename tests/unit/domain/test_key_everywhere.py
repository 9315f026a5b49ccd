"""Keys and fingerprints are the same in every process, under every hash seed, in every Python.

The Pythons are those found: this one, those on the PATH, and those that pyenv keeps. Which ran stands
in the tests' names. `eccache.domain.key` needs the standard library and attrs alone, so an interpreter
without any package takes both from here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import attr
import attrs
import pytest

from eccache.domain.file_name import file_name, shard_name
from eccache.domain.key import EntryKey, mm_digest
from eccache.domain.namespace import Namespace

SOURCES = Path(__file__).parents[3] / "src"
SUPPORTED = [(3, minor) for minor in range(11, 20)]

PROGRAM = """
import json, sys
from eccache.domain.file_name import file_name, shard_name
from eccache.domain.key import EntryKey, mm_digest
from eccache.domain.namespace import Namespace
rows = []
for model, mm_hash, dtype in CASES:
    key = EntryKey.for_mm_hash(model, mm_hash, dtype)
    rows.append([
        key.to_string(), file_name(key), shard_name(key), mm_digest(mm_hash).hex(),
        Namespace.from_ingredients({"model": model, "id": mm_hash}).fingerprint,
    ])
json.dump(rows, sys.stdout)
"""

CASES = [
    ("Qwen/Qwen2.5-VL-7B-Instruct", "", "bfloat16"),
    (
        "/mnt/models/qwen2-vl",
        "e4b101c6dd724aa72a515a2282aaa35c11085231bd0e9d03e7eff0a2c5a0a5b3",
        "float",
    ),
    ("../../x", "../../etc/x", "int8"),
    ("é" * 200, "a\nb\0", "float16"),
    ("m", "\ud800\udfff", "bool"),
    ("😀", "\udfff", "float4_e2m1fn_x2"),
]


def _asked(python: str) -> tuple[str, str]:
    """The version and the path of what *python* starts: of pyenv's wrappers, which read the environment."""
    program = "import sys; print(*sys.version_info[:2], sep='.'); print(sys.executable)"
    command = [python, "-I", "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "", ""
    version, _, path = done.stdout.partition("\n")
    return version, path.strip()


@cache
def interpreters() -> dict[str, str]:
    """One interpreter of each supported Python, by version."""
    found = {f"{sys.version_info.major}.{sys.version_info.minor}": sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for major, minor in SUPPORTED:
        name = f"python{major}.{minor}"
        on_path = shutil.which(name)
        kept = sorted(pyenv.glob(f"versions/*/bin/{name}"))
        for python in ([on_path] if on_path else []) + list(map(str, kept)):
            version, path = _asked(python)
            if version == f"{major}.{minor}":
                found.setdefault(version, path)
    return found


def rows_of(python: str, **environ: str) -> list[list[str]]:
    """What *python*, a process of its own, makes of the cases."""
    path = [str(SOURCES), str(Path(attrs.__file__).parents[1]), str(Path(attr.__file__).parents[1])]
    done = subprocess.run(
        # As a literal: JSON would join two surrogates to one character on the way.
        [python, "-S", "-B", "-c", f"CASES = {CASES!a}" + PROGRAM],
        env={"PYTHONPATH": os.pathsep.join(path), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    result: list[list[str]] = json.loads(done.stdout)
    return result


@cache
def expected() -> list[list[str]]:
    """What this process makes of them."""
    rows = []
    for model, mm_hash, dtype in CASES:
        key = EntryKey.for_mm_hash(model, mm_hash, dtype)
        rows.append(
            [
                key.to_string(),
                file_name(key),
                shard_name(key),
                mm_digest(mm_hash).hex(),
                Namespace.from_ingredients({"model": model, "id": mm_hash}).fingerprint,
            ]
        )
    return rows


@pytest.mark.parametrize("version", interpreters())
def test_every_python_names_alike(version: str) -> None:
    """Servers on different Pythons share their entries."""
    assert expected() == rows_of(interpreters()[version])


@pytest.mark.parametrize("seed", ["0", "1", "4294967295", "random"])
def test_hash_seeds_have_no_influence(seed: str) -> None:
    """Two processes of one Python share their entries, whatever their hash seeds."""
    assert expected() == rows_of(sys.executable, PYTHONHASHSEED=seed)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "de_DE.ISO-8859-1"])
def test_locales_have_no_influence(locale: str) -> None:
    """Nor does the language of a server."""
    assert expected() == rows_of(sys.executable, LC_ALL=locale, PYTHONUTF8="0")
