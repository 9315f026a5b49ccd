"""How values are shown to people: without what would let them in somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"password|passwd|secret|token|credential|(access|api|private)_?key", re.IGNORECASE
)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s@]*@")
_SECRET_IN_QUERY = re.compile(
    rf"(?<=[?&])([^=&\s]*(?:{_SECRET_NAME.pattern})[^=&\s]*)=[^&\s]*", re.IGNORECASE
)


def for_people(name: str, value: object) -> str:
    """Return *value* of the setting *name* as text, with passwords, tokens and keys hidden.

    Hidden are values whose name says that they are secret, also inside maps and in a URL's query, and
    the user part of a URL.
    """
    return str(_without_secrets(name, value))


def _without_secrets(name: str, value: object) -> object:
    if _SECRET_NAME.search(name) and value is not None:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _without_secrets(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(name, inner) for inner in value]
    return _text_without_secrets(name, value) if isinstance(value, str) else value


def _text_without_secrets(name: str, text: str) -> str:
    if text.lstrip().startswith("{"):
        try:
            return json.dumps(_without_secrets(name, json.loads(text)))
        except ValueError:
            return HIDDEN  # It can't be told what is secret in it.
    return _SECRET_IN_QUERY.sub(rf"\1={HIDDEN}", _USER_IN_URL.sub(f"{HIDDEN}@", text))
