"""The operating system: clocks, files and memory."""

from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.adapters.system.locality import answers_by_itself
from eccache.adapters.system.memory import available_memory_nbytes

__all__ = ["SystemClock", "SystemFiles", "answers_by_itself", "available_memory_nbytes"]
