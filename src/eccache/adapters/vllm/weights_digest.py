"""Which weights a folder holds, told in well under a second, however large they are.

Two folders have one digest if they have the same files, and the same bytes in every place that is looked
at. Times, owners and the folder's own name play no part: a copied model is the same model.

- *Settings* (`.json`, `.py`, `.yaml`: the model's and the processors' configuration, the index of the
  weights, code that comes with the model) are read whole. Left out are those of the text side alone.
- *Weights* are told by name, size and samples. A safetensors file says where each of its tensors lies:
  its header is read whole, and 16 KiB from the middle of each tensor. Of tensors whose names differ in
  nothing but numbers (layers, experts) up to 64 in each file are sampled, evenly; a vision or audio
  encoder has fewer layers than that, so every tensor of it is. Other formats are sampled in 256 places.

What this can't see: a tensor that was changed in places between the samples and nowhere else. Training
changes a tensor throughout; who patches single values by hand raises the operator's epoch.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import RawIOBase
from pathlib import Path
from typing import Final, cast

SETTINGS: Final = frozenset({".json", ".py", ".yaml", ".yml"})
WEIGHTS: Final = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz", ".tensors"})
TEXT_SIDE: Final = frozenset(
    {
        "added_tokens.json",
        "chat_template.json",
        "generation_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    }
)
"""Settings of tokenizer and sampling: no encoder output depends on them, and people edit them."""

BLOCK_NBYTES: Final = 16 << 10
PLACES: Final = 256
TENSORS_PER_KIND: Final = 64
_MAX_SETTINGS_NBYTES: Final = 64 << 20
_MIN_HEADER_NBYTES: Final = len("{}")
_MAX_HEADER_NBYTES: Final = 100 << 20
"""As safetensors' own readers have it."""
_MAX_DEPTH: Final = 3
_IGNORED_FOLDERS: Final = frozenset({"original"})
"""vLLM leaves it out too: the same weights again, in their publisher's own layout."""
_READERS: Final = 8
_NUMBER: Final = re.compile(r"\d+")


def model_digest(path: Path) -> str:
    """Return 32 hex digits that tell the model at *path*, a folder or a single file of weights.

    Raises:
        OSError: a file can't be read.
    """
    base, files = _files_of(path)
    with ThreadPoolExecutor(_READERS, "eccache-weights") as readers:
        parts = list(readers.map(_told, files))
    told = [
        [file.relative_to(base).as_posix(), *part]
        for file, part in zip(files, parts, strict=True)
        if part is not None
    ]
    return _digest_of(told)


def content_digest(path: Path) -> str:
    """Return 32 hex digits of all bytes of the settings and weights in the folder *path*.

    For what is small enough to be read whole, such as an adapter.

    Raises:
        OSError: a file can't be read.
    """
    base, files = _files_of(path)
    told = [
        [file.relative_to(base).as_posix(), _whole(file)]
        for file in files
        if file.suffix in SETTINGS | WEIGHTS and file.name not in TEXT_SIDE
    ]
    return _digest_of(told)


def _digest_of(told: list[list[object]] | list[list[str]]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def _files_of(path: Path) -> tuple[Path, list[Path]]:
    if path.is_file():
        beside = path.parent.glob("*mmproj*")  # where a model in one file has its encoder
        return path.parent, sorted({path, *beside})
    return path, sorted(_files(path, _MAX_DEPTH))


def _files(folder: Path, depth: int) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield entry
        elif depth > 1 and entry.name not in _IGNORED_FOLDERS:
            yield from _files(entry, depth - 1)


def _told(file: Path) -> tuple[int, str] | None:
    """Return size and digest of *file*; None if it has no part in an encoder output."""
    nbytes = file.stat().st_size
    if file.suffix in SETTINGS and file.name not in TEXT_SIDE and nbytes <= _MAX_SETTINGS_NBYTES:
        return nbytes, _whole(file)
    if file.suffix in WEIGHTS:
        with file.open("rb", buffering=0) as stream:
            return nbytes, _sampled(cast("RawIOBase", stream), nbytes)
    return None


def _whole(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sampled(stream: RawIOBase, nbytes: int) -> str:
    digest = hashlib.sha256()
    header = _header(stream, nbytes)
    if header is None:
        spans = [(nbytes * n // PLACES, nbytes * (n + 1) // PLACES) for n in range(PLACES)]
    else:
        digest.update(header)
        spans = list(_spans(header, nbytes))
    for begin, end in spans:
        length = max(0, min(BLOCK_NBYTES, end - begin))
        stream.seek(max(0, begin + (end - begin - length) // 2))
        digest.update(stream.read(length) or b"")
    return digest.hexdigest()


def _header(stream: RawIOBase, nbytes: int) -> bytes | None:
    """Return the header of a safetensors file; None if it is none."""
    length = int.from_bytes(stream.read(8) or b"", "little")
    if not _MIN_HEADER_NBYTES <= length <= min(_MAX_HEADER_NBYTES, nbytes - 8):
        return None
    header = stream.read(length) or b""
    return header if header.startswith(b"{") else None


def _spans(header: bytes, nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield where the tensors that are sampled lie, from the start of the file."""
    data = 8 + len(header)
    kinds: dict[str, list[tuple[int, int]]] = {}
    try:
        for name, tensor in json.loads(header).items():
            if name != "__metadata__":
                begin, end = (data + int(offset) for offset in tensor["data_offsets"])
                kinds.setdefault(_NUMBER.sub("#", name), []).append((begin, end))
    except (ValueError, TypeError, LookupError, AttributeError):
        kinds = {"": [(data, nbytes)]}  # no file that anything could be loaded from
    for alike in kinds.values():
        alike.sort()
        for begin, end in alike[:: -(-len(alike) // TENSORS_PER_KIND)]:
            yield max(begin, data), min(end, nbytes)
