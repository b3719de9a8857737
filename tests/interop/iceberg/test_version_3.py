"""Share Iceberg tables of version 3 with Spark, DuckDB and pyiceberg: equal rows, equal row ids."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.interop.iceberg.beside import Beside
from tests.support.row_ids_of_iceberg import Lineage, row_ids

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
V3 = {"format-version": "3", "commit.manifest.min-count-to-merge": "3"}


def by_spark(beside: Beside, table: str = "t") -> dict[Any, Lineage]:
    found = beside.sql("SELECT k, _row_id, _last_updated_sequence_number FROM {t}", table)
    ids = {row[0]: (row[1], row[2]) for row in found}
    assert len(ids) == len(found)
    return ids


def by_duckdb(beside: Beside, table: str = "t") -> dict[Any, int]:
    query = f"SELECT k, _row_id FROM iceberg_scan('{beside.path(table)}')"
    return dict(beside.duck.execute(query).fetchall())


def agreed_ids(
    beside: Beside, table: str = "t", *, without: tuple[str, ...] = ()
) -> dict[Any, Lineage]:
    """Return the lineage of rows, after a check that all clients find the same, and no id twice."""
    theirs = by_spark(beside, table)
    with beside.connect() as lake:
        assert row_ids(lake, table) == theirs
    if "DuckDB" not in without:
        assert by_duckdb(beside, table) == {k: row_id for k, (row_id, _) in theirs.items()}
    ids = [row_id for row_id, _ in theirs.values()]
    assert len(set(ids)) == len(ids)
    mark = beside.metadata(table)["next-row-id"]
    assert all(row_id is not None and row_id < mark for row_id in ids)
    return theirs


def append(lake: lv.Lake, *keys: int) -> None:
    with lake.transaction() as txn:
        txn.append("t", [{"k": k, "v": f"v{k}"} for k in keys])


@pytest.mark.seam
def test_rows_of_a_new_table_have_equal_ids_everywhere_and_keep_them(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", SCHEMA, format="iceberg", properties=V3)
        assert beside.metadata()["next-row-id"] == 0
        for k in range(0, 10, 2):  # manifests are merged
            append(lake, k, k + 1)
        first = agreed_ids(beside)
        assert [first[k][0] for k in range(6)] == list(range(6))
        with lake.transaction() as txn:
            txn.delete("t", where="k IN (2, 3)")  # a whole file
        beside.sql("INSERT INTO {t} VALUES (20, 'spark'), (21, 'spark')")
        append(lake, 22)
        now = agreed_ids(beside)
        assert {k: ids for k, ids in now.items() if k < 10} == {
            k: ids for k, ids in first.items() if k not in (2, 3)
        }
        beside.call("rewrite_manifests")
        assert agreed_ids(beside) == now
        append(lake, 23)
        beside.sql("UPDATE {t} SET v = 'changed' WHERE k IN (0, 21)")
        beside.sql("DELETE FROM {t} WHERE k = 4")
        after = agreed_ids(beside)
        kept = {k: row_id for k, (row_id, _) in now.items() if k != 4}
        assert {k: row_id for k, (row_id, _) in after.items() if k != 23} == kept
        append(lake, 24)
        beside.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
        append(lake, 25)
        last = agreed_ids(beside)
        assert {k: ids for k, ids in last.items() if k < 24} == after
    assert {row[0] for row in beside.agreed()} == set(last)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_table_of_spark_is_appended_to_and_emptied_of_whole_files(
    beside: Beside, mode: str
) -> None:
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("delete", "update", "merge"))
    beside.sql(
        "CREATE TABLE {t} (k bigint, v string) USING iceberg PARTITIONED BY (truncate(1, v)) "
        f"TBLPROPERTIES ('format-version' = '3', {modes})"
    )
    beside.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, 'c')")
    beside.sql("UPDATE {t} SET v = 'cc' WHERE k = 4")
    beside.sql("DELETE FROM {t} WHERE k = 1")
    before = by_spark(beside)
    with beside.connect() as lake:
        append(lake, 5)
        with lake.transaction() as txn:
            txn.delete("t", where="v = 'b'")
        ids = by_spark(beside)
        assert {k: one for k, one in ids.items() if k != 5} == {
            k: one for k, one in before.items() if k != 2
        }
        assert {row[0] for row in beside.agreed()} == {3, 4, 5}
        with lake.transaction() as txn:
            txn.overwrite("t", [{"k": 9, "v": "z"}])
    assert agreed_ids(beside).keys() == {9}
    beside.sql("INSERT INTO {t} VALUES (10, 'y')")
    assert agreed_ids(beside).keys() == {9, 10}


@pytest.mark.seam
@pytest.mark.parametrize("version", ["1", "2"])
def test_an_upgraded_table_gives_ids_to_its_old_rows_once(beside: Beside, version: str) -> None:
    beside.sql(
        "CREATE TABLE {t} (k bigint, v string) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '{version}')"
    )
    # DuckDB refuses manifests of version 1 with entries of an older snapshot.
    without = ("DuckDB",) if version == "1" else ()
    beside.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    beside.sql("INSERT INTO {t} VALUES (3, 'c')")
    beside.sql("UPDATE {t} SET v = 'B' WHERE k = 2")
    with beside.connect() as lake:
        assert {row["k"] for row in lake.snapshot().read("t").to_pylist()} == {1, 2, 3}
        with lake.transaction() as txn:
            txn.alter("t", set_properties={"format-version": "3"})
        document = beside.metadata()
        assert (document["format-version"], document["next-row-id"]) == (3, 0)
        assert not {"schema", "partition-spec"} & document.keys()
        assert {row_id for row_id, _ in by_spark(beside).values()} == {None}
        append(lake, 4)  # in the process that has read the manifests without ids
        first = agreed_ids(beside, without=without)
        append(lake, 5)
        beside.sql("INSERT INTO {t} VALUES (6, 'f')")
        append(lake, 7)
        found = agreed_ids(beside, without=without)
        assert {k: ids for k, ids in found.items() if k < 5} == first
        with pytest.raises(lv.InvalidOperation, match="never back"):
            with lake.transaction() as txn:
                txn.alter("t", set_properties={"format-version": "2"})
    assert {row[0] for row in beside.agreed(without=without)} == set(range(1, 8))


def test_an_upgrade_in_steps_ends_where_one_step_does(beside: Beside) -> None:
    beside.sql(
        "CREATE TABLE {t} (k bigint, v string) USING iceberg PARTITIONED BY (v) "
        "TBLPROPERTIES ('format-version' = '1')"
    )
    beside.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    with beside.connect() as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match="set_properties"):
            append(lake, 3)
        for version in ("2", "3"):
            with lake.transaction() as txn:
                txn.alter("t", set_properties={"format-version": version})
            append(lake, 10 + int(version))
            beside.sql(f"INSERT INTO {{t}} VALUES (2{version}, 'spark')")
    assert agreed_ids(beside).keys() == {1, 2, 12, 13, 22, 23}
    assert {row[0] for row in beside.agreed()} == {1, 2, 12, 13, 22, 23}


def test_files_that_a_rollback_adds_again_keep_their_ids(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", SCHEMA, format="iceberg", properties=V3)
        append(lake, 1, 2)
        append(lake, 3)
        state = lake.history(limit=1)[0].version
        before = agreed_ids(beside)
        with lake.transaction() as txn:
            txn.delete("t", where="k < 3")
        append(lake, 4)
        lake.rollback(state)
        after = agreed_ids(beside)
        assert {k: row_id for k, (row_id, _) in after.items()} == {
            k: row_id for k, (row_id, _) in before.items()
        }
        append(lake, 5)
        beside.sql("INSERT INTO {t} VALUES (6, 'spark')")
        append(lake, 7)
        found = agreed_ids(beside)
        assert {k: ids for k, ids in found.items() if k < 4} == after
    assert {row[0] for row in beside.agreed()} == {1, 2, 3, 5, 6, 7}


def test_ids_go_on_from_the_mark_after_a_commit_to_another_branch(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", SCHEMA, format="iceberg", properties=V3)
        append(lake, 1, 2)
        beside.sql("ALTER TABLE {t} CREATE BRANCH side")
        beside.sql(f"INSERT INTO {beside.name()}.branch_side VALUES (50, 'side'), (51, 'side')")
        append(lake, 3)
        side = beside.sql("SELECT k, _row_id FROM {t} VERSION AS OF 'side'")
        ids = {row_id: k for k, row_id in side}
        for k, (row_id, _) in agreed_ids(beside).items():
            assert ids.setdefault(row_id, k) == k
        assert len(ids) == 5


def test_rows_that_both_clients_write_again_keep_their_ids(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", SCHEMA, format="iceberg", properties=V3)
        append(lake, *range(1, 9))
        append(lake, *range(9, 13))
        before = agreed_ids(beside)
        steps: list[tuple[set[int], Callable[[], object]]] = [
            ({1, 9}, lambda: lake.run(lambda t: t.update("t", {"v": "'x'"}, where="k IN (1, 9)"))),
            ({2}, lambda: beside.sql("UPDATE {t} SET v = 'spark' WHERE k = 2")),
            (set(), lambda: lake.run(lambda t: t.delete("t", where="k = 3"))),
            ({2, 4}, lambda: lake.run(lambda t: t.upsert("t", UPSERTED, "k"))),
            (set(), lambda: beside.call("rewrite_data_files", REWRITE_ALL)),
            (set(), lambda: append(lake, 20)),
            (set(), lambda: lake.table("t").optimize()),
            ({20}, lambda: beside.sql("UPDATE {t} SET v = 'spark' WHERE k = 20")),
        ]
        for changed, step in steps:
            step()
            lake.recover()
            after = agreed_ids(beside)
            both = before.keys() & after.keys()
            assert {k: after[k][0] for k in both} == {k: before[k][0] for k in both}
            assert {k for k in both if after[k][1] != before[k][1]} == changed
            before = after
        assert lake.verify().ok


REWRITE_ALL = "options => map('rewrite-all', 'true')"
UPSERTED = [{"k": k, "v": "new"} for k in (2, 4, 30)]
INNER = pa.struct([("a", pa.int32())])
OF_DEFAULTS = pa.schema(
    [
        ("k", pa.int64()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
    ]
)
DEFAULTS: dict[str, Any] = {
    "b": 7,
    "d": Decimal("1.5"),
    "f": 0.1,
    "day": datetime.date(2024, 1, 2),
    "ts": datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
    "tz": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "tx": "it's",
    "bi": b"\x00\xff",
    "bo": True,
    "s.c": "deep",
}
ADDED = pa.schema(
    [
        pa.field("b", pa.int32(), nullable=False),
        ("d", pa.decimal128(6, 2)),
        ("f", pa.float32()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("tx", pa.string()),
        ("bi", pa.binary()),
        ("bo", pa.bool_()),
        ("s.c", pa.string()),
    ]
)


@pytest.mark.seam
def test_defaults_are_read_and_written_alike_by_spark(beside: Beside) -> None:
    """Here pyiceberg 0.12 reads a map that is NULL as an empty one."""
    without = ("pyiceberg", "pyiceberg's catalog")
    with beside.connect() as lake:
        lake.create_table("t", OF_DEFAULTS, format="iceberg", properties=V3)
        with lake.transaction() as txn:
            row = {"k": 1, "s": {"a": 1}, "l": [{"a": 1}, None], "m": {"x": {"a": 1}}}
            txn.append("t", [row, {"k": 2, "s": None, "l": [], "m": None}])
        with lake.transaction() as txn:
            txn.alter("t", add_columns=ADDED, defaults=DEFAULTS)
        expected = {**DEFAULTS, "f": pytest.approx(0.1), "d": Decimal("1.50")}
        expected.pop("s.c")
        for one in beside.ours().to_pylist():
            assert {name: one[name] for name in expected} == expected
            assert one["s"] == ({"a": 1, "c": "deep"} if one["k"] == 1 else None)
        beside.agreed(without=without)
        with lake.transaction() as txn:
            txn.append("t", [{"k": 3, "s": {"a": 3}}])
            txn.sql("INSERT INTO t (k, tx) VALUES (4, NULL)")
        beside.sql("INSERT INTO {t} (k, s) VALUES (5, named_struct('a', 5, 'c', 'own'))")
        with lake.transaction() as txn:
            txn.alter("t", set_defaults={"b": 8, "tx": None, "s.c": "new"})
        with lake.transaction() as txn:
            txn.append("t", [{"k": 6, "s": {"a": 6}}])
            txn.upsert("t", [{"k": 7}], "k")
        beside.sql("INSERT INTO {t} (k) VALUES (8)")
    found = {row[0]: row for row in beside.agreed(without=without)}
    names = beside.ours().column_names
    values = {k: dict(zip(names, row, strict=True)) for k, row in found.items()}
    assert {k: row["b"] for k, row in values.items()} == {
        **dict.fromkeys((1, 2, 3, 4, 5), 7),
        **dict.fromkeys((6, 7, 8), 8),
    }
    assert {k: row["tx"] for k, row in values.items()} == {
        **dict.fromkeys((1, 2, 3, 5), "it's"),
        **dict.fromkeys((4, 6, 7, 8)),
    }
    inner = {k: dict(row["s"])["c"] for k, row in values.items() if row["s"] is not None}
    assert inner == {1: "deep", 3: "deep", 5: "own", 6: "new"}
