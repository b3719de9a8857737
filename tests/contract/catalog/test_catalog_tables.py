"""The lake's catalog as SQL tables: their content, in which states, and the cost of queries."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from bench.size.many_tables import cost, newest
from lakevilla.global_log import leaves
from lakevilla.sql.catalog import SCHEMAS
from tests.support.places import Place
from tests.support.tables import bag

TYPES = pa.schema([("id", pa.int64()), ("region", pa.string())])
TABLES = ("hr/people", "plain", "sales/items", "sales/orders")


def rows(*numbers: int, region: str = "EU") -> pa.Table:
    found = [{"id": number, "region": region} for number in numbers]
    return pa.Table.from_pylist(found, TYPES)


def make(place: Place) -> lv.Lake:
    lake = place.connect()
    with lake.transaction(metadata={"job": "first"}) as txn:
        for name in TABLES:
            txn.create_table(name, rows(1, 2), partition_by=["region"])
    lake.run(lambda txn: txn.append("sales/orders", rows(3, region="Asia")))
    return lake


@pytest.fixture
def lake(quick_place: Place) -> lv.Lake:
    return make(quick_place)


def ask(source: Any, query: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = source.sql(query, params or None).to_pylist()
    return found


def test_lakevilla_tables_shows_tables_with_their_sizes(lake: lv.Lake) -> None:
    (orders,) = ask(lake, "SELECT * FROM lakevilla_tables WHERE name = 'sales/orders'")
    table = lake.table("sales/orders")
    assert orders["uri"] == table.uri
    assert (orders["format"], orders["guarded"]) == (table.format, False)
    assert (orders["files"], orders["rows"], orders["changed_version"]) == (2, 3, 2)
    assert (
        orders["bytes"]
        == ask(
            lake,
            "SELECT sum(size_bytes) AS n FROM lakevilla_files WHERE \"table\" = 'sales/orders'",
        )[0]["n"]
    )
    names = ask(lake, "SELECT name FROM lakevilla_tables ORDER BY name")
    assert [row["name"] for row in names] == list(TABLES)


def test_catalog_tables_show_files_columns_and_statistics(lake: lv.Lake) -> None:
    files = ask(
        lake,
        "SELECT * FROM lakevilla_files WHERE \"table\" = :t AND partition['region'] = 'Asia'",
        t="sales/orders",
    )
    assert [(file["rows"], file["deletes"]) for file in files] == [(1, 0)]
    assert files[0]["uri"].endswith(files[0]["path"])
    columns = ask(lake, "SELECT * FROM lakevilla_columns WHERE \"table\" = 'plain'")
    assert [(c["name"], c["type"], c["position"]) for c in columns] == [
        ("id", "long", 0),
        ("region", "string", 1),
    ]
    found = ask(
        lake,
        """SELECT min, max, nulls FROM lakevilla_statistics
        WHERE "table" = 'plain' AND "column" = 'id'""",
    )
    assert found == [{"min": "1", "max": "2", "nulls": 0}]


def test_conditions_with_values_of_another_type_are_evaluated_by_the_query(lake: lv.Lake) -> None:
    everything = ask(lake, "SELECT path FROM lakevilla_files ORDER BY path")
    less = "SELECT path FROM lakevilla_files WHERE size_bytes < :n ORDER BY path"
    assert ask(lake, less, n=float("nan")) == everything
    with pytest.raises(lv.InvalidOperation, match="compare"):
        lake.sql("SELECT path FROM lakevilla_files WHERE partition > 5")


def test_lakevilla_commits_has_one_row_for_each_table_of_a_commit(lake: lv.Lake) -> None:
    found = ask(lake, 'SELECT * FROM lakevilla_commits ORDER BY version, "table"')
    assert [(row["version"], row["table"]) for row in found] == [
        *((1, name) for name in TABLES),
        (2, "sales/orders"),
    ]
    assert {row["kind"] for row in found} == {"transaction"}
    assert dict(found[0]["metadata"]) == {"job": "first"}
    assert (found[-1]["adds"], found[-1]["metadata_changed"]) == (True, False)
    newer = ask(lake, "SELECT * FROM lakevilla_commits WHERE version > 1")
    assert newer == found[-1:]
    history = {entry.version: entry.timestamp for entry in lake.history()}
    assert {row["version"]: row["timestamp"] for row in found} == history


@pytest.mark.parametrize("where", ["version IN (2, '1')", "version IN ('1', 99)"])
def test_lakevilla_commits_finds_versions_given_as_text(lake: lv.Lake, where: str) -> None:
    found = ask(lake, f"SELECT version FROM lakevilla_commits WHERE {where}")
    assert 1 in {row["version"] for row in found}


def test_lakevilla_commits_has_no_rows_for_versions_in_the_future(lake: lv.Lake) -> None:
    beyond = "SELECT version FROM lakevilla_commits WHERE version > :n"
    assert not ask(lake, beyond, n=math.inf)
    assert not ask(lake, beyond, n=99)
    assert not ask(lake, "SELECT version FROM lakevilla_commits WHERE version = 3")
    lake.branch("etl")
    assert not ask(lake.on("etl"), beyond, n=99)


def test_catalog_tables_show_refs(lake: lv.Lake) -> None:
    lake.tag("closing", 1)
    lake.branch("etl")
    found = ask(lake, "SELECT name, kind, version FROM lakevilla_refs ORDER BY name")
    assert found == [
        {"name": "closing", "kind": "tag", "version": 1},
        {"name": "etl", "kind": "branch", "version": 2},
    ]
    with pytest.raises(lv.InvalidOperation, match="lakevilla_refs"):
        lake.on("etl").sql("SELECT * FROM lakevilla_refs")


def test_a_transaction_sees_its_own_changes_in_the_catalog(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.create_table("new", rows(1))
        txn.delete("plain", where="id = 1")
        txn.drop_table("hr/people")
        found = ask(txn, "SELECT name, rows FROM lakevilla_tables")
        assert {row["name"]: row["rows"] for row in found} == {
            "new": 1,
            "plain": 1,
            "sales/items": 2,
            "sales/orders": 3,
        }
        files = ask(txn, "SELECT rows FROM lakevilla_files WHERE \"table\" IN ('new', 'plain')")
        assert [row["rows"] for row in files] == [1, 1]


def test_branches_tags_and_past_versions_have_their_own_catalogs(lake: lv.Lake) -> None:
    lake.tag("then", 1)
    lake.branch("etl")
    etl = lake.on("etl")
    etl.create_table("only/here", rows(1))
    etl.run(lambda txn: txn.append("plain", rows(9)))
    query = "SELECT name, rows FROM lakevilla_tables WHERE name IN ('plain', 'sales/orders')"
    sizes = "SELECT sum(rows) AS n FROM lakevilla_files WHERE \"table\" = 'sales/orders'"
    with lake.snapshot(version=1) as past:
        states = [(lake, 2, 3), (etl, 3, 3), (lake.on("then"), 2, 2), (past, 2, 2)]
        for source, plain, orders in states:
            found = {row["name"]: row["rows"] for row in ask(source, query)}
            assert found == {"plain": plain, "sales/orders": orders}
            assert ask(source, sizes)[0]["n"] == orders
        assert ask(past, "SELECT max(version) AS v FROM lakevilla_commits") == [{"v": 1}]
    assert ask(etl, "SELECT name FROM lakevilla_tables WHERE name LIKE 'only/%'")
    assert not ask(lake, "SELECT name FROM lakevilla_tables WHERE name LIKE 'only/%'")
    assert ask(etl, "SELECT max(version) AS v FROM lakevilla_commits")[0]["v"] == etl_version(etl)


def etl_version(etl: lv.Lake) -> int:
    with etl.snapshot() as now:
        return now.version


def test_catalog_tables_show_registered_names(lake: lv.Lake) -> None:
    lake.rename_table("plain", "sales/plain")
    query = "SELECT name FROM lakevilla_tables WHERE name LIKE 'sales/%' ORDER BY name"
    assert [row["name"] for row in ask(lake, query)] == [
        "sales/items",
        "sales/orders",
        "sales/plain",
    ]
    assert not ask(lake, "SELECT name FROM lakevilla_tables WHERE name = 'plain'")
    assert ask(lake, "SELECT rows FROM lakevilla_files WHERE \"table\" = 'sales/plain'")


def test_the_information_schema_shows_the_lakes_tables(lake: lv.Lake) -> None:
    found = ask(
        lake,
        """SELECT tables.table_schema, tables.table_name, count(*) AS columns
        FROM information_schema.tables JOIN information_schema.columns c
        USING (table_schema, table_name) WHERE tables.table_type = 'BASE TABLE'
        GROUP BY ALL ORDER BY ALL""",
    )
    assert found == [
        {"table_schema": schema, "table_name": name, "columns": 2}
        for schema, name in (
            ("hr", "people"),
            ("main", "plain"),
            ("sales", "items"),
            ("sales", "orders"),
        )
    ]
    types = ask(
        lake,
        """SELECT column_name, data_type, is_nullable, ordinal_position
        FROM information_schema.columns WHERE table_name = 'plain' ORDER BY ordinal_position""",
    )
    assert [tuple(row.values()) for row in types] == [
        ("id", "BIGINT", "YES", 1),
        ("region", "VARCHAR", "YES", 2),
    ]
    schemata = ask(lake, "SELECT schema_name FROM information_schema.schemata ORDER BY 1")
    assert [row["schema_name"] for row in schemata] == ["hr", "main", "sales"]


def test_columns_of_catalog_tables_have_the_types_that_duckdb_reports(lake: lv.Lake) -> None:
    columns = """[{'k': 1::TINYINT, 'two words': ['x']}] AS nested, MAP {'a': 1.5::FLOAT} AS named,
        1.20::DECIMAL(9, 2) AS price, DATE '2026-01-01' AS day, TIMESTAMP '2026-01-01' AS wall,
        TIMESTAMPTZ '2026-01-01' AS moment, 'x'::BLOB AS bytes, 1::SMALLINT AS small"""
    ours = lake.session()
    ours.sql(f"CREATE TABLE many AS SELECT {columns}")
    oracle = duckdb.connect()
    oracle.sql(f"CREATE TABLE many AS SELECT {columns}")
    asked = """SELECT column_name, data_type FROM information_schema.columns
        WHERE table_name = 'many'"""

    def plain(rows: list[dict[str, Any]]) -> dict[str, str]:
        return {row["column_name"]: row["data_type"].replace('"', "") for row in rows}

    assert plain(ask(lake, asked)) == plain(oracle.sql(asked).to_arrow_table().to_pylist())


def test_catalog_tables_can_be_joined_with_tables_and_inserted_from(lake: lv.Lake) -> None:
    lake.create_table("sizes", {"name": ["x"], "rows": [0]})
    done = lake.run(
        lambda txn: (
            txn.sql(
                """INSERT INTO sizes SELECT t.name, t.rows FROM lakevilla_tables t
            WHERE t.name LIKE :p""",
                {"p": "sales/%"},
            ).rows_inserted
        )
    )
    assert done == 2
    assert bag(lake.read("sizes", where="rows > 0")) == {
        ("sales/items", 2): 1,
        ("sales/orders", 3): 1,
    }
    joined = ask(
        lake,
        "SELECT s.name FROM sizes s JOIN lakevilla_tables t ON t.name = s.name WHERE t.rows > 2",
    )
    assert joined == [{"name": "sales/orders"}]


def test_an_empty_lake_has_an_empty_catalog(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        for kind, schema in SCHEMAS.items():
            found = lake.sql(f"SELECT * FROM lakevilla_{kind}")
            assert found.num_rows == 0
            assert found.schema.names == schema.names


@pytest.mark.parametrize(
    "name", ["lakevilla_tables", "Lakevilla_Files", "information_schema/tables"]
)
def test_a_table_can_not_have_the_name_of_a_catalog_table(lake: lv.Lake, name: str) -> None:
    with pytest.raises(lv.InvalidOperation, match="catalog table"):
        lake.create_table(name, rows(1))
    with pytest.raises(lv.InvalidOperation, match="catalog table"):
        lake.rename_table("plain", name)
    assert ask(lake, "SELECT count(*) AS n FROM lakevilla_tables") == [{"n": 4}]


def test_a_query_refuses_the_name_of_a_catalog_table_if_a_table_has_it_already(
    shared_place: Place,
) -> None:
    shared_place.write("lakevilla_tables", rows(1))
    with make(shared_place) as lake:
        lake.run(lambda txn: txn.append("lakevilla_tables", rows(2)))
        with pytest.raises(lv.InvalidOperation, match="rename_table"):
            lake.sql("SELECT * FROM lakevilla_tables")
        lake.rename_table("lakevilla_tables", "mine")
        assert ask(lake, "SELECT name FROM lakevilla_tables WHERE name = 'mine'")


def test_views_of_the_caller_hide_catalog_tables_and_unknown_names_are_refused(
    lake: lv.Lake,
) -> None:
    own = pa.table({"name": ["own"]})
    found = lake.sql("SELECT * FROM lakevilla_tables", views={"lakevilla_tables": own})
    assert found.to_pylist() == [{"name": "own"}]
    with pytest.raises(lv.InvalidOperation, match="schemata, tables, columns"):
        lake.sql("SELECT * FROM information_schema.triggers")
    with pytest.raises(lv.InvalidOperation, match="nosuch"):
        lake.sql("SELECT nosuch FROM lakevilla_tables")
    with pytest.raises(lv.TableNotFound):
        lake.sql("SELECT * FROM lakevilla_nothing")


def test_a_table_that_cannot_be_opened_is_left_out_of_the_catalog(local_place: Place) -> None:
    with make(local_place) as lake:
        events: list[lv.Event] = []
    log = Path(local_place.uri("plain")) / "_delta_log"
    for entry in log.glob("*.json"):
        entry.write_text("{")
    with local_place.connect(on_event=events.append) as lake:
        found = ask(lake, 'SELECT DISTINCT "table" FROM lakevilla_files ORDER BY 1')
        assert [row["table"] for row in found] == ["hr/people", "sales/items", "sales/orders"]
        assert [event.kind for event in events].count("left_out") == 1
        assert len(ask(lake, "SELECT name FROM lakevilla_tables")) == 4


# ------------------------------------------------------------------ cost


def test_a_query_of_the_catalog_opens_only_the_requested_tables(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 2000)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 2000)
    names = [f"t{number:03}" for number in range(60)]
    with local_place.connect() as lake:
        with lake.transaction() as txn:
            for name in names:
                txn.create_table(name, rows(1))
        assert len(newest(lake).tables.refs) > 4

    def asked(query: str) -> int:
        with local_place.connect() as other:
            other.exists()
            return cost(other, lambda: other.sql(query)).list

    # Opening a table's log costs one LIST.
    ten = "name LIKE 't01%'"
    assert asked(f"SELECT * FROM lakevilla_tables WHERE {ten}") == 0
    assert asked("SELECT * FROM lakevilla_files WHERE \"table\" LIKE 't01%'") == 10
    assert asked("SELECT * FROM lakevilla_columns WHERE \"table\" IN ('t001', 't002')") == 2
    assert asked("SELECT * FROM lakevilla_statistics WHERE 't003' = \"table\"") == 1
    assert (
        asked(
            """SELECT * FROM information_schema.columns
            WHERE table_schema = 'main' AND table_name = 't004'"""
        )
        == 1
    )
    assert asked("SELECT * FROM lakevilla_commits") == 0


def test_errors_for_misspelt_catalog_tables_and_for_their_use_as_tables_say_so(
    lake: lv.Lake,
) -> None:
    with pytest.raises(lv.TableNotFound, match=r"did you mean lakevilla_tables"):
        lake.sql("SELECT * FROM lakevilla_table")
    with pytest.raises(lv.TableNotFound, match=r"lakevilla_tables is a catalog table.*lake\.sql"):
        lake.read("lakevilla_tables")
    with pytest.raises(lv.TableNotFound, match=r"is a catalog table"):
        lake.run(lambda txn: txn.sql("DELETE FROM lakevilla_tables"))
