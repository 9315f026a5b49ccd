"""The error tree is what its docstring draws, and every error says cause and remedy."""

from __future__ import annotations

import re

import pytest

from eccache.domain import errors
from eccache.domain.errors import ConfigError, ECCacheError, StoreFault, StoreTimeout


def all_errors() -> dict[str, type[ECCacheError]]:
    """Every error that the module defines, by name."""
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ECCacheError)
    }


def test_the_docstring_draws_the_tree() -> None:
    """Name, code and parent of every error stand in the drawing, and nothing else does."""
    drawn = re.findall(
        r"^((?:│   |    )*)(?:[├└]── )?(\w+) +(ECC-\w+)?", errors.__doc__ or "", re.MULTILINE
    )
    rows = [(len(indent), name, code) for indent, name, code in drawn if name in all_errors()]
    assert {name for _, name, _ in rows} == set(all_errors())
    for _, name, code in rows:
        assert (code or "ECC") == all_errors()[name].code


def test_codes_are_stable_and_unique() -> None:
    """An operator can search for a code; it never means two things."""
    codes = {name: error.code for name, error in all_errors().items()}
    assert len(codes) == len(set(codes.values()))
    assert {
        "ECCacheError": "ECC",
        "ConfigError": "ECC-CONFIG",
        "ClosedError": "ECC-CLOSED",
        "KeyFormatError": "ECC-KEY",
        "StoreFault": "ECC-STORE",
        "StoreTimeout": "ECC-TIMEOUT",
    } == codes


@pytest.mark.parametrize("error", all_errors().values())
def test_an_error_says_code_cause_and_remedy(error: type[ECCacheError]) -> None:
    """Whoever reads one line knows what is wrong and what to do."""
    made = error("the path is a file.", remedy="name a directory.")
    assert f"[{error.code}] the path is a file. Remedy: name a directory." == str(made)
    assert ("the path is a file.", "name a directory.") == (made.cause, made.remedy)
    assert f"[{error.code}] it is closed" == str(error("it is closed"))


def test_a_timeout_is_a_fault() -> None:
    """Whoever handles faults handles timeouts."""
    assert issubclass(StoreTimeout, StoreFault)
    assert not issubclass(ConfigError, StoreFault)
