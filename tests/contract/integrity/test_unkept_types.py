"""Types that no table can store: every verb refuses them, names them and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla import dbapi

FORMATS = ("delta", "iceberg")
BITS, ZONED = "'101'::BIT", "'01:02:03+02'::TIMETZ"


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with lv.connect(str(tmp_path)) as lake:
        rows = pa.table({"k": [1], "v": [b"x"]})
        lake.create_table("t", rows, format=request.param)
        yield lake


def rows(value: str) -> Any:
    return duckdb.sql(f"SELECT 1::BIGINT AS k, {value} AS v")


VERBS: dict[str, Callable[[Any, Any], object]] = {
    "create_table": lambda lake, data: lake.create_table("n", data),
    "append": lambda lake, data: lake.run(lambda txn: txn.append("t", data)),
    "overwrite": lambda lake, data: lake.run(lambda txn: txn.overwrite("t", data)),
    "overwrite of all": lambda lake, data: lake.run(
        lambda txn: txn.overwrite("t", data, schema_mode="overwrite")
    ),
    "new columns": lambda lake, data: lake.run(
        lambda txn: txn.append("t", data.project("k, v AS w"), schema_mode="merge")
    ),
    "upsert": lambda lake, data: lake.run(lambda txn: txn.upsert("t", data, "k")),
    "merge": lambda lake, data: lake.run(
        lambda txn: txn.merge("t", data, on="t.k = s.k").when_matched_update_all().execute()
    ),
    "views": lambda lake, data: lake.sql("SELECT k FROM d", views={"d": data}),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("value", "name"), [(BITS, "BIT"), (ZONED, "TIME WITH TIME ZONE")])
def test_a_verb_refuses_rows_of_a_type_that_no_table_can_keep(
    lake: Any, verb: str, value: str, name: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"has type {name}, which no table can keep"):
        VERBS[verb](lake, rows(value))
    assert lake.read("t").to_pylist() == [{"k": 1, "v": b"x"}]


STATEMENTS = {
    "CREATE TABLE AS": "CREATE TABLE n AS SELECT {value} AS v",
    "CREATE OR REPLACE": "CREATE OR REPLACE TABLE t AS SELECT {value} AS v",
    "INSERT of values": "INSERT INTO t VALUES (2, {value})",
    "INSERT of a query": "INSERT INTO t (v, k) SELECT {value}, k FROM t",
    "INSERT BY NAME": "INSERT INTO t BY NAME SELECT {value} AS v",
    "INSERT OVERWRITE": "INSERT OVERWRITE t SELECT k, {value} FROM t",
    "MERGE": "MERGE INTO t USING (SELECT k, {value} AS v FROM t) s ON t.k = s.k "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(("value", "name"), [(BITS, "BIT"), (ZONED, "TIME WITH TIME ZONE")])
def test_a_statement_refuses_values_of_a_type_that_no_table_can_keep(
    lake: Any, statement: str, value: str, name: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"has type {name}, which no table can keep"):
        lake.session().sql(STATEMENTS[statement].format(value=value))
    assert lake.read("t").to_pylist() == [{"k": 1, "v": b"x"}]


def test_query_results_of_unkept_types_are_refused_when_stored(lake: Any) -> None:
    found = lake.sql(f"SELECT {BITS} AS v, 1 AS k")
    assert found.num_rows == 1
    with pytest.raises(lv.InvalidOperation, match="column 'v' of table 't' has type BIT"):
        lake.run(lambda txn: txn.append("t", found))


@pytest.mark.parametrize(
    "type_",
    [
        *("BIT", "BIT[]", "TIMETZ", "HUGEINT", "UNION(a INT)", "ENUM('a')", "INTERVAL", "GEOMETRY"),
        *("TIME(6)", "TIMESTAMP(9)", "VARCHAR COLLATE NOCASE", "STRUCT(a VARCHAR COLLATE NOCASE)"),
    ],
)
def test_a_column_list_with_a_type_that_no_table_can_keep_is_refused(lake: Any, type_: str) -> None:
    """BIT isn't taken for BOOLEAN, nor TIME(6) for a timestamp, as a parser's aliases would do."""
    for statement in (f"CREATE TABLE n (v {type_})", f"ALTER TABLE t ADD COLUMN w {type_}"):
        with pytest.raises(lv.InvalidOperation):
            lake.session().sql(statement)
    with pytest.raises(lv.InvalidOperation):
        lake.create_table("n", {"v": type_})


@pytest.mark.parametrize("type_", ["string collate utf8_lcase", "array<string collate nocase>"])
def test_a_column_with_a_collation_is_refused(lake: Any, type_: str) -> None:
    with pytest.raises(lv.InvalidOperation, match="whose collation no table can keep"):
        lake.run(lambda txn: txn.alter("t", add_columns={"w": type_}))


def test_a_query_result_with_a_collated_column_is_refused(lake: Any) -> None:
    session = lake.session()
    with pytest.raises(lv.InvalidOperation, match="a column with a collation"):
        session.sql("CREATE TABLE n AS SELECT 'a' COLLATE NOCASE AS v")
    session.sql("CREATE TABLE n AS SELECT 'a' AS v ORDER BY v COLLATE NOCASE")


def test_a_new_column_of_an_arrow_extension_type_is_refused(lake: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"has type arrow\.bool8, which no table"):
        lake.run(lambda txn: txn.alter("t", add_columns=pa.schema([("w", pa.bool8())])))


def test_a_time_with_a_time_zone_is_refused_as_a_parameter(tmp_path: Path) -> None:
    zoned = time(1, 2, 3, tzinfo=UTC)
    with dbapi.connect(str(tmp_path), autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (v TIME) USING iceberg")
        insert = "INSERT INTO t VALUES (:v)"
        for run in (
            lambda: cursor.execute(insert, {"v": zoned}),
            lambda: cursor.executemany(insert, [{"v": zoned}, {"v": zoned}]),
            lambda: cursor.executemany(insert, [{"v": time(1)}, {"v": zoned}]),
        ):
            with pytest.raises(dbapi.Error):
                run()
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchone() == (0,)
