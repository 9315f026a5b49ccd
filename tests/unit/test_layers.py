"""The layer rules hold, and each of them fails when it is broken.

A rule that can't fail holds nothing: every case below plants one violation into empty layers and
requires the checker to refuse it under the name of its contract.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"

INWARD = "Imports point inward: app, adapters, ports, domain"
NO_FRAMEWORK = "Domain and ports know no framework"
STRANGERS = "Adapters are strangers to each other"
COMPOSITION_ROOT = "Only the composition root and host entry points name concrete adapters"
GENERIC_ENGINE = "Engine and ledger know no framework"
NO_TESTING = "Production code never imports eccache.testing"
NO_TEST_FRAMEWORK = "Production code needs no test framework"

# What the two inner layers may load besides the standard library. import-linter has no contract for
# an allow-list, so it is checked here.
ALLOWED_IN_CORE = {"attrs", "xxhash", "eccache"}
# Names that say nothing about what is inside.
BANNED_NAMES = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


@attrs.frozen
class Violation:
    """Modules that break one rule: source text by path below `src/eccache`."""

    contract: str
    modules: dict[str, str]


VIOLATIONS = {
    "domain-imports-ports": Violation(
        INWARD, {"domain/planted.py": "import eccache.ports.planted", "ports/planted.py": ""}
    ),
    "ports-import-adapters": Violation(
        INWARD, {"ports/planted.py": "import eccache.adapters.planted", "adapters/planted.py": ""}
    ),
    "adapters-import-app": Violation(
        INWARD, {"adapters/planted.py": "import eccache.app.planted", "app/planted.py": ""}
    ),
    "domain-reaches-app-through-the-package": Violation(
        INWARD,
        {
            "domain/planted.py": "import eccache",
            "app/planted.py": "",
            "__init__.py": "import eccache.app.planted",
        },
    ),
    "import-for-type-checking-only": Violation(
        INWARD,
        {
            "domain/planted.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import eccache.app.planted",
            "app/planted.py": "",
        },
    ),
    "import-inside-a-function": Violation(
        INWARD,
        {
            "domain/planted.py": "def later():\n    import eccache.app.planted",
            "app/planted.py": "",
        },
    ),
    "a-module-outside-of-every-layer": Violation(INWARD, {"utils.py": ""}),
    **{
        f"{layer}-imports-{framework}": Violation(
            NO_FRAMEWORK, {f"{layer}/planted.py": f"import {framework}"}
        )
        for layer in ("domain", "ports")
        for framework in ("torch", "vllm", "lmcache", "cattrs", "structlog")
    },
    "an-adapter-imports-another": Violation(
        STRANGERS,
        {
            "adapters/planted_a/__init__.py": "",
            "adapters/planted_a/inner.py": "import eccache.adapters.planted_b.inner",
            "adapters/planted_b/__init__.py": "",
            "adapters/planted_b/inner.py": "",
        },
    ),
    "the-adapters-package-collects-adapters": Violation(
        COMPOSITION_ROOT,
        {"adapters/__init__.py": "import eccache.adapters.planted", "adapters/planted.py": ""},
    ),
    "app-names-an-adapter": Violation(
        COMPOSITION_ROOT,
        {"app/planted.py": "import eccache.adapters.planted", "adapters/planted.py": ""},
    ),
    "the-package-names-an-adapter": Violation(
        COMPOSITION_ROOT,
        {"__init__.py": "import eccache.adapters.planted", "adapters/planted.py": ""},
    ),
    "testing-names-an-adapter": Violation(
        COMPOSITION_ROOT,
        {"testing/planted.py": "import eccache.adapters.planted", "adapters/planted.py": ""},
    ),
    **{
        f"app-imports-{framework}": Violation(
            GENERIC_ENGINE, {"app/planted.py": f"import {framework}"}
        )
        for framework in ("torch", "vllm", "lmcache", "transformers", "numpy")
    },
    **{
        f"{layer}-imports-testing": Violation(
            NO_TESTING,
            {f"{layer}/planted.py": "import eccache.testing.planted", "testing/planted.py": ""},
        )
        for layer in ("app", "adapters", "ports", "domain")
    },
    "the-package-imports-testing": Violation(NO_TESTING, {"__init__.py": "import eccache.testing"}),
    **{
        f"app-imports-{framework}": Violation(
            NO_TEST_FRAMEWORK, {"app/planted.py": f"import {framework}"}
        )
        for framework in ("pytest", "hypothesis")
    },
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The contracts over empty layers, so that nothing else can break them."""
    package = tmp_path / "src" / "eccache"
    package.mkdir(parents=True)
    for name in ("__init__.py", "_version.py"):
        (package / name).touch()
    for layer in ("app", "adapters", "ports", "domain", "testing"):
        (package / layer).mkdir()
        (package / layer / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the project in *directory*."""
    executable = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [executable, "--no-logo", "--no-cache"],
        cwd=directory,
        env={"PYTHONPATH": str(directory / "src"), "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def plant(directory: Path, modules: dict[str, str]) -> None:
    """Write *modules* into the package below *directory*."""
    for path, text in modules.items():
        file = directory / "src" / "eccache" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text + "\n")


def imported_packages(package: Path) -> set[tuple[str, str]]:
    """Every (file, top-level package) that a module below *package* imports, wherever it does."""
    found = set()
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            else:
                continue
            found |= {(file.name, name.partition(".")[0]) for name in names}
    return found


def foreign_packages(package: Path) -> set[tuple[str, str]]:
    """What a module below *package* imports and may not: neither standard nor allowed."""
    return {
        (file, name)
        for file, name in imported_packages(package)
        if name not in sys.stdlib_module_names and name not in ALLOWED_IN_CORE
    }


def badly_named(package: Path) -> Iterator[str]:
    """The modules and packages below *package* whose names say nothing."""
    for file in package.rglob("*"):
        if BANNED_NAMES & set(file.stem.split("_")) and (file.suffix == ".py" or file.is_dir()):
            yield str(file.relative_to(package))


def test_the_sources_keep_every_contract(tmp_path: Path) -> None:
    """The tree as it is passes, as `make check` runs it."""
    shutil.copytree(SOURCES, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    result = lint_imports(tmp_path)
    assert 0 == result.returncode, result.stdout + result.stderr
    assert " 0 broken" in result.stdout


def test_empty_layers_keep_every_contract(copy: Path) -> None:
    """The copy that violations are planted in is clean, so that what fails is the violation."""
    result = lint_imports(copy)
    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("violation", [pytest.param(v, id=k) for k, v in VIOLATIONS.items()])
def test_a_violation_fails_and_names_its_contract(copy: Path, violation: Violation) -> None:
    """Each rule, broken once, makes the checker fail with that rule's name."""
    plant(copy, violation.modules)
    result = lint_imports(copy)
    assert 1 == result.returncode, result.stdout + result.stderr
    assert f"{violation.contract} BROKEN" in result.stdout, result.stdout + result.stderr


def test_every_contract_has_a_violation() -> None:
    """No contract is without a case that breaks it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {contract["name"] for contract in settings["contracts"]} == {
        violation.contract for violation in VIOLATIONS.values()
    }


@pytest.mark.parametrize(
    "module", ["app/bootstrap/stores.py", "app/vllm.py", "app/vllm/planted.py"]
)
def test_the_composition_root_may_name_adapters_and_frameworks(copy: Path, module: str) -> None:
    """The composition root and the host entry points are where concrete things are named."""
    plant(
        copy,
        {
            str(Path(module).parent / "__init__.py"): "",
            module: "import torch, vllm, eccache.adapters.planted",
            "adapters/planted.py": "",
        },
    )
    result = lint_imports(copy)
    assert 0 == result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("layer", ["domain", "ports"])
def test_the_core_loads_nothing_but_the_standard_library_attrs_and_xxhash(layer: str) -> None:
    """Third-party packages in the inner layers are on the allow-list."""
    assert set() == foreign_packages(SOURCES / "eccache" / layer)


@pytest.mark.parametrize(
    "statement",
    [
        "import numpy",
        "from numpy.typing import NDArray",
        "def later():\n    import safetensors.torch",
    ],
)
def test_a_foreign_package_in_the_core_is_found(copy: Path, statement: str) -> None:
    """The allow-list refuses what isn't on it, however it is imported."""
    plant(copy, {"domain/planted.py": statement})
    found = {file for file, _ in foreign_packages(copy / "src" / "eccache" / "domain")}
    assert {"planted.py"} == found


def test_every_module_has_a_name_that_says_something() -> None:
    """No module or package is a drawer for odds and ends."""
    assert [] == list(badly_named(SOURCES / "eccache"))


@pytest.mark.parametrize(
    "path",
    ["domain/utils.py", "adapters/disk/file_helpers.py", "app/cache_manager.py", "app/common.py"],
)
def test_a_name_that_says_nothing_is_found(copy: Path, path: str) -> None:
    """The check of names sees each banned word, alone or as a part."""
    plant(copy, {path: ""})
    assert path in set(badly_named(copy / "src" / "eccache"))


def test_importing_the_package_loads_no_framework() -> None:
    """`import eccache` costs no framework: no torch, vllm, lmcache, transformers or numpy."""
    program = (
        "import sys, eccache\n"
        "print(sorted({'torch', 'vllm', 'lmcache', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "[]" == result.stdout.strip()


def test_the_version_stands_in_one_place() -> None:
    """`eccache.__version__` is what the build read from `_version.py`."""
    import eccache
    from eccache import _version

    assert eccache.__version__ == _version.__version__
    assert ["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
