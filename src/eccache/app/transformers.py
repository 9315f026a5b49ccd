"""The entry point for Hugging Face transformers: cache a model's image, video or audio encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from eccache.adapters.system import SystemClock
from eccache.adapters.transformers import CachedEncoder, EncoderStats
from eccache.adapters.transformers.encoder import EncoderParts
from eccache.app.bootstrap import open_cache
from eccache.app.config import CacheConfig, load_config
from eccache.app.engine import ECCacheEngine
from eccache.app.guard import guarded
from eccache.app.telemetry import LocalTelemetry
from eccache.ports.tensor_cache import TensorCache

if TYPE_CHECKING:
    import torch

R = TypeVar("R")

__all__ = ["CachedEncoder", "EncoderStats", "cached_encoder"]


def cached_encoder(
    model: Any,  # noqa: ANN401 - a PreTrainedModel, whose types change with every release
    cache: TensorCache[torch.Tensor] | CacheConfig | None = None,
    *,
    towers: Iterable[str] = (),
    per_item: bool = True,
    every_field: bool = False,
) -> CachedEncoder:
    """Let *model* take encoder outputs from the cache instead of computing them again.

    Example::

        with cached_encoder(model, eccache.CacheConfig(local_disk="/var/cache/ec")) as encoder:
            model.generate(**inputs)
            print(encoder.stats())

    Covers every call of `get_image_features`, `get_video_features` and `get_audio_features`, also those
    that the model's own `forward` and `generate` make, and the audio tower of models that have none of
    these. An item is known by the content of its processed inputs, and by everything else that its output
    depends on: weights, configuration, code, dtype, versions, switches of torch. A call that can't be cached
    safely goes to the model as it stands: `docs/embedding-transformers.md` lists when.

    Args:
        model: a `PreTrainedModel`. Its methods are replaced on the object, until the result is closed.
        cache: an open cache, which the caller closes; or a configuration, by which one is opened and
            closed with the result; or None for the configuration of files and environment.
        towers: names of modules whose `forward` is to be cached instead, e.g. `["vision_tower"]`.
        per_item: whether the items of a call are entries of their own where the model is known to encode
            them independently. Each then equals, bit for bit, the item encoded alone, from which a batch
            may differ in the last bits. False: a call is one entry, which equals the same batch.
        every_field: whether all fields of an output are kept. By default a field that no model's own code
            reads (`last_hidden_state` beside the features) is not, and says so when it is asked for.

    Returns:
        The handle: `stats`, `close`, a context manager.

    Raises:
        ConfigError: nothing in the model can be cached, it is cached already, or the configuration is wrong.
    """
    telemetry = LocalTelemetry(SystemClock(), "eccache.transformers")

    def guard(where: str, function: Callable[[], R], otherwise: R) -> R:
        return guarded(telemetry, where, function, otherwise)

    opened = None
    if cache is None or isinstance(cache, CacheConfig):
        opened = cache = _opened(cache or load_config(), model)
    parts = EncoderParts(
        cache=cache,
        close=opened.close if opened is not None else lambda: None,
        telemetry=telemetry,
        guard=guard,
    )
    try:
        return CachedEncoder(
            model, parts, towers=towers, per_item=per_item, every_field=every_field
        )
    except BaseException:
        parts.close()
        raise


def _opened(config: CacheConfig, model: Any) -> ECCacheEngine[torch.Tensor]:  # noqa: ANN401 - as above
    # Weights, versions and the rest are in every id: they may change while the cache is open.
    return open_cache(
        config,
        model=getattr(model.config, "model_type", "") or type(model).__name__,
        encoder_dtype=model.dtype,
        identity={"host": "transformers", "model": type(model).__name__},
    )
