"""What an input is, beyond its id: a digest of everything that the encoder reads of it.

An id is what somebody says of a content; pixels, frames and samples, as the processor made them, are the
content. The scheduler has them at hand (vLLM sends them to it, or restores them from its cache), unless
they lie in shared memory that only workers read, or on a device, or were never sent.

A digest is taken once for each processed input by whoever needs it first: a look-up's thread, the
scheduler's, or, where there is much to read, a thread beside that one. It is that of vLLM's own hasher:
blake3, or what the operator chose in its place.
"""

from __future__ import annotations

import hashlib
import queue
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from eccache.adapters.vllm.features import values_of
from eccache.ports.lookup import Content

_HANDLE: Final = frozenset({"address", "monotonic_id", "signature"})
"""Fields of an input whose data only workers can read."""
MIN_NBYTES_BESIDE: Final = 256 << 10
"""Less is hashed sooner (0.1 ms) than a thread is woken, and than Python's lock has changed hands."""
_PROMISED: Final = "content"
"""Field in which a producer tells a consumer, beside an input's sizes, what its content is."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{128}")


class KnownContent:
    """A content that somebody else took the digest of."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def digest(self) -> str:
        """Return it."""
        return self._digest


class DataContent:
    """The content of processed data that is at hand. Any thread may ask.

    Args:
        data: returns vLLM's fields of one input, by name; None once nobody else keeps them.
        modality: vLLM's name of the kind.
        new_hash: makes the hash.
    """

    def __init__(self, data: Callable[[], Any], modality: str, new_hash: Callable[[], Any]) -> None:
        self._data = data
        self._modality = modality
        self._new_hash = new_hash
        self._taking = threading.Lock()
        self._taken = False
        self._digest: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that its digest reads; 0 once nobody else keeps them, or where that can't be told."""
        data = self._data()
        try:
            return 0 if data is None else sum(map(_nbytes, values_of(data).values()))
        except Exception:  # noqa: BLE001 - data of any kind; of a sparse tensor torch won't say
            return 0

    def digest(self) -> str | None:
        """Take the digest, unless it was taken; None for data of a kind without bytes, or gone."""
        if not self._taken:
            with self._taking:
                if not self._taken:
                    self._digest = self._take(self._data())
                    self._taken = True
        return self._digest

    def _take(self, data: Any) -> str | None:
        if data is None:
            return None
        try:
            digest = self._new_hash()
            digest.update(self._modality.encode())
            for name, value in sorted(values_of(data).items()):
                digest.update(f"\0{name}\0".encode())
                for piece in _pieces(value):
                    digest.update(piece)
        except Exception:  # noqa: BLE001 - data of any kind, under a step's plan that must go out
            return None
        return str(digest.hexdigest())


def _nbytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_nbytes, value))
    return int(getattr(value, "nbytes", 0))


def _pieces(value: Any) -> Iterator[Any]:
    """Yield bytes that no other value has: kind, type and shape come before the content."""
    if isinstance(value, (list, tuple)):
        yield f"[{len(value)}]".encode()
        for part in value:
            yield from _pieces(part)
    elif hasattr(value, "data_ptr"):
        yield f"tensor {value.dtype} {tuple(value.shape)}:".encode()
        if value.numel():
            yield _bytes_of(value)
    elif hasattr(value, "__array_interface__"):
        import numpy as np

        yield f"array {value.dtype.str} {value.shape}:".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield f"{type(value).__name__} {value!r}:".encode("utf-8", "surrogatepass")
    else:
        raise TypeError(type(value).__name__)


def _bytes_of(tensor: Any) -> memoryview:
    """Return the bytes of *tensor*, which has some: those it has if they lie in order, else a copy."""
    import numpy as np

    try:
        array = tensor.numpy()
    except (TypeError, RuntimeError):  # a type that numpy has not, or part of a graph
        import torch

        array = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class Contents:
    """Knows the content of vLLM's inputs. `of`, `start` and `close` are called from one thread.

    Args:
        algorithm: name of vLLM's hasher.
    """

    def __init__(self, algorithm: str) -> None:
        self._new_hash = _hash_of(algorithm)
        self._known: dict[int, tuple[weakref.ref[Any], DataContent]] = {}
        self._wanted: queue.SimpleQueue[Content | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def of(self, feature: Any) -> Content | None:
        """Return the content of *feature*; None where its data is not at hand.

        The same data gives the same object, so that its digest is taken once, for as long as vLLM keeps it.
        """
        data = feature.data
        if not _is_at_hand(data):
            return None
        found = self._known.get(id(data))
        if found is not None and found[0]() is data:
            return found[1]
        key, known = id(data), self._known
        try:
            alive = weakref.ref(data, lambda _: known.pop(key, None))
        except TypeError:  # another kind of mapping: taken again for each request
            return DataContent(lambda: data, feature.modality, self._new_hash)
        # Weakly: what vLLM gives up must not stay in memory for a digest that nobody asks for.
        content = DataContent(alive, feature.modality, self._new_hash)
        known[key] = (alive, content)
        return content

    def start(self, content: Content) -> None:
        """Let the digest, if it takes a while, be taken beside this thread, which will need it soon."""
        if not (isinstance(content, DataContent) and content.nbytes >= MIN_NBYTES_BESIDE):
            return
        if self._thread is None:
            thread = threading.Thread(target=self._take, name="eccache-content", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads: whoever needs it takes it
                return
            self._thread = thread
        self._wanted.put(content)

    def close(self) -> None:
        """End the thread. Idempotent; what is asked for afterwards is taken by whoever asks."""
        self._wanted.put(None)

    def _take(self) -> None:
        while (content := self._wanted.get()) is not None:
            content.digest()


def promised_content(request: Any, identifier: str) -> Content | None:
    """Return the content that the input's producer names; None where it names none.

    The word reached us through a client. Whoever names a digest gets at the most the output of the
    content that has it, under an id that it must name too.
    """
    params = getattr(request, "ec_transfer_params", None)
    item = params.get(identifier) if isinstance(params, dict) else None
    said = item.get(_PROMISED) if isinstance(item, dict) else None
    if not isinstance(said, str) or _DIGEST.fullmatch(said) is None:
        return None
    return KnownContent(said)


def promise_content(described: dict[str, Any], content: Content | None) -> None:
    """Tell an input's consumer, in what describes it, what its content is, if that is known."""
    digest = None if content is None else content.digest()
    if digest is not None:
        described[_PROMISED] = digest


def _is_at_hand(data: Any) -> bool:
    values = values_of(data) if data else {}
    return not values.keys() <= _HANDLE and all(map(_on_host, values.values()))


def _on_host(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_on_host(part) for part in value)
    device = getattr(value, "device", None)
    return value is not None and (device is None or getattr(device, "type", device) == "cpu")


def _hash_of(algorithm: str) -> Callable[[], Any]:
    if algorithm != "blake3":
        return lambda: hashlib.new(algorithm)
    import blake3

    return blake3.blake3
