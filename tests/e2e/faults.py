"""Faults inside a real server at a chosen moment, switched on and off from the test.

A plugin of vLLM (`faults_plugin.py`) watches a folder: while the file `hold` is there, reading the store
waits; what the file `damage` names happens to an entry's file after its promise and before its load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eccache.app.demo.plugin import lay_out_plugin

PLUGIN = Path(__file__).parent / "faults_plugin.py"
FOLDER_VARIABLE = "FAULTS_FOLDER"
ROOT_VARIABLE = "FAULTS_ROOT"


class Faults:
    """The switches, and what the plugin did.

    Args:
        folder: Where both live; made here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python_path = lay_out_plugin(PLUGIN, folder / "plugin")

    @contextmanager
    def look_ups_held(self) -> Iterator[None]:
        """While inside, no look-up comes back from the store."""
        switch = self.folder / "hold"
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()

    @contextmanager
    def files_damaged(self, kind: str) -> Iterator[None]:
        """While inside, every promised entry's file is damaged just before its load is sent out."""
        switch = self.folder / "damage"
        switch.write_text(kind)
        try:
            yield
        finally:
            switch.unlink()

    def damaged(self) -> list[str]:
        """Kinds of the damages done so far."""
        record = self.folder / "damaged"
        return record.read_text().split() if record.exists() else []
