"""``merge(..., schema_mode="merge")`` adds the source's extra columns to the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.tables import bag, contents, in_order

STOCK = pa.table({"id": [1, 2], "n": [10, 20]})
MORE = pa.table({"id": [2, 3], "n": [21, 31], "note": ["b", "c"], "extra": [0.5, 1.5]})


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    return found


@pytest.fixture
def lake(tmp_path: Path, format: Format) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", STOCK, format=format)
        yield lake


def merging(txn: lv.Transaction, source: object = MORE) -> lv.MergeBuilder:
    return txn.merge("t", source, "source.id = target.id", schema_mode="merge")


def seen_alike(lake: lv.Lake, format: Format) -> pa.Table:
    ours = lake.snapshot().read("t")
    for name, theirs in read_by_others(lake.table("t").uri, format).items():
        assert theirs.column_names == ours.column_names, name
        assert bag(theirs) == bag(ours), name
    return ours


def test_a_merge_with_all_columns_adds_the_columns_of_the_source(
    lake: lv.Lake, format: Format
) -> None:
    with lake.transaction() as txn:
        merged = merging(txn).when_matched_update_all().when_not_matched_insert_all().execute()
        assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
        txn.update("t", {"note": "'mine'"}, where="id = 1")
    assert in_order(seen_alike(lake, format)) == [
        {"id": 1, "n": 10, "note": "mine", "extra": None},
        {"id": 2, "n": 21, "note": "b", "extra": 0.5},
        {"id": 3, "n": 31, "note": "c", "extra": 1.5},
    ]
    assert lake.table("t").schema.names == ["id", "n", "note", "extra"]


@pytest.mark.parametrize("verb", ["append", "overwrite", "upsert"])
def test_new_columns_of_types_that_the_format_stores_wider_are_added(
    lake: lv.Lake, format: Format, verb: str
) -> None:
    more = {"id": 3, "n": 30, "small": 7, "s": {"a": 1}}
    kind = pa.struct([("a", pa.int8())])
    schema = pa.schema([*STOCK.schema, ("small", pa.int16()), ("s", kind)])
    keys = {"keys": "id"} if verb == "upsert" else {}
    with lake.transaction() as txn:
        rows = pa.Table.from_pylist([more], schema=schema)
        getattr(txn, verb)("t", rows, schema_mode="merge", **keys)
    seen = [lake.read("t"), *read_by_others(lake.table("t").uri, format).values()]
    assert all(in_order(rows)[-1] == more for rows in seen)


def test_only_columns_that_a_clause_sets_are_added(lake: lv.Lake, format: Format) -> None:
    with lake.transaction() as txn:
        merging(txn).when_matched_update({"note": "upper(source.note)"}).execute()
    assert in_order(seen_alike(lake, format)) == [
        {"id": 1, "n": 10, "note": None},
        {"id": 2, "n": 20, "note": "B"},
    ]


def test_a_merge_is_refused_without_schema_mode_merge_or_with_an_unknown_column(
    lake: lv.Lake, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    untyped = MORE.append_column("void", pa.nulls(2))
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match=r"note|extra"):
            txn.merge("t", MORE, "source.id = target.id").when_matched_update_all()
        with pytest.raises(lv.InvalidOperation, match="nowhere"):
            merging(txn).when_matched_update({"nowhere": "source.n"}).execute()
        with pytest.raises(lv.InvalidOperation, match="'void' of the data has only nulls"):
            merging(txn, untyped)
        with pytest.raises(lv.InvalidOperation, match="schema_mode must be None or 'merge'"):
            txn.merge("t", MORE, "true", schema_mode="overwrite")  # type: ignore[arg-type]
        assert txn.read("t").column_names == ["id", "n"]
    assert contents(tmp_path) == before


def test_two_concurrent_merges_that_add_the_same_column_both_commit(
    lake: lv.Lake, format: Format
) -> None:
    with lake.transaction() as txn:
        merging(txn).when_not_matched_insert_all().execute()
        with lake.transaction() as other:
            late = pa.table({"id": [1, 9], "n": [11, 9], "note": ["a", "z"]})
            merging(other, late).when_matched_update_all().when_not_matched_insert_all().execute()
    assert in_order(seen_alike(lake, format)) == [
        {"id": 1, "n": 11, "note": "a", "extra": None},
        {"id": 2, "n": 20, "note": None, "extra": None},
        {"id": 3, "n": 31, "note": "c", "extra": 1.5},
        {"id": 9, "n": 9, "note": "z", "extra": None},
    ]


def test_a_column_added_meanwhile_with_another_type_is_a_conflict(lake: lv.Lake) -> None:
    with pytest.raises(lv.ConflictError), lake.transaction() as txn:
        merging(txn).when_not_matched_insert_all().execute()
        with lake.transaction() as other:
            other.alter("t", add_columns={"note": "bigint"})
    assert len(lake.snapshot().read("t")) == 2


def test_a_saved_merge_is_resumed_with_its_new_columns(lake: lv.Lake, format: Format) -> None:
    txn = lake.transaction()
    merging(txn).when_not_matched_insert_all().execute()
    txn.save()
    with lake.transaction() as other:
        other.append("t", [{"id": 7, "n": 7}])
    with lv.connect(lake.root) as elsewhere:
        elsewhere.resume(txn.id).commit()
    assert in_order(seen_alike(lake, format))[-1] == {"id": 7, "n": 7, "note": None, "extra": None}
    assert len(lake.snapshot().read("t", where="note = 'c'")) == 1
