"""`namespace.json`: what a namespace is, in words, for whoever looks into the directory."""

from __future__ import annotations

import json
from typing import Final

from eccache.domain.namespace import Namespace

NAME: Final = "namespace.json"


def namespace_text(namespace: Namespace) -> bytes:
    """Return the file's content: the fingerprint and the ingredients that it was made of."""
    document = {
        "fingerprint": namespace.fingerprint,
        "ingredients": dict(namespace.ingredients),
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()
