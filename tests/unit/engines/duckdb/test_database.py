"""The engine's database: it is created once, with threads for where its files are stored."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.engines.duckdb import database as module
from lakevilla.engines.duckdb.file_system import GivenFiles
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.data_files import DataFiles
from lakevilla.store.runner import Runner
from tests.support.inside import inside


def test_a_thread_that_asks_for_the_database_while_it_is_created_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    runner = Runner(LocalStore(str(tmp_path)), Ids(SystemClock()), settings)
    database = module.Database(DataFiles(runner), settings)
    connect = module._connect
    seen: list[list[tuple[int, ...]]] = []

    def ask() -> None:
        seen.append(database.cursor().execute("SELECT 42").fetchall())

    other = threading.Thread(target=ask)

    class Slow:
        """A connection during whose set-up another thread requests the database."""

        def __init__(self, *arguments: Any) -> None:
            self._inner = connect(*arguments)

        def execute(self, sql: str) -> Any:
            other.start()
            other.join(0.2)  # the thread ends only if it does not wait
            return self._inner.execute(sql)

        def cursor(self) -> Any:
            return self._inner.cursor()

    monkeypatch.setattr(module, "_connect", Slow)
    ask()
    other.join()
    assert seen == [[(42,)], [(42,)]]


def test_a_database_whose_files_are_on_a_store_has_threads_that_wait_for_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    settings = Settings()
    runner = Runner(open_store("memory://threads"), Ids(SystemClock()), settings)
    database = module.Database(DataFiles(runner), settings)
    found = database.cursor().execute("SELECT current_setting('threads')").fetchall()
    assert found == [(8,)]


def test_a_database_that_has_read_many_files_of_a_store_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 3)
    used = []
    with lv.connect("memory://worn") as lake:
        database = inside(lake).client._embedded._database
        lake.create_table("t", [{"n": 0}])
        for number in range(1, 10):
            lake.run(lambda txn, n=number: txn.append("t", [{"n": n}]))  # one more file each time
            rows = lake.read("t", where="n >= 0")["n"].to_pylist()
            assert sorted(rows) == list(range(number + 1))
            used.append(database._connection)
        for _ in range(3):
            lake.read("t", where="n >= 0")
            used.append(database._connection)
    # The files that it read are kept for the next one, which counts the others alone.
    assert [used.index(one) for one in used] == [0, 0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 7]


def test_databases_of_a_lake_spill_into_directories_of_their_own(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", [{"n": 1}])
        client = inside(lake).client._embedded
        lake.read("t", where="n = 1")
        lake.sql("FROM t")
        databases = [client._database.cursor(), client._closed._kept.connection]
        for _ in range(2):
            databases.append(client._database.another(GivenFiles(client._data, lambda: "0")))
    directories = {
        database.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        for database in databases
    }
    assert len(directories) == len(databases)
