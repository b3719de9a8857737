"""Caches that tasks reuse, and the errors that they raise."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zipimport import zipimporter

from lakevilla.errors import LakeVillaError, StoreError

# -------------------- reused
#
# Spark reuses its Python processes; data that one task leaves in them slows down the next task.


__all__ = ["forget_archives", "in_worker"]


@contextmanager
def in_worker() -> Iterator[None]:
    """Return a block in a process of Spark: errors begin with their message; caches are dropped."""
    try:
        with said_first():
            yield
    finally:
        forget_archives()


def forget_archives() -> None:
    """Drop the import system's finders for archives that can't change during a session.

    Before each task Spark calls ``importlib.invalidate_caches``, and Python before 3.13 then reads
    the directory of an archive again for each finder. There is a finder for each package in
    ``pyspark.zip``, and for each jar of ``spark.jars.packages``, which Spark puts on the workers'
    path: this takes a quarter of a second of the processor with Delta's. Dropping them is safe
    because they are a cache: the next import from there makes a finder again, by the directory that
    Python caches separately. An archive of the user's may be replaced by another one under the same
    name, and is checked as before.
    """
    # https://github.com/python/cpython/issues/103200
    session = {_archive_of("pyspark"), _archive_of("py4j")}
    for path, finder in list(sys.path_importer_cache.items()):
        if not isinstance(finder, zipimporter):
            continue
        if path != finder.archive or path.endswith(".jar") or path in session:
            sys.path_importer_cache.pop(path, None)


def _archive_of(package: str) -> str | None:
    """Return the archive that a package of Spark was imported from, if it was imported from one."""
    return getattr(getattr(sys.modules.get(package), "__loader__", None), "archive", None)


# -------------------- raising
#
# The form in which LakeVilla's errors leave a Spark worker: the message precedes the traceback.


@contextmanager
def said_first() -> Iterator[None]:
    """Return a block in which Spark's text of a LakeVilla error begins with the error's message.

    Spark formats a traceback and puts it into its own error. Python writes the cause of an error
    above it, and a cause that was never raised consists of its message alone.
    """
    try:
        yield
    except LakeVillaError as error:
        if hasattr(error, _SAID):  # a block within this one has set the cause
            raise
        raise _shown(error) from None


_SAID = "_said_first"


def _shown(error: LakeVillaError) -> LakeVillaError:
    """Return the same error with itself as its cause, which can't be removed: Spark tries to."""
    kind = type(error)
    copy = pickle.loads(pickle.dumps(error))
    own = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__cause__": property(lambda _: copy, lambda *_: None),
        _SAID: True,
    }
    own_kind: Any = type(kind.__name__, (kind,), own)
    shown: LakeVillaError = own_kind.__new__(own_kind)  # some kinds are made of more than a text
    Exception.__init__(shown, error.message)
    shown.__dict__.update(error.__dict__)
    return shown


@contextmanager
def naming_worker(root: str) -> Iterator[None]:
    """Return a block in which an error of the store names the worker that raised it, and its lake.

    The driver may reach a store that a worker can't: it may have credentials that the worker lacks.
    """
    try:
        yield
    except StoreError as error:
        if type(error) is StoreError and error.table is None:
            place = "" if root in error.message else f"{root}: "
            error.message = f"worker {socket.gethostname()}: {place}{error.message}"
            error.args = (error.message,)
        raise
