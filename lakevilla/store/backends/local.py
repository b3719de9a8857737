"""A store in a local directory."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakevilla.forked import lock
from lakevilla.store.base import (
    Absent,
    Condition,
    Failure,
    Found,
    GetOutcome,
    Match,
    Missing,
    NewKey,
    ObjectInfo,
    Refused,
    Stored,
    Token,
    Unchanged,
)
from lakevilla.store.location import check_key
from lakevilla.store.parallel import beside

# -------------------- local
#
# A directory as a store, with compare-and-swap that holds between processes.
#
# No object that any client knows is ever visible half-written: bytes go to a hidden temporary file
# next to their place, are made durable (``durable``), and get their name in one step (``link`` for
# a create, ``rename`` for a replacement). Only a file at a key that no other client knows yet
# (``NewKey``) is written in its place: its bytes and its name are on the disk before the write is
# acknowledged.
#
# - **Create** is ``link``, which fails where the name exists: the file system
#   decides the race, with other tools too.
# - **Match** holds an ``flock`` on a lock file in the object's directory while it
#   compares and renames. The kernel frees the lock of a process that dies.
# - **Tokens** are inode, modification time and size. A token never occurs again for
#   another state of a key: each replacement sets a later time than the one
#   before, under the lock (an inode number alone is soon used again).
# - **Links** to directories are not listed, and nothing is written or deleted through
#   one (``below``). A link to a file is read; a write or a deletion replaces or deletes the link
#   itself. An entry that is neither file nor directory, such as a pipe, is refused: opening
#   it would wait for ever.


#: Names with this beginning belong to this library and are not objects.
_HIDDEN = ".lakevilla-"
_LOCK = f"{_HIDDEN}lock"
_TEMPORARY = f"{_HIDDEN}tmp-"

#: A temporary file this old belongs to no running writer any more. A writer that was suspended
#: for longer finds it deleted, fails before anything is visible, and tries again.
_LEFT_OVER_SECONDS = 24 * 3600.0

_DIRECTORY = OSError(errno.EISDIR, "is a directory")

#: Without O_NONBLOCK opening a pipe would wait for a writer.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

_PERMANENT = {
    errno.EACCES: "permission denied; give this user the right to read and write there",
    errno.EPERM: "not permitted by the file system; it may not allow hard links",
    errno.EROFS: "the file system is read-only; mount it writable",
    errno.ENOSPC: "no space left on the device; free some",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file is too large for the file system, or for this process (ulimit -f)",
    errno.ENAMETOOLONG: "the name is too long for the file system; shorten it",
    errno.EOPNOTSUPP: "the file system cannot do this; keep the lake on one with links and locks",
    errno.EXDEV: "the object's directory spans two file systems; keep it on one",
    errno.ELOOP: (
        "a symbolic link is in its path, and links are not followed; put a directory there (mount "
        "it, if it is on another disk)"
    ),
    errno.ENXIO: "it is no regular file, but a pipe, a socket or a device; remove it",
}

#: Those about a whole disk: no other write would get through either.
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class LocalStore:
    """Single attempts at the five verbs on a directory.

    Parameters
    ----------
    directory : str
        The absolute path to which keys are relative.
    lock_timeout_seconds : float
        The time for which a compare-and-swap waits for another one in the same directory,
        whose process may be stopped, before the attempt fails.
    durable : bool
        Whether each file and name is on the disk before it is acknowledged. If not, the steps
        and their order are the same, and only a power cut shows the difference.
    """

    def __init__(
        self, directory: str, lock_timeout_seconds: float = 30.0, *, durable: bool = True
    ) -> None:
        self._directory = os.path.realpath(directory).rstrip("/")
        self._lock_timeout_seconds = lock_timeout_seconds
        self._durable = durable
        #: The failed barriers of directories since the last sound one.
        self._unsynced: dict[str, object] = {}
        self._unsynced_lock = lock()

    def local_path(self, key: str) -> str:
        return f"{self._directory}/{check_key(key)}"

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        path = self.local_path(key)
        try:
            self._sync_again(path.rpartition("/")[0])
            descriptor = os.open(path, _READING)
        except OSError as error:
            return Missing() if _is_absence(error) else _failure(error, ambiguous=False)
        try:
            # Token and bytes belong together: a file never changes in place,
            # and the descriptor stays with the one it opened.
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return Missing()
            if not stat.S_ISREG(status.st_mode):
                return _failure(not_regular(), ambiguous=False)
            token = _token(status)
            if known == token:
                return Unchanged()
            start, end = _bounds(byte_range, status.st_size)
            return Found(_read(descriptor, start, end), token, status.st_size)
        except OSError as error:
            return _failure(error, ambiguous=False)
        finally:
            os.close(descriptor)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        path = self.local_path(key)
        match condition:
            case Absent():
                if os.path.exists(path):
                    is_directory = os.path.isdir(path)
                    return _failure(_DIRECTORY, False) if is_directory else Refused()
            case Match(token):
                # Safe before the lock: a token that was replaced never occurs again.
                if not _may_hold(path, token):
                    return Refused()
            case NewKey():
                stored = self._put_new(path, body)
                if stored is not None:
                    return stored

        def fill(directory: int, name: str) -> os.stat_result:
            return write_new(directory, name, body, self._durable)

        return self._publish(path, condition, fill)

    def put_file(self, key: str, path: str) -> Stored | Failure:

        def fill(directory: int, name: str) -> os.stat_result:
            return link_or_copy(path, directory, name, self._durable)

        outcome = self._publish(self.local_path(key), None, fill)
        assert not isinstance(outcome, Refused)
        return outcome

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        place = self.local_path(source)
        if not os.path.isfile(place):
            return Missing()

        def fill(directory: int, name: str) -> os.stat_result:
            return copy_file(place, directory, name, self._durable)

        outcome = self._publish(self.local_path(key), None, fill)
        assert not isinstance(outcome, Refused)
        if isinstance(outcome, Failure) and not os.path.exists(place):
            return Missing()  # it was deleted meanwhile
        return outcome

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        try:
            status = os.stat(self.local_path(key))
        except OSError as error:
            return Missing() if _is_absence(error) else _failure(error, ambiguous=False)
        if stat.S_ISDIR(status.st_mode):
            return Missing()
        if not stat.S_ISREG(status.st_mode):
            return _failure(not_regular(), ambiguous=False)
        return _info(key, status)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        infos: list[ObjectInfo] = []
        try:
            for key, entry in self._walk(prefix):
                if (start_after is None or key > start_after) and (until is None or key <= until):
                    # The file was deleted while the directory was listed.
                    with contextlib.suppress(FileNotFoundError):
                        infos.append(_info(key, entry.stat()))
        except OSError as error:
            return _failure(error, ambiguous=False)
        return infos

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        directory = self.local_path(prefix) if prefix else self._directory
        names: list[str] = []
        try:
            with os.scandir(directory or "/") as entries:
                for entry in entries:
                    is_directory = entry.is_dir()
                    # A directory to which a link leads has a name of its own, here or elsewhere.
                    if entry.name.startswith(_HIDDEN) or (is_directory and entry.is_symlink()):
                        continue
                    names.append(f"{entry.name}/" if is_directory else entry.name)
        except OSError as error:
            return () if _is_absence(error) else _failure(error, ambiguous=False)
        return tuple(names)

    def delete(self, key: str) -> Failure | None:
        directory, _, name = self.local_path(key).rpartition("/")
        try:
            with directory_at(directory) as parent:
                _unlink(name, parent)
        except OSError as error:
            return None if _is_absence(error) else _failure(error, ambiguous=False)
        with contextlib.suppress(OSError):
            while "/_lakevilla/" in directory:
                # Each saved transaction has a directory, and each partition that was written on a
                # branch: empty ones would pile up. Safe because rmdir refuses a directory that is
                # not empty, and a create that finds its directory deleted makes it again.
                directory, _, name = directory.rpartition("/")
                with directory_at(directory) as parent:
                    os.rmdir(name, dir_fd=parent)
        return None

    # ------------------------------------------------------------- writing

    def _put_new(self, path: str, body: bytes) -> Stored | Failure | None:
        """Write a file directly under its final name; return None if an earlier attempt has left a
        file.

        This saves a name, a rename and a wait: the bytes and the name go to the disk together.
        """
        directory, _, name = path.rpartition("/")
        try:
            status = in_directory_durably(
                directory,
                lambda there: write_in_place(there, name, body, self._durable),
                self._durable,
            )
        except FileExistsError:
            return None
        except OSError as error:
            return _failure(error, ambiguous=False)
        return Stored(_token(status))

    def _publish(
        self, path: str, condition: Condition | None, fill: _Fill
    ) -> Stored | Refused | Failure:
        """Fill a temporary file, and give it its name if the condition holds."""
        directory, _, name = path.rpartition("/")
        naming = _Naming(name, condition, fill, self._lock_timeout_seconds, self._durable)
        try:
            return in_directory_durably(directory, naming, self._durable)
        except OSError as error:
            if naming.visible and self._durable:
                with self._unsynced_lock:
                    self._unsynced[directory] = object()
            return _failure(error, ambiguous=naming.visible)

    def _sync_again(self, directory: str) -> None:
        """Bring the names in a directory to the disk if an earlier write could not.

        A read settles the outcome of such a write, so it must not show a name that a power cut
        would undo.
        """
        failed = self._unsynced.get(directory)
        if failed is None:
            return
        with directory_at(directory) as there:
            sync_directory(there)
        # Another thread's barrier may have failed meanwhile, for a name that this one has missed.
        with self._unsynced_lock:
            if self._unsynced.get(directory) is failed:
                del self._unsynced[directory]

    # ------------------------------------------------------------- listing

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        directories = [check_key(prefix) if prefix else ""]
        while directories:
            directory = directories.pop()
            try:
                entries = os.scandir(f"{self._directory}/{directory}")
            except OSError as error:
                if _is_absence(error):
                    continue
                raise
            with entries:
                for entry in entries:
                    if entry.name.startswith(_HIDDEN):
                        _sweep(f"{self._directory}/{directory}", entry)
                        continue
                    key = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(key)
                    elif not (entry.is_symlink() and entry.is_dir()):
                        yield key, entry


#: Makes a new file of the given name in a directory and returns its status.
_Fill = Callable[[int, str], os.stat_result]


class _Naming:
    """A step that gives a file, filled under another name, its own name if the condition holds.

    Attributes
    ----------
    visible : bool
        Whether any client may have seen it under its name.
    """

    def __init__(
        self,
        name: str,
        condition: Condition | None,
        fill: _Fill,
        lock_timeout_seconds: float,
        durable: bool,
    ) -> None:
        self.visible = False
        self._name = name
        self._condition = condition
        self._fill = fill
        self._lock_timeout_seconds = lock_timeout_seconds
        self._durable = durable

    def __call__(self, directory: int) -> Stored | Refused | Failure:
        temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
        try:
            status = self._fill(directory, temporary)
            outcome = self._named(directory, temporary, status)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
        if isinstance(outcome, Stored) and self._durable:
            try:
                sync_directory(directory)
            except FileNotFoundError:
                # The file is not written again: it had its name, and a client may have read it.
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from None
        return outcome

    def _named(
        self, directory: int, temporary: str, status: os.stat_result
    ) -> Stored | Refused | Failure:
        match self._condition:
            case Absent():
                try:
                    os.link(
                        temporary,
                        self._name,
                        src_dir_fd=directory,
                        dst_dir_fd=directory,
                        follow_symlinks=False,
                    )
                except FileExistsError:
                    return Refused()
            case Match(token):
                with locked(directory, _LOCK, self._lock_timeout_seconds) as held:
                    if not held:
                        return Failure(
                            f"the lock {_LOCK} next to {self._name} was held by another process "
                            f"for {self._lock_timeout_seconds:g} s",
                            ambiguous=False,
                        )
                    current = _status(self._name, directory)
                    if current is None or _token(current) != token:
                        return Refused()
                    status = date_after(directory, temporary, current)
                    self._rename(directory, temporary)
            case _:
                self._rename(directory, temporary)
        self.visible = True
        return Stored(_token(status))

    def _rename(self, directory: int, temporary: str) -> None:
        self.visible = True
        os.rename(temporary, self._name, src_dir_fd=directory, dst_dir_fd=directory)


def _unlink(name: str, directory: int) -> None:
    """Remove a name; the name of a directory stays, as no object is there."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError as error:
        if _is_absence(error):
            return
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise


def _sweep(directory: str, entry: os.DirEntry[str]) -> None:
    """Remove a temporary file that a killed writer left behind."""
    if entry.name.startswith(_TEMPORARY):
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - _LEFT_OVER_SECONDS:
                with directory_at(directory) as there:
                    os.unlink(entry.name, dir_fd=there)


def _may_hold(path: str, token: Token) -> bool:
    with contextlib.suppress(OSError):
        current = _status(path)
        return current is not None and _token(current) == token
    return True


def _status(path: str, directory: int | None = None) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=directory)
    except OSError as error:
        if _is_absence(error):
            return None
        raise


def _token(status: os.stat_result) -> Token:
    return Token(f'"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"')


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _token(status), status.st_mtime_ns / 1e9)


def _bounds(byte_range: tuple[int, int] | None, size: int) -> tuple[int, int]:
    if byte_range is None:
        return 0, size
    start, end = byte_range
    return (max(0, size + start), size) if start < 0 else (start, min(end, size))


def _read(descriptor: int, start: int, end: int) -> bytes:
    """Return all bytes from start to end; one call reads 2 GiB at most."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def beginning_of(path: str, count: int) -> bytes | None:
    """Return a file's first bytes, no bytes if it is missing, or None if it can't be read."""
    try:
        descriptor = os.open(path, _READING)
        with _closing(descriptor):
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return _read(descriptor, 0, count) if is_file else None
    except OSError as error:
        return b"" if _is_absence(error) else None


def refusal_by(error: OSError) -> str | None:
    """Return why a disk takes no write now, and what to do; None for any other error."""
    if error.errno == errno.EIO:
        return "the disk reports an error; check it"
    return _PERMANENT[error.errno] if error.errno in _OF_DISK else None


def refusal_in(text: str) -> str | None:
    """Return the same for the message of a library that repeats the system's words."""
    return next((_PERMANENT[code] for code in _OF_DISK if os.strerror(code) in text), None)


def _is_absence(error: OSError) -> bool:
    # A file where a directory is expected: an object store would find no object either.
    return error.errno in (errno.ENOENT, errno.ENOTDIR)


def _failure(error: OSError, ambiguous: bool) -> Failure:
    hint = _PERMANENT.get(error.errno or 0)
    if hint is not None:
        return Failure(hint, ambiguous=ambiguous, permanent=True)
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY):
        return Failure(
            "a file is where a directory is needed, or a directory where a file is; rename one",
            ambiguous=ambiguous,
            permanent=True,
        )
    return Failure(f"{error.strerror} ({errno.errorcode.get(error.errno or 0)})", ambiguous)


# -------------------- durable files
#
# Files that survive a power cut: each step is on disk before it is relied on.


try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]


T = TypeVar("T")


def not_regular() -> OSError:
    """Return an error for an entry that is no readable file: a pipe, a socket, a device."""
    return OSError(errno.ENXIO, "is no regular file")


def write_new(directory: int, name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file that gets another name once its bytes are on the disk."""
    with _filled(directory, name, body) as descriptor:
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)


def write_in_place(directory: int, name: str, body: bytes, durable: bool) -> os.stat_result:
    """Write a file whose name no other client knows yet.

    It is safe to wait for its bytes and its name at the same time, because neither is of use
    without the other: no object names the remains that a power cut leaves.
    """
    with _filled(directory, name, body) as descriptor:
        if durable:
            with beside(lambda: sync_directory(directory)):
                os.fsync(descriptor)
        return os.fstat(descriptor)


@contextlib.contextmanager
def _filled(directory: int, name: str, body: bytes) -> Iterator[int]:
    """Create a file with these bytes, open while the block runs; delete it if the block fails."""
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
        # A half-written file is useless. This call has created it: the name was free.
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)
        raise
    finally:
        os.close(descriptor)


def _created(directory: int, name: str) -> int:
    """Create a file with the access rights that the umask allows."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, 0o666, dir_fd=directory)


def link_or_copy(source: str, directory: int, name: str, durable: bool) -> os.stat_result:
    """Give a file another name, or copy it where the file system can't do so."""
    # A file created there gets the rights that the umask, or the directory's own list, allows.
    descriptor = _created(directory, name)
    made, listed = os.fstat(descriptor), _has_list(descriptor)
    os.close(descriptor)
    os.unlink(name, dir_fd=directory)
    if listed or made.st_gid != os.stat(source).st_gid:
        # A directory that a team shares gives its files to the team, and a link's owner stays.
        return copy_file(source, directory, name, durable)
    allowed = made.st_mode & os.stat(".", dir_fd=directory).st_mode & 0o666
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


def _has_list(descriptor: int) -> bool:
    """Return whether a file has a list of access rights beyond those of its mode."""
    try:
        return any("posix_acl" in name for name in os.listxattr(descriptor))
    except (AttributeError, OSError):
        return False  # the system, or the file system, has no such lists


def _stored(directory: int, name: str, durable: bool) -> os.stat_result:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def copy_file(source: str, directory: int, name: str, durable: bool) -> os.stat_result:
    """Copy a file, with contents of its own: a write to one file does not change the other."""
    with open(source, "rb") as original, open(_created(directory, name), "wb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        if durable:
            os.fsync(copy.fileno())
        return os.fstat(copy.fileno())


def settle(path: str, durable: bool) -> None:
    """Check whether the file written to a path is stored there, and bring it to the disk.

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
    """Make names durable: without it a power cut undoes an acknowledged create."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems can't sync a directory.
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
    """Hold the lock file of that name; yield False where the lock was not free in time.

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
            # Unlocked explicitly, not only by closing: a child forked meanwhile
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


# -------------------- below
#
# Directories of this machine, opened part by part without following a link.
#
# A client that may write below the root could replace a directory by a link at any time, even
# between a check and a deletion. So files are written and deleted by the descriptor of their
# directory, which is reached from ``/`` part by part (docs/design/0052-deletion-stays-inside.md).


#: The first attempt makes no directories, since mostly all of them exist.
_ATTEMPTS = 8
#: Users may pass through a directory that they may not list, where the system supports this.
_PASS = getattr(os, "O_PATH", os.O_RDONLY)
for _flag in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"):
    _PASS |= getattr(os, _flag, 0)


@contextlib.contextmanager
def directory_at(path: str) -> Iterator[int]:
    """Yield the descriptor of a directory, for calls that take ``dir_fd``.

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

    ``made`` is called with the directory in which each new one has its name.
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
        try:
            made(descriptor)
        except BaseException:
            # Its name may not be on the disk: the next attempt is to make it again.
            with contextlib.suppress(OSError):
                os.rmdir(part, dir_fd=descriptor)
            raise
    return os.open(part, _PASS, dir_fd=descriptor)


def _is_link(descriptor: int, part: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.stat(part, dir_fd=descriptor, follow_symlinks=False).st_mode)
    return False
