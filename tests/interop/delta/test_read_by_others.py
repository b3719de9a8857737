"""Read and extend tables of LakeVilla by deltalake and DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta.deletion_vectors import read_vector
from lakevilla.formats.files import DataFile, DeletionVector, data_files, removal
from lakevilla.formats.layout import TableAlteration
from tests.interop.delta.readers import deltalake_rows, duckdb_rows
from tests.support.delta_by_hand import Tables

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("p", pa.string())])


def file(tables: Tables, name: str, rows: pa.Table, **fields: Any) -> DataFile:
    """Return a data file of these rows, as an engine describes it."""
    path = tables.root / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    stats: dict[str, Any] = {"numRecords": rows.num_rows, "nullCount": {}}
    if "id" in rows.schema.names:
        column = rows.column("id").to_pylist()
        stats |= {"minValues": {"id": min(column)}, "maxValues": {"id": max(column)}}
    return DataFile(name, path.stat().st_size, 5, stats=json.dumps(stats), **fields)


def both(path: Path) -> list[dict[str, Any]]:
    """Return the rows, after a check that deltalake and DuckDB read the same ones."""
    rows = deltalake_rows(path)
    assert duckdb_rows(path) == rows
    return rows


def history(tables: Tables, entries: int, **create: Any) -> Any:
    """Append and remove files with awkward names, with checkpoints whenever they are due."""
    state = tables.create(SCHEMA, partition_by=["p"], **create)
    previous = None
    for number in range(1, entries):
        name = f"p=ü {number}%/f [{number}].parquet"
        rows = pa.table({"id": pa.array([number], pa.int64())}, pa.schema([SCHEMA.field("id")]))
        added = file(tables, name, rows, partition_values={"p": f"ü {number}%"})
        removes = (removal(previous),) if previous is not None and number % 3 == 0 else ()
        change = Change(adds=(added,), removes=removes)
        info = CommitInfo("WRITE", {"mode": "Append"}, is_blind_append=True, txn_ids=("x",))
        state = tables.commit(state, change, info, timestamp_ms=1_700_000_000_000 + number)
        if tables.format.checkpoint_due(state.version, state):
            tables.run(tables.format.checkpoint(state))
        previous = added
    return state


def test_deltalake_and_duckdb_read_appends_removals_and_checkpoints(tables: Tables) -> None:
    state = history(tables, 24)
    path = tables.root / "t"
    expected = [n for n in range(1, 24) if (n + 1) % 3 or n == 23]
    assert [row["id"] for row in both(path)] == expected
    assert both(path)[0] == {"id": 1, "p": "ü 1%"}
    for version in range(20):
        (tables.log() / f"{version:020}.json").unlink()
    assert [row["id"] for row in both(path)] == expected, "from the checkpoint"
    assert len(tables.paths(state)) == len(expected)
    theirs = DeltaTable(str(path)).history(1)[0]
    assert (theirs["operation"], theirs["operationParameters"]) == ("WRITE", {"mode": "Append"})
    assert theirs["timestamp"] == 1_700_000_000_023


def test_deltalake_shows_the_operation_of_a_transaction_and_its_parameters(tmp_path: Path) -> None:
    def append_and_delete(txn: lv.Transaction) -> None:
        txn.append("t", [{"id": 3}])
        txn.delete("t", "id = 2")

    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"id": 1}, {"id": 2}])
        lake.run(lambda txn: txn.delete("t", "id = 1"))
        lake.run(append_and_delete)
    both, one, _ = DeltaTable(tmp_path / "t").history()
    assert (one["operation"], one["operationParameters"]) == ("DELETE", {"predicate": "id = 1"})
    assert both["operation"] == "TRANSACTION"
    assert json.loads(both["operationParameters"]["operations"]) == [
        {"operation": "WRITE", "mode": "Append"},
        {"operation": "DELETE", "predicate": "id = 2"},
    ]


def test_deltalake_continues_a_table_of_lakevilla_and_lakevilla_continues_after_it(
    tables: Tables,
) -> None:
    state = history(tables, 12)
    path = str(tables.root / "t")
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update({"id": "id + 1000"}, predicate="id = 4")
    write_deltalake(path, pa.table({"id": [77], "p": ["q"]}, SCHEMA), mode="append")
    DeltaTable(path).create_checkpoint()
    state = tables.open(cached=state)
    assert state.version == DeltaTable(path).version()
    assert {f"{path}/{p}" for p in tables.paths(state)} == set(DeltaTable(path).file_uris())
    (gone,) = [f for f in _files(tables, state) if dict(f.partition_values)["p"] == "q"]
    tables.commit(state, Change(removes=(removal(gone),)))
    assert 77 not in [row["id"] for row in both(tables.root / "t")]


def _files(tables: Tables, state: Any) -> list[DataFile]:
    return data_files(tables.files(state))


def test_a_guarded_table_is_read_by_all_clients_and_written_only_by_lakevilla(
    tables: Tables,
) -> None:
    state = history(tables, 3)
    state = tables.commit(state, tables.format.guard_change(state), CommitInfo("GUARD"))
    path = tables.root / "t"
    assert [row["id"] for row in both(path)] == [1, 2]
    with pytest.raises(Exception, match="lakevilla"):
        write_deltalake(str(path), pa.table({"id": [9], "p": ["q"]}, SCHEMA), mode="append")
    state = tables.commit(state, tables.format.unguard_change(state), CommitInfo("UNGUARD"))
    write_deltalake(str(path), pa.table({"id": [9], "p": ["q"]}, SCHEMA), mode="append")
    assert [row["id"] for row in both(path)] == [1, 2, 9]


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableInCommitTimestamps": "true"},
        {"delta.enableRowTracking": "true"},
        {"delta.enableChangeDataFeed": "true"},
        {"delta.checkpoint.writeStatsAsStruct": "true"},
        {"delta.checkpointPolicy": "v2"},
        {"delta.enableDeletionVectors": "true"},
        {"delta.appendOnly": "false", "delta.deletedFileRetentionDuration": "interval 1 day"},
    ],
    ids=lambda p: next(iter(p)),
)
def test_tables_with_each_supported_feature_are_read_by_other_clients(
    tables: Tables, properties: dict[str, str]
) -> None:
    # deltalake reads through pyarrow here, which does not know these features.
    for_kernels_alone = {"delta.enableDeletionVectors", "delta.checkpointPolicy"} & {*properties}
    read_by = [duckdb_rows] if for_kernels_alone else [duckdb_rows, deltalake_rows]
    history(tables, 12, properties={"delta.checkpointInterval": "4", **properties})
    expected = [n for n in range(1, 12) if (n + 1) % 3 or n == 11]
    for kept in (0, 8):
        for version in range(kept):
            (tables.log() / f"{version:020}.json").unlink()
        for rows in read_by:
            assert [row["id"] for row in rows(tables.root / "t")] == expected
        assert len(DeltaTable(str(tables.root / "t")).file_uris()) == len(expected)
    assert len(tables.paths(tables.open())) == len(expected)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_read_by_other_clients(tables: Tables, mode: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("row", pa.struct([("a b", pa.string())]))])
    state = tables.create(schema, properties={"delta.columnMapping.mode": mode})
    physical = state.layout.physical
    assert physical.field(0).name.startswith("col-")
    rows = pa.table(
        [pa.array([1]), pa.array([{physical.field(1).type.field(0).name: "x"}])], physical
    )
    added = DataFile("f.parquet", 1, 1, stats='{"numRecords":1}')
    pq.write_table(rows, tables.root / "t" / "f.parquet")
    size = (tables.root / "t" / "f.parquet").stat().st_size
    state = tables.commit(state, Change(adds=(DataFile("f.parquet", size, 1, stats=added.stats),)))
    assert duckdb_rows(tables.root / "t") == [{"id": 1, "row": {"a b": "x"}}]
    state = tables.commit(
        state, tables.format.alter(state, TableAlteration(rename_columns={"id": "key"}))
    )
    assert duckdb_rows(tables.root / "t", "key")[0]["key"] == 1
    assert tables.open().layout.schema.names == ["key", "row"]
    assert tables.open().layout.physical.field(0).name == physical.field(0).name


def test_a_deletion_vector_hides_the_same_rows_from_lakevilla_and_duckdb(tables: Tables) -> None:
    state = tables.create(
        pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
    )
    whole = file(tables, "f.parquet", pa.table({"id": list(range(10))}))
    state = tables.commit(state, Change(adds=(whole,)))
    text = "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rri41POJ5"
    vector = DeletionVector("i", text, 38, 3)
    marked = file(tables, "f.parquet", pa.table({"id": list(range(10))}), deletion_vector=vector)
    state = tables.commit(state, Change(adds=(marked,), removes=(removal(whole),)))
    tables.run(tables.format.checkpoint(state))
    left = [row["id"] for row in duckdb_rows(tables.root / "t")]
    gone = tables.run(read_vector("t", vector)).tolist()
    assert left == [n for n in range(10) if n not in gone]
    assert tables.files(tables.open()).column("dv_id").to_pylist() == [vector.id]


def test_altered_tables_are_read_by_other_clients(tables: Tables) -> None:
    state = history(tables, 3)
    change = tables.format.alter(
        state,
        TableAlteration(
            add_columns=pa.schema([("extra", pa.float64())]),
            drop_not_null=["id"],
            add_constraints={"positive": "id > 0"},
            set_properties={"delta.appendOnly": "true"},
        ),
    )
    state = tables.commit(state, change, CommitInfo("ALTER"))
    assert both(tables.root / "t")[0] == {"id": 1, "p": "ü 1%", "extra": None}
    theirs = DeltaTable(str(tables.root / "t"))
    with pytest.raises(Exception, match="failed validation check"):
        write_deltalake(
            str(tables.root / "t"),
            pa.table({"id": [-1], "p": ["q"], "extra": [0.5]}),
            mode="append",
        )
    assert theirs.metadata().configuration["delta.constraints.positive"] == "id > 0"
    assert "checkConstraints" in theirs.protocol().writer_features
