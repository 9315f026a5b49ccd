"""A namespace is what its ingredients are: all of them, in any order, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from eccache.domain.namespace import Namespace
from tests.unit.domain.text import ANY_TEXT, HARD_TEXT

TEXT = ANY_TEXT | HARD_TEXT
INGREDIENTS = st.dictionaries(TEXT, TEXT, max_size=6)


@given(INGREDIENTS, st.randoms())
def test_the_order_of_ingredients_has_no_influence(
    ingredients: dict[str, str], rng: random.Random
) -> None:
    """Two servers that list the same facts in another order share their entries."""
    shuffled = list(ingredients.items())
    rng.shuffle(shuffled)
    expected = Namespace.from_ingredients(ingredients)
    assert expected == Namespace.from_ingredients(dict(shuffled))


@given(INGREDIENTS, INGREDIENTS)
def test_other_ingredients_are_another_namespace(
    first: dict[str, str], second: dict[str, str]
) -> None:
    """Servers that differ in one thing, by one character, share nothing."""
    assert (first == second) == (
        Namespace.from_ingredients(first) == Namespace.from_ingredients(second)
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": "bc"}, {"ab": "c"}),
        ({"a": "b", "c": "d"}, {"a": 'b","c":"d'}),
        ({"a": "😀"}, {"a": "\ud83d\ude00"}),
        ({"a": "\\ud800"}, {"a": "\ud800"}),
        ({}, {"": ""}),
        ({"revision": "A"}, {"revision": "B"}),
    ],
)
def test_near_ingredients_are_different_namespaces(
    first: dict[str, str], second: dict[str, str]
) -> None:
    """No way of writing ingredients down makes two of them one."""
    assert Namespace.from_ingredients(first) != Namespace.from_ingredients(second)


@pytest.mark.parametrize(
    ("ingredients", "canonical", "fingerprint"),
    [
        ({}, "[1,[]]", "1788f993b4772e35"),
        ({"revision": "abc"}, '[1,[["revision","abc"]]]', "99ad4b160b75e044"),
        ({"r": "1", "m": "a"}, '[1,[["m","a"],["r","1"]]]', "4b38757fb1f7d8d3"),
        ({"é": "😀"}, '[1,[["é","😀"]]]', "5dfcf78071288168"),
    ],
)
def test_a_fingerprint_is_fixed_for_ever(
    ingredients: dict[str, str], canonical: str, fingerprint: str
) -> None:
    """Its definition may never change: stored entries would be lost, or worse, found."""
    assert fingerprint == hashlib.sha256(canonical.encode()).hexdigest()[:16]
    assert fingerprint == Namespace.from_ingredients(ingredients).fingerprint


def test_a_namespace_keeps_what_it_was_made_of() -> None:
    """An operator can be told in words what a fingerprint stands for; later changes don't reach it."""
    ingredients = {"revision": "A"}
    namespace = Namespace.from_ingredients(ingredients)
    ingredients["revision"] = "B"
    assert {"revision": "A"} == dict(namespace.ingredients)
    with pytest.raises(TypeError):
        namespace.ingredients["x"] = "y"  # type: ignore[index]


@pytest.mark.parametrize("ingredients", [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"x"}])
def test_ingredients_that_are_no_text_are_refused(ingredients: dict[str, str]) -> None:
    """`1` and `"1"` must not be told apart by accident: the caller writes text."""
    with pytest.raises(TypeError, match="mapping of str to str"):
        Namespace.from_ingredients(ingredients)


@pytest.mark.parametrize("fingerprint", ["", "ABCDEF0123456789", "../x", "0" * 15])
def test_a_fingerprint_is_16_hex_digits(fingerprint: str) -> None:
    """It names a directory."""
    with pytest.raises(ValueError, match="fingerprint"):
        Namespace(fingerprint, {})


def test_hash_seeds_have_no_influence() -> None:
    """Processes with other hash seeds make the same fingerprint."""
    program = (
        "import json, sys; from eccache.domain.namespace import Namespace;"
        "print(Namespace.from_ingredients(json.load(sys.stdin)).fingerprint)"
    )
    ingredients = {f"name {number}": str(number) for number in range(50)}
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(ingredients),
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1", "4294967295")
    }
    assert {Namespace.from_ingredients(ingredients).fingerprint} == found
