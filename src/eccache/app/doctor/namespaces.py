"""Are there entries that this server could use, and if not, what keeps it from using those that are there?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from eccache.app.doctor.finding import Finding, ok, warning
from eccache.app.doctor.subject import Subject
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import Namespace

CHECK = "namespace"
_SHOWN_CHARACTERS = 120
_NO_WEIGHTS = "random"
"""How the ingredient starts where none were loaded: equal for any two models."""


@attrs.frozen
class Difference:
    """An ingredient in which two namespaces differ.

    Attributes:
        name: of the ingredient.
        first: its value in the first namespace; None where it has none.
        second: its value in the second.
    """

    name: str
    first: str | None
    second: str | None

    def __str__(self) -> str:
        return f"{self.name}: {_shown(self.first)} against {_shown(self.second)}"


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the ingredients in which two namespaces differ, by name."""
    return tuple(
        Difference(name, first.get(name), second.get(name))
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    )


def find_namespace(name: str, stored: tuple[Namespace, ...]) -> Namespace:
    """Return the namespace that an operator means.

    Args:
        name: a fingerprint, the start of one that no other has, or the path of a namespace's directory
            or of its `namespace.json`.
        stored: those of the root.

    Raises:
        ConfigError: there is none, or more than one.
    """
    if "/" in name or name.endswith(".json"):
        return _from_file(Path(name))
    matching = [namespace for namespace in stored if namespace.fingerprint.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(namespace.fingerprint for namespace in stored) or "none"
    raise ConfigError(
        f"{len(matching) or 'no'} namespaces start with {name!r}.",
        remedy=f"name one of those that the root has ({known}), another root with --path, or a file.",
    )


def _from_file(path: Path) -> Namespace:
    file = path / "namespace.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
        return Namespace(document["fingerprint"], document["ingredients"])
    except OSError as failed:
        raise ConfigError(
            f"{file} can't be read: {failed.strerror}.", remedy="look at the path."
        ) from failed
    except (ValueError, TypeError, LookupError) as failed:
        raise ConfigError(
            f"{file} describes no namespace.", remedy="name a namespace.json that a server wrote."
        ) from failed


def check_namespace(subject: Subject) -> Iterator[Finding]:
    """Compare the server's namespace with those that the root has entries of."""
    own = subject.namespace
    if own is None:
        return
    if any(stored.fingerprint == own.fingerprint for stored in subject.stored):
        yield ok(CHECK, f"{own.fingerprint} has entries: this server starts warm")
        return
    nearest = _nearest(own, subject.stored)
    if nearest is None:
        yield ok(CHECK, f"{own.fingerprint} has no entries yet: this server starts cold")
        return
    differing = differences(nearest.ingredients, own.ingredients)
    same = "model" if _is_of_model(nearest, own) else "weights under another name"
    yield warning(
        CHECK,
        f"{own.fingerprint} has no entries, but {nearest.fingerprint} of the same {same} has",
        "this server can't use them; they differ in " + "; ".join(map(str, differing)) + ".",
        "start the server as the one that stored them, where that was not meant; else nothing: it starts "
        "cold, and the old entries are evicted or purged "
        f"(eccache purge --namespace {nearest.fingerprint}).",
    )


def _nearest(own: Namespace, stored: tuple[Namespace, ...]) -> Namespace | None:
    """Return the namespace that differs in the fewest ingredients, of those with its model or weights."""
    akin = [other for other in stored if _is_of_model(other, own) or _has_weights_of(other, own)]
    return min(
        akin,
        key=lambda other: len(differences(other.ingredients, own.ingredients)),
        default=None,
    )


def _is_of_model(other: Namespace, own: Namespace) -> bool:
    return _model(other) == _model(own)


def _has_weights_of(other: Namespace, own: Namespace) -> bool:
    """Return whether both have the weights of one model, which may be served from any path."""
    weights = own.ingredients.get("weights", "")
    told = bool(weights) and not weights.startswith(_NO_WEIGHTS)
    return told and other.ingredients.get("weights") == weights


def _model(namespace: Namespace) -> str:
    """Return the last part of the model's name: one model may be named by two paths."""
    return namespace.ingredients.get("model", "").rstrip("/").rpartition("/")[2]


def _shown(value: str | None) -> str:
    if not value:
        return "nothing" if value is None else "(empty)"
    return value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "..."
