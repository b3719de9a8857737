"""What PEP 249 asks of any module, in the order of its text, as the suite ``dbapi20`` asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla import dbapi

SAMPLES = ["Carlton Cold", "Carlton Draft", "Mountain Goat", "Redback", "Victoria Bitter", "XXXX"]


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[dbapi.Connection]:
    connection = dbapi.connect(tmp_path)
    connection.cursor().execute("CREATE TABLE booze (name VARCHAR(20))")
    connection.commit()
    yield connection
    connection.close()


@pytest.fixture
def filled(connection: dbapi.Connection) -> dbapi.Cursor:
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO booze VALUES (:beer)", [{"beer": name} for name in SAMPLES])
    return cursor


def names(cursor: dbapi.Cursor) -> list[str]:
    return sorted(row[0] for row in cursor.fetchall())


def test_cursors_of_a_connection_are_not_isolated_from_each_other(
    connection: dbapi.Connection,
) -> None:
    one, two = connection.cursor(), connection.cursor()
    one.execute("INSERT INTO booze VALUES ('Victoria Bitter')")
    two.execute("SELECT name FROM booze")
    assert two.fetchall() == [("Victoria Bitter",)]


def test_a_description_has_seven_items_of_each_column_and_is_none_without_rows(
    connection: dbapi.Connection,
) -> None:
    cursor = connection.cursor()
    assert cursor.description is None
    cursor.execute("INSERT INTO booze VALUES ('XXXX')")
    assert cursor.description is None
    cursor.execute("SELECT name FROM booze")
    assert cursor.description is not None
    ((name, code, *rest),) = cursor.description
    assert (name, len(rest)) == ("name", 5)
    assert code == dbapi.STRING


def test_a_rowcount_is_unknown_before_a_statement_and_that_of_the_last_one_after(
    connection: dbapi.Connection,
) -> None:
    cursor = connection.cursor()
    assert cursor.rowcount == -1
    cursor.execute("CREATE TABLE barflys (name VARCHAR(20))")
    assert cursor.rowcount == -1
    cursor.execute("INSERT INTO booze VALUES ('Victoria Bitter')")
    assert cursor.rowcount == 1
    cursor.execute("SELECT name FROM booze")
    assert cursor.rowcount == 1


def test_executemany_runs_the_statement_for_each_set_of_parameters(filled: dbapi.Cursor) -> None:
    assert filled.rowcount == len(SAMPLES)
    filled.execute("SELECT name FROM booze")
    assert names(filled) == SAMPLES


def test_a_parameter_keeps_each_character_of_its_text(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    odd = 'Cooper\'s % :beer ? \\ "x" é'
    cursor.execute("INSERT INTO booze VALUES (:beer)", {"beer": odd})
    cursor.execute("SELECT name FROM booze WHERE name = :beer", {"beer": odd})
    assert cursor.fetchall() == [(odd,)]


@pytest.mark.parametrize("fetch", ["fetchone", "fetchmany", "fetchall"])
def test_a_fetch_raises_where_no_statement_has_found_rows(
    connection: dbapi.Connection, fetch: str
) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.Error):
        getattr(cursor, fetch)()
    cursor.execute("INSERT INTO booze VALUES ('XXXX')")
    with pytest.raises(dbapi.Error):
        getattr(cursor, fetch)()
    cursor.execute("SELECT name FROM booze WHERE name = 'nothing'")
    assert getattr(cursor, fetch)() == (None if fetch == "fetchone" else [])


def test_fetchmany_returns_arraysize_rows_and_what_is_left_at_the_end(filled: dbapi.Cursor) -> None:
    filled.execute("SELECT name FROM booze")
    assert len(filled.fetchmany()) == 1
    filled.arraysize = 4
    counts = [len(filled.fetchmany()), len(filled.fetchmany(10)), len(filled.fetchmany())]
    assert counts == [4, 1, 0]


def test_ways_of_fetching_may_be_mixed_and_return_each_row_once(filled: dbapi.Cursor) -> None:
    filled.execute("SELECT name FROM booze ORDER BY name")
    first, some = filled.fetchone(), filled.fetchmany(2)
    then, rest = filled.fetchone(), filled.fetchall()
    assert [row for row in [first, *some, then, *rest] if row] == [(name,) for name in SAMPLES]
    assert filled.fetchone() is None


def test_null_is_none(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("INSERT INTO booze VALUES (:beer)", {"beer": None})
    cursor.execute("SELECT name FROM booze")
    assert cursor.fetchall() == [(None,)]


def test_sizes_of_inputs_and_outputs_may_be_set_and_change_nothing(filled: dbapi.Cursor) -> None:
    filled.setinputsizes((25,))
    filled.setoutputsize(1000)
    filled.setoutputsize(2000, 0)
    filled.execute("SELECT name FROM booze")
    assert names(filled) == SAMPLES


def test_commit_and_rollback_end_a_transaction_and_may_be_called_without_one(
    connection: dbapi.Connection,
) -> None:
    connection.commit()
    connection.rollback()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO booze VALUES ('XXXX')")
    connection.rollback()
    cursor.execute("SELECT count(*) FROM booze")
    assert cursor.fetchone() == (0,)


def test_autocommit_can_be_read_and_set_between_transactions(connection: dbapi.Connection) -> None:
    assert connection.autocommit is False
    connection.execute("INSERT INTO booze VALUES ('XXXX')")
    with pytest.raises(dbapi.ProgrammingError, match="within a transaction"):
        connection.autocommit = True
    connection.commit()
    connection.autocommit = True
    connection.execute("INSERT INTO booze VALUES ('Redback')")
    assert not connection.in_transaction
    connection.rollback()  # nothing is left to undo
    assert lv.connect(connection.lake.root).read("booze").num_rows == 2


def test_a_closed_connection_and_its_cursors_take_nothing(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    connection.close()
    connection.close()
    for call in (connection.commit, connection.rollback, connection.cursor):
        with pytest.raises(dbapi.Error):
            call()
    with pytest.raises(dbapi.Error):
        cursor.execute("SELECT 1")
