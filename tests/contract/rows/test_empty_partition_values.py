"""Delta stores an empty partition value as NULL, so rows with one are refused.

Spark silently stores ``''`` as NULL; deltalake stores it as ``""``, which every
reader takes for NULL, as the Delta protocol requires.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import contents, in_order

EMPTY: dict[str, Any] = {"text": "", "bytes": b""}
FILLED: dict[str, Any] = {"text": "a", "bytes": b"a"}
TYPES = {"text": pa.string(), "bytes": pa.binary()}


def rows(*values: Any, kind: str) -> pa.Table:
    kept = pa.array(values, TYPES[kind])
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "part": kept})


def _merge(txn: lv.Transaction, source: pa.Table, value: Any) -> None:
    merge = txn.merge("t", source, "source.id = target.id")
    merge.when_matched_update(updates={"part": "source.part"}).execute()


def _insert(txn: lv.Transaction, source: pa.Table, value: Any) -> None:
    merge = txn.merge("t", source, "source.part = target.part")
    merge.when_not_matched_insert_all().execute()


VERBS: dict[str, Callable[[lv.Transaction, pa.Table, Any], object]] = {
    "append": lambda txn, source, value: txn.append("t", source),
    "overwrite": lambda txn, source, value: txn.overwrite("t", source),
    "overwrite where": lambda txn, source, value: txn.overwrite("t", source, "id < 9"),
    "update": lambda txn, source, value: txn.update(
        "t", {"part": ":v"}, "id = 0", params={"v": value}
    ),
    "upsert": lambda txn, source, value: txn.upsert("t", source, "part"),
    "upsert by id": lambda txn, source, value: txn.upsert("t", source, "id"),
    "merge": _merge,
    "merge insert": _insert,
    "insert": lambda txn, source, value: txn.sql(
        "insert into t select * from s", views={"s": source}
    ),
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("rules", ["none", "not null", "a constraint"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_refuses_an_empty_partition_value_and_writes_nothing(
    shop: Place, verb: str, rules: str, kind: str
) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("part", TYPES[kind], nullable=rules != "not null")]
    )
    with shop.connect() as lake:
        lake.create_table("t", schema, partition_by=["part"])
        with lake.transaction() as txn:
            if rules == "a constraint":
                txn.alter("t", add_constraints={"small": "id < 100"})
            txn.append("t", rows(FILLED[kind], FILLED[kind], kind=kind))
        before = contents(lake.root)
        with lake.transaction() as txn:
            with pytest.raises(lv.InvalidOperation, match="part must not be empty") as raised:
                VERBS[verb](txn, rows(FILLED[kind], EMPTY[kind], kind=kind), EMPTY[kind])
            assert contents(lake.root) == before
        assert contents(lake.root) == before
        assert "delta cannot distinguish from NULL" in str(raised.value)
        assert raised.value.table == "t"
        if verb == "append":
            with pytest.raises(lv.InvalidOperation, match="part must not be empty"):
                lake.create_table("u", rows(EMPTY[kind], kind=kind), partition_by=["part"])
            assert contents(lake.root) == before


def test_an_empty_partition_value_in_many_rows_is_refused_before_a_file_is_stored(
    shop: Place,
) -> None:
    many = pa.table({"id": range(50_000), "part": [*(str(n % 40) for n in range(49_999)), ""]})
    settings = lv.Settings(in_memory_file_limit_bytes=10_000, target_file_size_bytes=50_000)
    with shop.connect(settings=settings) as lake:
        lake.create_table("t", many.schema, partition_by=["part"])
        before = contents(lake.root)
        with lake.transaction() as txn:
            with pytest.raises(lv.InvalidOperation, match="part must not be empty"):
                txn.append("t", many)
            assert contents(lake.root) == before


def test_rows_with_a_null_partition_value_are_found_by_is_null_and_not_by_empty_text(
    shop: Place,
) -> None:
    with shop.connect() as lake:
        lake.create_table("t", rows("a", None, kind="text"), partition_by=["part"])
        assert in_order(lake.snapshot().read("t", where="part is null")) == [
            {"id": 1, "part": None}
        ]
        assert lake.snapshot().read("t", where="part = ''").num_rows == 0


def test_an_empty_partition_value_written_by_deltalake_is_read_and_rewritten_as_null(
    shop: Place,
) -> None:
    """Spark and deltalake, too, read deltalake's ``""`` as NULL."""
    shop.write("t", rows("a", "", kind="text"), partition_by=["part"])
    assert {row["part"] for row in shop.seen("t")} == {"a", None}
    with shop.connect() as lake:
        with lake.transaction() as txn:
            txn.update("t", {"id": "id + 10"}, "part is null")
        expected = [{"id": 0, "part": "a"}, {"id": 11, "part": None}]
        assert in_order(lake.snapshot().read("t")) == expected
    assert shop.seen("t") == expected


def test_a_column_outside_the_partitioning_can_store_empty_text(shop: Place) -> None:
    made = rows("a", "", kind="text").append_column("day", pa.array([1, 1]))
    with shop.connect() as lake:
        lake.create_table("t", made, partition_by=["day"])
        assert lake.snapshot().read("t", where="part = ''")["id"].to_pylist() == [1]


def test_an_iceberg_table_can_store_an_empty_partition_value(shop: Place) -> None:
    with shop.connect() as lake:
        made = rows("a", "", None, kind="text")
        lake.create_table("t", made, format="iceberg", partition_by=["part"])
        with lake.transaction() as txn:
            txn.upsert("t", pa.table({"id": [7], "part": [""]}), "part")
        found = {row["id"]: row["part"] for row in lake.snapshot().read("t").to_pylist()}
        assert found == {0: "a", 7: "", 2: None}
