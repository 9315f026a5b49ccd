"""Set-ups to examine: a sound one, and what to change to make it a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from eccache.app.config import load_config_with_sources
from eccache.app.doctor import Machine, Subject
from eccache.app.doctor.machine import Mount
from eccache.app.doctor.subject import loaded_or_error
from eccache.domain.namespace import Namespace
from eccache.ports.file_operations import Space
from eccache.ports.inspection import ServerFacts

GIB = 1 << 30
INGREDIENTS = {"model": "org/vlm", "revision": "abc", "dtype": "bfloat16", "vllm": "0.32.0"}


def machine(**changes: Any) -> Machine:  # noqa: ANN401 - any field
    """A Linux host with all packages, a disk and a terabyte of room, less *changes*."""
    sound: dict[str, Any] = {
        "versions": {"vllm": "0.32.0", "torch": "2.13.0+cpu", "lmcache": "0.5.6"},
        "mounts": (Mount("/", "ext4", read_only=False),),
        "available_memory_nbytes": 64 * GIB,
        "space": lambda _path: Space(900 * GIB, 1000 * GIB),
        "free_inodes": lambda _path: 10_000_000,
        "is_read_only": lambda _path: False,
    }
    return Machine(**(sound | changes))


def server(**changes: Any) -> ServerFacts:  # noqa: ANN401 - any field
    """A server that uses the cache as it should, less *changes*."""
    sound: dict[str, Any] = {
        "model": "org/vlm",
        "encoder_dtype": "bfloat16",
        "ingredients": INGREDIENTS,
        "connector": "ECCacheConnector",
        "module": "eccache.app.vllm",
        "role": "ec_both",
    }
    return ServerFacts(**(sound | changes))


def subject(
    root: Path | None,
    settings: dict[str, Any] | None = None,
    **changes: Any,  # noqa: ANN401 - any field
) -> Subject:
    """A sound set-up with *settings* over the root, less *changes*; no root: entries in memory."""
    arguments = {} if root is None else {"local_disk": str(root)}
    loaded = load_config_with_sources(environ={}, **(arguments | (settings or {})))
    place = "/dev/shm/eccache-test" if root is None else str(root)  # noqa: S108 - never made
    sound = Subject(
        machine=machine(),
        loaded=loaded,
        root=place,
        server=server(),
        namespace=Namespace.from_ingredients(INGREDIENTS),
        stored=(Namespace.from_ingredients(INGREDIENTS),),
    )
    return attrs.evolve(sound, **changes)


def subject_with_settings(**settings: object) -> Subject:
    """A set-up of settings that may be wrong, as an operator wrote them."""
    loaded, error, dropped = loaded_or_error({}, settings)
    return Subject(machine=machine(), loaded=loaded, config_error=error, dropped=dropped)
