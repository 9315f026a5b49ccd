"""Entry files as a stranger sees them: found by name, and damaged in place."""

from collections.abc import Callable
from pathlib import Path

from eccache.domain.key import stable_u64


def entry_files(root: Path) -> list[Path]:
    """Every entry below *root*, in the order of their names."""
    return sorted(root.glob("v1/*/*/*.safetensors"))


def entry_file_of(root: Path, mm_hash: str) -> Path | None:
    """The entry of one input, if it is there."""
    found = list(root.glob(f"v1/*/*/*@{stable_u64(mm_hash):x}@*.safetensors"))
    return found[0] if found else None


def delete(file: Path) -> None:
    """Take the file away."""
    file.unlink(missing_ok=True)


def truncate(file: Path) -> None:
    """Shorten the file in place to half its length."""
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)


def flip(file: Path) -> None:
    """Change one bit of the payload in place."""
    with file.open("r+b") as stream:
        stream.seek(-1, 2)
        last = stream.read(1)[0]
        stream.seek(-1, 2)
        stream.write(bytes([last ^ 1]))


DAMAGES: dict[str, Callable[[Path], None]] = {
    "delete": delete,
    "truncate": truncate,
    "flip": flip,
}
"""What may happen to a file, by name."""
