"""Files that survive a power cut: each step is on disk before it is relied on."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import time  # noqa: TID251 - a file's date is this machine's, and a lock is waited for
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakevilla.store.backends.below import directory_at, in_directory
from lakevilla.store.pool import beside

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]


T = TypeVar("T")


def not_regular() -> OSError:
    """An error for what is there and is no file that can be read: a pipe, a socket, a device."""
    return OSError(errno.ENXIO, "is no regular file")


def write_new(directory: int, name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file that is to have another name once its bytes are on the disk."""
    with _filled(directory, name, body) as descriptor:
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)


def write_in_place(directory: int, name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file whose name nobody knows yet.

    Safe to wait for its bytes and its name at the same time, because neither is of use
    without the other: what a power cut leaves of it is named by nothing.
    """
    with _filled(directory, name, body) as descriptor:
        if durable:
            with beside(lambda: sync_directory(directory)):
                os.fsync(descriptor)
        return os.fstat(descriptor)


@contextlib.contextmanager
def _filled(directory: int, name: str, body: bytes) -> Iterator[int]:
    """A new file with these bytes, open for as long as the block takes; gone if that fails."""
    descriptor = _created(directory, name)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        # The kernel's own time stamp is coarse: two writes within a tick agree.
        now = time.time_ns()
        os.utime(descriptor, ns=(now, now))
        yield descriptor
    except BaseException:
        # Half of it is of use to nobody. It is this call's own: the name was free.
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _created(directory: int, name: str) -> int:
    """A new file, as open to others as the umask lets it be."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, 0o666, dir_fd=directory)


def link_or_copy(source: str, directory: int, name: str, durable: bool) -> os.stat_result:
    """Give a file another name, or copy it where the file system has no such thing."""
    # What is made there shows what the umask, or the directory's own list of rights, allows.
    descriptor = _created(directory, name)
    allowed = os.fstat(descriptor).st_mode & os.stat(".", dir_fd=directory).st_mode & 0o666
    os.close(descriptor)
    os.unlink(name, dir_fd=directory)
    try:
        os.link(source, name, dst_dir_fd=directory, follow_symlinks=False)
        # A temporary file is private to its maker; an object is as open as its directory.
        os.chmod(name, allowed, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        return copy_file(source, directory, name, durable)
    return _stored(directory, name, durable)


def _stored(directory: int, name: str, durable: bool) -> os.stat_result:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def copy_file(source: str, directory: int, name: str, durable: bool) -> os.stat_result:
    """A copy with contents of its own: whoever writes into the one does not change the other."""
    with open(source, "rb") as original, open(_created(directory, name), "wb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        if durable:
            os.fsync(copy.fileno())
        return os.fstat(copy.fileno())


def settle(path: str, durable: bool) -> None:
    """Look whether what was written to a path lies there, and have it on the disk.

    Raises ``OSError`` where a link leads elsewhere.
    """
    parent, _, name = path.rpartition("/")
    with directory_at(parent) as directory:
        _stored(directory, name, durable)
        if durable:
            sync_directory(directory)


def in_directory_durably(path: str, fill: Callable[[int], T], durable: bool) -> T:
    """Call ``fill`` with a directory, made where it is missing; new names are on the disk."""
    return in_directory(path, fill, sync_directory if durable else lambda directory: None)


def sync_directory(directory: int) -> None:
    """Make names durable: without it a power cut takes back an acknowledged create."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such thing as syncing a directory.
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)


def date_after(directory: int, name: str, current: os.stat_result) -> os.stat_result:
    """Give the file a later modification time than ``current`` has, as the file system counts."""
    floor = current.st_mtime_ns
    status = os.stat(name, dir_fd=directory)
    for digits in itertools.count():
        if status.st_mtime_ns > floor:
            return status
        # A clock that was set back, or a file system with coarse time stamps.
        later = floor + 10**digits
        os.utime(name, ns=(later, later), dir_fd=directory)
        status = os.stat(name, dir_fd=directory)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def locked(directory: int, name: str, timeout_seconds: float) -> Iterator[bool]:
    """Hold the lock file of that name; yields False where it could not be had in time.

    The kernel frees the lock of a process that dies.
    """
    if fcntl is None:  # pragma: no cover - Windows
        raise OSError(errno.EOPNOTSUPP, "no flock")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o666, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise not_regular()
        held = _lock(descriptor, timeout_seconds)
        try:
            yield held
        finally:
            # Unlocked by name, not by closing alone: a child forked meanwhile
            # has this descriptor too and would keep the lock.
            if held:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    pause = 0.0001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.002)
        else:
            return True
