"""A user's SELECT can read only the tables and views that it is given."""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.engines.base import TableInput
from lakevilla.engines.deletes import Deleted, EqualityDeletes
from lakevilla.engines.duckdb.file_system import _File
from lakevilla.engines.duckdb.reading.closed import ClosedSession
from lakevilla.engines.duckdb.reading.query import opened
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.sql.statements.select import select_of
from tests.support.engine_lake import Lake, ordered


def query(
    lake: Lake,
    sql: str,
    tables: Mapping[str, str] | None = None,
    views: Mapping[str, pa.Table] | None = None,
    params: Mapping[str, object] | None = None,
) -> list[dict[str, Any]]:
    """Run a query; ``tables`` maps names as in ``Select.tables`` to tables of the lake."""
    inputs = {name: lake.input(table) for name, table in (tables or {}).items()}
    readers = {name: rows.to_reader() for name, rows in (views or {}).items()}
    return lake.runner.run(lake.engine.query(sql, inputs, readers, params or {})).to_pylist()


def shown(
    lake: Lake, sql: str, deleted: Deleted | None = None
) -> AbstractContextManager[ClosedSession]:
    """Open the closed database with the tables that a statement names, without ``deleted`` rows."""
    references = select_of(sql).references
    tables = {
        "/".join(parts): lake.runner.run(lake.engine._given.files(lake.input("/".join(parts))))
        for parts in references
    }
    if deleted is not None:
        tables = {name: replace(files, deleted=deleted) for name, files in tables.items()}
    far = not lake.engine._database.is_local
    return opened(lake.engine._closed, sql, references, tables, {}, plans_by_footers=not far)


@pytest.fixture
def sales(lake: Lake) -> Lake:
    lake.make(
        "sales/orders",
        pa.table({"id": [1, 2, 3], "c": [1, 1, 2], "p": ["x", "y", "x"]}),
        partition_by=["p"],
    )
    lake.make("customers", pa.table({"c": [1, 2], "name": ["Ann", "Bo"]}))
    return lake


@pytest.mark.parametrize(
    ("sql", "limit"),
    [("SELECT count(*) FROM t", 1), ("SELECT sum(k) FROM t", 2), ("SELECT max(d) FROM t", 2)],
)
def test_footers_are_fetched_only_once_for_planning_and_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, limit: int
) -> None:
    """Each file costs one request for its footer, and one for the columns that are read."""
    lake = Lake(str(tmp_path), remote=True)
    wide = {"noise": [secrets.token_hex(64) for _ in range(1000)]}
    for number in range(5):
        at = pa.array([number] * 1000, pa.timestamp("us", "UTC"))
        rows = pa.table({"k": [number] * 1000, "d": at, **wide})
        lake.make("t", rows, mode="append")
    asked: list[int] = []
    read = _File.read

    def counted(self: _File, length: int = -1) -> bytes:
        asked.append(length)
        return read(self, length)

    monkeypatch.setattr(_File, "read", counted)
    table = lake.input("t")
    assert table.files.num_rows == 5
    lake.runner.run(lake.engine.query(sql, {"t": table}, {}, {}))
    assert 5 <= len(asked) <= 5 * limit


@pytest.mark.parametrize(
    "beside",
    [
        pa.array([1, 2]),
        pa.array([Decimal("1.50"), None], pa.decimal128(15, 2)),
        pa.array([{"d": Decimal("1.50")}, None], pa.struct([("d", pa.decimal128(15, 2))])),
    ],
    ids=["numbers", "decimals", "decimals within"],
)
def test_the_planner_knows_minimum_and_maximum_of_the_files_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: pa.Array
) -> None:
    """No row can have the key, so the plan reads no file."""
    lake = Lake(str(tmp_path))
    lake.make("t", pa.table({"k": [1, 2], "beside": beside}))
    plans: list[str] = []

    run = ClosedSession.run

    def explained(session: ClosedSession, sql: str, params: Mapping[str, object]) -> pa.Table:
        plan = session.connection.execute("EXPLAIN SELECT beside FROM t WHERE k = 7")
        plans.append(plan.fetchall()[0][1])
        return run(session, sql, params)

    monkeypatch.setattr(ClosedSession, "run", explained)
    assert query(lake, "SELECT count(*)::INT AS n FROM t", {"t": "t"}) == [{"n": 2}]
    # DuckDB 2 writes the operators of a plan as separate words.
    assert "EMPTY_RESULT" in plans[0].upper().replace(" ", "_"), plans[0]


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(7, 2), pa.binary()])
def test_a_join_is_planned_by_the_number_of_rows_of_its_tables(
    tmp_path: Path, kind: pa.DataType, remote: bool
) -> None:
    """Otherwise DuckDB assumes 1000 rows per file, and a join of many tables may never end."""
    lake = Lake(str(tmp_path), remote=remote)
    paid = pa.array([None] * 7000, kind)
    lake.make("many", pa.table({"k": range(7000), "paid": paid}))
    lake.make("few", pa.table({"k": range(3), "paid": paid[:3]}))
    with shown(lake, "SELECT max(many.paid) FROM many JOIN few USING (k)") as session:
        ((_, plan),) = session.connection.execute(
            "EXPLAIN (FORMAT json) SELECT max(many.paid) FROM many JOIN few USING (k)"
        ).fetchall()
    assert {"7000", "3"} <= set(re.findall(r'"Estimated Cardinality": "(\d+)"', plan))


def with_vectors(table: TableInput, *vectors: dict[str, Any] | None) -> TableInput:
    """Return the table with these deletion vectors of its files."""
    place = table.files.schema.get_field_index("deletion_vector")
    held = pa.array(vectors, table.files.schema.field(place).type)
    return replace(table, files=table.files.set_column(place, "deletion_vector", held))


#: Rows 3, 4, 7, 11, 18 and 29: the inline example of Delta's PROTOCOL.md.
VECTOR = {
    "storage_type": "i",
    "path_or_inline": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "offset": None,
    "size_in_bytes": 44,
    "cardinality": 6,
}
DELETED_ROWS = pa.array([3, 4, 7], pa.int64())


@pytest.mark.parametrize("has_statistics", [True, False], ids=["counted", "without statistics"])
@pytest.mark.parametrize("sql", ["SELECT sum(v) FROM t", "SELECT count(*) FROM t WHERE k < 6000"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    "deleted",
    [
        Deleted(pa.table({"file": pa.array([0] * 3, pa.int64()), "row": DELETED_ROWS})),
        Deleted(equality=(EqualityDeletes(pa.table({"k": DELETED_ROWS}), (0,)),)),
    ],
    ids=["positions", "values"],
)
def test_deleted_rows_are_removed_by_an_anti_join_that_hashes_the_deleted_rows(
    tmp_path: Path, deleted: Deleted, remote: bool, sql: str, has_statistics: bool
) -> None:
    """Hashing the remaining rows instead takes many times as long as reading them."""
    lake = Lake(str(tmp_path), remote=remote)
    lake.make("t", pa.table({"k": range(7000), "v": [1.5] * 7000}))
    if not has_statistics:
        without_statistics(lake, "t")
    with shown(lake, sql, deleted) as session:
        ((_, plan),) = session.connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    assert re.findall(r'"Join Type": "(\w+)"', plan) == ["ANTI"], plan


@pytest.mark.parametrize("remote", [False, True])
def test_a_few_deleted_rows_are_removed_by_comparison_and_not_by_a_join(
    tmp_path: Path, remote: bool
) -> None:
    lake = Lake(str(tmp_path), remote=remote)
    for first in (0, 1000):
        rows = pa.table({"k": range(first, first + 1000), "v": [1.5] * 1000})
        lake.make("t", rows, mode="append")
    sql = "SELECT count(*) AS n, sum(v) AS v, sum(k)::INT AS k FROM t"
    with shown(lake, sql, Deleted(few=dict.fromkeys((0, 1), (3, 4)))) as session:
        ((_, plan),) = session.connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
        (row,) = session.connection.execute(sql).fetchall()
    assert "Join Type" not in plan
    assert row == (1996, 1.5 * 1996, sum(range(2000)) - 3 - 4 - 1003 - 1004)


@pytest.mark.parametrize(
    "deleted",
    [
        Deleted(few={0: (0,), 4: (1,)}),
        Deleted(pa.table({"file": pa.array([0, 4], pa.int64()), "row": [0, 1]})),
        Deleted(equality=(EqualityDeletes(pa.table({"k": [0, 401]}), (0, 1, 2, 3, 4)),)),
    ],
    ids=["few", "positions", "values"],
)
def test_rows_that_a_session_keeps_of_a_file_are_not_shown_once_they_are_deleted(
    tmp_path: Path, deleted: Deleted
) -> None:
    lake = Lake(str(tmp_path))
    sql = "SELECT sum(k)::INT AS k FROM t"

    def total(deleted: Deleted | None = None) -> object:
        with shown(lake, sql, deleted) as session:
            return session.connection.execute(sql).fetchall()

    for file in range(5):
        lake.make("t", pa.table({"k": [100 * file, 100 * file + 1]}), mode="append")
        assert total() == [(sum(200 * one + 1 for one in range(file + 1)),)]
    assert total(deleted) == [(2005 - 401,)]
    assert total() == [(2005,)]


def without_statistics(lake: Lake, name: str) -> None:
    """Remove the statistics from the log, as of a client that writes none."""
    (entry,) = Path(lake.root, name, "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("\n".join(map(json.dumps, actions)))


def test_a_file_with_deleted_rows_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path), remote=True)
    lake.make("t", pa.table({"k": range(1000)}))
    asked: list[int] = []
    read = _File.read

    def counted(self: _File, length: int = -1) -> bytes:
        asked.append(length)
        return read(self, length)

    monkeypatch.setattr(_File, "read", counted)
    table = with_vectors(lake.input("t"), VECTOR)
    for fetches in (True, False):
        asked.clear()
        query = lake.engine.query("SELECT sum(k)::INT AS s FROM t", {"t": table}, {}, {})
        assert lake.runner.run(query).to_pylist() == [
            {"s": sum(range(1000)) - 3 - 4 - 7 - 11 - 18 - 29}
        ]
        assert bool(asked) == fetches


def test_a_deletion_vector_is_decoded_once_and_not_applied_to_a_file_without_it(
    tmp_path: Path,
) -> None:
    lake = Lake(str(tmp_path), remote=True)
    lake.make("t", pa.table({"k": range(1000)}))

    table = lake.input("t")

    def given(vector: dict[str, Any] | None) -> Files:
        files: Files = lake.runner.run(lake.engine._given.files(with_vectors(table, vector)))
        return files

    first = given(VECTOR)
    assert first.deleted.positions is not None
    assert given(VECTOR) is first
    assert given(None).deleted == Deleted()


def test_deletions_that_would_fill_the_memory_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(str(tmp_path), remote=True)
    lake.make("t", pa.table({"k": range(1000)}))
    table = with_vectors(lake.input("t"), VECTOR)
    monkeypatch.setattr("lakevilla.engines.duckdb.reading.relation._MOST_FILES", 1)
    monkeypatch.setattr("lakevilla.engines.duckdb.reading.relation._BYTES_OF_A_FILE", 16)
    first = lake.runner.run(lake.engine._given.files(table))
    again = lake.runner.run(lake.engine._given.files(table))
    assert again is not first
    assert again.paths == first.paths  # the same names, so that cached bytes are found


ORDERS = {"sales/orders": "sales/orders", "customers": "customers"}


@pytest.mark.parametrize(
    "name", ['"sales/orders"', "sales.orders", '"sales"."orders"', "sales.orders AS o"]
)
def test_tables_can_be_named_by_paths_or_with_dots(sales: Lake, name: str) -> None:
    assert query(sales, f"SELECT sum(id)::INT AS s FROM {name}", ORDERS) == [{"s": 6}]


def test_tables_can_have_names_of_three_parts(sales: Lake) -> None:
    found = query(
        sales,
        "SELECT t.name FROM prod.ns.customers AS t WHERE c = 1",
        {"prod/ns/customers": "customers"},
    )
    assert found == [{"name": "Ann"}]


def test_names_of_two_and_of_three_parts_can_begin_with_the_same_part(sales: Lake) -> None:
    found = query(
        sales,
        "SELECT name, o.id FROM prod.orders AS o JOIN Prod.ns.customers USING (c) ORDER BY id",
        {"prod/orders": "sales/orders", "Prod/ns/customers": "customers"},
    )
    assert found[0]["name"] == "Ann"


def test_queries_can_have_joins_ctes_windows_and_views(sales: Lake) -> None:
    sql = """
        WITH customers AS (SELECT * FROM customers WHERE c < 3),
             totals AS (SELECT c, count(*) AS n FROM sales.orders GROUP BY ALL)
        SELECT name, n, bonus, rank() OVER (ORDER BY n DESC) AS r
        FROM totals JOIN customers USING (c) JOIN extra USING (c), (SELECT 1 FROM extra LIMIT 1)
    """
    extra = pa.table({"c": [1, 2], "bonus": [Decimal("1.5"), None]})
    assert ordered(query(sales, sql, ORDERS, {"extra": extra})) == ordered(
        [
            {"name": "Ann", "n": 2, "bonus": Decimal("1.5"), "r": 1},
            {"name": "Bo", "n": 1, "bonus": None, "r": 2},
        ]
    )


def test_parameters_of_every_kind_are_passed_by_name(sales: Lake) -> None:
    sql = """
        SELECT id FROM sales.orders
        WHERE p = :p AND id >= :low AND list_contains(:ids, id) AND :moment < now()
          AND 'a:p' <> :p AND {'low': 1}.low = 1 AND [1, 2, 3][1:2] = [1, 2]
    """
    params = {
        "p": "x",
        "low": Decimal("1.5"),
        "ids": [3, 4],
        "moment": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    }
    assert query(sales, sql, ORDERS, params=params) == [{"id": 3}]
    with pytest.raises(InvalidOperation, match="not used"):
        query(sales, "SELECT id FROM sales.orders", ORDERS, params={"p": 1})
    with pytest.raises(InvalidOperation, match="low"):
        query(sales, "SELECT id FROM sales.orders WHERE id > :low", ORDERS)


def test_the_error_for_an_unknown_table_names_it(sales: Lake) -> None:
    with pytest.raises(InvalidOperation, match="elsewhere"):
        query(sales, "SELECT * FROM elsewhere", ORDERS)


@pytest.mark.parametrize(
    "sql",
    ["SELECT missing FROM customers", "SELECT 'x'::INT", "SELECT FROM WHERE", "SELECT (((", "'"],
)
def test_invalid_queries_raise_invalid_operation(sales: Lake, sql: str) -> None:
    with pytest.raises(InvalidOperation) as caught:
        query(sales, sql, ORDERS if "customers" in sql else {})
    assert caught.value.__cause__ is None
    assert str(caught.value)[0].islower() or str(caught.value)[0] == "'"


ATTACKS = [
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_csv_auto('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM read_parquet('{parquet}')",
    "SELECT * FROM parquet_scan('{parquet}')",
    "SELECT * FROM parquet_metadata('{parquet}')",
    "SELECT * FROM glob('{directory}/*')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM query('SELECT * FROM ''{secret}''')",
    "SELECT * FROM query_table('{secret}')",
    "SELECT (SELECT count(*) FROM read_text('{secret}'))",
    "SELECT 1 WHERE EXISTS (FROM '{secret}')",
    "WITH x AS (FROM read_text('{secret}')) SELECT * FROM x",
    "FROM '{secret}'",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM 'https://example.com/x.parquet'",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "COPY (SELECT 1) TO '{out}'",
    "COPY customers FROM '{secret}'",
    "ATTACH '{out}' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "EXPORT DATABASE '{out}'",
    "CREATE TABLE x AS SELECT * FROM '{secret}'",
    "CREATE MACRO f() AS TABLE FROM '{secret}'",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT 1",
    "SELECT 1; COPY (SELECT 1) TO '{out}'",
    "DROP VIEW customers",
    "DELETE FROM customers",
    "SELECT * FROM python_variable",
]


@pytest.fixture
def prey(tmp_path: Path) -> dict[str, str]:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.csv").write_text("password\nhunter2\n")
    pq.write_table(pa.table({"password": ["hunter2"]}), outside / "secret.parquet")
    return {
        "secret": str(outside / "secret.csv"),
        "parquet": str(outside / "secret.parquet"),
        "directory": str(outside),
        "out": str(outside / "out.bin"),
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_queries_can_not_read_or_write_outside_the_given_tables(
    sales: Lake, prey: dict[str, str], attack: str
) -> None:
    python_variable = pa.table({"password": ["hunter2"]})  # noqa: F841 (bait for replacement scans)
    sql = attack.format(**prey)
    with pytest.raises(LakeVillaError):
        query(sales, sql, ORDERS)
    assert not os.path.exists(prey["out"])


@pytest.mark.parametrize("attack", ATTACKS)
def test_sql_that_skips_the_parser_can_not_read_or_write_files_either(
    tmp_path: Path, prey: dict[str, str], attack: str
) -> None:
    """Only the second barrier is tested: whatever SQL runs, no file is read or written."""
    lake = Lake(str(tmp_path / "lake"))
    lake.make("customers", pa.table({"c": [1]}))
    python_variable = pa.table({"password": ["hunter2"]})  # noqa: F841 (bait for replacement scans)
    with shown(lake, "SELECT * FROM customers") as session:
        try:
            found = repr(session.connection.execute(attack.format(**prey)).fetchall())
        except duckdb.Error as error:
            found = str(error)
    assert "hunter2" not in found
    assert not os.path.exists(prey["out"])


def test_a_query_can_not_read_a_data_file_by_its_path(sales: Lake) -> None:
    path = next(Path(sales.root, "customers").glob("*.parquet"))
    with pytest.raises(InvalidOperation):
        query(sales, f"SELECT * FROM read_parquet('{path}')", ORDERS)


def test_columns_that_the_engine_adds_are_not_shown(sales: Lake) -> None:
    assert list(query(sales, "SELECT * FROM customers LIMIT 1", ORDERS)[0]) == ["c", "name"]


def test_settings_of_the_closed_database_are_locked(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    with shown(lake, "SELECT 1") as session, pytest.raises(duckdb.Error, match="locked"):
        session.connection.execute("SET threads = 1")
