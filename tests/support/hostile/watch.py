"""What this process does with a directory into which nothing may lead, and which code it runs.

The kernel tells of each file that is opened, whoever opens it: pyarrow and DuckDB call it without
Python. Python's own hooks tell of code. A hook can't be removed, so there is one for the process,
which is silent while nobody watches.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Events of code that runs, or of processes that start; no work on a table has any of them.
_OF_CODE = frozenset(
    {
        "ctypes.dlopen",
        "os.exec",
        "os.posix_spawn",
        "os.system",
        "pickle.find_class",
        "shelve.open",
        "subprocess.Popen",
        "urllib.Request",
    }
)
#: Files of this machine that hostile paths name, and that others open at any time.
_OF_THE_SYSTEM = ("/etc/passwd", "/proc/self/environ")

#: All events of a directory and its files but those of stat: opened, read, written, made, deleted.
_ALL = 0xFFF
_EVENT = struct.Struct("iIII")


@dataclass
class Watch:
    """What happened while a directory was watched."""

    opened: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    #: How many events of files there were elsewhere: a watch that hears nothing watches nothing.
    events: int = 0

    def note(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _OF_CODE:
            self.ran.append(f"{event} {arguments!r}")
        elif event == "open":
            self.events += 1
            if arguments[0] in _OF_THE_SYSTEM:
                self.opened.append(str(arguments[0]))


_watches: list[Watch] = []
_installed = False


@contextmanager
def watched(directory: str) -> Iterator[Watch]:
    """Watch a directory, without those below it, and this process, while the block runs."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    watch = Watch()
    with _told_by_the_kernel(directory) as told:
        _watches.append(watch)
        try:
            yield watch
        finally:
            _watches.remove(watch)
            watch.opened += told()


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    for watch in list(_watches or ()):  # None once the interpreter ends
        watch.note(event, arguments)


@contextmanager
def _told_by_the_kernel(directory: str) -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns the names in a directory that were opened since."""
    system = ctypes.CDLL(None, use_errno=True)
    queue = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if queue < 0 or system.inotify_add_watch(queue, os.fsencode(directory), _ALL) < 0:
        raise OSError(ctypes.get_errno(), "the directory can't be watched", directory)

    def told() -> list[str]:
        try:
            body = os.read(queue, 1 << 20)
        except BlockingIOError:
            return []
        names = []
        while body:
            _, mask, _, length = _EVENT.unpack_from(body)
            name = body[_EVENT.size :][:length].rstrip(b"\0").decode()
            names.append(f"{name or '.'} ({mask:#x})")
            body = body[_EVENT.size + length :]
        return names

    try:
        yield told
    finally:
        os.close(queue)
