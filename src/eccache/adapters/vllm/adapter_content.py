"""What an adapter consists of: a digest of its files, where they are what the workers have loaded.

vLLM puts an adapter's *name* before the ids of its requests' inputs. Behind a name there may be other
weights tomorrow, or on another server. Here an adapter is told by its content, as far as that is known:
files in a local folder that were there, unchanged, before this server could load any adapter. Workers
load an adapter whenever they need it, forget it, and load it again; only what never changed is certain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from eccache.adapters.vllm.weights_digest import content_digest

_Signature: TypeAlias = tuple[tuple[str, int, int, int, int], ...]


@attrs.define(eq=False)
class _Adapter:
    """One folder, as it was when it was first seen.

    Attributes:
        signature: name, inode, size and times of each file.
        digest: of its content; empty: not known, or not yet.
    """

    signature: _Signature
    digest: str = ""


class AdapterContents:
    """Knows the content of adapters. Used by one thread.

    Args:
        since: Unix time in seconds before which no adapter can have been loaded.
    """

    def __init__(self, since: float) -> None:
        self._since_ns = int(since * 1e9)
        self._adapters: dict[str, _Adapter] = {}

    def of(self, adapter: Any) -> str:
        """Return the digest of an adapter's content; empty if it is not known, or not known yet.

        The first call only begins to read. Each call looks at the files' times: an adapter that changed
        under a running server stays unknown for as long as that runs.

        Args:
            adapter: vLLM's request of it.
        """
        if getattr(adapter, "load_inplace", False) or not adapter.lora_path:
            return ""
        path = Path(adapter.lora_path).expanduser()
        signature = _signature(path)
        known = self._adapters.get(str(path))
        if known is None:
            known = self._adapters[str(path)] = _Adapter(signature)
            if self._was_there(signature):
                _beside(lambda: _read(known, path))
        elif known.signature != signature:
            known.signature, known.digest = (), ""
        return known.digest

    def _was_there(self, signature: _Signature) -> bool:
        return bool(signature) and all(changed < self._since_ns for *_, changed in signature)


def _read(adapter: _Adapter, path: Path) -> None:
    """Take the digest, unless a file changes meanwhile."""
    signature = adapter.signature
    try:
        digest = content_digest(path)
    except OSError:
        return
    if signature and _signature(path) == signature:
        adapter.digest = digest


def _signature(path: Path) -> _Signature:
    """Return what tells whether a file in the folder was touched; nothing for what is no local folder."""
    try:
        files = [(file, file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    except OSError:
        return ()
    return tuple(
        (file.name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for file, status in files
    )


def _beside(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="eccache-adapter", daemon=True).start()
