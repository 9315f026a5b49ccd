"""The switch that turns the cache off for all servers: a file where the store's directory should be."""

from __future__ import annotations

import stat

from eccache.adapters.disk.layout import Layout
from eccache.ports.file_operations import FileOperations


def is_switched_off(files: FileOperations, layout: Layout) -> bool:
    """Return whether a file stands where the store's own directory would."""
    try:
        return stat.S_ISREG(files.status(layout.version).st_mode)
    except OSError:
        return False


def switched_off_cause(layout: Layout) -> str:
    """Return what there is to say, without a full stop."""
    return f"the cache is switched off: {layout.version} is a file"


def switched_off_remedy(layout: Layout) -> str:
    """Return how it is switched on again."""
    return (
        f"to switch it on, rm {layout.version} and move back what stood in its place; docs/upgrading.md "
        "has the commands"
    )
