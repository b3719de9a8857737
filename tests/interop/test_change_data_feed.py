"""Read a table's change data feed by deltalake, after transactions of several operations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv

ROWS = [{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 3, "v": 3}]


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    deltalake.write_deltalake(
        str(tmp_path / "c"),
        pa.Table.from_pylist(ROWS),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    return lv.connect(str(tmp_path))


def feed(lake: lv.Lake, version: int) -> Counter[tuple[str, int, int]]:
    table = deltalake.DeltaTable(f"{lake.root.removeprefix('file://')}/c")
    rows = pa.table(table.load_cdf(starting_version=version, ending_version=version))
    return Counter((row["_change_type"], row["k"], row["v"]) for row in rows.to_pylist())


@pytest.mark.parametrize("features", [lv.Feature.R, lv.Feature.R | lv.Feature.I], ids=str)
def test_an_update_and_an_append_are_reported_row_by_row(
    lake: lv.Lake, features: lv.Feature
) -> None:
    with lake.transaction(features) as txn:
        txn.update("c", {"v": "v + 10"}, "k = 1")
        txn.append("c", [{"k": 4, "v": 4}])
    assert feed(lake, 1) == {
        ("update_preimage", 1, 1): 1,
        ("update_postimage", 1, 11): 1,
        ("insert", 4, 4): 1,
    }


def test_an_overwrite_of_some_rows_is_reported_row_by_row(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.overwrite("c", [{"k": 3, "v": 30}], where="k >= 3")
    assert feed(lake, 1) == {("delete", 3, 3): 1, ("insert", 3, 30): 1}


def test_a_deletion_and_an_overwrite_of_all_rows_are_reported_row_by_row(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.delete("c", "k = 1")
        txn.overwrite("c", [{"k": 9, "v": 9}])
    assert feed(lake, 1) == {
        ("delete", 1, 1): 1,
        ("delete", 2, 2): 1,
        ("delete", 3, 3): 1,
        ("insert", 9, 9): 1,
    }


def test_an_append_alone_needs_no_change_file(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.append("c", [{"k": 4, "v": 4}])
        txn.append("c", [{"k": 5, "v": 5}])
    assert feed(lake, 1) == {("insert", 4, 4): 1, ("insert", 5, 5): 1}
