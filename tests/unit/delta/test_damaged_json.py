"""JSON of another client that is damaged: named as such, or passed over where Delta lets one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.expressions.statistics import read_statistics
from lakevilla.formats.base import DataFile
from lakevilla.formats.delta.commit import high_water_mark
from lakevilla.formats.delta.stats_struct import _decode, _typed
from lakevilla.transaction.perform import _rows
from tests.fixtures.delta import Tables, add, field, metadata, protocol

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
def test_a_checkpoint_hint_that_is_damaged_is_passed_over(tables: Tables, body: bytes) -> None:
    tables.write_log(12)
    tables.run(tables.format.checkpoint(tables.open()))
    hint = tables.log() / "_last_checkpoint"
    hint.write_bytes(body)
    assert tables.open().version == 11
    assert tables.run(tables.format.open_at("t", "t", 11)).version == 11
    tables.write_entry(12, add("f12.parquet"))
    # A writer finds it as damaged as a reader, and sets it right.
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
    ],
    ids=["number", "text", "no utf-8", "deep", "deep unknown", "truncated", "app", "domain"],
)
def test_a_log_entry_that_is_damaged_is_named(tables: Tables, body: bytes) -> None:
    tables.write_log(2)
    entry = tables.log() / f"{1:020}.json"
    entry.write_bytes(body)
    with pytest.raises(CorruptObject) as raised:
        tables.open()
    assert raised.value.key == f"t/_delta_log/{1:020}.json"
    assert raised.value.key in raised.value.message


@texts
def test_a_schema_that_is_damaged_is_told_with_the_table(tables: Tables, text: str) -> None:
    action = metadata()
    action["metaData"]["schemaString"] = text
    tables.write_entry(0, protocol(), action)
    with pytest.raises((CorruptObject, lv.UnsupportedTableFeature), match="table t") as raised:
        _ = tables.open().layout
    assert raised.value.table == "t"


@texts
def test_an_invariant_that_is_damaged_is_told_with_the_column(tables: Tables, text: str) -> None:
    invariant = field("id", **{"delta.invariants": text})
    tables.write_entry(0, protocol(writer=["invariants"]), metadata([invariant]))
    with pytest.raises(CorruptObject, match="column 'id' of table t"):
        _ = tables.open().layout


@texts
def test_clustering_that_is_damaged_is_passed_over(tables: Tables, text: str) -> None:
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
def test_a_row_tracking_domain_that_is_damaged_is_told_with_the_table(text: str) -> None:
    with pytest.raises(CorruptObject, match="table t"):
        high_water_mark({"delta.rowTracking": text}, "t")


@texts
def test_statistics_that_are_damaged_bound_nothing(text: str) -> None:
    good = '{"numRecords": 1, "minValues": {"v": 1}, "maxValues": {"v": 2}, "nullCount": {"v": 0}}'
    for type_ in ("long", "double", "decimal(10,2)", "string", "boolean", "date", "timestamp"):
        read = read_statistics(pa.array([text, good]), {("v",): type_})[("v",)]
        assert (read.low[0].as_py(), read.high[0].as_py()) == (None, None)
        assert read.rows.to_pylist() == [None, 1]


@pytest.mark.parametrize(
    "value", ["1e999", "-1e999", "9" * 400, "1e-999", '"x"', "{}", "[1]", "true", "null", '""']
)
def test_a_bound_of_another_kind_bounds_nothing_it_does_not_say(value: str) -> None:
    text = f'{{"numRecords": 1, "minValues": {{"v": {value}}}, "maxValues": {{"v": {value}}}}}'
    for type_ in ("byte", "long", "double", "decimal(10,2)", "date", "timestamp", "timestamp_ntz"):
        read = read_statistics(pa.array([text]), {("v",): type_})[("v",)]
        assert read.low[0].as_py() in (None, 0.0)
        assert read.high[0].as_py() in (None, 0.0)


@texts
def test_statistics_that_are_damaged_are_no_columns_of_a_checkpoint(text: str) -> None:
    kind = pa.struct([("numRecords", pa.int64()), ("v", pa.bool_()), ("tag", pa.struct([]))])
    assert "numRecords" not in _typed(_decode(text), kind)
    assert _typed(_decode('{"numRecords": 1e99999999999999999999, "v": 5}'), kind) == {}
    assert _typed(_decode('{"v": 5}'), kind) == {}


@texts
def test_a_file_with_damaged_statistics_counts_no_rows(text: str) -> None:
    assert _rows(DataFile("f", 1, 1, stats=text)) == 0


def test_a_table_with_damaged_statistics_is_read_and_overwritten(tmp_path: Any) -> None:
    """What a transaction meets of all that: by the verbs."""
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


def test_row_tracking_refuses_a_file_without_a_readable_count(tables: Tables) -> None:
    from lakevilla.formats.delta.commit import _row_count

    for text in DAMAGED.values():
        with pytest.raises(InvalidOperation, match="row count"):
            _row_count(DataFile("f", 1, 1, stats=text), "t")
