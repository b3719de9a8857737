"""A disk of a few kilobytes, which is really full when it is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SmallDisk:
    """A file system in memory, with a file that takes up its free space.

    Parameters
    ----------
    path : Path
        Where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def leave(self, count: int) -> None:
        """Leave this many bytes free, rounded to whole pages."""
        with self._ballast.open("wb") as ballast:
            ballast.write(bytes(max(0, self.free - count)))

    def clear(self) -> None:
        """Free all that the ballast takes up."""
        self._ballast.unlink(missing_ok=True)

    @property
    def free(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


def refusal() -> str | None:
    """Return why this process can't mount a disk, or None."""
    return None if os.geteuid() == 0 and os.path.exists("/bin/mount") else "only root mounts a disk"


@contextmanager
def mounted(path: Path, kilobytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size at a new directory while the block lasts."""
    path.mkdir()
    size = f"size={kilobytes}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        # Lazily, because DuckDB's database may still have a file open there.
        subprocess.run(["umount", "-l", path], check=True)
