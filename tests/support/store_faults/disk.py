"""A disk that takes no more: an error at each system call by which the library writes a file."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True)
class DiskFault:
    """An error of the system, and the calls that it ends.

    Attributes
    ----------
    writes_half : bool
        A write takes half of the bytes first, as one does that fills the disk.
    """

    name: str
    error: int
    calls: frozenset[str]
    writes_half: bool = False


_TAKING_SPACE = frozenset({"open", "mkdir", "write", "fsync", "link", "rename"})

DISK_FAULTS = (
    DiskFault("no space", errno.ENOSPC, _TAKING_SPACE, writes_half=True),
    DiskFault("quota used up", errno.EDQUOT, _TAKING_SPACE, writes_half=True),
    DiskFault("no inode", errno.ENOSPC, frozenset({"open", "mkdir"})),
    DiskFault("full when synced", errno.ENOSPC, frozenset({"fsync"})),
    DiskFault("read-only", errno.EROFS, _TAKING_SPACE - {"write"} | {"unlink"}),
    DiskFault("broken when synced", errno.EIO, frozenset({"fsync"})),
    DiskFault("broken", errno.EIO, frozenset({"write", "fsync", "rename", "link"})),
)


@dataclass
class DiskPlan:
    """A fault, and the calls below ``root`` that it ends: ``length`` of them after ``first``."""

    fault: DiskFault
    root: str
    first: int
    length: int
    seen: int = 0
    fired: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, call: str, path: str) -> bool:
        if call not in self.fault.calls or not path.startswith(self.root):
            return False
        with self.lock:
            self.seen += 1
            fires = self.first < self.seen <= self.first + self.length
            self.fired += fires
            return fires

    def error(self) -> OSError:
        return OSError(self.fault.error, os.strerror(self.fault.error))

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Let the calls of this process fail by the plan while the block lasts."""
        with ExitStack() as patches:
            for name, broken in (
                ("write", self._write(os.write)),
                ("fsync", self._of_descriptor("fsync", os.fsync)),
                ("open", self._open(os.open)),
                ("mkdir", self._of_name("mkdir", os.mkdir)),
                ("unlink", self._of_name("unlink", os.unlink)),
                ("link", self._of_two("link", os.link)),
                ("rename", self._of_two("rename", os.rename)),
            ):
                patches.enter_context(patch.object(os, name, broken))
            yield

    def _write(self, real: Callable[..., int]) -> Callable[..., int]:
        def write(descriptor: int, body: Any) -> int:
            if self.takes("write", _path_of(descriptor)):
                if self.fault.writes_half and len(body) > 1:
                    return real(descriptor, body[: len(body) // 2])
                raise self.error()
            return real(descriptor, body)

        return write

    def _of_descriptor(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def broken(descriptor: int) -> Any:
            if self.takes(call, _path_of(descriptor)):
                raise self.error()
            return real(descriptor)

        return broken

    def _open(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *given: Any, dir_fd: int | None = None) -> int:
            if flags & os.O_CREAT and self.takes("open", _below(path, dir_fd)):
                raise self.error()
            return real(path, flags, *given, dir_fd=dir_fd)

        return opened

    def _of_name(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def broken(path: Any, *given: Any, dir_fd: int | None = None) -> Any:
            if self.takes(call, _below(path, dir_fd)):
                raise self.error()
            return real(path, *given, dir_fd=dir_fd)

        return broken

    def _of_two(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def broken(source: Any, to: Any, **options: Any) -> Any:
            if self.takes(call, _below(to, options.get("dst_dir_fd"))):
                raise self.error()
            return real(source, to, **options)

        return broken


def _below(path: Any, directory: int | None) -> str:
    """Return the path of a name in an open directory."""
    name = os.fspath(path)
    name = name.decode() if isinstance(name, bytes) else str(name)
    return name if directory is None else f"{_path_of(directory)}/{name}"


def _path_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
