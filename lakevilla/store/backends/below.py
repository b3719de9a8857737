"""Directories of this machine, opened part by part without following a link.

Who may write below the root could put a link in the place of a directory, at any moment: between
a look and a deletion, too. So what is written or deleted is named by the descriptor of its
directory, which is reached from ``/`` part by part (docs/design/0052-deletion-stays-inside.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

#: The first without making directories, of which all are there mostly.
_ATTEMPTS = 8
#: A directory may be passed through by those who may not list it, where the system has that.
_PASS = getattr(os, "O_PATH", os.O_RDONLY)
for _flag in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"):
    _PASS |= getattr(os, _flag, 0)


@contextlib.contextmanager
def directory_at(path: str) -> Iterator[int]:
    """The descriptor of a directory, for calls that take ``dir_fd``.

    Raises
    ------
    OSError
        ``ELOOP`` where a part of the path is a link.
    """
    descriptor = _opened(path, None)
    with _closing(descriptor):
        yield descriptor


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def in_directory(path: str, fill: Callable[[int], T], made: Callable[[int], object]) -> T:
    """Call ``fill`` with a directory, made where it is missing (or was just removed as empty).

    ``made`` is told the directory in which each new one has its name.
    """
    for attempt in range(_ATTEMPTS):
        try:
            descriptor = _opened(path, made if attempt else None)
            with _closing(descriptor):
                return fill(descriptor)
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _opened(path: str, made: Callable[[int], object] | None) -> int:
    descriptor = os.open("/", _PASS)
    try:
        for part in filter(None, path.split("/")):
            deeper = _entered(descriptor, part, made)
            os.close(descriptor)
            descriptor = deeper
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _entered(descriptor: int, part: str, made: Callable[[int], object] | None) -> int:
    try:
        return os.open(part, _PASS, dir_fd=descriptor)
    except FileNotFoundError:
        if made is None:
            raise
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(descriptor, part):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, dir_fd=descriptor)
        made(descriptor)
    return os.open(part, _PASS, dir_fd=descriptor)


def _is_link(descriptor: int, part: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode)
    return False
