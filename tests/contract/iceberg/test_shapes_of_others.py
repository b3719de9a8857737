"""Tables of other projects: paths, staged snapshots, types, and deletes of other writers."""

from __future__ import annotations

import datetime as dt
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.places import Place

ROWS = of_ids(pa.table({"k": pa.array([1, 2], pa.int32())}), {"k": 1})


def own(place: Place, *more: Any, **options: Any) -> Table:
    return Table(Path(place.uri("t")), [column(1, "k", "int"), *more], **options)


def keys(place: Place, **options: Any) -> list[int]:
    with place.connect(**options) as lake:
        return sorted(lake.snapshot().read("t")["k"].to_pylist())


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("a b%20c.parquet", "{directory}/data/{name}"),
        ("day=2024-01-01 10%3A00/ü.parquet", "file://{directory}/data/{name}"),
        ("a[1]*?.parquet", "file:{directory}/data/{name}"),
        ("0/1/0101/a.parquet", "file:///{relative}/data/{name}"),
    ],
)
def test_data_files_with_any_characters_in_their_names_are_read_and_deleted_from(
    place: Place, name: str, spelled: str
) -> None:
    """Names are taken literally: nothing in them is decoded or taken for a pattern."""
    told = own(place)
    relative = str(told.directory).lstrip("/")
    uri = spelled.format(directory=told.directory, name=name, relative=relative)
    told.add(File(name, ROWS, uri=uri)).write()
    assert keys(place) == [1, 2]
    with place.connect() as lake:
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
    assert [row["k"] for row in place.seen("t")] == [2]


def test_a_data_file_outside_of_the_table_is_read_where_the_caller_allows_it(
    place: Place, tmp_path: Path
) -> None:
    """``write.data.path`` and ``write.object-storage.enabled`` put files at such places."""
    elsewhere = tmp_path / "elsewhere.parquet"
    pq.write_table(ROWS, elsewhere)
    told = own(place)
    told.add(File("a.parquet", ROWS, store=False, uri=str(elsewhere))).write()
    assert keys(place, files_outside=[elsewhere]) == [1, 2]
    with place.connect(files_outside=[elsewhere]) as lake:
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
    assert [row["k"] for row in place.seen("t")] == [2]
    assert elsewhere.exists()


def test_rows_of_a_staged_snapshot_are_not_read(place: Place) -> None:
    """A snapshot staged by ``wap.id`` is kept, but the table's state is its current snapshot."""
    told = own(place).add(File("a.parquet", ROWS))

    def staged(document: Any) -> None:
        other = {**document["snapshots"][0], "snapshot-id": 99, "sequence-number": 2}
        other["summary"] = {"operation": "append", "wap.id": "review"}
        document["snapshots"].append(other)
        document["last-sequence-number"] = 2

    told.write(change=staged)
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("t", [{"k": 3}]))
    assert keys(place) == [1, 2, 3]
    newest = json.loads((told.directory / "metadata" / "v2.metadata.json").read_text())
    kept = {one["snapshot-id"]: one["summary"] for one in newest["snapshots"]}
    assert kept[99]["wap.id"] == "review"
    assert newest["last-sequence-number"] == 3


@pytest.mark.parametrize("kind", ["variant", "geometry", "geography(srid:4326)", "what"])
def test_a_table_with_a_column_of_an_unknown_type_is_refused(place: Place, kind: str) -> None:
    told = own(place, column(2, "c", kind), version=3)
    told.add(File("a.parquet", ROWS)).write()
    match = rf"table t has column c of the Iceberg type {kind[:7]}"
    with place.connect() as lake, pytest.raises(lv.UnsupportedTableFeature, match=match):
        lake.snapshot().read("t")


@pytest.mark.parametrize(("content", "format"), [(1, "AVRO"), (1, "ORC"), (2, "AVRO")])
def test_delete_files_of_other_formats_are_refused(place: Place, content: int, format: str) -> None:
    told = own(place).add(File("a.parquet", ROWS))
    says = {"file_format": format, "equality_ids": [1] if content == 2 else None}
    told.add(File("d.bin", ROWS, content=content, says=says), sequence=2).write()
    match = rf"table t has delete file .*d\.bin of format {format}"
    with place.connect() as lake, pytest.raises(lv.UnsupportedTableFeature, match=match):
        lake.snapshot().read("t")


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)", "full"])
def test_bounds_are_kept_unless_the_metrics_mode_is_none_and_rows_are_always_found(
    place: Place, mode: str
) -> None:
    """Reads find the same rows whatever statistics a table's properties request."""
    properties = {"write.metadata.metrics.default": mode}
    told = own(place, column(2, "v", "string"), properties=properties)
    rows = of_ids(pa.table({"k": pa.array([1], pa.int32()), "v": ["apple"]}), {"k": 1, "v": 2})
    says = {
        "value_counts": {2: 1},
        "null_value_counts": {2: 0},
        "lower_bounds": {2: b"a"},
        "upper_bounds": {2: b"b"},  # the upper bound is truncated and rounded up
    }
    told.add(File("a.parquet", rows, says=says)).write()
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("t", [{"k": 2, "v": "banana"}]))
        state = lake.snapshot()
        assert state.read("t", where="v = 'apple'")["k"].to_pylist() == [1]
        assert state.read("t", where="v >= 'b'")["k"].to_pylist() == [2]
    files = place.catalog().load_table("t").inspect.files().to_pylist()
    bounds = {row["file_path"]: dict(row["lower_bounds"] or ()) for row in files}
    ours = next(told for path, told in bounds.items() if not path.endswith("/a.parquet"))
    assert bool(ours) == (mode != "none")


def test_a_table_whose_only_metadata_file_is_of_a_later_version_is_read_and_written(
    place: Place,
) -> None:
    """``v3.metadata.json`` alone remains after a clean-up; the lake counts it as version 2."""
    told = own(place).add(File("a.parquet", ROWS))
    told.write("v3.metadata.json")
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("t", [{"k": 3}]))
        assert lake.snapshot().versions["t"].version == 3
    assert (told.directory / "metadata" / "v4.metadata.json").exists()
    assert keys(place) == [1, 2, 3]


def test_rows_of_a_date_column_promoted_to_timestamp_are_found_by_their_bounds(
    place: Place,
) -> None:
    """Format version 3 promotes dates; the manifest's bounds still count days, in four bytes."""
    days = [dt.date(2020, 1, 1), dt.date(2024, 1, 1)]
    counts = [struct.pack("<i", (day - dt.date(1970, 1, 1)).days) for day in days]
    rows = of_ids(pa.table({"k": pa.array([1, 2], pa.int32()), "d": days}), {"k": 1, "d": 2})
    says = {
        "lower_bounds": [{"key": 2, "value": counts[0]}],
        "upper_bounds": [{"key": 2, "value": counts[1]}],
        "null_value_counts": [{"key": 2, "value": 0}],
    }
    own(place, column(2, "d", "timestamp"), version=3).add(
        File("a.parquet", rows, says=says)
    ).write()
    with place.connect() as lake:
        read = lake.snapshot().read
        assert read("t", where="d >= timestamp '2021-01-01 00:00:00'")["k"].to_pylist() == [2]
        assert read("t", where="d < timestamp '2021-01-01 00:00:00'")["k"].to_pylist() == [1]
        assert read("t", where="d > timestamp '2024-01-01 00:00:00'").num_rows == 0


@pytest.mark.parametrize(
    ("values", "left"),
    [
        (pa.array([2**40, 1], pa.int64()), [2]),
        (pa.array([2**40], pa.int64()), [1, 2]),
        (pa.array([2**32 + 1, None], pa.int64()), [1, 2]),
        (pa.array([1.5, 2.0], pa.float64()), [1]),
    ],
)
def test_an_equality_delete_of_a_value_that_the_column_cannot_hold_matches_no_row(
    place: Place, values: pa.Array, left: list[int]
) -> None:
    rows = of_ids(pa.table({"k": values}), {"k": 1})
    told = own(place).add(File("a.parquet", ROWS), sequence=1)
    told.add(File("d.parquet", rows, content=2, says={"equality_ids": [1]}), sequence=2).write()
    assert keys(place) == left


def test_an_equality_delete_in_nanoseconds_matches_whole_microseconds(place: Place) -> None:
    instants = pa.array([0, 1, 2], pa.timestamp("us"))
    rows = of_ids(pa.table({"k": pa.array([1, 2, 3], pa.int32()), "t": instants}), {"k": 1, "t": 2})
    deleted = of_ids(pa.table({"t": pa.array([1, 2000], pa.timestamp("ns"))}), {"t": 2})
    told = own(place, column(2, "t", "timestamp")).add(File("a.parquet", rows), sequence=1)
    told.add(File("d.parquet", deleted, content=2, says={"equality_ids": [2]}), sequence=2).write()
    assert keys(place) == [1, 2]


def test_an_equality_delete_of_an_int96_timestamp_after_2262_matches_its_row(place: Place) -> None:
    instants = pa.array([dt.datetime(9999, 12, 31), dt.datetime(1600, 1, 1)], pa.timestamp("us"))
    rows = of_ids(pa.table({"k": pa.array([1, 2], pa.int32()), "t": instants}), {"k": 1, "t": 2})
    table = own(place, column(2, "t", "timestamp")).add(File("a.parquet", rows), sequence=1)
    deleted = rows.select(["t"]).slice(0, 1)
    path = table.directory / "data" / "d.parquet"
    pq.write_table(deleted, path, use_deprecated_int96_timestamps=True)
    says = {"equality_ids": [2]}
    table.add(File("d.parquet", deleted, content=2, says=says, store=False), sequence=2).write()
    assert keys(place) == [2]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("source", [{"source-id": 1}, {"source-ids": [1, 2]}, {"source-id": 77}])
def test_an_equality_delete_applies_to_its_own_partition_of_an_unknown_transform_only(
    place: Place, source: Any, version: int
) -> None:
    """Such partition values say nothing about rows, but they separate files."""
    spec = [{**source, "field-id": 1000, "name": "p", "transform": "zorder[4]"}]
    table = own(place, partitioned=spec, partition_types={"p": "int"}, version=version)
    for name, value in (("a.parquet", 1), ("b.parquet", 2), ("c.parquet", None)):
        table.add(File(name, ROWS, {"p": value}), sequence=1)
    deleted = of_ids(pa.table({"k": pa.array([1], pa.int32())}), {"k": 1})
    delete = File("d.parquet", deleted, {"p": 2}, content=2, says={"equality_ids": [1]})
    table.add(delete, sequence=2).write()
    assert keys(place) == [1, 1, 2, 2, 2]
    with place.connect() as lake:
        assert lake.snapshot().read("t", where="k = 1").num_rows == 2
