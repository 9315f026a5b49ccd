"""The operating system: clocks and files."""

from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles

__all__ = ["SystemClock", "SystemFiles"]
