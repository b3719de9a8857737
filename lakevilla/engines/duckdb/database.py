"""The database of DuckDB in this process, and what it reports while a query runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from typing import Any, TypeVar

import pyarrow as pa

from lakevilla.arrow.cast import conform
from lakevilla.engines.base import DataAccess
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.failures import Tap, translated
from lakevilla.engines.duckdb.file_system import StoreFileSystem
from lakevilla.engines.statistics import running
from lakevilla.forked import lock, not_closed_in_child
from lakevilla.settings import Settings
from lakevilla.store.scratch import on_scratch, scratch_root

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

# -------------------- database
#
# One in-process DuckDB database per engine, made on first use and again after a fork.


#: Rows of a batch that passes through Python.
BATCH_ROWS = 65_536


#: The least number of threads that read files from a store: each waits for one request at a time,
#: so that two of them read many small files slowly, however fast the store is.
_FAR_THREADS = 8


#: Up to this many keys, DuckDB leaves out the row groups that have none of them between their
#: bounds; of more keys (by default of 50) it looks at the least and the greatest alone.
_MOST_KEYS = 1000


#: DuckDB keeps some kilobytes for each file of a store that it has read, as long as the database
#: exists, and files that no table has any more are not read again.
#: https://github.com/duckdb/duckdb/issues/16842 (footers)
#: https://github.com/duckdb/duckdb/issues/22730 (blocks)
MOST_FILES = 20_000


class Database:
    """Connections to a private in-memory database.

    Every operation takes a cursor of its own. A cursor is a connection, so the next statement never
    cuts off a result that is still being read, and threads never share one.
    """

    def __init__(self, data: DataAccess, settings: Settings, threads: int | None = None) -> None:
        self._data = data
        self._settings = settings
        if threads is None and not self.is_local:
            threads = max(os.cpu_count() or 1, _FAR_THREADS)
        self._threads = threads
        self._lock = lock()
        self._owner = -1
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._files = StoreFileSystem(data)
        self._directory: str | None = None
        self._numbers = itertools.count()

    def cursor(self, *, watched: bool = True) -> duckdb.DuckDBPyConnection:
        """Return a fresh connection to the database.

        ``watched``: its statement is interrupted when the time is over. Such a connection must not
        be closed by hand: DuckDB does not support closing it while it is interrupted.
        """
        cursor = not_closed_in_child(self._open().cursor())
        if watched and (statement := running()) is not None:
            statement.watch(cursor)
        return cursor

    @property
    def is_local(self) -> bool:
        """Return whether data files are read by their paths on this machine."""
        return self._data.local_path("_lakevilla") is not None

    @property
    def directory(self) -> str:
        """Return a private directory for temporary files; it is removed with this object."""
        self._open()
        assert self._directory is not None
        return self._directory

    def another(self, files: StoreFileSystem) -> duckdb.DuckDBPyConnection:
        """Return a second database, with the same limits, that reads the store by ``files``.

        The data that it has read stays in its memory until the memory is needed.
        """
        return self._connect(self.directory, files, keeps=True)

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._serves() and self._connection is not None:
            return self._connection
        with self._lock:
            # A forked child has the parent's database without its threads.
            if self._connection is None or not self._serves():
                if self._directory is None or self._owner != os.getpid():
                    self._directory = scratch_directory(self)
                self._files = StoreFileSystem(self._data, self._files)
                connection = self._made(self._directory)
                # Set the owner last: until then, the connection may be that of a parent.
                self._connection = connection
                self._owner = os.getpid()
            return self._connection

    def _serves(self) -> bool:
        """Return whether the next statement may run in the database, or needs another.

        Statements that run in an older database end in it.
        """
        return self._owner == os.getpid() and self._files.fresh <= MOST_FILES

    def _made(self, directory: str) -> duckdb.DuckDBPyConnection:
        # Data on this machine is in the system's file cache already; a second copy here would fill
        # the memory limit.
        connection = self._connect(directory, self._files, keeps=not self.is_local)
        # The engine's own joins name the smaller side last. DuckDB would guess 1000 rows a file and
        # build its hash table of the larger side.
        with translated(None):
            connection.execute(
                "SET disabled_optimizers = 'join_order,build_side_probe_side'; "
                f"SET dynamic_or_filter_threshold = {_MOST_KEYS}"
            )
        return connection

    def _connect(
        self, directory: str, files: StoreFileSystem, *, keeps: bool
    ) -> duckdb.DuckDBPyConnection:
        # Databases give the files that they spill to the same names: each needs a directory of its
        # own. DuckDB makes it when it first spills.
        own = os.path.join(directory, f"database-{next(self._numbers)}")
        return _connect(self._settings, own, self._threads, files, keeps)


#: DuckDB 2 takes LakeVilla's files for local ones, which by default it does not cache, and reads in
#: requests of 16 KB. With these settings it fetches a file smaller than a block as a whole, and of
#: larger files the parts that it needs.
_KEPT_BY_DUCKDB_2: dict[str, str | int | float | list[str]] = {
    "cache_local_files": True,
    "external_file_cache_local_max_block_size": 4 << 20,
    "external_file_cache_request_sizing": "EXACT",
}


def is_duckdb_1() -> bool:
    """Return whether DuckDB 1 is installed, which behaves differently in some ways."""
    return duckdb.__version__.startswith("1.")


def _connect(
    settings: Settings, directory: str, threads: int | None, files: StoreFileSystem, keeps: bool
) -> duckdb.DuckDBPyConnection:
    # Closing the connection in a forked child would wait for its threads, which are the parent's.
    connection = not_closed_in_child(
        duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{settings.memory_limit_bytes}B",
                "temp_directory": directory,
                "preserve_insertion_order": False,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "enable_external_file_cache": keeps,
                **(_KEPT_BY_DUCKDB_2 if keeps and not is_duckdb_1() else {}),
                **({} if threads is None else {"threads": threads}),
            },
        )
    )
    with translated(None):
        # By default the limit is what the disk has free when the first rows are spilled, and stays
        # so when more is free: the disk itself decides. (DuckDB ignores the option in ``config``.)
        connection.execute("SET max_temp_directory_size = '1000TB'; SET GLOBAL TimeZone = 'UTC'")
    connection.register_filesystem(files)
    return connection


def asked(
    connection: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None
) -> Any:
    """Return the result of a SELECT; its ``to_arrow_reader`` yields rows as DuckDB computes them.

    DuckDB 2 yields rows in this way from a relation alone, and copies the whole answer of a
    statement that is executed. DuckDB 1 copies that of a relation with parameters.
    """
    values: Any = dict(params) if params else None
    if is_duckdb_1():
        return connection.execute(sql, values)
    return connection.sql(sql, params=values)


def arrow_reader(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Return the rows of a SELECT as DuckDB computes them."""
    reader: pa.RecordBatchReader = asked(connection, sql).to_arrow_reader(BATCH_ROWS)
    return reader


def stream(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    schema: pa.Schema,
    table: str | None,
    taps: Iterable[Tap] = (),
) -> Iterator[pa.RecordBatch]:
    """Return rows of a SELECT in bounded memory, in the types of ``schema``; it begins to run now.

    The cursor must do nothing else until the rows are read.
    """
    with translated(table, taps):
        reader = arrow_reader(cursor, sql)

    def batches() -> Iterator[pa.RecordBatch]:
        with translated(table, taps):
            for batch in reader:
                yield conform(batch, schema, table)

    return batches()


# -------------------- heard
#
# Users' statements, which may run for ever, run so that Ctrl-C ends them.
#
# DuckDB 1 checks for signals while it waits for an answer. DuckDB 2 does so only between the tasks
# of a query, and one task may be the whole query. There the main thread, which alone receives
# signals, waits in Python for another thread that runs the query, and interrupts it.
# https://github.com/duckdb/duckdb/pull/10545 (the same of an older version, and the same remedy)


T = TypeVar("T")


def heard(connection: duckdb.DuckDBPyConnection, work: Callable[[], T]) -> T:
    """Return the result of ``work``, or raise its error; an error of a signal's handler ends it.

    ``work`` uses ``connection`` and no other.
    """
    listens = duckdb.__version__.startswith("1.")
    if listens or threading.current_thread() is not threading.main_thread():
        return work()
    returned: list[T] = []
    raised: list[BaseException] = []
    # Wait for an event, not for the thread's own end: that wait can't be resumed once a signal has
    # interrupted it.
    done = threading.Event()
    context = copy_context()  # limits and meters of the statement are the caller's

    def run() -> None:
        try:
            returned.append(context.run(work))
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="lakevilla-query", daemon=True).start()
    try:
        done.wait()
    except BaseException:
        connection.interrupt()
        done.wait()  # before that, the connection takes no other call
        raise
    if raised:
        raise raised[0]
    return returned[0]


# -------------------- scratch
#
# Private directories for temporary files, which the next process removes if theirs was killed.


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
    root = scratch_root()
    if fcntl is not None:
        remove_abandoned(root)
    with on_scratch(root):
        directory = tempfile.mkdtemp(prefix=_PREFIX)
        if fcntl is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(os.path.join(directory, _LOCK), flags, 0o600)
    if fcntl is not None:
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
