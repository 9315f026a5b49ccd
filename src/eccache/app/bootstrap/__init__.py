"""The composition root: the one place, beside the host entry points, that names concrete adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.disabled import DisabledStore
from eccache.adapters.system import SystemClock
from eccache.app.bootstrap.stores import open_store, prompt_answers
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.config import CacheConfig
from eccache.app.engine import ECCacheEngine, EngineParts
from eccache.app.guard import guarded
from eccache.app.prompt_answers import PromptAnswers
from eccache.app.telemetry import LocalTelemetry
from eccache.app.writer import BackgroundWriter
from eccache.domain.dtypes import canonical_dtype
from eccache.domain.namespace import Namespace
from eccache.ports.host_framework import HostFramework
from eccache.ports.inspection import ServerFacts
from eccache.ports.storage import EntryStore

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def open_cache(
    config: CacheConfig,
    *,
    model: str,
    encoder_dtype: object,
    identity: Mapping[str, str] | None = None,
    store: EntryStore | None = None,
) -> ECCacheEngine[torch.Tensor]:
    """Open the cache of one model's encoder outputs, for torch tensors.

    Args:
        config: where entries live, and every bound.
        model: the model's name or path; part of every entry's name.
        encoder_dtype: dtype of the encoder's outputs, a name such as `"bfloat16"` or a `torch.dtype`;
            part of every entry's name.
        identity: whatever else must match for an entry to be reused, e.g. `{"revision": "abc"}`.
        store: a store built elsewhere; it is then left open by `close`. Default: what *config* says.

    Returns:
        The cache, a context manager. Entries of other processes with an equal *model*, *encoder_dtype*
        and *identity* are seen at once.

    Raises:
        ConfigError: the configuration can't work; says why, and what to do.
        ValueError: unknown dtype or empty model name.
        TypeError: *identity* is not a mapping of str to str.
    """
    from eccache.adapters.torch import TorchFramework, host_memory

    return open_engine(
        config,
        TorchFramework(),
        model=model,
        encoder_dtype=encoder_dtype,
        namespace=namespace_of(config, identity or {}),
        store=store,
        make_memory=host_memory,
    )


def open_engine(  # noqa: PLR0913 - the arguments of a composition are its parts
    config: CacheConfig,
    host: HostFramework[T],
    *,
    model: str,
    encoder_dtype: object,
    namespace: Namespace,
    store: EntryStore | None = None,
    make_memory: Callable[[int], memoryview] | None = None,
    telemetry: LocalTelemetry | None = None,
) -> ECCacheEngine[T]:
    """Open the cache for tensors of any framework.

    Args:
        config: where entries live, and every bound.
        host: the framework.
        model: the model's name or path.
        encoder_dtype: dtype of the encoder's outputs, as `find_dtype` takes it.
        namespace: what must match for reuse.
        store: a store built elsewhere, left open by `close`.
        make_memory: makes host memory for copies in flight, e.g. pinned.
        telemetry: takes counts and events; made if missing.

    Raises:
        ConfigError: the configuration can't work.
        ValueError: unknown dtype or empty model name.
    """
    clock = SystemClock()

    def parts(telemetry: LocalTelemetry, own: EntryStore) -> EngineParts[T]:
        allocator = (
            PooledAllocator(config.write_queue_nbytes, make_memory)
            if make_memory
            else PooledAllocator(config.write_queue_nbytes)
        )
        return EngineParts(
            store=own,
            closes_store=store is None,
            # Of a store that was built elsewhere nothing is known.
            prompt=prompt_answers(own) if store is None else PromptAnswers(),
            host=host,
            allocator=allocator,
            telemetry=telemetry,
            clock=clock,
            writer=BackgroundWriter(config.writer_threads, allocator.trim),
            calls=BoundedCalls("eccache-store"),
            made_anew=parts_of_child,
        )

    def parts_of_child() -> EngineParts[T]:
        telemetry = LocalTelemetry(clock)
        if store is not None:
            return parts(telemetry, store)
        nothing: EntryStore = DisabledStore()  # it is too late to stop a start
        own = guarded(
            telemetry, "fork", lambda: open_store(config, namespace, clock, telemetry), nothing
        )
        return parts(telemetry, own)

    telemetry = telemetry or LocalTelemetry(clock)
    own = open_store(config, namespace, clock, telemetry) if store is None else store
    engine = ECCacheEngine(
        parts(telemetry, own),
        namespace=namespace,
        model=model,
        encoder_dtype=canonical_dtype(encoder_dtype),
        store_timeout_seconds=config.store_timeout_seconds,
        close_timeout_seconds=config.close_timeout_seconds,
    )
    engine.ref("")  # a model name that can't be one is found now, not at the first put
    return engine


def namespace_of(config: CacheConfig, identity: Mapping[str, str]) -> Namespace:
    """Return the namespace of *identity* in the epoch that the operator configured.

    An ingredient that the operator waived is there, and empty: whoever waives it shares with those who do.

    Raises:
        TypeError: *identity* is not a mapping of str to str.
    """
    waived = {"vllm": config.ignore_vllm_version, "encoder_split": config.ignore_encoder_split}
    empty = {name: "" for name, waives in waived.items() if waives and name in identity}
    epoch = {"epoch": config.epoch} if config.epoch else {}
    return Namespace.from_ingredients({**identity, **empty, **epoch})


def inspect_vllm(arguments: Sequence[str]) -> ServerFacts:
    """Return what vLLM would make of the arguments of `vllm serve`.

    Raises:
        ConfigError: vLLM is not installed, or does not accept them.
    """
    from eccache.adapters.vllm.inspection import inspect_server

    return inspect_server(arguments)
