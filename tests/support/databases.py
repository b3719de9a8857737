"""Reuse databases of DuckDB for one lake after another, in a run of a few cases of each function.

DuckDB takes some 15 ms of processor time to make a database, most of it to list its functions, and
most tests make one lake or more that read or write rows: that was a tenth of the contracts' time.
So the database of a lake is passed to another lake when the first lake is deleted, or its test has
ended. The next lake registers its own files and directory in it.

The database that a lake keeps for plain SELECTs of users is reused, too. Its settings are locked:
only the files that it may read, whose names no other lake has, and the attached databases are
exchanged. Other SQL of users has a database that is created each time. In a run of all cases each
lake has a database of its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator

import duckdb
import pytest

from lakevilla.engines.duckdb import database as module
from lakevilla.engines.duckdb.database import Database
from lakevilla.engines.duckdb.file_system import StoreFileSystem
from lakevilla.engines.duckdb.reading.closed import ClosedDatabases, ClosedSession, _Kept
from lakevilla.settings import Settings

#: The number of idle databases of each kind, at most.
MOST_IDLE = 6

Connection = duckdb.DuckDBPyConnection
#: The limit of a database's memory, its threads, and whether it caches what it has read.
Kind = tuple[int, int | None, bool]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cases") == "few":
        databases = Databases()
        config.pluginmanager.register(databases)
        config.pluginmanager.register(Closed(databases))


class Databases:
    """Manage the databases that no lake uses."""

    def __init__(self) -> None:
        self._make, self._cursor = Database._made, Database.cursor
        self._connect, self._process = module._connect, os.getpid()
        self._idle: dict[Kind, list[Connection]] = {}
        self._cursors: weakref.WeakKeyDictionary[Connection, weakref.WeakSet[Connection]]
        self._cursors = weakref.WeakKeyDictionary()
        self._lent: list[tuple[weakref.ref[Database], weakref.finalize]] = []

        def made(database: Database, directory: str) -> Connection:
            return self._made(database, directory)

        def cursor(database: Database, *, watched: bool = True) -> Connection:
            opened = self._cursor(database, watched=watched)
            self._cursors.get(database._connection, weakref.WeakSet()).add(opened)
            return opened

        Database._made, Database.cursor = made, cursor

    def _made(self, database: Database, directory: str) -> Connection:
        # A forked child may not use its parent's database; and a test may check how one is made.
        if os.getpid() != self._process or module._connect is not self._connect:
            return self._make(database, directory)
        kind = (database._settings.memory_limit_bytes, database._threads, not database.is_local)
        connection = self._idle_one(kind, database, directory) or self._make(database, directory)
        self._cursors[connection] = weakref.WeakSet()
        give_back = weakref.finalize(database, self._give_back, kind, connection)
        give_back.atexit = False
        self._lent.append((weakref.ref(database), give_back))
        return connection

    def _idle_one(self, kind: Kind, database: Database, directory: str) -> Connection | None:
        idle = self._idle.setdefault(kind, [])
        while idle:
            connection = idle.pop()
            try:
                own = f"{directory}/database-{next(database._numbers)}"
                connection.execute(f"SET temp_directory = '{own}'")
                if kind[-1]:  # it caches the files of another lake
                    connection.execute("SET enable_external_file_cache = false")
                    connection.execute("SET enable_external_file_cache = true")
            except duckdb.Error:
                continue  # the database has written to its temp directory, or an error has ended it
            connection.unregister_filesystem(StoreFileSystem.protocol)
            connection.register_filesystem(database._files)
            return connection
        return None

    def _give_back(self, kind: Kind, connection: Connection) -> None:
        idle = self._idle.setdefault(kind, [])
        in_use = any(self._cursors.pop(connection, ()))
        if os.getpid() == self._process and not in_use and len(idle) < MOST_IDLE:
            idle.append(connection)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Take back the databases of the test's lakes; a lake of a module's fixture
        gets a new one.
        """
        result = yield
        self.take_back()
        return result

    def take_back(self) -> None:
        while self._lent:
            lake, give_back = self._lent.pop()
            database = lake()
            if database is not None:
                database._connection = None
            give_back()


#: The databases that sessions of the previous lake have attached.
_ATTACHED = """
    SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'
"""


class Closed:
    """Manage the closed databases that no lake uses."""

    def __init__(self, databases: Databases) -> None:
        self._databases, self._process = databases, os.getpid()
        self._open, self._another = ClosedDatabases._open, _Kept._another
        self._idle: list[tuple[Connection, weakref.WeakSet[ClosedSession]]] = []
        self._lent: list[weakref.ref[ClosedDatabases]] = []

        def opened(closed: ClosedDatabases) -> _Kept:
            with closed._lock:
                if closed._kept is None and self._is_usual(closed._database):
                    self._lend(closed)
            return self._open(closed)

        ClosedDatabases._open = opened

    def _is_usual(self, database: Database) -> bool:
        """Return whether the database has the settings of almost all lakes."""
        return (
            os.getpid() == self._process
            and module._connect is self._databases._connect
            and database._threads is None
            and database._settings.memory_limit_bytes == Settings().memory_limit_bytes
        )

    def _lend(self, closed: ClosedDatabases) -> None:
        connection = self._idle_one(closed) or closed._connect()
        closed._kept = kept = _Kept(connection, closed._files.made)
        sessions = weakref.WeakSet[ClosedSession]()

        def another() -> ClosedSession:
            session = self._another(kept_of())
            sessions.add(session)
            return session

        kept_of = weakref.ref(kept)
        kept._another = another
        weakref.finalize(kept, self._give_back, connection, sessions).atexit = False
        self._lent.append(weakref.ref(closed))

    def _idle_one(self, closed: ClosedDatabases) -> Connection | None:
        while self._idle:
            connection, sessions = self._idle.pop()
            if any(sessions):
                continue  # a statement still runs in it
            try:
                for (name,) in connection.execute(_ATTACHED).fetchall():
                    connection.execute(f'DETACH "{name}"')
            except duckdb.Error:
                continue  # an error has ended it
            connection.unregister_filesystem(StoreFileSystem.protocol)
            connection.register_filesystem(closed._files)
            return connection
        return None

    def _give_back(self, connection: Connection, sessions: weakref.WeakSet[ClosedSession]) -> None:
        if os.getpid() == self._process and len(self._idle) < MOST_IDLE:
            self._idle.append((connection, sessions))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Take back the databases of the test's lakes; a lake that a module keeps gets
        another one.
        """
        result = yield
        while self._lent:
            closed = self._lent.pop()()
            if closed is not None:
                closed.close()
        return result
