"""The plugin that `faults.py` gives to vLLM; runs inside the server's processes."""

import functools
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def register() -> None:
    """Wrap the store's read and the plan of a step, in processes that may have a scheduler."""
    if multiprocessing.current_process().name == "MainProcess":  # the API process has none
        return
    folder = Path(os.environ["FAULTS_FOLDER"])
    from eccache.adapters.disk import DiskStore
    from eccache.app.vllm import ECCacheConnector

    if hasattr(DiskStore.get, "__wrapped__"):
        return
    hold, damage = functools.partial(_held, folder / "hold"), functools.partial(_damaging, folder)
    setattr(DiskStore, "get", _wrapped(DiskStore.get, hold))  # noqa: B010 - for the type checker
    setattr(  # noqa: B010 - the same
        ECCacheConnector,
        "build_connector_meta",
        _wrapped(ECCacheConnector.build_connector_meta, damage),
    )


def _wrapped(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls *around* with the original and its arguments."""

    @functools.wraps(original)
    def wrapper(*arguments: object, **options: object) -> object:
        return around(original, *arguments, **options)

    return wrapper


def _held(
    switch: Path, original: Callable[..., Any], *arguments: object, **options: object
) -> object:
    """Wait while the switch is on, then go on."""
    while switch.exists():
        time.sleep(0.01)
    return original(*arguments, **options)


def _damaging(folder: Path, original: Callable[..., Any], *arguments: object) -> object:
    """Damage the entries of all copies that are sent out for loading, while the switch is on."""
    metadata = original(*arguments)
    switch = folder / "damage"
    if metadata.plan.loads and switch.exists():
        from tests.e2e.entry_files import DAMAGES, entry_file_of

        kind = switch.read_text()
        for load in metadata.plan.loads:
            file = entry_file_of(Path(os.environ["FAULTS_ROOT"]), load.mm_hash)
            if file is not None:
                DAMAGES[kind](file)
                with (folder / "damaged").open("a") as record:
                    record.write(kind + "\n")
    return metadata
