from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakevilla.errors import CorruptObject, InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.delta.metadata.properties import interval_milliseconds
from lakevilla.formats.delta.metadata.schema import delta_fields
from lakevilla.formats.layout import Layout
from tests.support.delta_by_hand import Tables, field, metadata, protocol


def layout(tables: Tables, *actions: dict[str, Any]) -> Layout:
    tables.write_entry(0, *actions)
    found: Layout = tables.open().layout
    return found


STRUCT = {"type": "struct", "fields": [field("x"), field("y", "string", nullable=False)]}
MAPPED = {"columnMapping", "deletionVectors"}


def test_every_delta_type_is_read_with_its_nullability(tables: Tables) -> None:
    kinds: dict[str, Any] = {
        "string": pa.string(),
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "decimal(38, 3)": pa.decimal128(38, 3),
        "decimal": pa.decimal128(10, 0),
    }
    fields = [field(name, name) for name in kinds]
    array = {"type": "array", "elementType": STRUCT, "containsNull": False}
    entries = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    fields += [field("row", STRUCT, nullable=False), field("entries", entries)]
    found = layout(tables, protocol(), metadata(fields)).schema
    assert dict(zip(found.names, found.types, strict=True)) | kinds == dict(
        zip(found.names, found.types, strict=True)
    )
    assert not found.field("row").nullable
    assert not found.field("row").type.field("y").nullable
    items = found.field("entries").type.item_type
    assert not items.value_field.nullable
    assert items.value_type == found.field("row").type


def test_a_schema_is_unchanged_after_conversion_to_delta_and_back(tables: Tables) -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            ("b", pa.list_(pa.field("element", pa.struct([("x", pa.decimal128(7, 3))])))),
            ("c", pa.map_(pa.string(), pa.list_(pa.timestamp("us", "UTC")))),
            ("d", pa.timestamp("us")),
        ]
    )
    assert tables.create(schema).layout.schema.equals(schema)


def test_arrow_types_without_a_delta_counterpart_are_stored_as_a_containing_type() -> None:
    schema = pa.schema(
        [
            ("a", pa.large_string()),
            ("b", pa.dictionary(pa.int8(), pa.string_view())),
            ("c", pa.uint32()),
            ("d", pa.timestamp("ns", "Europe/Berlin")),
            ("e", pa.uuid()),
            ("f", pa.large_list(pa.uint8())),
        ]
    )
    kinds = [f["type"] for f in delta_fields(schema, "t")]
    array = {"type": "array", "elementType": "short", "containsNull": True}
    assert kinds == ["string", "string", "long", "timestamp", "binary", array]


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.duration("s"), pa.time64("us"), pa.null(), pa.decimal256(50, 2)]
)
def test_arrow_types_that_delta_can_not_store_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidOperation, match=r"column 'a\.b' of table t"):
        delta_fields(pa.schema([("a", pa.struct([("b", kind)]))]), "t")


def test_columns_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(InvalidOperation, match="differ only by case"):
        delta_fields(pa.schema([("a", pa.int64()), ("A", pa.int64())]), "t")


def test_a_table_with_a_column_of_an_unknown_type_is_refused_when_it_is_used(
    tables: Tables,
) -> None:
    with pytest.raises(UnsupportedTableFeature, match="variant"):
        layout(tables, protocol(), metadata([field("v", "variant")]))


def test_an_invalid_schema_string_is_reported_as_corrupt(tables: Tables) -> None:
    broken = metadata()
    broken["metaData"]["schemaString"] = '{"fields": [{"name": 1}]}'
    with pytest.raises(CorruptObject, match="schemaString"):
        layout(tables, protocol(), broken)


def mapped(name: str, kind: Any, number: int) -> dict[str, Any]:
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"p{number}"}
    return field(name, kind, **ids)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_have_physical_names_and_ids(tables: Tables, mode: str) -> None:
    inner = {"type": "struct", "fields": [mapped("x", "long", 3), mapped("y", "long", 4)]}
    fields = [mapped("part", "string", 1), mapped("row", inner, 2), mapped("z", "long", 5)]
    actions = protocol(["columnMapping"], ["columnMapping"])
    found = layout(tables, actions, metadata(fields, ["part"], delta__columnMapping__mode=mode))
    assert found.schema.names == ["part", "row", "z"]
    assert found.physical.names == ["p1", "p2", "p5"]
    assert [f.name for f in found.physical.field("p2").type] == ["p3", "p4"]
    assert found.physical.field("p2").type.field("p4").metadata == {b"PARQUET:field_id": b"4"}
    assert found.partition_by == ("part",)
    assert found.statistics_columns == ("p2.p3", "p2.p4", "p5")
    assert found.by_field_id == (mode == "id")


def test_statistics_cover_the_first_32_leaf_fields_that_are_no_partition_columns(
    tables: Tables,
) -> None:
    fields = [field("part"), field("row", STRUCT), *(field(f"c{n}") for n in range(40))]
    found = layout(tables, protocol(), metadata(fields, ["part"]))
    assert found.statistics_columns == ("row.x", "row.y", *(f"c{n}" for n in range(30)))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"delta__dataSkippingNumIndexedCols": "1"}, ("row.x",)),
        ({"delta__dataSkippingNumIndexedCols": "0"}, ()),
        ({"delta__dataSkippingNumIndexedCols": "-1"}, ("row.x", "row.y", "a", "b c")),
        ({"delta__dataSkippingStatsColumns": "ROW, `b c`"}, ("row.x", "row.y", "b c")),
        ({"delta__dataSkippingStatsColumns": "row.y,a"}, ("row.y", "a")),
        (
            {"delta__dataSkippingStatsColumns": "a", "delta__dataSkippingNumIndexedCols": "9"},
            ("a",),
        ),
    ],
)
def test_table_properties_choose_the_columns_with_statistics(
    tables: Tables, properties: dict[str, str], expected: tuple[str, ...]
) -> None:
    fields = [field("row", STRUCT), field("a"), field("b c")]
    assert layout(tables, protocol(), metadata(fields, **properties)).statistics_columns == expected


def test_clustering_columns_have_statistics(tables: Tables) -> None:
    domain = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["b"]]}'}
    writer = protocol(None, ["clustering", "domainMetadata"])
    fields = metadata([field("a"), field("b")], delta__dataSkippingNumIndexedCols="0")
    found = layout(tables, writer, fields, {"domainMetadata": {**domain, "removed": False}})
    assert found.statistics_columns == ("b",)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 1 week", 604_800_000),
        ("interval 2 days 12 hours", 216_000_000),
        ("INTERVAL 30 MINUTES", 1_800_000),
        ("1 second", 1000),
        ("soon", 7),
        ("interval -1 day", 7),
        (None, 7),
    ],
)
def test_delta_intervals_are_converted_to_milliseconds(text: str | None, milliseconds: int) -> None:
    assert interval_milliseconds(text, 7) == milliseconds
