"""Damaged JSON written by another client: it is reported as damage, or ignored where Delta
allows that.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.delta.actions import parse_entry
from lakevilla.formats.delta.checkpoint.statistics import _decode, _typed
from lakevilla.formats.delta.commit import high_water_mark
from lakevilla.formats.file_statistics import read_statistics
from lakevilla.formats.files import DataFile
from lakevilla.lake.operations.perform import _rows
from tests.support.delta_by_hand import Tables, add, field, metadata, protocol

DEEP = "[" * 100_000
#: Texts that are no JSON, or JSON of another kind than is expected.
DAMAGED = {
    "empty": "",
    "truncated": '{"version": 1',
    "no object": "7",
    "a list": "[1]",
    "text for a number": '{"version": "x", "numRecords": "x", "rowIdHighWaterMark": "x"}',
    "a number for text": '{"version": {}, "numRecords": {}, "clusteringColumns": 5, '
    '"expression": {"expression": 5}, "fields": [{"name": 5, "type": 5}]}',
    "too large": '{"version": 1e999, "numRecords": 1e999, "rowIdHighWaterMark": 1e999}',
    "null": "null",
    "deep": '{"unknown": ' + DEEP,
    "deep where it counts": '{"v2Checkpoint": {"a": ' + DEEP,
    "half a surrogate": '{"version": 1, "tag": "\\ud800"}',
}
texts = pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())


@pytest.mark.parametrize(
    "body",
    [*(text.encode() for text in DAMAGED.values()), b'{"version": "\xff"}', b"\xff\xfe"],
    ids=[*DAMAGED, "no utf-8", "utf-16"],
)
def test_a_damaged_checkpoint_hint_is_ignored_and_replaced_by_the_next_checkpoint(
    tables: Tables, body: bytes
) -> None:
    tables.write_log(12)
    tables.run(tables.format.checkpoint(tables.open()))
    hint = tables.log() / "_last_checkpoint"
    hint.write_bytes(body)
    assert tables.open().version == 11
    assert tables.run(tables.format.open_at("t", "t", 11)).version == 11
    tables.write_entry(12, add("f12.parquet"))
    # A writer, too, finds the hint damaged, and replaces it.
    tables.run(tables.format.checkpoint(tables.open()))
    assert json.loads(hint.read_bytes())["version"] == 12


@pytest.mark.parametrize(
    "body",
    [
        b'{"add": {"path": 5}}',
        b'{"add": {"path": "f", "dataChange": "yes"}}',
        b'{"add": {"path": "\xff"}}',
        b'{"commitInfo": {"a": ' + DEEP.encode(),
        b'{"unknown": ' + DEEP.encode(),
        b'{"add": {"pat',
        b'{"txn": {"appId": 1, "version": 1}}',
        b'{"domainMetadata": {"domain": "d", "configuration": 5}}',
        b'{"add": {"path": "a", "size": 1}, "remove": {"path": "b"}}',
        b'{"add": {"path": "a", "size": 99999999999999999999}}',
        b'{"add": {"path": "a", "size": 1.5}}',
        b'{"add": {"path": "a", "size": 1, "tags": {"a": 5}}}',
        b'{"add": {"path": "a", "size": 1, "deletionVector": {"storageType": "u"}}}',
        b'{"remove": {"path": "a", "deletionTimestamp": 99999999999999999999}}',
        b'{"txn": {"appId": "a"}}',
        b'{"commitInfo": []}',
        b'\xef\xbb\xbf{"commitInfo": {}}',
    ],
    ids=[
        "number", "text", "no utf-8", "deep", "deep unknown", "truncated", "app", "domain",
        "two files in a line", "size too large", "size no whole number", "tags", "vector",
        "time too large", "no version", "commitInfo", "a byte order mark",
    ],
)  # fmt: skip
def test_a_damaged_log_entry_is_reported_with_its_key(tables: Tables, body: bytes) -> None:
    tables.write_log(2)
    entry = tables.log() / f"{1:020}.json"
    entry.write_bytes(body)
    with pytest.raises(CorruptObject) as raised:
        tables.open()
    assert raised.value.key == f"t/_delta_log/{1:020}.json"
    assert raised.value.key in raised.value.message


DEFINITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "configuration a list": ("metaData", {"configuration": ["x"]}),
    "configuration nested": ("metaData", {"configuration": {"a": {}}}),
    "format text": ("metaData", {"format": "parquet"}),
    "partition columns text": ("metaData", {"partitionColumns": "id"}),
    "partition columns numbers": ("metaData", {"partitionColumns": [5]}),
    "id a number": ("metaData", {"id": 5}),
    "no schema": ("metaData", {"schemaString": None}),
    "version text": ("protocol", {"minReaderVersion": "1"}),
    "version a flag": ("protocol", {"minWriterVersion": True}),
    "version below zero": ("protocol", {"minReaderVersion": -1}),
    "version absent": ("protocol", {"minReaderVersion": None}),
    "features text": ("protocol", {"readerFeatures": "x"}),
    "features numbers": ("protocol", {"writerFeatures": [5]}),
}


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_damaged_protocol_or_metadata_action_is_reported_with_its_object(
    tables: Tables, name: str, checkpoint: bool
) -> None:
    kind, changed = DEFINITIONS[name]
    actions = {**protocol(), **metadata()}
    actions[kind] = {k: v for k, v in {**actions[kind], **changed}.items() if v is not None}
    lines = [{"protocol": actions["protocol"]}, {"metaData": actions["metaData"]}]
    tables.write_entry(0, *lines)
    key = f"t/_delta_log/{0:020}.json"
    if checkpoint:
        key = f"t/_delta_log/{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
        (tables.root / key).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(CorruptObject, match=kind) as raised:
        tables.open()
    assert raised.value.key == key


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_damaged_protocol_or_metadata_action_is_ignored_once_a_later_entry_replaces_it(
    tables: Tables, name: str, warm: bool
) -> None:
    """Databricks has written such entries at version 0; the versions in between can't be read."""
    kind, changed = DEFINITIONS[name]
    broken = {**protocol(), **metadata()}[kind] | changed
    broken = {key: value for key, value in broken.items() if value is not None}
    tables.write_entry(0, protocol(), metadata())
    known = tables.open() if warm else None
    tables.write_entry(1, {kind: broken})
    tables.write_entry(2, add("f.parquet"))
    with pytest.raises(CorruptObject, match=kind) as raised:
        tables.open(cached=known)
    assert raised.value.key == f"t/_delta_log/{1:020}.json"
    tables.write_entry(3, protocol(), metadata([field("id"), field("b")]))
    state = tables.open(cached=known)
    assert (state.version, state.layout.schema.names) == (3, ["id", "b"])
    assert tables.paths(state) == ["f.parquet"]
    for version in (1, 2):
        with pytest.raises(CorruptObject, match=kind):
            tables.run(tables.format.open_at("t", "t", version, known))


FIELDS: dict[str, Any] = {
    "no name": {"type": "long"},
    "a name that is none": field("id") | {"name": 5},
    "metadata that is none": field("id") | {"metadata": [1]},
    "no type": {"name": "id"},
    "a type that is none": field("id", 7),
    "a list of nothing": field("id", {"type": "array"}),
    "a map of nothing": field("id", {"type": "map", "keyType": "long"}),
    "a struct of no list": field("id", {"type": "struct", "fields": 5}),
    "a field that is none": 5,
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_damaged_field_of_the_schema_is_reported_with_the_table(
    tables: Tables, name: str
) -> None:
    tables.write_entry(0, protocol(), metadata([FIELDS[name]]))
    with pytest.raises(CorruptObject, match="table t") as raised:
        _ = tables.open().layout
    assert raised.value.table == "t"


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"delta.columnMapping.id": 1},
        {"delta.columnMapping.physicalName": "c"},
        {"delta.columnMapping.id": "x", "delta.columnMapping.physicalName": "c"},
        {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": 5},
    ],
)
def test_a_mapped_column_without_its_physical_name_is_reported(
    tables: Tables, mode: str, said: dict[str, Any]
) -> None:
    """Found by its own name, a renamed column would have another column's values."""
    features = ["columnMapping"]
    action = metadata([field("id", **said)], delta__columnMapping__mode=mode)
    tables.write_entry(0, protocol(features, features), action)
    with pytest.raises(CorruptObject, match=r"table t maps columns by .*'id'"):
        _ = tables.open().layout


@pytest.mark.parametrize(
    ("named", "reported"), [("p", "no column"), ("ID", "no column"), ("s", "a nested column")]
)
def test_a_partition_column_that_is_missing_or_nested_is_reported(
    tables: Tables, named: str, reported: str
) -> None:
    """Such a table once returned rows by another column's values."""
    fields = [field("id"), field("s", {"type": "struct", "fields": [field("a")]})]
    tables.write_entry(0, protocol(), metadata(fields, [named]))
    with pytest.raises(CorruptObject, match=f"partitioned by '{named}', {reported}"):
        _ = tables.open().layout


@pytest.mark.parametrize(
    "file",
    [
        {"path": "f.parquet", "size": "x"},
        {"path": "f.parquet", "size": 1, "modificationTime": [1]},
        {"path": "f.parquet", "size": 1, "partitionValues": "x"},
        {"path": "f.parquet", "size": 1, "deletionVector": "x"},
        {"size": 1},
    ],
    ids=["size", "time", "partition values", "vector", "no path"],
)
def test_a_checkpoint_with_a_damaged_file_row_is_reported(
    tables: Tables, file: dict[str, Any]
) -> None:
    tables.write_entry(0, protocol(), metadata(), add("f.parquet"))
    meta = {"id": "x", "schemaString": metadata()["metaData"]["schemaString"]}
    key = f"t/_delta_log/{0:020}.checkpoint.parquet"
    rows = {
        "protocol": [protocol()["protocol"], None, None],
        "metaData": [None, meta, None],
        "add": [None, None, file],
    }
    pq.write_table(pa.table(rows), tables.root / key)
    with pytest.raises(CorruptObject, match="add actions") as raised:
        tables.paths(tables.open())
    assert raised.value.key == key


@texts
def test_a_damaged_schema_is_reported_with_the_table(tables: Tables, text: str) -> None:
    action = metadata()
    action["metaData"]["schemaString"] = text
    tables.write_entry(0, protocol(), action)
    with pytest.raises((CorruptObject, lv.UnsupportedTableFeature), match="table t") as raised:
        _ = tables.open().layout
    assert raised.value.table == "t"


@pytest.mark.parametrize("text", [*DAMAGED.values(), "id < 3"], ids=[*DAMAGED, "bare"])
def test_a_damaged_invariant_is_refused_only_for_writing(tables: Tables, text: str) -> None:
    """Databricks has written invariants as bare text."""
    invariant = field("id", **{"delta.invariants": text})
    tables.write_entry(0, protocol(writer=["invariants"]), metadata([invariant]))
    state = tables.open()
    assert state.layout.schema.names == ["id"]
    with pytest.raises(lv.UnsupportedTableFeature, match="constraint 'invariant of id' of table t"):
        state.check_writable()


@texts
def test_damaged_clustering_is_ignored(tables: Tables, text: str) -> None:
    domain = {"domainMetadata": {"domain": "delta.clustering", "configuration": text}}
    writer = protocol(writer=["clustering", "domainMetadata"])
    tables.write_entry(
        0,
        writer,
        metadata(),
        {**domain, "domainMetadata": {**domain["domainMetadata"], "removed": False}},
    )
    assert tables.open().layout.statistics_columns == ("id",)


@texts
def test_a_damaged_row_tracking_domain_is_reported_with_the_table(text: str) -> None:
    with pytest.raises(CorruptObject, match="table t"):
        high_water_mark({"delta.rowTracking": text}, "t")


@texts
def test_damaged_statistics_give_no_bounds(text: str) -> None:
    good = '{"numRecords": 1, "minValues": {"v": 1}, "maxValues": {"v": 2}, "nullCount": {"v": 0}}'
    for type_ in ("long", "double", "decimal(10,2)", "string", "boolean", "date", "timestamp"):
        read = read_statistics(pa.array([text, good]), {("v",): type_})[("v",)]
        assert (read.low[0].as_py(), read.high[0].as_py()) == (None, None)
        assert read.rows.to_pylist() == [None, 1]


@pytest.mark.parametrize(
    "value", ["1e999", "-1e999", "9" * 400, "1e-999", '"x"', "{}", "[1]", "true", "null", '""']
)
def test_a_bound_of_another_json_type_gives_no_bound(value: str) -> None:
    text = f'{{"numRecords": 1, "minValues": {{"v": {value}}}, "maxValues": {{"v": {value}}}}}'
    for type_ in ("byte", "long", "double", "decimal(10,2)", "date", "timestamp", "timestamp_ntz"):
        read = read_statistics(pa.array([text]), {("v",): type_})[("v",)]
        assert read.low[0].as_py() in (None, 0.0)
        assert read.high[0].as_py() in (None, 0.0)


@texts
def test_damaged_statistics_are_not_stored_as_columns_of_a_checkpoint(text: str) -> None:
    kind = pa.struct([("numRecords", pa.int64()), ("v", pa.bool_()), ("tag", pa.struct([]))])
    assert "numRecords" not in _typed(_decode(text), kind)
    assert _typed(_decode('{"numRecords": 1e99999999999999999999, "v": 5}'), kind) == {}
    assert _typed(_decode('{"v": 5}'), kind) == {}


@texts
def test_a_file_with_damaged_statistics_adds_no_row_to_the_count(text: str) -> None:
    assert _rows(DataFile("f", 1, 1, stats=text)) == 0


def test_a_table_with_damaged_statistics_can_be_read_and_overwritten(tmp_path: Any) -> None:
    """All of the above damage, as a transaction sees it through its verbs."""
    uri = str(tmp_path / "t")
    write_deltalake(uri, pa.table({"id": [1, 2]}))
    entry = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for damaged in DAMAGED.values():
        for action in lines:
            if "add" in action:
                action["add"]["stats"] = damaged
        entry.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with lv.connect(str(tmp_path)) as lake, lake.transaction(read_only=True) as txn:
            assert txn.read("t", where="id >= 2")["id"].to_pylist() == [2]
    with lv.connect(str(tmp_path)) as lake, lake.transaction() as txn:
        txn.overwrite("t", [{"id": 3}])
    assert DeltaTable(uri).to_pyarrow_table()["id"].to_pylist() == [3]


def test_row_tracking_refuses_a_file_without_a_readable_row_count(tables: Tables) -> None:
    from lakevilla.formats.delta.commit import _row_count

    for text in DAMAGED.values():
        with pytest.raises(InvalidOperation, match="row count"):
            _row_count(DataFile("f", 1, 1, stats=text), "t")


def test_an_entry_that_was_cut_off_between_two_lines_is_refused() -> None:
    info = {"operation": "WRITE", "lakevilla": {"nonce": "n", "lines": 3}}
    lines = [json.dumps({"commitInfo": info}), json.dumps(add("a")), json.dumps(add("b"))]
    assert len(parse_entry("t", 7, "\n".join(lines).encode()).change.adds) == 2
    for count in (1, 2):
        with pytest.raises(CorruptObject, match=rf"7\.json has {count} of the 3 lines") as error:
            parse_entry("t", 7, "\n".join(lines[:count]).encode() + b"\n")
        assert error.value.key == "t/_delta_log/00000000000000000007.json"
