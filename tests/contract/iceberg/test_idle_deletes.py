"""Delete files that apply to no data file any more go with the commit that removes the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakevilla as lv
from tests.contract.foreign_readers import read_by_others
from tests.support.iceberg_by_hand import VECTOR_FIELDS, File, Table, column, of_ids
from tests.support.inside import inside

FIELDS = [column(1, "k", "long"), column(2, "p", "long")]
PARTITIONED = [{"source-id": 2, "field-id": 1000, "transform": "identity", "name": "p"}]


@pytest.fixture
def own(tmp_path: Path) -> Table:
    """Make a table of two partitions, with two data files in the first and one in the second."""
    table = Table(
        tmp_path / "t",
        FIELDS,
        PARTITIONED,
        {"p": "long"},
        unknown={"r2": VECTOR_FIELDS[:1]},
    )
    for name, p, ks in (("a", 1, [1, 2, 3]), ("b", 1, [4, 5, 6]), ("c", 2, [7, 8, 9])):
        rows = of_ids(pa.table({"k": ks, "p": [p] * 3}), {"k": 1, "p": 2})
        table.add(File(f"{name}.parquet", rows, {"p": p}))
    return table


def positions(own: Table, name: str, p: int, *of: str, targeted: bool = False) -> File:
    """Return deletes of the second row of data files."""
    paths = [f"{own.directory}/data/{one}.parquet" for one in of]
    rows = pa.table({"file_path": paths, "pos": [1] * len(paths)})
    says = {"referenced_data_file": paths[0]} if targeted else {}
    ids = {"file_path": 2147483546, "pos": 2147483545}
    return File(f"{name}.parquet", of_ids(rows, ids), {"p": p}, content=1, says=says)


def equals(name: str, p: int, *ks: int) -> File:
    rows = of_ids(pa.table({"k": list(ks)}), {"k": 1})
    return File(f"{name}.parquet", rows, {"p": p}, content=2, says={"equality_ids": [1]})


def totals(files: int, positions: int = 0, equalities: int = 0) -> Any:
    """Return a change of the metadata after which the snapshot counts its files and deletes."""

    def change(document: dict[str, Any]) -> None:
        document["snapshots"][0]["summary"] |= {
            "total-data-files": "3",
            "total-records": "9",
            "total-files-size": "9999",
            "total-delete-files": str(files),
            "total-position-deletes": str(positions),
            "total-equality-deletes": str(equalities),
        }

    return change


def seen(own: Table, *, has_equality: bool = False) -> tuple[list[int], list[str], dict[str, str]]:
    """Return the rows' keys as all clients read them, the delete files and the newest summary."""
    with lv.connect(own.directory.parent) as lake:
        keys = sorted(lake.read("t")["k"].to_pylist())
    others = read_by_others(own.directory, "iceberg", with_equality_deletes=has_equality)
    for name, theirs in others.items():
        assert sorted(theirs["k"].to_pylist()) == keys, name
    newest = (own.directory / "metadata" / "version-hint.text").read_text()
    table = StaticTable.from_metadata(str(own.directory / "metadata" / f"v{newest}.metadata.json"))
    deletes = [
        Path(entry.data_file.file_path).stem
        for manifest in table.current_snapshot().manifests(table.io)
        if manifest.content == 1
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]
    summary = table.current_snapshot().summary
    return keys, sorted(deletes), dict(summary.additional_properties)


def change(own: Table, *verbs: Any) -> None:
    with lv.connect(own.directory.parent) as lake:
        for verb in verbs:
            lake.run(verb)


def test_a_delete_file_goes_with_its_data_file(own: Table) -> None:
    both = [
        positions(own, "da", 1, "a", targeted=True),
        positions(own, "db", 1, "b", targeted=True),
    ]
    own.add(*both, sequence=2).write(change=totals(2, 2))
    assert seen(own)[:2] == ([1, 3, 4, 6, 7, 8, 9], ["da", "db"])
    change(own, lambda txn: txn.update("t", {"k": "k + 100"}, "k = 1"))
    keys, deletes, summary = seen(own)
    assert keys == [3, 4, 6, 7, 8, 9, 101]
    assert deletes == ["db"]
    assert summary["total-delete-files"] == "1"
    assert summary["removed-delete-files"] == summary["removed-position-delete-files"] == "1"
    assert (summary["removed-position-deletes"], summary["total-position-deletes"]) == ("1", "1")
    # The entry that stays still names its one data file.
    change(own, lambda txn: txn.update("t", {"k": "k + 100"}, "k = 4"))
    keys, deletes, summary = seen(own)
    assert (keys, deletes) == ([3, 6, 7, 8, 9, 101, 104], [])
    assert summary["total-delete-files"] == summary["total-position-deletes"] == "0"
    # An append follows on: the manifest that has recorded the removal is of no use any more.
    change(own, lambda txn: txn.append("t", {"k": [10], "p": [2]}))
    assert seen(own)[0] == [3, 6, 7, 8, 9, 10, 101, 104]


def test_a_delete_file_of_a_partition_stays_until_its_last_older_data_file_goes(own: Table) -> None:
    own.add(positions(own, "wide", 1, "a", "b"), equals("eq", 1, 3, 6), sequence=2)
    own.add(equals("other", 2, 7), sequence=2).write(change=totals(3, 2, 3))
    assert seen(own, has_equality=True)[:2] == ([1, 4, 8, 9], ["eq", "other", "wide"])
    change(own, lambda txn: txn.update("t", {"k": "k + 100"}, "k = 1"))
    assert seen(own, has_equality=True)[:2] == ([4, 8, 9, 101], ["eq", "other", "wide"])
    change(own, lambda txn: txn.delete("t", "k = 4"))
    keys, deletes, summary = seen(own, has_equality=True)
    assert (keys, deletes) == ([8, 9, 101], ["other"])
    assert summary["total-equality-deletes"] == "1"
    assert summary["removed-equality-delete-files"] == "1"


def test_optimize_leaves_a_table_whose_row_count_is_known(own: Table) -> None:
    own.add(positions(own, "wide", 1, "a", "b"), positions(own, "dc", 2, "c"), sequence=2)
    own.write(change=totals(2, 3))
    with lv.connect(own.directory.parent) as lake:
        lake.read("t")
        assert inside(lake).context.tails["t"].snapshot.known_size().rows is None
        lake.table("t").optimize()
        found = inside(lake).context.tails["t"].snapshot.known_size()
    keys, deletes, summary = seen(own)
    assert (keys, deletes) == ([1, 3, 4, 6, 7, 9], [])
    assert summary["total-delete-files"] == "0"
    assert found.rows == 6


def test_a_damaged_manifest_of_deletes_stays_and_does_not_stop_a_commit(own: Table) -> None:
    own.add(positions(own, "dc", 2, "c", targeted=True), sequence=2).write(change=totals(1, 1))
    with lv.connect(own.directory.parent) as lake:
        txn = lake.transaction()
        txn.delete("t", "p = 1")
        (own.directory / "metadata" / "m3.avro").write_bytes(b"Obj\x01")
        txn.commit()
    hint = (own.directory / "metadata" / "version-hint.text").read_text()
    assert hint == "2"
