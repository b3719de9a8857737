"""Tables with many partition columns, or with slashes in the columns' names."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.formats.delta.checkpoint import file_list

COLUMNS = [f"p{number}" for number in range(9)]
#: With the other columns' 8 values there are 256 texts: nine codes of 8 bits exceed 64 bits.
FILES = 248


def table_of_files(root: Path) -> None:
    """Write a log of files that have different values in the first partition column alone."""
    (root / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({"v": [7]}), root / "f7.parquet")
    fields = [{"name": "v", "type": "long"}, *({"name": c, "type": "string"} for c in COLUMNS)]
    schema = [{**field, "nullable": True, "metadata": {}} for field in fields]
    constants = {column: f"of {column}" for column in COLUMNS[1:]}
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "11111111-1111-1111-1111-111111111111",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": schema}),
                "partitionColumns": COLUMNS,
                "configuration": {},
                "createdTime": 1,
            }
        },
    ]
    for number in range(FILES):
        add = {
            "path": f"f{number}.parquet",
            "size": (root / "f7.parquet").stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "partitionValues": {"p0": f"k{number}", **constants},
            "stats": '{"numRecords":1}',
        }
        actions.append({"add": add})
    entry = root / "_delta_log/00000000000000000000.json"
    entry.write_text("\n".join(map(json.dumps, actions)))
    DeltaTable(str(root)).create_checkpoint()


def test_a_predicate_on_any_number_of_partition_columns_prunes_a_large_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_list, "KEPT_FILES", 0)
    table_of_files(tmp_path / "t")
    with lv.connect(tmp_path) as lake:
        lake.register("t")
        assert lake.read("t", where="p0 = 'k7'")["v"].to_pylist() == [7]


def test_columns_with_slashes_keep_their_values_after_column_mapping_is_enabled(
    tmp_path: Path,
) -> None:
    rows = pa.table({"id": [1, 2], "a/b": ["x", "y"], "c/b": ["p", "q"]})
    write_deltalake(str(tmp_path / "t"), rows)
    with lv.connect(tmp_path) as lake:
        lake.register("t")
        with lake.transaction() as txn:
            txn.alter("t", set_properties={"delta.columnMapping.mode": "name"})
        assert lake.read("t").sort_by("id").to_pylist() == rows.to_pylist()
        lake.run(lambda txn: txn.update("t", {"id": "id + 10"}, where="id = 1"))
        found = lake.read("t").sort_by("id").to_pylist()
    assert found == [{"id": 2, "a/b": "y", "c/b": "q"}, {"id": 11, "a/b": "x", "c/b": "p"}]
