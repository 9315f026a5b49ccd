"""The entry point opens, wraps, closes and refuses as it says."""

from __future__ import annotations

import functools
import inspect
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import eccache
from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host import models
from tests.unit.transformers_host.models import HOSTS, made, pixels

Cache = ECCacheEngine[torch.Tensor]


def test_a_configuration_opens_a_cache_that_closing_flushes(tmp_path: Path) -> None:
    """With a configuration nothing else is to be opened or closed, and nothing put is lost."""
    config = eccache.CacheConfig(local_disk=str(tmp_path), max_local_disk_size=1.0)
    model = made(models.clip)
    inputs = pixels(1)
    for expected in ((0, 1), (1, 0)):
        with cached_encoder(model, config) as encoder:
            model.get_image_features(**inputs)
        encoder.close()
        assert expected == (encoder.stats().hits, encoder.stats().misses)


def test_a_cache_opened_by_configuration_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model turns out to have nothing that could be cached."""
    opened: list[Cache] = []

    def spy(*args: Any, **kwargs: Any) -> Cache:  # noqa: ANN401 - passed on
        opened.append(eccache.open_cache(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr("eccache.app.transformers.open_cache", spy)
    config = eccache.CacheConfig(local_disk=str(tmp_path), max_local_disk_size=1.0)
    model = made(models.clip)
    cached_encoder(model, config).close()
    with pytest.raises(eccache.ConfigError):
        cached_encoder(model.vision_model, config)
    assert 2 == len(opened)
    for cache in opened:
        with pytest.raises(eccache.ClosedError):
            cache.get("anything")


def test_without_arguments_files_and_environment_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator can say where the cache is without a change to the program."""
    monkeypatch.setenv("ECCACHE_LOCAL_DISK", str(tmp_path / "here"))
    monkeypatch.setenv("ECCACHE_MAX_LOCAL_DISK_SIZE", "1")
    model = made(models.clip)
    with cached_encoder(model):
        model.get_image_features(**pixels(1))
    assert list((tmp_path / "here").rglob("clip@1@0@*.safetensors"))


def test_an_open_cache_stays_open(cache: Cache) -> None:
    """Who opened a cache closes it."""
    model = made(models.clip)
    with cached_encoder(model, cache):
        model.get_image_features(**pixels(1))
    assert cache.flush()
    cache.put("another use", torch.zeros(1))


def test_closing_gives_the_model_its_method_back(cache: Cache) -> None:
    """Afterwards the model is what it was, on the object too."""
    model = made(models.qwen2_5_vl)
    before = dict(vars(model.model))
    encoder = cached_encoder(model, cache)
    assert before.keys() != vars(model.model).keys()
    encoder.close()
    encoder.close()
    assert before.keys() == vars(model.model).keys()


def test_a_method_replaced_on_the_object_before_is_put_back(cache: Cache) -> None:
    """Accelerate and others replace methods too; theirs is called, and restored."""
    model = made(models.clip)
    stock = model.get_image_features
    calls = []

    def theirs(pixel_values: torch.Tensor) -> object:
        calls.append(1)
        return stock(pixel_values)

    model.get_image_features = theirs
    with cached_encoder(model, cache):
        model.get_image_features(**pixels(1))
    assert [1] == calls
    assert theirs is model.get_image_features


def test_a_wrapper_put_on_top_keeps_working_after_closing(cache: Cache) -> None:
    """Where another wrapper holds the cached method, closing turns it into a passage."""
    model = made(models.clip)
    encoder = cached_encoder(model, cache)
    cached = model.get_image_features
    model.get_image_features = functools.partial(cached)
    encoder.close()
    assert 2 == len(model.get_image_features(**pixels(1)).to_tuple())
    assert (0, 0, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_a_method_keeps_its_signature(cache: Cache) -> None:
    """Generate reads the parameters of a method to know what to pass."""
    model = made(models.qwen2_5_vl)
    expected = inspect.signature(model.model.get_image_features)
    with cached_encoder(model, cache):
        assert expected == inspect.signature(model.model.get_image_features)


def test_a_model_is_cached_once_at_a_time(cache: Cache, tmp_path: Path) -> None:
    """A second cache on the same method is a mistake, and says what to do."""
    model = made(models.clip)
    config = eccache.CacheConfig(local_disk=str(tmp_path / "other"), max_local_disk_size=1.0)
    with (
        cached_encoder(model, cache),
        pytest.raises(eccache.ConfigError, match="close the CachedEncoder"),
    ):
        cached_encoder(model, config)
    with cached_encoder(model, cache) as encoder:
        model.get_image_features(**pixels(1))
    assert 1 == encoder.stats().misses


def test_a_model_without_an_encoder_is_refused_with_advice(cache: Cache) -> None:
    """Who passes the wrong module learns what to pass."""
    tower = made(models.clip).vision_model
    with pytest.raises(eccache.ConfigError, match="towers="):
        cached_encoder(tower, cache)
    with pytest.raises(eccache.ConfigError, match="its modules are embeddings"):
        cached_encoder(tower, cache, towers=["nowhere"])


def test_a_tower_can_be_named(cache: Cache) -> None:
    """Any module can be cached by name, by whole calls, with every field that it returns."""
    model = made(models.clip)
    inputs = pixels(2)
    expected = model.vision_model(**inputs)
    with cached_encoder(model, cache, towers=["vision_model"]) as encoder:
        assert ["image"] == list(encoder.methods.values())
        for _ in range(2):
            found = model.vision_model(**inputs)
            assert list(expected.keys()) == list(found.keys())
            assert torch.equal(expected[0], found[0])
            assert torch.equal(expected.pooler_output, found.pooler_output)
            cache.flush()
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)


def test_methods_are_found_by_modality(cache: Cache) -> None:
    """Image, video and audio are each entered where the model's own code enters them."""
    found = {}
    for name in ("qwen2_5_vl", "clip", "whisper", "qwen2_audio"):
        with cached_encoder(made(HOSTS[name].make), cache) as encoder:
            found[name] = [
                (method.rsplit(".", 2)[1:], modality)
                for method, modality in encoder.methods.items()
            ]
    assert {
        "qwen2_5_vl": [
            (["Qwen2_5_VLModel", "get_image_features"], "image"),
            (["Qwen2_5_VLModel", "get_video_features"], "video"),
        ],
        "clip": [(["CLIPModel", "get_image_features"], "image")],
        "whisper": [(["WhisperEncoder", "forward"], "audio")],
        "qwen2_audio": [(["Qwen2AudioEncoder", "forward"], "audio")],
    } == found


def test_a_closed_cache_costs_hits_and_nothing_else(tmp_path: Path) -> None:
    """A fault of the cache is a miss: the model computes."""
    config = eccache.CacheConfig(local_disk=str(tmp_path), max_local_disk_size=1.0)
    cache = eccache.open_cache(config, model="tiny", encoder_dtype="float32")
    model = made(models.clip)
    inputs = pixels(1)
    expected = model.get_image_features(**inputs).pooler_output
    with cached_encoder(model, cache):
        model.get_image_features(**inputs)
        cache.close()
        assert torch.equal(expected, model.get_image_features(**inputs).pooler_output)


@pytest.mark.parametrize("step", ["content_key", "pack", "divide", "circumstances"])
def test_a_fault_in_any_step_costs_hits_and_nothing_else(
    step: str, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where memory runs out while an id is made or an output packed, the model answers."""

    def failing(*_: object) -> NoReturn:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(f"eccache.adapters.transformers.cached_call.{step}", failing)
    model = made(models.clip)
    inputs = pixels(1)
    expected = model.get_image_features(**inputs).pooler_output
    with cached_encoder(model, cache):
        assert torch.equal(expected, model.get_image_features(**inputs).pooler_output)


def test_an_entry_of_another_make_is_a_miss(cache: Cache) -> None:
    """Bytes under the right id that are no output cost an encoder run."""
    model = made(models.clip)
    inputs = pixels(1)
    expected = model.get_image_features(**inputs).pooler_output
    ids: list[str] = []

    class Spy:
        """Notes ids and serves something else."""

        def get(self, mm_hash: str, device: str = "cpu") -> torch.Tensor:
            ids.append(mm_hash)
            return torch.arange(200, dtype=torch.uint8)

        def put(self, mm_hash: str, tensor: torch.Tensor, *, borrow: bool = False) -> bool:
            return cache.put(mm_hash, tensor, borrow=borrow)

    with cached_encoder(model, Spy()) as encoder:
        assert torch.equal(expected, model.get_image_features(**inputs).pooler_output)
    assert (0, 1) == (encoder.stats().hits, encoder.stats().misses)
    assert 1 == len(ids)
    assert ids[0].startswith("image/")


def test_the_fingerprint_says_what_has_to_be_equal(cache: Cache) -> None:
    """An operator can compare two servers that do not share."""
    with cached_encoder(made(models.clip), cache) as encoder:
        (fingerprint,) = encoder.fingerprints()
    assert {
        "code sha256",
        "config sha256",
        "device",
        "encoder of",
        "framework",
        "modules sha256",
        "weights sha256",
    } == fingerprint.ingredients.keys()


def test_threads_may_share_a_model(cache: Cache) -> None:
    """Calls at once get each its own item."""
    model = made(models.clip)
    inputs = [pixels(1) for _ in range(4)]
    expected = [model.get_image_features(**one).pooler_output for one in inputs]
    wrong: list[int] = []

    def work(start: int) -> None:
        with torch.no_grad():
            for turn in range(12):
                place = (start + turn) % len(inputs)
                found = model.get_image_features(**inputs[place]).pooler_output
                if not torch.equal(expected[place], found):
                    wrong.append(place)

    with cached_encoder(model, cache):
        threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [] == wrong
