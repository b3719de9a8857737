"""Manifests as other projects write them: with fields omitted, added, renamed or reordered."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

import lakevilla as lv
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.places import Place
from tests.support.tables import contents

FIELDS = [column(1, "k", "int"), column(2, "v", "string")]
ROWS = of_ids(pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}), {"k": 1, "v": 2})
METRICS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)
NUMBERS = ("snapshot_id", "sequence_number", "file_sequence_number")
OF_VERSION_1 = (*NUMBERS[1:], "content", "equality_ids")
COUNTS = tuple(
    f"{what}_{kind}_count"
    for what in ("added", "existing", "deleted")
    for kind in ("files", "rows")
)
UNKNOWN = {
    "manifest_entry": [{"name": "x", "type": ["null", "string"], "field-id": 9000}],
    "r2": [
        {"name": "y", "type": "long", "field-id": 9001},
        {"name": "z", "type": ["null", {"type": "map", "values": "int"}], "field-id": 9002},
        {"name": "w", "type": {"type": "array", "items": "string"}, "field-id": 9003},
    ],
    "manifest_file": [{"name": "q", "type": ["null", "boolean"], "field-id": 9004}],
}

#: How manifests of other writers differ, by the writer that does so.
ODD: dict[str, dict[str, Any]] = {
    "uncompressed": {"codec": "null"},
    "deflate": {"codec": "deflate"},
    "snappy, as BigQuery": {"codec": "snappy"},
    "zstandard": {"codec": "zstandard"},
    "bzip2": {"codec": "bzip2"},
    "status and data_file alone, as BigQuery": {"codec": "snappy", "without": NUMBERS},
    "no metrics": {"without": METRICS},
    "no content": {"without": ["content"]},
    "other names of records, as DuckDB": {
        "names": {"manifest_entry": "e", "r2": "data_file", "manifest_file": "m"}
    },
    "no ids, as ClickHouse": {"ids": False},
    "headers that say nothing, as Paimon": {
        "headers": dict.fromkeys(
            (
                "schema",
                "schema-id",
                "partition-spec",
                "partition-spec-id",
                "format-version",
                "content",
            )
        )
    },
    "a whole spec in the header": {"headers": {"partition-spec": '{"spec-id":0,"fields":[]}'}},
    "no counts": {"listed_without": COUNTS},
    "manifests of version 1": {"manifest_version": 1, "without": OF_VERSION_1},
    "a list of version 1": {
        "manifest_version": 1,
        "without": OF_VERSION_1,
        "listed_without": ["content", "sequence_number", "min_sequence_number", *COUNTS],
    },
    "fields that nobody knows": {"unknown": UNKNOWN},
}


def own(place: Place, **options: Any) -> Table:
    return Table(Path(place.uri("t")), FIELDS, **options)


@pytest.mark.parametrize("odd", ODD)
def test_manifests_of_other_clients_are_read(place: Place, odd: str) -> None:
    """The table is read and written like any other."""
    file = File("a.parquet", ROWS, entry={"x": "?"}, says={"y": 7, "z": {"a": 1}, "w": ["b"]})
    own(place, **ODD[odd]).add(file, q=True).write()
    with place.connect() as lake:
        assert lake.snapshot().read("t", where="k > 1").to_pylist() == [{"k": 2, "v": "b"}]
        with lake.transaction() as txn:
            txn.append("t", [{"k": 3, "v": "c"}])
            txn.update("t", {"v": "v || '!'"}, where="k = 1")
        expected = [{"k": 1, "v": "a!"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}]
        assert lake.snapshot().read("t").sort_by("k").to_pylist() == expected
    assert place.seen("t") == expected


def test_maps_with_nullable_pairs_as_big_query_writes_them_are_read(place: Place) -> None:
    says = {
        "value_counts": {1: 2, 2: 2},
        "null_value_counts": {1: 0, 2: 0},
        "lower_bounds": {1: (1).to_bytes(4, "little"), 2: b"a"},
        "upper_bounds": {1: (2).to_bytes(4, "little"), 2: b"b"},
    }
    table = own(place, optional_pairs=True).add(File("a.parquet", ROWS, says=says))
    # The bounds of this file exclude rows below 5 (it has some): reads must use the bounds.
    far = {**says, "lower_bounds": {1: (5).to_bytes(4, "little")}}
    far["upper_bounds"] = {1: (9).to_bytes(4, "little")}
    table.add(File("b.parquet", ROWS, says=far)).write()
    with place.connect() as lake:
        assert lake.snapshot().read("t").num_rows == 4
        assert lake.snapshot().read("t", where="k = 1").to_pylist() == [{"k": 1, "v": "a"}]
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
        assert lake.snapshot().read("t").num_rows == 3


def test_a_table_of_format_version_1_is_read_but_not_written(place: Place) -> None:
    own(place, version=1, without=OF_VERSION_1).add(File("a.parquet", ROWS)).write()
    with place.connect() as lake:
        assert lake.snapshot().read("t").num_rows == 2
        with pytest.raises(
            lv.UnsupportedTableFeature, match=r"format version 1: .* writes version"
        ):
            lake.run(lambda txn: txn.delete("t", where="k = 1"))


SPEC = [
    {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "k"},
    {"source-id": 2, "field-id": 1001, "transform": "identity", "name": "v"},
]
ONE = of_ids(pa.table({"k": pa.array([1], pa.int32()), "v": ["a"]}), {"k": 1, "v": 2})


def of_partition(place: Place, order: list[int], **options: Any) -> None:
    """Write a manifest with the partition's fields in some order, or without one of them."""
    told = own(
        place,
        partitioned=[SPEC[place] for place in order],
        partition_types={"k": "int", "v": "string"},
        **options,
    )
    told.add(File("a.parquet", ONE, {"k": 1, "v": "a"}))

    def whole(document: Any) -> None:
        document["partition-specs"] = [{"spec-id": 0, "fields": SPEC}]
        document["last-partition-id"] = 1001

    told.write(change=whole)


@pytest.mark.parametrize("ids", [True, False])
def test_partition_values_in_another_order_than_in_the_spec_are_read(
    place: Place, ids: bool
) -> None:
    of_partition(place, [1, 0], ids=ids)
    with place.connect() as lake:
        assert lake.snapshot().read("t", where="k = 1 AND v = 'a'").num_rows == 1
        lake.run(lambda txn: txn.append("t", [{"k": 2, "v": "b"}]))
        lake.run(lambda txn: txn.update("t", {"k": "k + 1"}, where="v = 'a'"))
    assert place.seen("t") == [{"k": 2, "v": "a"}, {"k": 2, "v": "b"}]


def test_a_manifest_without_field_ids_is_resolved_by_the_names_in_its_own_tables_spec(
    place: Place,
) -> None:
    """Manifests with equal Avro schemas share one resolution, but may be of different specs."""
    fields = [column(1, "a", "int"), column(2, "b", "int")]
    schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
    rows = of_ids(pa.table({"a": [1], "b": [2]}, schema), {"a": 1, "b": 2})
    for name, (first, second) in (("one", (1000, 1001)), ("other", (1001, 1000))):
        spec = [
            {"source-id": 1, "field-id": first, "transform": "identity", "name": "a"},
            {"source-id": 2, "field-id": second, "transform": "identity", "name": "b"},
        ]
        table = Table(
            Path(place.uri(name)),
            fields,
            partitioned=spec,
            partition_types={"a": "int", "b": "int"},
            ids=False,
        )
        table.add(File("a.parquet", rows, {"a": 1, "b": 2}))
        table.write()
    with place.connect() as lake:
        for name in ("one", "other"):
            assert lake.snapshot().read(name, where="a = 1").num_rows == 1


def refused(place: Place, error: type[Exception], match: str) -> None:
    before = contents(place.root)
    with place.connect() as lake:
        with pytest.raises(error, match=match):
            lake.snapshot().read("t")
        with pytest.raises(error, match=match):
            lake.run(lambda txn: txn.delete("t", where="k = 1"))
    assert {n: b for n, b in contents(place.root).items() if n.startswith("t/")} == before


def _fixed(size: int, *decimal: int) -> dict[str, Any]:
    """Return the Avro type of fixed bytes, or of a decimal (precision, scale)."""
    kind = {"type": "fixed", "size": size, "name": "value_of_v"}
    if not decimal:
        return kind
    precision, scale = decimal
    return {**kind, "logicalType": "decimal", "precision": precision, "scale": scale}


def _unscaled(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def of_value(place: Place, kind: str, avro: Any, value: Any, partition: bytes, by: str) -> None:
    """Write a manifest of two files: one with the value as its partition, one with NULL."""
    digits = kind.removeprefix("decimal(").rstrip(")")
    arrow = pa.string() if kind == "string" else pa.decimal128(*map(int, digits.split(",")))
    made = Table(
        Path(place.uri("t")),
        [column(1, "k", "int"), column(2, "v", kind)],
        partitioned=[{"source-id": 2, "field-id": 1000, "transform": by, "name": "v_part"}],
        partition_types={"v_part": avro},
        properties={"commit.manifest.min-count-to-merge": "2"},
    )
    keys = pa.array([1, 2, 3, 4], pa.int32())
    values = pa.array([value, value, None, None], arrow)
    rows = of_ids(pa.table({"k": keys, "v": values}), {"k": 1, "v": 2})
    files = [File("a.parquet", rows[:2], {"v_part": partition}), File("b.parquet", rows[2:])]
    made.add(*files).write()


LOWEST, BELOW = Decimal("-9999999.99"), Decimal("-10000000.00")


@pytest.mark.parametrize(
    ("kind", "avro", "partition", "by", "value", "typed"),
    [
        ("decimal(9,2)", _fixed(4, 9, 2), _unscaled(-(10**9)), "truncate[10]", LOWEST, BELOW),
        ("decimal(9,2)", _fixed(4), _unscaled(-(10**9)), "truncate[10]", LOWEST, BELOW),
        ("decimal(9,2)", _fixed(4, 9, 3), _unscaled(1000), "identity", *[Decimal("1.00")] * 2),
        ("decimal(9,2)", _fixed(4), _unscaled(100), "identity", *[Decimal("1.00")] * 2),
        ("string", "bytes", b"ab", "truncate[2]", "abc", "ab"),
    ],
    ids=["a digit more", "a digit more, as bytes", "another scale", "decimal as bytes", "text"],
)
def test_partition_values_are_read_as_other_clients_spell_them(
    place: Place, kind: str, avro: Any, partition: bytes, by: str, value: Any, typed: Any
) -> None:
    """The values stay the same when their manifest is replaced or merged with others."""
    of_value(place, kind, avro, value, partition, by)
    with place.connect() as lake:
        lake.run(lambda txn: txn.delete("t", where="k = 3"))
        lake.run(lambda txn: txn.append("t", [{"k": 5, "v": None}]))
        found = lake.read("t", where="v = :v", params={"v": value})
        assert sorted(found["k"].to_pylist()) == [1, 2]
        expected = [{"k": k, "v": value if k < 3 else None} for k in (1, 2, 4, 5)]
        assert place.seen("t") == expected
        table = place.catalog().load_table("t")
        merged, added = table.current_snapshot().manifests(table.io)
        if merged.existing_files_count == 0:
            merged, added = added, merged
        assert (merged.existing_files_count, added.existing_files_count) == (2, 0)
        bound = typed.encode() if kind == "string" else _shortest(typed)
        assert merged.partitions[0].lower_bound == merged.partitions[0].upper_bound == bound
        assert table.scan(row_filter=EqualTo("v", value)).to_arrow().num_rows == 2
        parts = [task.file.partition[0] for task in table.scan().plan_files()]
        assert sorted(map(str, parts)) == sorted(map(str, [typed, None, None]))
        lake.run(lambda txn: txn.delete("t", where="v = :v", params={"v": value}))
    assert place.seen("t") == expected[2:]


def _shortest(value: Decimal) -> bytes:
    number = int(value.scaleb(2))
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


@pytest.mark.parametrize(
    ("kind", "avro", "partition", "text"),
    [
        ("decimal(2,0)", _fixed(4, 9, 0), _unscaled(-1000), "-1000"),
        ("decimal(9,2)", _fixed(4, 9, 3), _unscaled(1001), "1.001"),
        ("string", "bytes", b"\xff", "utf-8"),
    ],
)
def test_a_partition_value_that_does_not_fit_its_type_is_refused(
    place: Place, kind: str, avro: Any, partition: bytes, text: str
) -> None:
    """LakeVilla refuses it before it decides a transaction that would have to write it again."""
    of_value(place, kind, avro, None, partition, "truncate[1000]")
    refused(place, lv.CorruptObject, f"m0.avro of table t .*{text}")


def test_a_manifest_without_a_partition_value_is_refused(place: Place) -> None:
    of_partition(place, [0])
    refused(place, lv.CorruptObject, "m0.avro of table t .* no value for partition field v")


@pytest.mark.parametrize("field", ["status", "file_path", "record_count", "file_size_in_bytes"])
def test_a_manifest_without_a_required_field_is_refused(place: Place, field: str) -> None:
    own(place, without=[field]).add(File("a.parquet", ROWS)).write()
    refused(place, lv.CorruptObject, f"manifest t/metadata/m0.avro of table t .*{field}")


@pytest.mark.parametrize("format", ["ORC", "AVRO", "LANCE"])
def test_data_files_of_other_formats_are_refused(place: Place, format: str) -> None:
    own(place).add(File("a.bin", ROWS, says={"file_format": format})).write()
    refused(place, lv.UnsupportedTableFeature, f"table t has .*{format}")


def test_a_file_without_a_sequence_number_in_a_later_manifest_is_refused(place: Place) -> None:
    """A file's sequence number decides which deletes apply to it."""
    older = File("a.parquet", ROWS, entry={"status": 0})
    own(place).add(older, sequence=3, min_sequence_number=1).write()
    refused(place, lv.CorruptObject, r"does not say when .*a\.parquet was added")


def test_a_file_that_inherits_its_sequence_number_from_its_manifest_is_read(place: Place) -> None:
    older = File("a.parquet", ROWS, entry={"status": 0})
    own(place).add(older, sequence=3, min_sequence_number=3).write()
    with place.connect() as lake:
        lake.run(lambda txn: txn.update("t", {"v": "'z'"}, where="k = 1"))
    assert place.seen("t") == [{"k": 1, "v": "z"}, {"k": 2, "v": "b"}]


@pytest.mark.parametrize("name", ["00001-0c9e2b4a", "00001-0c9e2b4a.metadata.json"])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_directory_whose_table_a_catalog_keeps_is_refused(
    place: Place, name: str, numbered: bool
) -> None:
    """The error differs from those for a damaged table and for one that the catalog has
    taken over.
    """
    told = own(place).add(File("a.parquet", ROWS))
    told.write("v1.metadata.json" if numbered else "00001-0c9e2b4a.metadata.json")
    (told.directory / "metadata" / "version-hint.text").write_text(name)
    refused(
        place, lv.UnsupportedTableFeature, "table t is kept by a catalog: .*00001-0c9e2b4a.*reg"
    )


@pytest.mark.parametrize(
    ("manifests", "error", "match"),
    [
        (["m0.avro"], lv.UnsupportedTableFeature, "keeps its manifests in the metadata file"),
        (None, lv.CorruptObject, "names no manifest list"),
    ],
)
def test_a_snapshot_without_a_manifest_list_is_refused(
    place: Place, manifests: list[str] | None, error: type[Exception], match: str
) -> None:
    def without(document: Any) -> None:
        snapshot = document["snapshots"][0]
        snapshot.pop("manifest-list")
        snapshot.update({} if manifests is None else {"manifests": manifests})

    own(place).add(File("a.parquet", ROWS)).write(change=without)
    refused(place, error, match)
