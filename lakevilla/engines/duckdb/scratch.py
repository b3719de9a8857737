"""Private directories for temporary files, which the next process removes if theirs was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
import weakref

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = "lakevilla-"
#: The file whose lock the directory's process holds. The system frees the lock of a dead process.
_LOCK = "lock"
#: The time in which a process locks the directory that it has made.
_MAKING_SECONDS = 60.0


def scratch_directory(owner: object) -> str:
    """Return a new directory, which only this user may read; it is removed with ``owner``.

    A process that is killed leaves its directory, with all that it has spilled there. So the
    directories of dead processes of this user are removed first.
    """
    descriptor = -1
    if fcntl is not None:
        remove_abandoned(tempfile.gettempdir())
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    if fcntl is not None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(os.path.join(directory, _LOCK), flags, 0o600)
        # No other process waits for this lock: one that tests it gives up at once.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    weakref.finalize(owner, _remove, directory, descriptor, os.getpid())
    return directory


def remove_abandoned(parent: str) -> None:
    """Remove the directories below ``parent`` that processes of this user have left."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    if time.time() - found.st_ctime < _MAKING_SECONDS:
        return  # its process may not have locked it yet
    descriptor = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(descriptor)


def _remove(directory: str, descriptor: int, process: int) -> None:
    if process != os.getpid():
        return  # in a forked child the directory is the parent's
    shutil.rmtree(directory, ignore_errors=True)
    if descriptor >= 0:
        os.close(descriptor)
