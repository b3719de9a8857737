"""Reads of the catalog are validated exactly by their predicates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place, make_place

TABLES = ("sales/orders", "sales/items", "hr/people")
TYPES = pa.schema([("id", pa.int64()), ("region", pa.string())])


def rows(*numbers: int, region: str = "EU") -> pa.Table:
    ids = [{"id": number, "region": region} for number in numbers]
    return pa.Table.from_pylist(ids, TYPES)


@pytest.fixture(params=["memory"])
def lake(request: pytest.FixtureRequest) -> lv.Lake:
    lake = make_place(request.param, request).connect()
    for name in TABLES:
        lake.create_table(name, rows(1), partition_by=["region"])
    lake.create_table("log", {"n": [0]})
    return lake


def add(table: str, region: str = "EU") -> Callable[[lv.Lake], object]:
    return lambda lake: lake.run(lambda txn: txn.append(table, rows(2, region=region)))


def make(table: str) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.create_table(table, rows(1))


def drop(table: str) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.drop_table(table)


def widen(table: str) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.run(lambda txn: txn.alter(table, add_columns={"x": "bigint"}))


def rename(old: str, new: str) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.rename_table(old, new)


def delete(table: str) -> Callable[[lv.Lake], object]:
    return lambda lake: lake.run(lambda txn: txn.delete(table, where="true"))


SALES_NAMES = "SELECT name FROM lakevilla_tables WHERE name LIKE 'sales/%'"
SALES_SIZES = "SELECT name, rows FROM lakevilla_tables WHERE name LIKE 'sales/%'"
EMPTY = "SELECT name, rows FROM lakevilla_tables WHERE rows = 0"
SALES_FILES = """SELECT path FROM lakevilla_files WHERE "table" LIKE 'sales/%'"""
ASIA = """SELECT path FROM lakevilla_files WHERE "table" = 'sales/orders'
    AND partition['region'] = 'Asia'"""
LARGE = """SELECT path FROM lakevilla_files WHERE "table" = 'sales/orders'
    AND size_bytes > 1000000"""
COLUMNS = "SELECT name FROM lakevilla_columns WHERE \"table\" = 'sales/orders'"
STATISTICS = """SELECT max FROM lakevilla_statistics WHERE "table" = 'sales/orders'
    AND "column" = 'id'"""
PARTITIONS = """SELECT name FROM lakevilla_partitions WHERE "table" = 'sales/orders'
    AND partition['region'] = 'Asia' AND files > 0"""
COMMITS = "SELECT version FROM lakevilla_commits WHERE \"table\" = 'sales/orders'"
OLD_COMMITS = "SELECT version FROM lakevilla_commits WHERE version <= 2"
SCHEMAS = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'sales'"
OWN_COLUMNS = """SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'sales' AND table_name = 'orders'"""

MATTERS = [
    (SALES_NAMES, make("sales/new")),
    (SALES_NAMES, drop("sales/items")),
    (SALES_NAMES, rename("hr/people", "sales/people")),
    (SALES_NAMES, rename("sales/items", "hr/items")),
    (SALES_SIZES, add("sales/items")),
    (EMPTY, delete("hr/people")),
    (SALES_FILES, add("sales/items")),
    (SALES_FILES, delete("sales/orders")),
    (SALES_FILES, make("sales/new")),
    (ASIA, add("sales/orders", "Asia")),
    (COLUMNS, widen("sales/orders")),
    (COLUMNS, drop("sales/orders")),
    (STATISTICS, add("sales/orders")),
    (COMMITS, add("sales/orders")),
    (SCHEMAS, make("sales/new")),
    (OWN_COLUMNS, widen("sales/orders")),
    (PARTITIONS, add("sales/orders", "Asia")),
]
GOES_THROUGH = [
    (SALES_NAMES, add("sales/items")),
    (SALES_NAMES, make("hr/new")),
    (SALES_NAMES, widen("sales/items")),
    (SALES_NAMES, rename("hr/people", "hr/persons")),
    (SALES_SIZES, add("hr/people")),
    (EMPTY, add("hr/people")),
    (SALES_FILES, add("hr/people")),
    (SALES_FILES, drop("hr/people")),
    (ASIA, add("sales/orders", "EU")),
    (LARGE, add("sales/orders")),
    (COLUMNS, add("sales/orders")),
    (COLUMNS, widen("sales/items")),
    (STATISTICS, add("sales/items")),
    (COMMITS, add("sales/items")),
    (OLD_COMMITS, add("sales/orders")),
    (SCHEMAS, make("hr/new")),
    (OWN_COLUMNS, add("sales/orders")),
    (PARTITIONS, add("sales/orders", "EU")),
    (PARTITIONS, add("sales/items")),
]


def races(lake: lv.Lake, query: str, other: Callable[[lv.Lake], object]) -> bool:
    """Return whether a transaction that has run the query commits despite a concurrent commit."""
    with lv.connect(lake.root) as beside, suppress(lv.ConflictError):
        with lake.transaction() as txn:
            seen = txn.sql(query).num_rows
            txn.append("log", {"n": [seen]})
            other(beside)
        return True
    return False


@pytest.mark.parametrize(
    ("lake", "number"),
    [
        *(("memory", n) for n in range(len(MATTERS))),
        ("iceberg", 6),
        ("iceberg", 9),
        ("iceberg", 16),
    ],
    indirect=["lake"],
)
def test_a_commit_that_changes_the_result_of_a_catalog_query_is_a_conflict(
    lake: lv.Lake, number: int
) -> None:
    query, other = MATTERS[number]
    assert not races(lake, query, other)
    assert races(lake, query, lambda _: None)


@pytest.mark.parametrize(
    ("lake", "number"),
    [
        *(("memory", n) for n in range(len(GOES_THROUGH))),
        ("iceberg", 8),
        ("iceberg", 9),
        ("iceberg", 17),
    ],
    indirect=["lake"],
)
def test_a_commit_that_does_not_change_the_result_of_a_catalog_query_is_no_conflict(
    lake: lv.Lake, number: int
) -> None:
    query, other = GOES_THROUGH[number]
    assert races(lake, query, other)


def test_a_catalog_read_is_still_validated_after_the_transaction_was_resumed(lake: lv.Lake) -> None:
    txn = lake.transaction()
    txn.append("log", {"n": [txn.sql(SALES_NAMES).num_rows]})
    txn.save()
    with lv.connect(lake.root) as other:
        again = other.resume(txn.id)
        make("sales/new")(lake)
        with pytest.raises(lv.ConflictError):
            again.commit()


def test_snapshot_isolation_does_not_validate_catalog_reads(lake: lv.Lake) -> None:
    with lake.transaction(isolation="snapshot") as txn:
        txn.append("log", {"n": [txn.sql(SALES_NAMES).num_rows]})
        with lv.connect(lake.root) as other:
            make("sales/new")(other)


def test_catalog_rows_read_by_an_insert_are_validated(lake: lv.Lake) -> None:
    with pytest.raises(lv.ConflictError), lake.transaction() as txn:
        txn.sql("INSERT INTO log SELECT rows AS n FROM lakevilla_tables WHERE name LIKE 'sales/%'")
        with lv.connect(lake.root) as other:
            add("sales/items")(other)
    assert lake.read("log").num_rows == 1


def test_foreign_commits_conflict_only_if_their_files_match_the_catalog_query(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", rows(1), partition_by=["region"])
        lake.create_table("log", {"n": [0]})
        query = "SELECT path FROM lakevilla_files WHERE partition['region'] = 'Asia'"
        for region, commits in (("EU", True), ("Asia", False)):
            with suppress(lv.ConflictError):
                with lake.transaction() as txn:
                    seen = txn.sql(query).num_rows
                    txn.append("t", rows(seen))
                    local_place.write("t", rows(5, region=region), partition_by=["region"])
                assert commits
                continue
            assert not commits
        # Run again, the transaction sees the foreign commit, and commits.
        lake.run(lambda txn: txn.append("t", rows(txn.sql(query).num_rows)))


def test_a_catalog_query_without_feature_i_is_refused(lake: lv.Lake) -> None:
    with (
        lake.transaction(lv.Feature.NONE) as txn,
        pytest.raises(lv.InvalidOperation, match=r"Feature\.I"),
    ):
        txn.sql(SALES_NAMES)


def test_a_snapshot_shows_the_catalog_and_the_tables_of_one_state(lake: lv.Lake) -> None:
    with lake.snapshot() as now, lv.connect(lake.root) as other:
        seen = now.sql(SALES_SIZES).to_pylist()
        add("sales/items")(other)
        make("sales/new")(other)
        assert now.sql("SELECT count(*) AS n FROM sales.items").to_pylist() == [{"n": 1}]
        assert now.sql(SALES_SIZES).to_pylist() == seen


def test_a_serializable_merge_of_a_branch_whose_catalog_was_read_is_refused(lake: lv.Lake) -> None:
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("log", {"n": [txn.sql(SALES_NAMES).num_rows]}))
    with pytest.raises(lv.InvalidOperation, match="lakevilla_tables"):
        lake.merge("etl", isolation="serializable")
    lake.merge("etl")
    assert lake.read("log").num_rows == 2
