"""Another client deletes a table's directory and creates a new table there, under an open lake."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv

OLD = 3


def make(table: Path, word: str, entries: int) -> None:
    for number in range(entries):
        write_deltalake(str(table), pa.table({"id": [number], word: [word]}), mode="append")


def replace(table: Path, entries: int) -> None:
    shutil.rmtree(table)
    make(table, "new", entries)


def ids(table: Path) -> list[int]:
    found = DeltaTable(str(table)).to_pyarrow_table()
    assert set(found.column_names) == {"id", "new"}
    return sorted(found["id"].to_pylist())


@pytest.mark.cases(None)
@pytest.mark.parametrize("entries", [1, OLD, OLD + 1, OLD + 2])
@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R], ids=["log entry", "HEAD"])
def test_an_append_leaves_no_gap_in_a_log_that_another_client_recreated(
    tmp_path: Path, entries: int, features: lv.Feature
) -> None:
    table = tmp_path / "t"
    make(table, "old", OLD)
    with lv.connect(str(tmp_path)) as lake:
        assert lake.read("t").num_rows == OLD
        replace(table, entries)
        with pytest.raises((lv.ConflictError, lv.InvalidOperation)):
            lake.run(lambda txn: txn.append("t", [{"id": 9, "old": "x"}]), features=features)
        assert ids(table) == list(range(entries))
        lake.run(lambda txn: txn.append("t", [{"id": 9, "new": "x"}]), features=features)
        assert ids(table) == [*range(entries), 9]
        assert lake.read("t").num_rows == entries + 1


@pytest.mark.parametrize("entries", [1, OLD + 1])
def test_a_lakes_table_that_another_client_recreated_is_refused_until_it_is_registered(
    tmp_path: Path, entries: int
) -> None:
    table = tmp_path / "t"
    make(table, "old", OLD)
    with lv.connect(str(tmp_path)) as lake:
        lake.run(lambda txn: txn.append("t", [{"id": 9, "old": "x"}]))
        replace(table, entries)
        for _ in range(2):
            with pytest.raises(lv.TableNotFound, match="`unregister` it, then `register` the new"):
                lake.run(lambda txn: txn.append("t", [{"id": 9, "old": "x"}]))
            with pytest.raises(lv.TableNotFound, match="`unregister` it, then `register` the new"):
                lake.read("t")
        assert ids(table) == list(range(entries))
        lake.unregister("t")
        lake.register("t")
        lake.run(lambda txn: txn.append("t", [{"id": 9, "new": "x"}]))
        assert ids(table) == [*range(entries), 9]


def test_a_read_of_missing_files_of_a_recreated_table_conflicts_and_the_next_reads_the_new_one(
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    make(table, "old", OLD)
    with lv.connect(str(tmp_path)) as lake:
        assert lake.read("t").num_rows == OLD
        replace(table, 1)
        with pytest.raises(lv.ConflictError, match="dropped, or created again"):
            lake.read("t")
        assert lake.read("t").to_pylist() == [{"id": 0, "new": "new"}]


@pytest.mark.timeout(60)
def test_an_append_does_not_wait_for_a_named_pipe_in_place_of_the_newest_log_entry(
    tmp_path: Path,
) -> None:
    table = tmp_path / "t"
    make(table, "old", OLD)
    with lv.connect(str(tmp_path)) as lake:
        assert lake.read("t").num_rows == OLD
        newest = table / "_delta_log" / f"{OLD - 1:020}.json"
        newest.unlink()
        os.mkfifo(newest)
        lake.run(lambda txn: txn.append("t", [{"id": 9, "old": "x"}]))
        assert (table / "_delta_log" / f"{OLD:020}.json").is_file()
