"""Faults inside a real server at a chosen moment, switched on and off from the test.

A plugin of vLLM (`faults_plugin.py`) watches a folder: while the file `hold` is there, reading the store
waits; what the file `damage` names happens to an entry's file after its promise and before its load.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        self.python_path = folder / "plugin"
        metadata = self.python_path / "faults_plugin-0.dist-info"
        metadata.mkdir(parents=True)
        shutil.copy(PLUGIN, self.python_path)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: faults-plugin\nVersion: 0\n"
        )
        (metadata / "entry_points.txt").write_text(
            "[vllm.general_plugins]\nfaults = faults_plugin:register\n"
        )

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
