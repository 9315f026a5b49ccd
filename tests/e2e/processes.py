"""What the processes of a server hold, as the kernel sees it."""

from pathlib import Path

import attrs
import psutil


@attrs.frozen
class Holdings:
    """Of all processes of a server together.

    Attributes:
        copies: Descriptors of promised copies.
        descriptors: Other open descriptors.
        threads: Threads.
    """

    copies: int
    descriptors: int
    threads: int


def holdings(pid: int) -> Holdings:
    """Count what the engine's processes below the API process *pid* hold; its own are HTTP's business."""
    copies = descriptors = threads = 0
    for process in psutil.Process(pid).children(recursive=True):
        links = [_link(entry) for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
        held = [link for link in links if link is not None]
        copies += sum("memfd:eccache" in link for link in held)
        descriptors += sum("memfd:eccache" not in link for link in held)
        threads += process.num_threads()
    return Holdings(copies, descriptors, threads)


def _link(entry: Path) -> str | None:
    try:
        return str(entry.readlink())
    except FileNotFoundError:  # closed meanwhile
        return None
