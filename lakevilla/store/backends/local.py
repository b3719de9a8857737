"""A directory as a store, with compare-and-swap that holds between processes.

No object that anybody knows is ever visible half-written: bytes go to a hidden temporary file
beside their place, are made durable (``durable``), and get their name in one step (``link``
for a create, ``rename`` for a replacement). Only a file at a key that nobody knows yet
(``NewKey``) is written in its place: its bytes and its name are on the disk before anybody is told.

- **Create** is ``link``, which fails where the name exists: the file system
  decides the race, against other tools too.
- **Match** holds an ``flock`` on a lock file in the object's directory while it
  compares and renames. The kernel frees the lock of a process that dies.
- **Tokens** are inode, modification time and size. They never come back for
  another state of a key: each replacement sets a later time than the one
  before, under the lock (an inode number alone is soon used again).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator

from lakevilla.store.backends.durable_files import (
    copy_file,
    date_after,
    link_or_copy,
    locked,
    sync_directory,
    with_directories,
    write_in_place,
    write_new,
)
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

#: Names that begin so are ours and are not objects.
_HIDDEN = ".lakevilla-"
_LOCK = f"{_HIDDEN}lock"
_TEMPORARY = f"{_HIDDEN}tmp-"

#: A temporary file this old belongs to nobody any more. A writer that slept
#: longer finds it gone, fails before anything is visible, and tries again.
_LEFT_OVER_SECONDS = 24 * 3600.0

_DIRECTORY = OSError(errno.EISDIR, "is a directory")

_PERMANENT = {
    errno.EACCES: "permission denied; give this user the right to read and write there",
    errno.EPERM: "not permitted by the file system; it may not allow hard links",
    errno.EROFS: "the file system is read-only; mount it writable",
    errno.ENOSPC: "no space left on the device; free some",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.ENAMETOOLONG: "the name is too long for the file system; shorten it",
    errno.EOPNOTSUPP: "the file system cannot do this; keep the lake on one with links and locks",
    errno.EXDEV: "the object's directory spans two file systems; keep it on one",
}


class LocalStore:
    """Single attempts at the five verbs on a directory.

    Parameters
    ----------
    directory : str
        Absolute path that keys are relative to.
    lock_timeout_seconds : float
        How long a compare-and-swap waits for another one in the same directory,
        whose process may be stopped, before the attempt fails.
    durable : bool
        Whether each file and name is on the disk before it is acknowledged. If not, the steps
        and their order are the same, and only a power cut can tell them apart.
    """

    def __init__(
        self, directory: str, lock_timeout_seconds: float = 30.0, *, durable: bool = True
    ) -> None:
        self._directory = directory.rstrip("/")
        self._lock_timeout_seconds = lock_timeout_seconds
        self._durable = durable

    def local_path(self, key: str) -> str:
        return f"{self._directory}/{check_key(key)}"

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        try:
            descriptor = os.open(self.local_path(key), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return Missing() if _is_absence(error) else _failure(error, ambiguous=False)
        try:
            # Token and bytes belong together: a file never changes in place,
            # and the descriptor stays with the one it opened.
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return Missing()
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
                # Safe before the lock: a token that is gone never comes back.
                if not _may_hold(path, token):
                    return Refused()
            case NewKey():
                stored = self._put_new(path, body)
                if stored is not None:
                    return stored
        return self._publish(path, condition, lambda name: write_new(name, body, self._durable))

    def put_file(self, key: str, path: str) -> Stored | Failure:
        outcome = self._publish(
            self.local_path(key), None, lambda name: link_or_copy(path, name, self._durable)
        )
        assert not isinstance(outcome, Refused)
        return outcome

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        place = self.local_path(source)
        if not os.path.isfile(place):
            return Missing()
        outcome = self._publish(
            self.local_path(key), None, lambda name: copy_file(place, name, self._durable)
        )
        assert not isinstance(outcome, Refused)
        if isinstance(outcome, Failure) and not os.path.exists(place):
            return Missing()  # it was deleted meanwhile
        return outcome

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        try:
            status = os.stat(self.local_path(key))
        except OSError as error:
            return Missing() if _is_absence(error) else _failure(error, ambiguous=False)
        return Missing() if stat.S_ISDIR(status.st_mode) else _info(key, status)

    def list(self, prefix: str, start_after: str | None = None) -> list[ObjectInfo] | Failure:
        infos: list[ObjectInfo] = []
        try:
            for key, entry in self._walk(prefix):
                if start_after is None or key > start_after:
                    # Gone since: deleted while we were looking.
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
                    # A directory that a link leads to has a name of its own, here or elsewhere.
                    if entry.name.startswith(_HIDDEN) or (is_directory and entry.is_symlink()):
                        continue
                    names.append(f"{entry.name}/" if is_directory else entry.name)
        except OSError as error:
            return () if _is_absence(error) else _failure(error, ambiguous=False)
        return tuple(names)

    def delete(self, key: str) -> Failure | None:
        path = self.local_path(key)
        try:
            os.unlink(path)
        except OSError as error:
            if not (_is_absence(error) or os.path.isdir(path)):
                return _failure(error, ambiguous=False)
        directory = os.path.dirname(path)
        with contextlib.suppress(OSError):
            while "/_lakevilla/" in directory:
                # Each saved transaction has a directory, and each partition that was written on
                # a branch: empty ones would pile up. Safe because rmdir refuses one that is not
                # empty, and a create that finds its directory gone makes it again.
                os.rmdir(directory)
                directory = os.path.dirname(directory)
        return None

    # ------------------------------------------------------------- writing

    def _put_new(self, path: str, body: bytes) -> Stored | Failure | None:
        """Write a file in its place; None if one is there, which an earlier attempt has left.

        It saves a name, a rename and a wait: its bytes and its name go to the disk together.
        """
        directory = os.path.dirname(path)
        try:
            status = with_directories(
                directory, lambda: write_in_place(path, body, self._durable), self._durable
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
        directory = os.path.dirname(path)
        temporary = f"{directory}/{_TEMPORARY}{secrets.token_hex(8)}"
        visible = False
        try:
            try:
                status = with_directories(directory, lambda: fill(temporary), self._durable)
                match condition:
                    case Absent():
                        try:
                            os.link(temporary, path)
                        except FileExistsError:
                            return Refused()
                    case Match(token):
                        with locked(f"{directory}/{_LOCK}", self._lock_timeout_seconds) as held:
                            if not held:
                                return Failure(
                                    f"the lock {directory}/{_LOCK} was held by another process "
                                    f"for {self._lock_timeout_seconds:g} s",
                                    ambiguous=False,
                                )
                            current = _status(path)
                            if current is None or _token(current) != token:
                                return Refused()
                            status = date_after(temporary, current)
                            visible = True
                            os.rename(temporary, path)
                    case _:
                        visible = True
                        os.rename(temporary, path)
                visible = True
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            if self._durable:
                sync_directory(directory)
        except OSError as error:
            return _failure(error, ambiguous=visible)
        return Stored(_token(status))

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
                        _sweep(entry)
                        continue
                    key = f"{directory}/{entry.name}" if directory else entry.name
                    if entry.is_dir():
                        directories.append(key)
                    else:
                        yield key, entry


#: Makes a new file of the given name and returns its status.
_Fill = Callable[[str], os.stat_result]


def _sweep(entry: os.DirEntry[str]) -> None:
    """Remove a temporary file that a killed writer left behind."""
    if entry.name.startswith(_TEMPORARY):
        with contextlib.suppress(OSError):
            if entry.stat().st_mtime < time.time() - _LEFT_OVER_SECONDS:
                os.unlink(entry.path)


def _may_hold(path: str, token: Token) -> bool:
    with contextlib.suppress(OSError):
        current = _status(path)
        return current is not None and _token(current) == token
    return True


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
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
    """All bytes from start to end; one call reads 2 GiB at most."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_absence(error: OSError) -> bool:
    # A file where a directory is meant: an object store would find nothing either.
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
