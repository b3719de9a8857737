"""The engine's database: it is created once, with threads for where its files are stored."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lakevilla.clock import SystemClock
from lakevilla.engines.duckdb import database as module
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.data_files import DataFiles
from lakevilla.store.runner import Runner


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
