"""Upkeep of a root by an operator, beside the servers that use it."""

from eccache.adapters.disk.upkeep.maintenance import DiskMaintenance

__all__ = ["DiskMaintenance"]
