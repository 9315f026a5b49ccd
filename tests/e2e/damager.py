"""A process that damages entries of a running server until its standard input is closed.

Arguments: the root, a seed, and the seconds between two damages.
"""

import contextlib
import random
import select
import sys
from pathlib import Path

from tests.e2e.entry_files import DAMAGES, entry_files


def main(root: Path, seed: int, pause_seconds: float) -> None:
    """Damage one entry after the other, each in another way."""
    choose = random.Random(seed)
    done = 0
    while not select.select([sys.stdin], [], [], pause_seconds)[0]:
        files = entry_files(root)
        if files:
            with contextlib.suppress(FileNotFoundError):  # quarantined or replaced meanwhile
                choose.choice(list(DAMAGES.values()))(choose.choice(files))
                done += 1
    print(done)  # noqa: T201 - its answer


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
