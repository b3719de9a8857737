"""A merge never hides values that one side writes to a column which the other has dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.contract.foreign_readers import Format
from tests.support.places import Place

MAPPED = {"delta.columnMapping.mode": "name"}
ROWS = [
    {"id": 1, "n": 0, "v": "a", "s": {"x": 1, "y": 1}},
    {"id": 2, "n": 0, "v": "b", "s": {"x": 2, "y": 2}},
]
NEW = {"id": 3, "n": 0, "v": "new", "s": {"x": 3, "y": 3}}
#: A column, and a field within one.
COLUMNS = pytest.mark.parametrize("column", ["v", "s.y"])


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    """Return a lake with a branch and a table whose columns can be dropped."""
    with local_place.connect() as lake:
        properties = MAPPED if kind == "delta" else {}
        lake.create_table("t", ROWS, format=kind, properties=properties)
        lake.branch("etl")
        yield lake


def drops(lake: lv.Lake, column: str) -> None:
    lake.run(lambda txn: txn.alter("t", drop_columns=[column]))


def puts(lake: lv.Lake, **values: Any) -> None:
    """Append a row to the table."""
    rows = pa.Table.from_pylist([{**NEW, **values}], lake.table("t").schema)
    lake.run(lambda txn: txn.append("t", rows))


def by_pyiceberg(lake: lv.Lake) -> Any:
    return ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("t",))


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


def merges(lake: lv.Lake, **options: Any) -> Any:
    return lake.merge("etl", **options)


def rebases(lake: lv.Lake, **options: Any) -> Any:
    return lake.rebase("etl", **options)


def applies(lake: lv.Lake, **options: Any) -> Any:
    etl = lake.on("etl")
    first, last = etl.history()[-1].version - 1, newest(etl)
    with lake.transaction() as txn:
        return txn.apply(f"etl@{first}", f"etl@{last}", **options)


def picks(lake: lv.Lake, **options: Any) -> Any:
    return lake.cherry_pick(f"etl@{newest(lake.on('etl'))}", **options)


VERBS = pytest.mark.parametrize("verb", [merges, rebases, applies, picks])
Verb = Callable[..., Any]


@VERBS
@COLUMNS
def test_a_merge_does_not_drop_a_column_to_which_the_lake_has_written_values(
    lake: lv.Lake, verb: Verb, column: str, kind: Format
) -> None:
    if kind == "iceberg" and column == "s.y":
        pytest.skip("no field within a column is dropped from an Iceberg table here")
    drops(lake.on("etl"), column)
    puts(lake)
    before = lake.read("t").sort_by("id").to_pylist()
    with pytest.raises(
        lv.MergeConflict, match=rf"column {column} is to be dropped from it"
    ) as raised:
        verb(lake)
    assert raised.value.tables == ["t"]
    assert lake.read("t").sort_by("id").to_pylist() == before


@VERBS
@COLUMNS
def test_a_merge_keeps_values_that_the_branch_wrote_to_a_column_dropped_on_the_lake(
    lake: lv.Lake, verb: Verb, column: str, kind: Format
) -> None:
    puts(lake.on("etl"))
    if kind == "iceberg" and column == "s.y":
        with by_pyiceberg(lake).update_schema() as update:
            update.delete_column(("s", "y"))
    else:
        drops(lake, column)
    with pytest.raises(lv.MergeConflict, match=rf"column {column} was dropped from it"):
        verb(lake)
    assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2]
    assert sorted(lake.on("etl").read("t")["id"].to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize("first", ["lake", "branch"])
def test_new_rows_with_null_in_the_dropped_column_are_no_conflict(
    lake: lv.Lake, first: str
) -> None:
    sides = [lake, lake.on("etl")]
    dropper, writer = sides if first == "lake" else sides[::-1]
    drops(dropper, "v")
    puts(writer, v=None)
    assert lake.merge("etl").tables == {"t": "physical"}
    found = lake.read("t")
    assert sorted(found["id"].to_pylist()) == [1, 2, 3]
    assert found.column_names == ["id", "n", "s"]


@pytest.mark.parametrize("first", ["lake", "branch"])
def test_a_merge_with_keys_accepts_a_row_whose_value_in_the_dropped_column_is_unchanged(
    lake: lv.Lake, first: str
) -> None:
    sides = [lake, lake.on("etl")]
    dropper, writer = sides if first == "lake" else sides[::-1]
    drops(dropper, "v")
    writer.run(lambda txn: txn.update("t", {"n": 7}, where="id = 2"))
    with pytest.raises(lv.MergeConflict):
        lake.merge("etl")
    assert set(lake.merge("etl", keys={"t": "id"}).tables) == {"t"}
    found = lake.read("t").sort_by("id").select(["id", "n"]).to_pylist()
    assert found == [{"id": 1, "n": 0}, {"id": 2, "n": 7}]
    assert "v" not in lake.read("t").column_names


@pytest.mark.parametrize("first", ["lake", "branch"])
def test_a_merge_with_keys_reports_a_row_whose_value_in_the_dropped_column_was_changed(
    lake: lv.Lake, first: str
) -> None:
    sides = [lake, lake.on("etl")]
    dropper, writer = sides if first == "lake" else sides[::-1]
    drops(dropper, "v")
    writer.run(lambda txn: txn.update("t", {"v": "'other'"}, where="id = 2"))
    with pytest.raises(lv.MergeConflict, match="'v': 'other'"):
        lake.merge("etl", keys={"t": "id"})
    assert lake.merge("etl", on_conflict="ours").tables == {"t": "kept"}


def test_a_merge_with_on_conflict_theirs_drops_the_column_and_its_new_values(lake: lv.Lake) -> None:
    drops(lake.on("etl"), "v")
    puts(lake)
    assert lake.merge("etl", on_conflict="theirs").tables == {"t": "physical"}
    assert lake.read("t").column_names == ["id", "n", "s"]
    assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2]


def test_a_column_that_both_sides_have_dropped_is_no_conflict(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    puts(etl)
    drops(etl, "v")
    puts(lake, id=4)
    drops(lake, "v")
    with_both = lake.merge("etl") if lake.table("t").format == "delta" else None
    if with_both is not None:
        assert with_both.tables == {"t": "physical"}
        assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_merge_begins_again_if_a_value_is_written_to_the_dropped_column_meanwhile(
    lake: lv.Lake,
) -> None:
    drops(lake.on("etl"), "v")
    version = newest(lake)

    def beside(txn: lv.Transaction) -> bool:
        if newest(lake) == version:
            puts(lake)
        return True

    with pytest.raises(lv.MergeConflict, match="column v is to be dropped"):
        lake.merge("etl", checks=[beside])
    assert "new" in lake.read("t")["v"].to_pylist()


def test_a_column_that_the_lake_drops_during_a_merge_is_a_conflict(lake: lv.Lake) -> None:
    puts(lake.on("etl"))
    version = newest(lake)

    def beside(txn: lv.Transaction) -> bool:
        if newest(lake) == version:
            drops(lake, "v")
        return True

    with pytest.raises(lv.MergeConflict, match="column v was dropped"):
        lake.merge("etl", checks=[beside])


def test_a_revert_of_a_new_column_hides_no_value(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.alter("t", add_columns={"c": "string"}))
    version = newest(lake)
    rows = pa.Table.from_pylist([{**NEW, "c": None}], lake.table("t").schema)
    lake.run(lambda txn: txn.append("t", rows))
    lake.revert(version)
    assert lake.read("t").column_names == ["id", "n", "v", "s"]
    lake.run(lambda txn: txn.alter("t", add_columns={"c": "string"}))
    version = newest(lake)
    rows = pa.Table.from_pylist([{**NEW, "c": "of somebody else"}], lake.table("t").schema)
    lake.run(lambda txn: txn.append("t", rows))
    with pytest.raises(lv.MergeConflict, match="column c is to be dropped"):
        lake.revert(version)
    assert "of somebody else" in lake.read("t")["c"].to_pylist()


def test_a_revert_of_a_deletion_restores_rows_without_a_column_dropped_since(
    lake: lv.Lake,
) -> None:
    lake.run(lambda txn: txn.delete("t", where="id = 2"))
    version = newest(lake)
    drops(lake, "v")
    lake.revert(version)
    assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2]


def test_a_column_added_by_name_is_not_dropped_if_foreign_files_may_hold_values_of_it(
    local_place: Place,
) -> None:
    """Without column mapping, a later column of the same name would show the file's values."""
    with local_place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.run(lambda txn: txn.alter("t", add_columns={"c": "string"}))
        assert lake.revert(2).version == 3
        lake.cherry_pick(2)
        rows = pa.table({"id": [2], "c": pa.array([None], pa.string())})
        deltalake.write_deltalake(f"{lake.root}/t", rows, mode="append")
        with pytest.raises(lv.MergeConflict, match="may have values in it"):
            lake.revert(2)
        assert lake.read("t").column_names == ["id", "c"]
