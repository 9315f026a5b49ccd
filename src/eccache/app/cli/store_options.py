"""Options that every command on a store has, and the store that they name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from eccache.ports.maintenance import StoreMaintenance

if TYPE_CHECKING:
    from eccache.app.config import LoadedConfig

C = TypeVar("C", bound=Callable[..., Any])

_CAPS = ("max_local_disk_size", "max_local_cpu_size")


def store_options(function: C) -> C:
    """Add `--path` and `--json`."""
    with_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    with_path = click.option(
        "--path",
        type=click.Path(readable=False, path_type=Path),
        default=None,
        help="Directory of the entries. [default: the configured local_disk]",
    )
    return with_path(with_json(function))


@attrs.frozen
class OpenedStore:
    """The store that a command acts on.

    Attributes:
        maintenance: what may be asked of it.
        capacity_nbytes: the cap, if somebody configured one; None if only the default is known, which
            need not be what the servers have.
    """

    maintenance: StoreMaintenance
    capacity_nbytes: int | None


def open_store_at(path: Path | None, *, max_size_gib: float | None = None) -> OpenedStore:
    """Return the store at *path*, or else the configured one.

    Args:
        path: what `--path` named.
        max_size_gib: the cap, where the command line names it.

    Raises:
        ConfigError: there is no store, or the configuration can't be used.
    """
    from eccache.app.bootstrap.stores import operator_root
    from eccache.app.bootstrap.upkeep import open_maintenance

    loaded = _load(path, max_size_gib)
    config = loaded.config
    capped = _cap_is_configured(loaded)
    on_disk = config.local_disk is not None
    capacity_nbytes = config.max_local_disk_nbytes if on_disk else config.max_local_cpu_nbytes
    return OpenedStore(
        maintenance=open_maintenance(operator_root(config), config, keeps_cap=capped),
        capacity_nbytes=capacity_nbytes if capped else None,
    )


def _load(path: Path | None, max_size_gib: float | None) -> LoadedConfig:
    from eccache.app.config import load_config_with_sources

    settings: dict[str, Any] = {}
    if path is not None:
        settings["local_disk"] = str(path.absolute())
    if max_size_gib is not None:
        settings |= dict.fromkeys(_CAPS, max_size_gib)
    return load_config_with_sources(**settings)


def _cap_is_configured(loaded: LoadedConfig) -> bool:
    from eccache.app.config.loading import DEFAULT

    disk, memory = _CAPS
    return loaded.sources[memory if loaded.config.local_disk is None else disk] != DEFAULT
