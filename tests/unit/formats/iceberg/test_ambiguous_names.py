"""Names for which Java and pyiceberg refuse to open a table: no change by LakeVilla creates such
names.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.metadata import changes
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.layout import NewDefinition, TableAlteration

TIMES = pa.schema([("ts", pa.timestamp("us")), ("v", pa.string())])
NESTED = pa.schema([("a", pa.struct([("b", pa.int64())])), ("l", pa.list_(pa.int64()))])
PARTITION = "with the name of a partition field"
PART = "a part of another column"


def made(schema: pa.Schema, partition_by: Sequence[str] = ()) -> IcebergDefinition:
    blank = IcebergDefinition("t", "t", {})
    change = changes.create_table(
        blank, schema, uri="file:///t", table_id="id", partition_by=partition_by, properties={}
    )
    assert change.metadata is not None
    return blank.replaced(change.metadata)


def with_text(schema: pa.Schema, name: str) -> pa.Schema:
    return schema.append(pa.field(name, pa.string()))


@pytest.mark.parametrize(
    ("schema", "partition_by", "message"),
    [
        (with_text(TIMES, "ts_day"), ["day(ts)"], rf"{PARTITION} \(day of column 'ts', in spec 0"),
        (with_text(NESTED, "a.b"), [], f"{PART} that are both called 'a.b'"),
        (with_text(NESTED, "A.B"), [], PART),
        (with_text(NESTED, "l.element"), [], PART),
        (pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("m.key", pa.string())]), [], PART),
    ],
)
def test_creating_a_table_with_ambiguous_names_is_refused(
    schema: pa.Schema, partition_by: Sequence[str], message: str
) -> None:
    with pytest.raises(InvalidOperation, match=message):
        made(schema, partition_by)


@pytest.mark.parametrize(
    "alteration",
    [
        TableAlteration(add_columns=pa.schema([("ts_day", pa.string())])),
        TableAlteration(rename_columns={"v": "ts_day"}),
    ],
    ids=["add", "rename"],
)
def test_altering_a_column_to_the_name_of_a_partition_field_is_refused(
    alteration: TableAlteration,
) -> None:
    with pytest.raises(InvalidOperation, match=PARTITION):
        changes.alter_table(made(TIMES, ["day(ts)"]), alteration)


def test_adding_a_column_with_the_name_of_a_partition_field_is_refused() -> None:
    known = made(TIMES, ["day(ts)"])
    with pytest.raises(InvalidOperation, match=PARTITION):
        changes.merge_schema(known, with_text(TIMES, "ts_day"))
    with pytest.raises(InvalidOperation, match=PARTITION):
        changes.replace_schema(known, with_text(TIMES, "ts_day"))


def test_renaming_a_column_to_the_path_of_a_nested_field_is_refused() -> None:
    with pytest.raises(InvalidOperation, match=PART):
        changes.alter_table(
            made(with_text(NESTED, "x")), TableAlteration(rename_columns={"x": "l.element"})
        )


def test_replacing_a_table_keeps_the_names_of_old_partition_fields_reserved() -> None:
    known = made(TIMES, ["v"])
    same = NewDefinition(TIMES, ["ts"], {}, {})
    assert changes.replace_definition(known, same).metadata is not None
    other = NewDefinition(pa.schema([("v", pa.int64())]), [], {}, {})
    gone = r"column 'v' .*\(identity of the earlier column 'v', in spec 0\).* another path"
    with pytest.raises(InvalidOperation, match=gone):
        changes.replace_definition(known, other)


def test_restoring_columns_named_like_later_partition_fields_is_refused() -> None:
    then = made(with_text(TIMES, "ts_day"))
    change = changes.replace_definition(then, NewDefinition(TIMES, ["day(ts)"], {}, {}))
    assert change.metadata is not None
    with pytest.raises(InvalidOperation, match=PARTITION):
        changes.redefined(then.replaced(change.metadata), then.document)


@pytest.mark.parametrize("partition_by", [["v"], ["bucket(4, v)"], ["day(ts)"]])
def test_a_column_may_have_its_own_partition_fields_name_and_be_renamed(
    partition_by: Sequence[str],
) -> None:
    renamed = changes.alter_table(
        made(TIMES, partition_by), TableAlteration(rename_columns={"v": "w"})
    )
    assert renamed.metadata is not None


def test_a_table_with_an_ambiguous_name_can_be_repaired_by_a_rename() -> None:
    known = made(TIMES, ["day(ts)"])
    (schema,) = known.document["schemas"]
    fields = [{**f, "name": "ts_day"} if f["name"] == "v" else f for f in schema["fields"]]
    taken = known.replaced({**known.document, "schemas": [{**schema, "fields": fields}]})
    better = changes.alter_table(taken, TableAlteration(rename_columns={"ts_day": "v"}))
    assert better.metadata is not None
    assert changes.note_voided(taken, "txn").metadata is not None
