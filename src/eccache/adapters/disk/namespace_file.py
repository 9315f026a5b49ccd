"""`namespace.json`: what a namespace is, in words, for whoever looks into the directory."""

from __future__ import annotations

import contextlib
import json
from typing import Final

from eccache.adapters.disk.layout import Layout, namespaces
from eccache.domain.namespace import Namespace
from eccache.ports.file_operations import FileOperations

NAME: Final = "namespace.json"
_MAX_NBYTES: Final = 1 << 20


def namespace_text(namespace: Namespace) -> bytes:
    """Return the file's content: the fingerprint and the ingredients that it was made of."""
    document = {
        "fingerprint": namespace.fingerprint,
        "ingredients": dict(namespace.ingredients),
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=True) + "\n").encode()


def namespace_from(data: bytes) -> Namespace | None:
    """Return the namespace that a file's content describes; None where it is no such description."""
    try:
        document = json.loads(data)
        ingredients = {str(name): str(value) for name, value in document["ingredients"].items()}
        return Namespace(document["fingerprint"], ingredients)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def described_namespaces(files: FileOperations, layout: Layout) -> list[Namespace]:
    """Return every namespace under a root; one without a readable description has no ingredients.

    Raises:
        OSError: the root can't be looked at.
    """
    return [
        _described(files, f"{layout.namespace(name)}/{NAME}", name)
        for name in namespaces(files, layout)
    ]


def _described(files: FileOperations, path: str, fingerprint: str) -> Namespace:
    found = None
    with contextlib.suppress(OSError):
        descriptor = files.open(path)
        try:
            data = memoryview(bytearray(_MAX_NBYTES))
            found = namespace_from(bytes(data[: files.read(descriptor, data, 0)]))
        finally:
            files.close(descriptor)
    if found is None or found.fingerprint != fingerprint:
        return Namespace(fingerprint, {})
    return found
