"""Connections: implicit transactions, their failure and end, and their use by threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla import dbapi
from tests.support.places import Place


@pytest.fixture
def lake(quick_place: Place) -> lv.Lake:
    lake = quick_place.connect()
    lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 2}])
    return lake


@pytest.fixture
def connection(lake: lv.Lake) -> Iterator[dbapi.Connection]:
    connection = dbapi.connect(lake)
    yield connection
    connection.close()


def asked(connection: dbapi.Connection, query: str, **params: object) -> list[tuple[Any, ...]]:
    return connection.cursor().execute(query, params).fetchall()


def quantity(lake: lv.Lake, sku: str = "tea") -> int:
    (row,) = lake.read("stock", where="sku = :sku", params={"sku": sku}).to_pylist()
    quantity: int = row["qty"]
    return quantity


TAKE = "UPDATE stock SET qty = qty - 1 WHERE sku = 'tea'"


def take(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'"))


# ------------------------------------------------------------- transactions


def test_the_first_statement_begins_a_transaction_and_commit_ends_it(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    assert not connection.in_transaction
    cursor = connection.cursor().execute(TAKE)
    assert connection.in_transaction
    assert cursor.rowcount == 1
    assert asked(connection, "SELECT qty FROM stock WHERE sku = :sku", sku="tea") == [(4,)]
    assert quantity(lake) == 5
    connection.commit()
    assert not connection.in_transaction
    assert quantity(lake) == 4
    connection.commit()  # without a transaction: does nothing


def test_a_connection_shows_one_state_until_its_transaction_ends(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    query = "SELECT qty FROM stock WHERE sku = 'tea'"
    assert asked(connection, query) == [(5,)]
    take(lake)
    assert asked(connection, query) == [(5,)]
    connection.rollback()
    assert asked(connection, query) == [(4,)]


def test_rollback_undoes_changes_and_created_tables(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    cursor = connection.cursor()
    cursor.execute(TAKE)
    cursor.execute("CREATE TABLE made (id BIGINT)")
    connection.rollback()
    assert quantity(lake) == 5
    assert [table.name for table in lake.tables()] == ["stock"]
    connection.rollback()  # of nothing


def test_a_with_block_commits_or_rolls_back_and_closes_the_connection(lake: lv.Lake) -> None:
    with dbapi.connect(lake) as connection:
        connection.cursor().execute(TAKE)
    assert quantity(lake) == 4
    with pytest.raises(ZeroDivisionError), dbapi.connect(lake) as connection:
        connection.cursor().execute(TAKE)
        raise ZeroDivisionError
    assert quantity(lake) == 4
    assert connection.closed


def test_with_autocommit_each_statement_is_a_transaction(lake: lv.Lake) -> None:
    connection = dbapi.connect(lake, autocommit=True)
    cursor = connection.cursor().execute(TAKE)
    assert quantity(lake) == 4
    cursor.execute("BEGIN")
    cursor.execute(TAKE)
    assert connection.in_transaction
    assert quantity(lake) == 4
    connection.rollback()
    assert quantity(lake) == 4
    connection.autocommit = False
    cursor.execute(TAKE)
    assert quantity(lake) == 4
    with pytest.raises(dbapi.ProgrammingError, match="within a transaction"):
        connection.autocommit = True
    connection.close()


def test_a_script_can_begin_and_commit_its_own_transaction(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    connection.cursor().execute(f"BEGIN; {TAKE}; {TAKE}; COMMIT")
    assert not connection.in_transaction
    assert quantity(lake) == 3


def test_a_changed_isolation_applies_to_the_next_transaction(lake: lv.Lake) -> None:
    """Snapshot isolation allows write skew, and serializable transactions do not."""
    for isolation, commits in (("snapshot", True), ("serializable", False)):
        connection = dbapi.connect(lake)
        connection.isolation = isolation  # type: ignore[assignment]
        assert connection.isolation == isolation
        asked(connection, "SELECT sum(qty) FROM stock WHERE sku = 'tea'")
        connection.cursor().execute("UPDATE stock SET qty = 0 WHERE sku = 'jam'")
        take(lake)
        if commits:
            connection.commit()
        else:
            with pytest.raises(dbapi.TransactionConflict):
                connection.commit()
        connection.close()
    with pytest.raises(dbapi.ProgrammingError, match="isolation"):
        dbapi.connect(lake, isolation="read committed")  # type: ignore[arg-type]


# ------------------------------------------------------------------ conflicts


def test_a_conflict_at_commit_raises_a_retryable_error(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    assert connection.cursor().execute(TAKE).rowcount == 1
    lake.run(lambda txn: txn.delete("stock", where="sku = 'tea'"))
    with pytest.raises(dbapi.OperationalError, match="run it again") as caught:
        connection.commit()
    assert caught.value.retryable
    assert (caught.value.kind, caught.value.table) == ("conflict", "stock")
    assert isinstance(caught.value.__cause__, lv.ConflictError)
    assert not connection.in_transaction
    assert asked(connection, "SELECT count(*) FROM stock") == [(1,)]


@pytest.fixture
def failed(lake: lv.Lake, connection: dbapi.Connection) -> dbapi.Connection:
    """Return a connection whose transaction has failed at its second write."""
    cursor = connection.cursor()
    cursor.execute("SET durability = 'every_op'")
    cursor.execute("UPDATE stock SET qty = 7 WHERE sku = 'jam'")
    (running,) = lake.transactions()
    lake.abort(running.id)
    with pytest.raises(dbapi.TransactionConflict, match="aborted by another client"):
        cursor.execute(TAKE)
    return connection


@pytest.mark.parametrize("statement", ["SELECT * FROM stock", TAKE, "COMMIT", "BEGIN"])
def test_a_failed_transaction_accepts_only_rollback(
    lake: lv.Lake, failed: dbapi.Connection, statement: str
) -> None:
    """Otherwise later statements would be committed without the earlier ones."""
    with pytest.raises(dbapi.InternalError, match=r"has failed .*: call rollback\(\)"):
        failed.cursor().execute(statement)
    with pytest.raises(dbapi.InternalError, match=r"has failed .*: call rollback\(\)"):
        failed.commit()
    assert failed.in_transaction
    failed.rollback()
    failed.cursor().execute(TAKE)
    failed.commit()
    assert (quantity(lake), quantity(lake, "jam")) == (4, 2)


def test_the_statement_rollback_ends_a_failed_transaction_too(failed: dbapi.Connection) -> None:
    failed.cursor().execute("rollback;")
    assert not failed.in_transaction


def test_a_refused_statement_leaves_the_transaction_unchanged(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    cursor = connection.cursor().execute(TAKE)
    for wrong in ("SELECT nope FROM stock", "INSERT INTO stock VALUES ('x', 'y')", "SELCT 1"):
        with pytest.raises(dbapi.DatabaseError):
            cursor.execute(wrong)
    cursor.execute(TAKE)
    connection.commit()
    assert quantity(lake) == 3


def test_a_refused_statement_fails_the_transaction_with_fail_on_error(
    lake: lv.Lake,
) -> None:
    """A tool that ignores the error and commits then gets another error."""
    with dbapi.connect(lake, fail_on_error=True) as connection:
        cursor = connection.cursor().execute(TAKE)
        with pytest.raises(dbapi.DataError):
            cursor.execute("INSERT INTO stock VALUES ('x', 'y')")
        with pytest.raises(dbapi.InternalError, match="has failed"):
            connection.commit()
        connection.rollback()
        cursor.execute(TAKE)
    assert quantity(lake) == 4


# ---------------------------------------------------------------- life, threads


def test_closing_a_connection_discards_uncommitted_work_and_refuses_further_use(
    lake: lv.Lake,
) -> None:
    connection = dbapi.connect(lake)
    cursor = connection.cursor().execute("SELECT * FROM stock")
    connection.cursor().execute(TAKE)
    connection.close()
    connection.close()
    assert quantity(lake) == 5
    with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
        connection.cursor()
    for use in (connection.commit, connection.rollback, cursor.fetchone):
        with pytest.raises(dbapi.InterfaceError, match=r"connection .*is closed"):
            use()
    with pytest.raises(dbapi.InterfaceError, match=r"connection .*is closed"):
        cursor.execute("SELECT 1")
    with pytest.raises(dbapi.InterfaceError, match=r"connection .*is closed"):
        connection.autocommit = True


def test_connect_opens_a_root_with_options_and_leaves_a_given_lake_open(quick_place: Place) -> None:
    options = quick_place.storage_options or None
    with dbapi.connect(quick_place.root, storage_options=options) as connection:
        connection.cursor().execute("CREATE TABLE t (id BIGINT)")
        connection.cursor().execute("INSERT INTO t VALUES (1)")
    lake = quick_place.connect()
    with dbapi.connect(lake) as connection:
        assert connection.lake is lake
        assert asked(connection, "SELECT * FROM t") == [(1,)]
    assert lake.read("t").num_rows == 1
    with pytest.raises(dbapi.ProgrammingError, match="open lake and storage_options"):
        dbapi.connect(lake, storage_options={})
    with pytest.raises(dbapi.ProgrammingError, match="root"):
        dbapi.connect("")
    with pytest.raises(TypeError, match="setings"):
        dbapi.connect(quick_place.root, setings=None)


def test_threads_can_share_a_connection_and_its_transaction(
    lake: lv.Lake, connection: dbapi.Connection
) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            cursor = connection.cursor()
            for _ in range(3):
                cursor.execute("INSERT INTO stock VALUES (:sku, 1)", {"sku": f"s{number}"})
                cursor.execute("SELECT sku FROM stock WHERE sku = :sku", {"sku": f"s{number}"})
                assert {sku for (sku,) in cursor} == {f"s{number}"}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert lake.read("stock").num_rows == 2
    connection.commit()
    assert lake.read("stock").num_rows == 14


def test_the_error_for_a_missing_table_at_a_mistyped_root_mentions_the_root(tmp_path: Path) -> None:
    with dbapi.connect(tmp_path / "typo") as connection:
        with pytest.raises(dbapi.ProgrammingError) as caught:
            asked(connection, "SELECT * FROM stock")
        assert str(caught.value) == (
            f"table stock does not exist: nothing is at the root {tmp_path}/typo; check the root"
        )  # no hint of data frames: statements of a connection don't accept them
