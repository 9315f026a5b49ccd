"""The operating system: clocks, files and memory."""

from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.adapters.system.memory import available_memory_nbytes

__all__ = ["SystemClock", "SystemFiles", "available_memory_nbytes"]
