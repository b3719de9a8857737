"""A lake's tables as views and relations of the caller's DuckDB connection."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts

NAN = float("nan")


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        yield lake


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.sql(query).fetchall()


def views_of(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in rows_of(connection, "SHOW TABLES")}


def test_attached_tables_are_views_of_one_state(
    lake: lv.Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    for table in ("here", "there"):
        lake.create_table(table, accounts(2))
    state = lake.attach(connection)
    with lake.transaction() as txn:
        for table in ("here", "there"):
            txn.append(table, accounts(3))
    query = "SELECT (SELECT count(*) FROM here), (SELECT count(*) FROM there)"
    assert rows_of(connection, query) == [(2, 2)]
    assert state.version < lake.attach(connection).version
    assert rows_of(connection, query) == [(5, 5)]
    lake.snapshot(version=state.version).attach(connection)
    assert rows_of(connection, query) == [(2, 2)]


def test_attached_tables_with_unusual_names_are_queried_by_quoted_names(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        for number, name in enumerate(["sales/orders", "a/b/c", "a/b/d-e", "Straße 5", "select"]):
            lake.create_table(name, [{"n": number}])
        lake.attach(connection)
        for name, number in {
            "sales.orders": 0,
            '"sales/orders"': 0,
            "a.b.c": 1,
            'a.b."d-e"': 2,
            '"straße 5"': 3,
            '"select"': 4,
        }.items():
            assert rows_of(connection, f"FROM {name}") == [(number,)]
        lake.attach(connection, {'my "own" name': "select"})
        assert rows_of(connection, 'FROM "my ""own"" name"') == [(4,)]
        assert views_of(connection) == {'my "own" name'}, "what was attached before has gone"
        with pytest.raises(lv.TableNotFound):
            lake.attach(connection, ["nothing"])
        assert views_of(connection) == {'my "own" name'}


@pytest.mark.parametrize("table", ["tea", "shown"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT n FROM {} WHERE s = 'b'", [(2,)]),
        ("SELECT count(*) FROM {} WHERE n > 1", [(2,)]),
        ("SELECT n FROM {} WHERE st.a IS NULL AND s IN ('b', 'c')", [(3,)]),
        ("SELECT n FROM {} WHERE l IS NULL", [(2,)]),
        ("SELECT a.s FROM {} a, {} b WHERE a.n = b.n AND b.s = 'b'", [("b",)]),
    ],
)
def test_a_query_filters_by_columns_that_it_does_not_return(
    lake: lv.Lake,
    connection: duckdb.DuckDBPyConnection,
    table: str,
    query: str,
    expected: list[tuple[object, ...]],
) -> None:
    rows = [
        {"n": 1, "s": "a", "st": {"a": 1}, "l": [1]},
        {"n": 2, "s": "b", "st": {"a": 2}, "l": None},
        {"n": 3, "s": "c", "st": {"a": None}, "l": [3]},
    ]
    lake.create_table("tea", rows)
    lake.session().sql("CREATE VIEW shown AS SELECT * FROM tea")
    lake.attach(connection)
    assert rows_of(connection, query.format(table, table)) == expected


@pytest.mark.parametrize(
    "own",
    [
        "CREATE TABLE Bank AS SELECT 'mine' AS x",
        "CREATE VIEW bank AS SELECT 'mine' AS x",
        "CREATE TEMP TABLE bank AS SELECT 'mine' AS x",
        "CREATE TEMP VIEW bank AS SELECT 'mine' AS x",
    ],
)
def test_attach_keeps_the_callers_tables_and_attaches_nothing_if_a_name_is_taken(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, own: str
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        for table in ("apart", "bank"):
            lake.create_table(table, accounts(1))
        connection.execute(own)
        with pytest.raises(lv.InvalidOperation, match=r"has a table or view \wank already"):
            lake.attach(connection)
        assert rows_of(connection, "FROM bank") == [("mine",)]
        assert len(views_of(connection)) == 1
        lake.attach(connection, {"accounts": "bank", "apart": "apart"})
        assert rows_of(connection, "SELECT count(*) FROM accounts") == [(1,)]
        assert rows_of(connection, "FROM bank") == [("mine",)]


def test_attach_keeps_a_schema_or_database_of_the_caller(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("sales/orders", accounts(1))
        connection.execute("CREATE SCHEMA sales; CREATE TABLE sales.orders AS SELECT 'mine' AS x")
        with pytest.raises(lv.InvalidOperation, match="database or schema sales already"):
            lake.attach(connection)
        connection.execute(f"DROP SCHEMA sales CASCADE; ATTACH '{tmp_path / 'own.db'}' AS sales")
        with pytest.raises(lv.InvalidOperation, match="database or schema sales already"):
            lake.attach(connection)
        assert rows_of(connection, "SELECT count(*) FROM duckdb_views() WHERE NOT internal") == [
            (0,)
        ]
        lake.attach(connection, {"orders": "sales/orders"})
        assert rows_of(connection, "SELECT count(*) FROM orders") == [(1,)]


def test_attach_refuses_two_tables_whose_names_are_equal_for_duckdb(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        for table in ("bank", "Bank"):
            lake.create_table(table, accounts(1))
        with pytest.raises(lv.InvalidOperation, match="one name to DuckDB"):
            lake.attach(connection)
        lake.attach(connection, "bank")
        assert views_of(connection) == {"bank"}


def test_two_lakes_can_be_attached_to_one_connection(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with lv.connect(tmp_path / "1") as one, lv.connect(tmp_path / "2") as two:
        one.create_table("sales/a", accounts(1))
        two.create_table("sales/b", accounts(2))
        one.attach(connection)
        two.attach(connection)
        one.attach(connection)
        query = "SELECT (SELECT count(*) FROM sales.a), (SELECT count(*) FROM sales.b)"
        assert rows_of(connection, query) == [(1, 2)]


def test_attached_views_are_not_stored_in_a_database_file(lake: lv.Lake, tmp_path: Path) -> None:
    lake.create_table("sales/orders", [{"x": 0.5}])
    with duckdb.connect(tmp_path / "own.db") as connection:
        lake.attach(connection)
        assert rows_of(connection, "FROM sales.orders") == [(0.5,)]
    with duckdb.connect(tmp_path / "own.db") as connection:
        assert rows_of(connection, "SELECT count(*) FROM duckdb_views() WHERE NOT internal") == [
            (0,)
        ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_of_attached_tables_do_not_depend_on_the_connections_settings(
    local_place: Place, connection: duckdb.DuckDBPyConnection, kind: Literal["delta", "iceberg"]
) -> None:
    at = dt.datetime(2024, 1, 1, 3, tzinfo=dt.UTC)
    with local_place.connect() as lake:
        rows = [
            {"k": k, "day": at + dt.timedelta(days=k % 3), "f": f, "old": str(k), "st": {"f": f}}
            for k, f in enumerate([1.0, NAN, float("inf"), None, -0.0, 7.5] * 20)
        ]
        data = pa.Table.from_pylist(rows).cast(
            pa.schema(
                [
                    ("k", pa.int32()),
                    ("day", pa.timestamp("us", "UTC")),
                    ("f", pa.float64()),
                    ("old", pa.string()),
                    ("st", pa.struct([("f", pa.float64())])),
                ]
            )
        )
        properties = {"delta.columnMapping.mode": "name"} if kind == "delta" else {}
        if kind == "delta":
            properties["delta.enableDeletionVectors"] = "true"
        lake.create_table(
            "t", data, format=kind, properties=properties,
            partition_by="day" if kind == "delta" else "day(day)",
        )  # fmt: skip
        with lake.transaction() as txn:
            txn.delete("t", "k % 7 = 3")
            txn.alter("t", rename_columns={"old": "name"}, add_columns={"extra": "double"})
        with lake.transaction() as txn:
            txn.append("t", [{"k": 500, "day": at, "name": "new", "extra": NAN}])
        connection.execute("SET TimeZone = 'America/New_York'; SET default_collation = 'NOCASE'")
        lake.attach(connection)
        for condition in (
            "true", "f > 5", "f <= 5", "NOT f > 5", "f = 'NaN'::DOUBLE", "f IN (1.0, 'NaN')",
            "st.f > 5", "extra > 1", "extra IS NULL", "k BETWEEN 10 AND 20 OR k = 500",
            "name = '17'", "day = '2024-01-02 03:00:00+00'", "day > '2024-01-02 00:00:00+00'",
            "day IN ('2024-01-03 03:00:00+00')", "f > (SELECT avg(k) FROM t)",
        ):  # fmt: skip
            mine = connection.sql(f"SELECT * FROM t WHERE {condition} ORDER BY k").to_arrow_table()
            ours = lake.sql(f"SELECT * FROM t WHERE {condition} ORDER BY k")
            zoned = mine.set_column(1, "day", mine["day"].cast(pa.timestamp("us", "UTC")))
            assert str(zoned.to_pylist()) == str(ours.to_pylist()), condition
        joined = "SELECT count(*) FROM t AS a JOIN t AS b USING (k) WHERE b.f >= 0"
        assert rows_of(connection, joined) == [
            tuple(row.values()) for row in lake.sql(joined).to_pylist()
        ]


def test_a_query_of_an_attached_table_reads_only_the_columns_that_it_needs(
    local_place: Place, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_place.connect() as lake:
        lake.create_table("bank", accounts(200_000))
        read: list[Any] = []
        engine = inside(lake).engine
        scan = engine.scan

        def noted(table: Any, columns: Any, where: Any) -> Any:
            read.append(columns)
            return scan(table, columns, where)

        monkeypatch.setattr(engine, "scan", noted)
        lake.attach(connection)
        assert not read, "nothing is read before a query asks"
        assert rows_of(connection, "SELECT max(id) FROM bank WHERE id < 9") == [(8,)]
        assert len(rows_of(connection, "SELECT id FROM bank LIMIT 1")) == 1
        assert rows_of(connection, "SELECT count(*) FROM bank") == [(200_000,)]
        assert read == [["id"]] * 3


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_query_of_an_attached_table_reads_only_files_that_may_have_matching_rows(
    local_place: Place,
    connection: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
    kind: Literal["delta", "iceberg"],
) -> None:
    with local_place.connect() as lake:
        day = dt.date(2024, 1, 1)
        schema = pa.schema([("k", pa.int64()), ("d", pa.date32()), ("s", pa.string())])
        lake.create_table("t", schema, format=kind)
        for k in range(4):
            with lake.transaction() as txn:
                txn.append("t", [{"k": k, "d": day + dt.timedelta(days=k), "s": f"v{k}"}])
        read: list[int] = []
        engine = inside(lake).engine
        scan = engine.scan

        def counted(table: Any, columns: Any, where: Any) -> Any:
            read.append(table.files.num_rows)
            return scan(table, columns, where)

        monkeypatch.setattr(engine, "scan", counted)
        lake.attach(connection)
        for condition, files in {
            "k = 2": 1,
            "k > 1 AND s < 'v3'": 1,
            "d >= '2024-01-03'": 2,
            "k IN (0, 3) AND d < '2024-01-02'": 1,
            "k % 2 = 0": 4,
        }.items():
            expected = lake.sql(f"SELECT s FROM t WHERE {condition} ORDER BY s")["s"].to_pylist()
            read.clear()
            found = rows_of(connection, f"SELECT s FROM t WHERE {condition} ORDER BY s")
            assert [s for (s,) in found] == expected
            assert read == [files], condition


def test_to_duckdb_returns_a_relation_of_the_tables_state(
    lake: lv.Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    lake.create_table("bank", [{"id": k, "f": NAN if k == 3 else k / 2} for k in range(6)])
    table = lake.table("bank")
    whole = table.to_duckdb(connection=connection)
    some = table.to_duckdb(["id"], where="id > :n", params={"n": 3}, connection=connection)
    with lake.transaction() as txn:
        txn.delete("bank", "true")
    assert whole.filter("f > 2").order("id").project("id").fetchall() == [(3,), (5,)]
    assert some.order("id").fetchall() == some.order("id").fetchall() == [(4,), (5,)]
    assert table.to_duckdb().count("*").fetchall() == [(0,)], "DuckDB's default connection"


FIRST_ROW_ALONE = """
import sys, duckdb, lakevilla as lv
lake, connection = lv.connect(sys.argv[1]), duckdb.connect()
lake.attach(connection)
print(connection.sql("SELECT a.id FROM bank AS a LIMIT 1").fetchall())
"""


@pytest.mark.night
def test_a_process_exits_normally_after_a_query_that_read_only_the_first_row(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("bank", pa.table({"id": pa.array([7] * 2_000_000)}))
    command = [sys.executable, "-c", FIRST_ROW_ALONE, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "[(7,)]\n"), done.stderr


def test_invalid_connections_tables_and_predicates_are_refused_when_attaching(
    lake: lv.Lake,
) -> None:
    lake.create_table("bank", accounts(1))
    closed = duckdb.connect()
    closed.close()
    for given in ("memory", object(), closed):
        with pytest.raises(lv.InvalidOperation, match=r"[cC]onnection"):
            lake.attach(given)
    with duckdb.connect() as connection:
        for tables in (["a", 1], {"x": 5}, [""]):
            with pytest.raises(lv.InvalidOperation):
                lake.attach(connection, tables)  # type: ignore[arg-type]
        with pytest.raises(lv.InvalidOperation):
            lake.table("bank").to_duckdb(where="gone > 1", connection=connection)
        assert views_of(connection) == set()
