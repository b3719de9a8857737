"""Tables with old versions of Delta's protocol, as other clients read them after a change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError

import lakevilla as lv


def rewritten(root: Path, **protocol: int) -> None:
    """Give a new table an older protocol, as older clients wrote it."""
    entry = root / "_delta_log/00000000000000000000.json"
    actions: list[dict[str, Any]] = list(map(json.loads, entry.read_text().splitlines()))
    for action in actions:
        if "protocol" in action:
            action["protocol"] = protocol
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("writer", [2, 4, 5, 6])
@pytest.mark.parametrize("reader", [1, 2])
@pytest.mark.cases(8)
def test_a_guarded_table_of_an_old_protocol_can_be_read_by_deltalake(
    tmp_path: Path, reader: int, writer: int
) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1, 2]}))
    rewritten(tmp_path / "t", minReaderVersion=reader, minWriterVersion=writer)
    with lv.connect(tmp_path) as lake:
        lake.register("t")
        lake.guard("t")
        lake.run(lambda txn: txn.append("t", [{"id": 3}]))
        assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 3
        assert lake.read("t").num_rows == 3


@pytest.mark.parametrize("writer", [5, 6])
def test_column_mapping_becomes_a_reader_feature_in_the_protocol_of_an_old_table(
    tmp_path: Path, writer: int
) -> None:
    """A reader without column mapping must refuse it: it would read renamed columns as NULL."""
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1, 2]}))
    rewritten(tmp_path / "t", minReaderVersion=1, minWriterVersion=writer)
    with lv.connect(tmp_path) as lake:
        lake.register("t")
        lake.run(lambda txn: txn.alter("t", set_properties={"delta.columnMapping.mode": "name"}))
        lake.run(lambda txn: txn.alter("t", rename_columns={"id": "key"}))
        assert lake.read("t")["key"].to_pylist() == [1, 2]
    found = DeltaTable(str(tmp_path / "t"))
    assert found.protocol().reader_features == ["columnMapping"]
    with pytest.raises(DeltaProtocolError, match="columnMapping"):
        found.to_pyarrow_table()


def test_a_column_with_an_invariant_is_not_renamed(tmp_path: Path) -> None:
    """The invariant would name a missing column, so that no client could write the table."""
    root = tmp_path / "t"
    write_deltalake(str(root), pa.table({"x": [5], "y": [1]}))
    entry = root / "_delta_log/00000000000000000000.json"
    actions: list[dict[str, Any]] = list(map(json.loads, entry.read_text().splitlines()))
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            rule = json.dumps({"expression": {"expression": "x > 3"}})
            schema["fields"][0]["metadata"] = {"delta.invariants": rule}
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 2}
    entry.write_text("\n".join(map(json.dumps, actions)))
    with lv.connect(tmp_path) as lake:
        lake.register("t")
        lake.run(lambda txn: txn.alter("t", set_properties={"delta.columnMapping.mode": "name"}))
        with pytest.raises(lv.InvalidOperation, match="has the invariant"):
            lake.run(lambda txn: txn.alter("t", rename_columns={"x": "z"}))
        lake.run(lambda txn: txn.alter("t", rename_columns={"y": "w"}))
        lake.run(lambda txn: txn.append("t", [{"x": 7, "w": 1}]))
        assert lake.read("t").num_rows == 2
