"""The native store: files in a directory, shared by every process of the host."""

from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.namespace_file import described_namespaces
from eccache.adapters.disk.parts import DiskParts
from eccache.adapters.disk.policy import DiskPolicy, Durability
from eccache.adapters.disk.self_test import leaving_no_trace, try_out
from eccache.adapters.disk.shared_memory import open_shared_memory_store
from eccache.adapters.disk.store import DiskStore
from eccache.adapters.disk.upkeep import DiskMaintenance

__all__ = [
    "DiskMaintenance",
    "DiskParts",
    "DiskPolicy",
    "DiskStore",
    "Durability",
    "Layout",
    "described_namespaces",
    "leaving_no_trace",
    "open_shared_memory_store",
    "try_out",
]
