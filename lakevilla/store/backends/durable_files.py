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

from lakevilla.store.pool import beside

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]


def write_new(name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file that is to have another name once its bytes are on the disk."""
    with _filled(name, body) as descriptor:
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)


def write_in_place(name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file whose name nobody knows yet.

    Safe to wait for its bytes and its name at the same time, because neither is of use
    without the other: what a power cut leaves of it is named by nothing.
    """
    with _filled(name, body) as descriptor:
        if durable:
            with beside(lambda: sync_directory(os.path.dirname(name))):
                os.fsync(descriptor)
        return os.fstat(descriptor)


@contextlib.contextmanager
def _filled(name: str, body: bytes) -> Iterator[int]:
    """A new file with these bytes, open for as long as the block takes; gone if that fails."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
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
            os.unlink(name)
        raise
    finally:
        os.close(descriptor)


def link_or_copy(source: str, name: str, durable: bool) -> os.stat_result:
    try:
        os.link(source, name)
        # A temporary file is private to its maker; an object is as open as its directory.
        os.chmod(name, stat.S_IMODE(os.stat(os.path.dirname(name)).st_mode) & 0o666)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        shutil.copyfile(source, name)
    return _stored(name, durable)


def _stored(name: str, durable: bool) -> os.stat_result:
    if not durable:
        return os.stat(name)
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def copy_file(source: str, name: str, durable: bool) -> os.stat_result:
    """A copy with contents of its own: whoever writes into the one does not change the other."""
    shutil.copyfile(source, name)
    return _stored(name, durable)


def with_directories(
    directory: str, fill: Callable[[], os.stat_result], durable: bool
) -> os.stat_result:
    """Call ``fill``, making the directory where it is missing (or was just removed as empty)."""
    for last in (False, False, False, True):
        try:
            return fill()
        except FileNotFoundError:
            if last:
                raise
            _make_directories(directory, durable)
    raise AssertionError("unreachable")


def _make_directories(directory: str, durable: bool) -> None:
    parent = os.path.dirname(directory)
    try:
        os.mkdir(directory)
    except FileNotFoundError:
        _make_directories(parent, durable)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
    except FileExistsError:
        return
    if durable:
        sync_directory(parent)


def sync_directory(directory: str) -> None:
    """Make names durable: without it a power cut takes back an acknowledged create."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such thing as syncing a directory.
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)


def date_after(name: str, current: os.stat_result) -> os.stat_result:
    """Give the file a later modification time than ``current`` has, as the file system counts."""
    floor = current.st_mtime_ns
    status = os.stat(name)
    for digits in itertools.count():
        if status.st_mtime_ns > floor:
            return status
        # A clock that was set back, or a file system with coarse time stamps.
        later = floor + 10**digits
        os.utime(name, ns=(later, later))
        status = os.stat(name)
    raise AssertionError("unreachable")


@contextlib.contextmanager
def locked(path: str, timeout_seconds: float) -> Iterator[bool]:
    """Hold the lock file at ``path``; yields False where it could not be had in time.

    The kernel frees the lock of a process that dies.
    """
    if fcntl is None:  # pragma: no cover - Windows
        raise OSError(errno.EOPNOTSUPP, "no flock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
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
