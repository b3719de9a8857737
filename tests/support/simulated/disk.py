"""A disk that may lose power: the directory contents that may remain after each step of its
writers.

A file system promises the effect of each ``fsync``, and no order of the rest. So a power cut leaves
any mix of the following, and ``Disk`` keeps the worst of them:

- the bytes of a file are those of its last ``fsync``; without one it is empty;

- the names in a directory are those of its last ``fsync``, or the present ones.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakevilla.store.backends import local as durable_files

#: The state after a power cut: the bytes of each file by path, and the steps acknowledged before.
Left = tuple[dict[str, bytes], int]


@dataclass
class Disk:
    """Watch all writes below ``root``, and keep the states that a power cut may leave.

    Attributes
    ----------
    acknowledged : int
        The number of steps that are acknowledged to the writer, which counts them.
    left : list
        The states that a cut before each barrier and after each new name may leave.
    """

    root: Path
    acknowledged: int = 0
    left: list[Left] = field(default_factory=list)
    barriers: int = 0
    _bytes: dict[int, bytes] = field(default_factory=dict)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    @contextlib.contextmanager
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Follow the calls of this process; all that is there now counts as synced."""
        for directory, _, files in os.walk(self.root):
            self._sync_names(directory)
            for name in files:
                self._sync_bytes(os.path.join(directory, name))
        with monkeypatch.context() as patch:
            for name, before in (
                ("fsync", self._fsync),
                ("link", self._naming),
                ("rename", self._naming),
                ("unlink", self._unlinking),
            ):
                patch.setattr(durable_files.os, name, before(getattr(os, name)))
            yield

    def restore(self, left: Left) -> None:
        """Write the state that a cut has left."""
        shutil.rmtree(self.root)
        for path, body in left[0].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(body)

    def cut(self) -> list[Left]:
        """Return the states that a cut may leave now."""
        with self._lock:
            self.left.clear()
            self._cut()
            return list(self.left)

    # -- system calls -------------------------------------------------------------

    def _fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            with self._lock:
                self._cut()
                real(descriptor)
                self.barriers += 1
                (self._sync_names if os.path.isdir(path) else self._sync_bytes)(path)

        return fsync

    def _naming(self, real: Callable[..., None]) -> Callable[..., None]:
        def named(source: str, to: str, **options: Any) -> None:
            with self._lock:
                real(source, to, **options)
                self._cut()

        return named

    def _unlinking(self, real: Callable[..., None]) -> Callable[..., None]:
        def unlink(path: str, *, dir_fd: int | None = None) -> None:
            with self._lock:
                status = os.stat(path, dir_fd=dir_fd)
                real(path, dir_fd=dir_fd)
                if status.st_nlink == 1 and not self._is_kept(status.st_ino):
                    # The file system soon reuses its inode number.
                    self._bytes.pop(status.st_ino, None)

        return unlink

    def _is_kept(self, inode: int) -> bool:
        return any(inode in names.values() for names in self._names.values())

    def _sync_bytes(self, path: str) -> None:
        self._bytes[os.stat(path).st_ino] = Path(path).read_bytes()

    def _sync_names(self, directory: str) -> None:
        self._names[directory] = _names_in(directory)

    # -- states after a cut --------------------------------------------------------

    def _cut(self) -> None:
        directories = [found[0] for found in os.walk(self.root)]
        self._leave(dict.fromkeys(directories, False))
        self._leave(dict.fromkeys(directories, True))
        self._leave({one: self._random.random() < 0.5 for one in directories})

    def _leave(self, written_back: dict[str, bool]) -> None:
        """Note a state in which the directories in ``written_back`` have their present names."""
        found: dict[str, bytes] = {}
        below = [str(self.root)]
        while below:
            directory = below.pop()
            names = _names_in(directory) if written_back[directory] else {}
            for name, inode in (names or self._names.get(directory, {})).items():
                path = os.path.join(directory, name)
                if os.path.isdir(path):
                    below.append(path)
                else:
                    found[path] = self._bytes.get(inode, b"")
        if not self.left or self.left[-1] != (found, self.acknowledged):
            self.left.append((found, self.acknowledged))


def _names_in(directory: str) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in entries}
