"""Tables that are partitioned by fields of structs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.support.places import Place

META = pa.struct([("ts", pa.timestamp("us", "UTC")), ("place", pa.struct([("zip", pa.string())]))])
SCHEMA = pa.schema([("k", pa.int64()), ("meta", META), ("v", pa.int64())])


def row(k: int, day: int | None, zip_code: str | None, v: int = 0) -> dict[str, Any]:
    meta = None
    if day is not None:
        inner = None if zip_code is None else {"zip": zip_code}
        meta = {"ts": datetime(2024, 1, day, 12, tzinfo=UTC), "place": inner}
    return {"k": k, "meta": meta, "v": v}


ROWS = [row(1, 1, "a"), row(2, 1, "b"), row(3, 2, "a"), row(4, None, None), row(5, 2, None)]


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
        lake.create_table("t", rows, partition_by=["day(meta.ts)", "meta.place.zip"])
        yield lake


def seen(place: Place) -> list[tuple[int, int]]:
    """Return the rows that pyiceberg reads; each must be in a file of its own partition."""
    table = place.catalog().load_table("t")
    found = []
    for task in table.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"), partitioning=None)
        told = (task.file.partition[0], task.file.partition[1])
        for one in rows.to_pylist():
            meta = one["meta"] or {"ts": None, "place": None}
            day = meta["ts"] and (meta["ts"].date() - date(1970, 1, 1)).days
            assert told == (day, (meta["place"] or {"zip": None})["zip"])
            found.append((one["k"], one["v"]))
    rows = table.scan().to_arrow().select(["k", "v"]).to_pylist()
    assert sorted((one["k"], one["v"]) for one in rows) == sorted(found)
    return sorted(found)


def test_every_verb_works_on_a_table_partitioned_by_struct_fields(
    lake: lv.Lake, place: Place
) -> None:
    assert lake.table("t").partition_by == ("day(meta.ts)", "meta.place.zip")
    assert seen(place) == [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]
    lake.run(lambda txn: txn.append("t", [row(6, 3, "c")]))
    lake.run(lambda txn: txn.update("t", {"v": "v + 1"}, where="meta.place.zip = 'a'"))
    lake.run(lambda txn: txn.delete("t", where="meta.ts >= timestamp '2024-01-03'"))
    assert seen(place) == [(1, 1), (2, 0), (3, 1), (4, 0), (5, 0)]
    lake.run(lambda txn: txn.upsert("t", [row(2, 7, "z", 9), row(8, 1, "a", 9)], "k"))
    assert seen(place) == [(1, 1), (2, 9), (3, 1), (4, 0), (5, 0), (8, 9)]
    lake.table("t").optimize()
    assert seen(place) == [(1, 1), (2, 9), (3, 1), (4, 0), (5, 0), (8, 9)]
    lake.run(lambda txn: txn.overwrite("t", [row(1, 1, "a", 5)], where="meta.place.zip = 'a'"))
    assert seen(place) == [(1, 5), (2, 9), (4, 0), (5, 0)]


def test_a_read_skips_files_by_their_partition_of_a_struct_field(
    lake: lv.Lake, place: Place
) -> None:
    """A file that can't have a row for the predicate isn't even opened."""
    for task in place.catalog().load_table("t").scan().plan_files():
        if task.file.partition[1] != "b":
            Path(task.file.file_path).unlink()
    found = lake.snapshot().read("t", where="meta.place.zip = 'b'")
    assert found["k"].to_pylist() == [2]


def test_changes_of_two_partitions_by_a_struct_field_do_not_conflict(lake: lv.Lake) -> None:
    txn = lake.transaction()
    assert txn.read("t", where="meta.place.zip = 'b'").num_rows == 1
    txn.update("t", {"v": "7"}, where="meta.place.zip = 'b'")
    lake.run(lambda other: other.update("t", {"v": "8"}, where="meta.place.zip = 'a'"))
    txn.commit()


def test_a_partitioning_struct_can_be_renamed_but_not_dropped(lake: lv.Lake, place: Place) -> None:
    with pytest.raises(lv.InvalidOperation, match="'meta' of table t can't be dropped: the table"):
        lake.run(lambda txn: txn.alter("t", drop_columns=["meta"]))
    lake.run(lambda txn: txn.alter("t", rename_columns={"meta": "about"}))
    assert lake.table("t").partition_by == ("day(about.ts)", "about.place.zip")
    lake.run(lambda txn: txn.update("t", {"v": "3"}, where="about.place.zip = 'b'"))
    found = lake.snapshot().read("t", where="v = 3")
    assert found["k"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("by", "match"),
    [
        ("day(meta.nothing)", "has no column 'meta.nothing'"),
        ("meta", "is nested and can't partition"),
        ("day(meta.place.zip)", "can't be partitioned by"),
    ],
)
def test_struct_fields_that_cannot_partition_a_table_are_refused(
    place: Place, by: str, match: str
) -> None:
    with place.connect() as lake, pytest.raises(lv.InvalidOperation, match=match):
        lake.create_table("t", SCHEMA, partition_by=by)
