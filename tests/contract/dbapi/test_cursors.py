"""Cursors: statements, results, and the forms in which they are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.dbapi import types as rows
from tests.support.places import Place


@pytest.fixture
def connection(quick_place: Place) -> Iterator[dbapi.Connection]:
    lake = quick_place.connect()
    lake.create_table(
        "stock", pa.schema([pa.field("sku", pa.string(), False), ("qty", pa.int64())])
    )
    lake.run(lambda txn: txn.append("stock", [{"sku": f"s{n:02}", "qty": n} for n in range(10)]))
    connection = dbapi.connect(lake)
    yield connection
    connection.close()


@pytest.fixture
def cursor(connection: dbapi.Connection) -> dbapi.Cursor:
    return connection.cursor()


ALL = "SELECT sku, qty FROM stock ORDER BY qty"


def test_rows_can_be_fetched_singly_in_groups_and_all_at_once(cursor: dbapi.Cursor) -> None:
    assert cursor.execute(ALL) is cursor
    assert cursor.rowcount == 10
    assert cursor.fetchone() == ("s00", 0)
    assert cursor.fetchmany() == [("s01", 1)]
    cursor.arraysize = 3
    assert [qty for _, qty in cursor.fetchmany()] == [2, 3, 4]
    assert [qty for _, qty in cursor.fetchmany(2)] == [5, 6]
    assert next(cursor) == ("s07", 7)
    assert [qty for _, qty in cursor.fetchall()] == [8, 9]
    assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall()) == (None, [], [])
    assert list(cursor.execute(ALL))[-1] == ("s09", 9)


def test_fetching_as_arrow_returns_the_remaining_rows(cursor: dbapi.Cursor) -> None:
    cursor.execute(ALL).fetchmany(4)
    table = cursor.fetch_arrow_table()
    assert table["qty"].to_pylist() == [4, 5, 6, 7, 8, 9]
    assert cursor.fetch_arrow_table().num_rows == 0
    assert cursor.fetchone() is None
    reader = cursor.execute(ALL).fetch_record_batch(4)
    assert [batch.num_rows for batch in reader] == [4, 4, 2]
    assert reader.schema.names == ["sku", "qty"]
    frame = cursor.execute(ALL).fetch_df()
    assert list(frame["qty"]) == list(range(10))
    with pytest.raises(dbapi.ProgrammingError, match="rows_per_batch"):
        cursor.execute(ALL).fetch_record_batch(0)


def test_rows_are_converted_to_python_objects_only_when_fetched(
    cursor: dbapi.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_PART_ROWS", 3)
    made = []
    values = rows._values
    monkeypatch.setattr(
        rows, "_values", lambda name, one: made.append(len(one)) or values(name, one)
    )
    cursor.execute("SELECT qty FROM stock ORDER BY qty")
    assert [cursor.fetchone() for _ in range(4)] == [(0,), (1,), (2,), (3,)]
    assert made == [3, 3]
    assert cursor.fetch_arrow_table()["qty"].to_pylist() == [4, 5, 6, 7, 8, 9]
    assert made == [3, 3]


def test_rows_can_be_fetched_after_the_end_of_the_transaction(
    connection: dbapi.Connection, cursor: dbapi.Cursor
) -> None:
    cursor.execute(ALL).fetchone()
    connection.cursor().execute("DELETE FROM stock")
    connection.commit()
    assert len(cursor.fetchall()) == 9


def test_values_are_fetched_as_python_objects(cursor: dbapi.Cursor) -> None:
    noon = datetime(2026, 1, 31, 12)
    values = {
        "a": None,
        "b": True,
        "c": 2**40,
        "d": 1.5,
        "e": Decimal("1.50"),
        "f": "x",
        "g": b"\0",
        "h": date(2026, 1, 31),
        "i": noon,
        "j": noon.replace(tzinfo=UTC),
        "k": [1, 2],
    }
    cursor.execute(f"SELECT {', '.join(f':{name} AS {name}' for name in values)}", values)
    assert cursor.fetchone() == tuple(values.values())
    assert [one.name for one in cursor.description or ()] == list(values)
    cursor.execute(
        "SELECT {'x': 1} AS s, MAP {'k': 2} AS m, TIMESTAMP_NS '2026-01-31 12:00:00' AS t"
    )
    assert cursor.fetchone() == ({"x": 1}, [("k", 2)], noon)


@pytest.mark.parametrize(
    "query", ["TIMESTAMP_NS '2026-01-31 12:00:00.000000001'", "DATE '20000-01-01'"]
)
def test_values_without_a_python_type_can_only_be_fetched_as_arrow(
    cursor: dbapi.Cursor, query: str
) -> None:
    cursor.execute(f"SELECT {query} AS much")
    with pytest.raises(dbapi.DataError, match=r"column much .*fetch_arrow_table\(\)"):
        cursor.fetchone()
    assert cursor.fetch_arrow_table().num_rows == 1


def test_the_description_names_columns_and_types(cursor: dbapi.Cursor) -> None:
    assert cursor.description is None
    cursor.execute("SELECT sku, qty, 1.50 AS price FROM stock WHERE false")
    assert [(name, code) for name, code, *_ in cursor.description or ()] == [
        ("sku", "VARCHAR"),
        ("qty", "BIGINT"),
        ("price", "DECIMAL(3,2)"),
    ]
    assert (cursor.description or [])[1][1] == dbapi.NUMBER
    cursor.execute("DELETE FROM stock WHERE qty = 1")
    assert cursor.description is None


def test_rowcount_is_the_number_of_written_rows(cursor: dbapi.Cursor) -> None:
    assert cursor.rowcount == -1
    cursor.execute("UPDATE stock SET qty = 0 WHERE qty < :most", {"most": 3})
    assert cursor.rowcount == 3
    assert cursor.execute("INSERT INTO stock VALUES ('a', 1), ('b', 2)").rowcount == 2
    assert cursor.execute("DELETE FROM stock WHERE qty = 0").rowcount == 3
    assert cursor.execute("CREATE TABLE other (id BIGINT)").rowcount == -1
    with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
        cursor.fetchall()


def test_an_update_whose_rowcount_was_read_conflicts_instead_of_being_redone(
    connection: dbapi.Connection, cursor: dbapi.Cursor
) -> None:
    """A program may have made a decision by the row count that it read."""
    for looks in (False, True):
        cursor.execute("UPDATE stock SET qty = qty + 1 WHERE qty >= 5")
        assert len(cursor.operations) == 1
        if looks:
            assert cursor.rowcount > 0
        connection.lake.run(lambda txn: txn.append("stock", [{"sku": "new", "qty": 7}]))
        if looks:
            with pytest.raises(dbapi.TransactionConflict):
                connection.commit()
        else:
            connection.commit()


@pytest.mark.parametrize(
    ("statement", "params", "kind", "message"),
    [
        ("SELECT * FROM stock WHERE qty = ?", None, dbapi.ProgrammingError, "by ?: write it as :n"),
        ("SELECT * FROM stock WHERE qty = ?", (1,), dbapi.ProgrammingError, "not ?, $1 or %s"),
        ("SELECT * FROM stock WHERE qty = %s", [1], dbapi.ProgrammingError, "not ?, $1 or %s"),
        ("SELECT * FROM stock WHERE qty = :n", None, dbapi.ProgrammingError, ":n has no value"),
        ("SELECT * FROM stock", {"n": 1}, dbapi.ProgrammingError, "not used: n"),
        ("SELECT * FROM stock WHERE qty = :n", {"n": object()}, dbapi.ProgrammingError, ":n"),
        ("SELECT * FROM stok", None, dbapi.ProgrammingError, "stok"),
        ("SELECT nope FROM stock", None, dbapi.ProgrammingError, "nope"),
        ("", None, dbapi.ProgrammingError, "empty"),
        (b"SELECT 1", None, dbapi.ProgrammingError, "a statement is text"),
        ("SELECT CAST('x' AS BIGINT)", None, dbapi.DataError, "x"),
        ("SELECT * FROM stock WHERE sku = :n", {"n": UUID(int=1)}, dbapi.DataError, "str(it)"),
        ("INSERT INTO stock VALUES ('x', 'y')", None, dbapi.DataError, "qty"),
        ("INSERT INTO stock VALUES (NULL, 1)", None, dbapi.IntegrityError, "must not be null"),
        ("CREATE VIEW v AS SELECT x", None, dbapi.ProgrammingError, "x"),
        ("ROLLBACK TO here", None, dbapi.ProgrammingError, "no transaction is open"),
        ("CREATE TABLE stock (id BIGINT)", None, dbapi.ProgrammingError, "exists"),
    ],
)
def test_each_kind_of_mistake_raises_its_class_of_error(
    cursor: dbapi.Cursor, statement: Any, params: Any, kind: type[dbapi.Error], message: str
) -> None:
    with pytest.raises(dbapi.Error) as caught:
        cursor.execute(statement, params)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    cursor.execute("SELECT count(*) FROM stock")
    assert cursor.fetchone() == (10,)


def test_a_cursor_that_is_closed_or_has_no_result_raises(connection: dbapi.Connection) -> None:
    with connection.cursor() as cursor:
        with pytest.raises(dbapi.ProgrammingError, match="run a query by execute"):
            cursor.fetchone()
        cursor.execute(ALL)
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute("SELECT nope FROM stock")
        with pytest.raises(dbapi.ProgrammingError, match="no rows"):
            cursor.fetchone()
    for use in (cursor.fetchone, lambda: cursor.execute(ALL), cursor.fetch_arrow_table):
        with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
            use()
    assert connection.cursor().connection is connection


# ------------------------------------------------------------------ executemany


def test_executemany_of_inserts_writes_few_files(
    connection: dbapi.Connection, cursor: dbapi.Cursor
) -> None:
    sets = [{"sku": f"m{n}", "qty": n if n % 2 else None} for n in range(1000)]
    cursor.executemany("INSERT INTO stock (qty, sku) VALUES (:qty + 1, upper(:sku))", sets)
    assert cursor.rowcount == 1000
    assert sum(one.files_added for one in cursor.operations) == 1
    cursor.execute("SELECT count(*), count(qty), sum(qty) FROM stock WHERE sku LIKE 'M%'")
    assert cursor.fetchone() == (1000, 500, 250_500)


def test_executemany_stores_the_same_values_as_single_statements(cursor: dbapi.Cursor) -> None:
    """The values of one parameter may have different types."""
    cursor.execute("CREATE TABLE v (place BIGINT, kind STRING, given STRING)")
    text = "INSERT INTO v VALUES (:place, typeof(:given), CAST(:given AS VARCHAR))"
    given = [1, None, 2.5, "x", True, Decimal("1.50"), date(2026, 1, 31), 2**70, b"a", 7]
    sets = [{"place": place, "given": value} for place, value in enumerate(given)]
    cursor.executemany(text, sets)
    together = cursor.execute("SELECT kind, given FROM v ORDER BY place").fetchall()
    cursor.execute("DELETE FROM v")
    for one in sets:
        cursor.execute(text, one)
    alone = cursor.execute("SELECT kind, given FROM v ORDER BY place").fetchall()
    assert [given for _, given in together] == [given for _, given in alone]
    assert len(together) == len(given)


def test_executemany_accepts_arrow_data(cursor: dbapi.Cursor) -> None:
    cursor.executemany(
        "INSERT INTO stock VALUES (:a, :b)", pa.table({"a": ["x", "y"], "b": [7, None]})
    )
    cursor.execute("SELECT sku, qty FROM stock WHERE sku < 'z' AND sku > 't' ORDER BY sku")
    assert cursor.fetchall() == [("x", 7), ("y", None)]


MANY = [
    # statement, sets of parameters, whether they are performed together
    ("UPDATE stock SET qty = :q WHERE sku = :s", [("s01", 7), ("s02", None), ("no", 1)], True),
    ("UPDATE stock SET qty = qty - :q WHERE :s = stock.sku", [("s01", 7), ("s02", 8)], True),
    ("UPDATE stock SET qty = qty + :q WHERE sku = :s AND qty > 2", [("s01", 1), ("s05", 2)], False),
    (
        "UPDATE stock AS x SET qty = :q WHERE x.sku = :s OR sku = 's01'",
        [("s03", 1), ("s04", 2)],
        False,
    ),
    ("UPDATE stock SET qty = qty + :q WHERE sku = :s", [("s01", 1), ("s01", 2)], False),
    ("UPDATE stock SET sku = :q WHERE sku = :s", [("s01", "s02"), ("s02", "s03")], False),
    ("UPDATE stock SET qty = :q WHERE sku = :s", [("s01", 7), (None, 8)], False),
    ("UPDATE stock SET qty = :q WHERE sku = :s", [("s01", 7), ("s02", 8.0), ("s03", 9)], True),
    ("UPDATE stock SET sku = :s WHERE qty = :q", [("a", 1.0), ("b", 2.0)], False),
    ("UPDATE stock SET sku = :s WHERE qty = :q", [("a", 1), ("b", 2), ("c", 3)], True),
    ("DELETE FROM stock WHERE sku = :s AND qty < :q", [("s01", 7), ("s01", 8), ("s07", 2)], False),
    ("DELETE FROM stock WHERE qty = :q OR sku = :s", [("s01", 7), ("s01", 8)], False),
    ("DELETE FROM stock WHERE sku = :s AND qty < :q", [(None, 7), (None, 8)], False),
    ("DELETE FROM stock WHERE qty IN (SELECT :q) AND sku = :s", [("s01", 1), ("s2", 8)], False),
]


@pytest.mark.parametrize(("text", "given", "together"), MANY)
def test_executemany_of_changes_has_the_result_of_single_statements(
    connection: dbapi.Connection,
    cursor: dbapi.Cursor,
    text: str,
    given: list[tuple[object, object]],
    together: bool,
) -> None:
    cursor.execute("DELETE FROM stock")
    cursor.executemany(
        "INSERT INTO stock VALUES (:s, :q)", [{"s": f"s0{n}", "q": n} for n in range(9)]
    )
    connection.commit()
    sets = [{"s": s, "q": q} for s, q in given]
    count = 0
    for one in sets:
        count += cursor.execute(text, one).rowcount
    alone = sorted(cursor.execute("SELECT sku, qty FROM stock").fetchall())
    connection.rollback()
    cursor.executemany(text, sets)
    assert cursor.rowcount == count
    assert (len(cursor.operations) < len(sets)) == together
    assert sorted(cursor.execute("SELECT sku, qty FROM stock").fetchall()) == alone


CHECKED = [
    ("DELETE FROM moments WHERE s = :v", 5),
    ("DELETE FROM moments WHERE day = :v", "x"),
    ("DELETE FROM moments WHERE day = :v", "2024-02-29"),
    ("UPDATE moments SET s = 'y' WHERE day = :v", "2024-02-29"),
    ("UPDATE moments SET day = :v WHERE s = 'a'", datetime(2024, 3, 1)),
    ("UPDATE moments SET day = :v WHERE s = 'a'", datetime(2024, 3, 1, 12)),
    ("INSERT INTO moments (at) VALUES (:v)", "2024-02-29"),
    ("INSERT INTO moments (at) VALUES (:v)", datetime(2024, 2, 29, 12)),
    ("INSERT INTO moments (at) VALUES (:v)", "x"),
    ("INSERT INTO moments (day) VALUES (:v)", datetime(2024, 2, 29)),
]


@pytest.mark.parametrize(("text", "value"), CHECKED)
def test_executemany_raises_the_errors_of_single_statements(
    connection: dbapi.Connection, cursor: dbapi.Cursor, text: str, value: object
) -> None:
    cursor.execute("CREATE TABLE moments (s STRING, day DATE, at TIMESTAMP)")
    cursor.execute("INSERT INTO moments VALUES ('a', '2024-02-29', NULL), ('5', NULL, NULL)")
    connection.commit()

    def done(run: Callable[[], object]) -> list[object]:
        try:
            run()
        except dbapi.Error as error:
            return [type(error), str(error)]
        finally:
            found = cursor.execute("SELECT * FROM moments ORDER BY ALL").fetchall()
            connection.rollback()
        return [*found]

    expected = done(lambda: cursor.execute(text, {"v": value}))
    sets = [{"v": value}, {"v": value}]
    found = done(lambda: cursor.executemany(text, sets[:1] if "INSERT" in text else sets))
    assert found == expected


def test_executemany_can_update_and_delete(cursor: dbapi.Cursor) -> None:
    cursor.executemany(
        "UPDATE stock SET qty = :qty WHERE sku = :sku",
        [
            {"sku": "s01", "qty": 100},
            {"sku": "s02", "qty": 200},
            {"sku": "none", "qty": 1},
        ],
    )
    assert cursor.rowcount == 2
    cursor.executemany("DELETE FROM stock WHERE qty = :qty", [{"qty": 100}, {"qty": 200}])
    assert cursor.execute(ALL).rowcount == 8
    with pytest.raises(dbapi.ProgrammingError, match="use execute for a query"):
        cursor.executemany("SELECT :a", [{"a": 1}])
    cursor.executemany("INSERT INTO stock VALUES (:a, :b)", [])
    assert cursor.rowcount == -1


def test_executemany_with_autocommit_is_atomic(connection: dbapi.Connection) -> None:
    connection.rollback()
    connection.autocommit = True
    cursor, text = connection.cursor(), "INSERT INTO stock VALUES (:sku, :qty)"
    with pytest.raises(dbapi.IntegrityError):
        cursor.executemany(
            text, [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 2.0}, {"sku": None, "qty": 1.0}]
        )
    assert not connection.in_transaction
    assert connection.lake.read("stock").num_rows == 10
    cursor.executemany(text, [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 2}])
    assert connection.lake.read("stock").num_rows == 12


def test_tables_in_directories_and_on_branches_can_be_named_in_quotes(quick_place: Place) -> None:
    lake = quick_place.connect()
    lake.create_table("sales/orders", [{"id": 1}])
    lake.branch("etl")
    with dbapi.connect(lake.on("etl")) as connection:
        connection.cursor().executemany('INSERT INTO "sales/orders" VALUES (:n)', [{"n": 2}])
        connection.cursor().execute("INSERT INTO sales.orders VALUES (3)")
    assert lake.read("sales/orders").num_rows == 1
    assert lake.on("etl").read("sales/orders").num_rows == 3
    assert isinstance(lake, lv.Lake)


def test_execute_of_a_connection_uses_a_new_cursor(
    connection: dbapi.Connection,
) -> None:
    first = connection.execute(ALL)
    second = connection.execute("SELECT qty FROM stock WHERE sku = :sku", {"sku": "s03"})
    assert (second.fetchall(), first.fetchone()) == ([(3,)], ("s00", 0))


def test_a_cursor_can_be_passed_as_arrow_data(cursor: dbapi.Cursor) -> None:
    cursor.execute(ALL).fetchmany(8)
    assert pa.table(cursor).to_pylist() == [{"sku": "s08", "qty": 8}, {"sku": "s09", "qty": 9}]
    with pytest.raises(dbapi.ProgrammingError, match="no rows to fetch"):
        pa.table(cursor.execute("DELETE FROM stock"))
