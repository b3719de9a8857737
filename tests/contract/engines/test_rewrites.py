"""UPDATE and DELETE have the result of deltalake, row for row."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakevilla.errors import InvalidOperation
from tests.support.engine_lake import Lake, ordered

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 4, None], pa.int64()),
        "qty": pa.array([10, None, 30, 40, 40, 60], pa.int32()),
        "name": ["a", None, "", "d'x", "d'x", "é"],
        "ok": [True, None, False, True, True, None],
    }
)

PREDICATES = [
    "true",
    "false",
    "id = 4",
    "id <> 4",
    "NOT (id = 4)",
    "qty > 20 OR ok",
    "qty IS NULL",
    "id IN (1, 2) AND qty >= 10",
    "name = 'd''x'",
    "id NOT IN (1, 4)",
    "ok = false OR name IS NULL",
]


def split_into_files(lake: Lake, name: str, **options: Any) -> None:
    """Create three files, of which statements match some partly, some wholly and some not."""
    lake.make(name, ROWS.slice(0, 2), **options)
    for start in (2, 4):
        lake.make(name, ROWS.slice(start, 2), mode="append")


@pytest.mark.parametrize("where", PREDICATES)
def test_delete_has_the_result_of_deltalake(lake: Lake, where: str) -> None:
    split_into_files(lake, "ours")
    split_into_files(lake, "theirs")
    metrics = DeltaTable(f"{lake.root}/theirs").delete(where)
    result = lake.delete("ours", where)
    assert ordered(lake.rows("ours")) == ordered(lake.rows("theirs"))
    assert result.rows_deleted == metrics["num_deleted_rows"]
    assert result.rows_matched == result.rows_deleted


@pytest.mark.parametrize("where", PREDICATES)
def test_update_has_the_result_of_deltalake(lake: Lake, where: str) -> None:
    split_into_files(lake, "ours")
    split_into_files(lake, "theirs")
    changes = {"qty": "qty + 1", "name": "coalesce(name, 'none')"}
    metrics = DeltaTable(f"{lake.root}/theirs").update(updates=changes, predicate=where)
    result = lake.update("ours", changes, where)
    assert ordered(lake.rows("ours")) == ordered(lake.rows("theirs"))
    assert result.rows_updated == metrics["num_updated_rows"]


def test_only_files_with_a_matching_row_are_rewritten(lake: Lake) -> None:
    split_into_files(lake, "t")
    before = set(lake.input("t").files.column("path").to_pylist())
    result = lake.update("t", {"qty": "0"}, "id = 3")
    after = set(lake.input("t").files.column("path").to_pylist())
    assert len(before & after) == 2
    assert len(result.removed) == len(result.written) == 1
    assert result.rows_copied == 1


def test_a_statement_that_matches_nothing_rewrites_nothing(lake: Lake) -> None:
    split_into_files(lake, "t")
    for result in (lake.delete("t", "id = 99"), lake.update("t", {"qty": "0"}, "id > 99")):
        assert (result.written, result.removed, result.rows_matched) == ((), (), 0)


def test_a_file_whose_rows_are_all_deleted_is_removed_without_a_new_one(lake: Lake) -> None:
    split_into_files(lake, "t")
    result = lake.delete("t", "id = 4 OR id IS NULL")
    # All rows of the last file are deleted; the second one keeps a row.
    assert (len(result.removed), len(result.written)) == (2, 1)


def test_assignments_read_the_old_row(lake: Lake) -> None:
    lake.make("t", pa.table({"a": [1], "b": [2]}))
    lake.update("t", {"a": "b", "b": "a"}, "true")
    assert lake.rows("t") == [{"a": 2, "b": 1}]


def test_update_can_move_rows_between_partitions(lake: Lake) -> None:
    rows = pa.table({"k": [1, 2, 3], "p": ["x", "y", "x"]})
    lake.make("t", rows, partition_by=["p"])
    result = lake.update("t", {"p": "'z/ü'"}, "k > 1")
    assert ordered(lake.rows("t")) == ordered(
        [{"k": 1, "p": "x"}, {"k": 2, "p": "z/ü"}, {"k": 3, "p": "z/ü"}]
    )
    assert {w.file.partition_values["p"] for w in result.written} == {"x", "z/ü"}


def test_delete_by_partition_reads_no_column(lake: Lake) -> None:
    lake.make("t", pa.table({"k": [1, 2, 3], "p": ["x", "y", None]}), partition_by=["p"])
    result = lake.delete("t", "p = 'x'")
    assert (len(result.removed), result.written, result.rows_deleted) == (1, (), 1)
    assert lake.delete("t", "p IS NULL").rows_deleted == 1
    assert lake.rows("t") == [{"k": 2, "p": "y"}]


def test_overflow_of_an_assignment_raises_and_leaves_no_file(lake: Lake) -> None:
    lake.make("t", pa.table({"a": pa.array([1, 2**31 - 1], pa.int32())}))
    files = lake.files()
    with pytest.raises(InvalidOperation):
        lake.update("t", {"a": "a + 1"}, "true")
    assert lake.files() == files


def test_an_error_in_a_later_file_deletes_the_new_files_written_before(lake: Lake) -> None:
    lake.make("t", pa.table({"a": [1, 2]}))
    lake.make("t", pa.table({"a": [0, 5]}), mode="append")
    files = lake.files()
    with pytest.raises(InvalidOperation, match="zero"):
        lake.update("t", {"a": "cast(10 / a as bigint)"}, "true")
    assert lake.files() == files


def test_update_checks_constraints(lake: Lake) -> None:
    lake.make("t", pa.table({"id": [1, 2], "qty": [1, 2]}))
    DeltaTable(f"{lake.root}/t").alter.add_constraint({"positive": "qty > 0"})
    with pytest.raises(InvalidOperation, match=r"positive.*qty"):
        lake.update("t", {"qty": "qty - 1"}, "id = 1")
    # NULL is not true, so the row is refused, as by Delta's own writers.
    with pytest.raises(InvalidOperation, match="positive"):
        lake.update("t", {"qty": "NULL"}, "id = 2")
    assert lake.update("t", {"qty": "qty + 1"}, "true").rows_updated == 2


def test_change_files_have_the_changed_rows(lake: Lake) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": [1, 2, 3], "qty": [1, 2, 3], "p": ["x", "x", "y"]})
    lake.make("t", rows, partition_by=["p"], configuration=configuration)
    lake.update("t", {"qty": "qty * 10", "p": "'z'"}, "id = 2")
    lake.delete("t", "id = 3")
    changes = pa.table(DeltaTable(f"{lake.root}/t").load_cdf(starting_version=1).read_all())
    seen = changes.select(["id", "qty", "p", "_change_type", "_commit_version"]).to_pylist()
    assert sorted(tuple(row.values()) for row in seen) == [
        (2, 2, "x", "update_preimage", 1),
        (2, 20, "z", "update_postimage", 1),
        (3, 3, "y", "delete", 2),
    ]


def test_rewritten_files_have_the_statistics_of_their_rows(lake: Lake) -> None:
    split_into_files(lake, "t")
    result = lake.update("t", {"qty": "qty * 2"}, "id = 3")
    stats = json.loads(result.written[0].file.stats or "")
    assert stats["numRecords"] == 2
    assert (stats["minValues"]["qty"], stats["maxValues"]["qty"]) == (40, 60)
    assert stats["nullCount"] == {"id": 0, "qty": 0, "name": 0, "ok": 0}
