"""In a run of a few cases, a lake reuses the DuckDB database of an earlier lake, without its
rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.database import Database
from tests.support.databases import Databases
from tests.support.inside import inside


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> Databases:
    for name in ("_made", "cursor"):  # restored afterwards
        monkeypatch.setattr(Database, name, getattr(Database, name))
    return Databases()


def database_of(lake: lv.Lake) -> Database:
    return inside(lake).client._embedded._database


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_lake_reuses_the_database_of_a_lake_whose_test_has_ended(
    kind: str, databases: Databases, tmp_path: Path
) -> None:
    used = []
    for number in range(2):
        root = f"memory://databases-{number}" if kind == "memory" else str(tmp_path / str(number))
        with lv.connect(root) as lake:
            lake.create_table("t", [{"id": number}])
            assert lake.read("t").to_pylist() == [{"id": number}]
            database = database_of(lake)
            used.append(database._connection)
            [[directory]] = (
                database.cursor().execute("SELECT current_setting('temp_directory')").fetchall()
            )
            assert os.path.dirname(directory) == database.directory
        databases.take_back()
        # A lake that is used again gets a database again, with its own rows.
        assert lake.read("t").to_pylist() == [{"id": number}]
        databases.take_back()
    assert used[0] is used[1]


def test_a_database_that_is_still_being_read_is_not_reused(
    databases: Databases, tmp_path: Path
) -> None:
    reading = []
    used = []
    for number in range(2):
        with lv.connect(str(tmp_path / str(number))) as lake:
            database = database_of(lake)
            reading.append(database.cursor())
            used.append(database._connection)
        databases.take_back()
    assert used[0] is not used[1]
    assert [cursor.execute("SELECT 1").fetchall() for cursor in reading] == [[(1,)], [(1,)]]
