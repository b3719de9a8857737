"""Read tables of deltalake by LakeVilla: the same files, schema, values and statistics."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import lakevilla as lv
from tests.support.delta_by_hand import Tables

MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)


def same(tables: Tables, state: Any) -> None:
    """Check that LakeVilla's state of a table equals deltalake's."""
    theirs = DeltaTable(str(tables.root / "t"))
    assert state.version == theirs.version()
    ours = {row["path"]: row for row in tables.files(state).to_pylist()}
    actions = pa.table(theirs.get_add_actions(flatten=False)).to_pylist()
    base = str(tables.root / "t") + "/"
    assert {base + path for path in ours} == set(theirs.file_uris())
    by_stats = sorted((row["size"], row["modification_time"]) for row in ours.values())
    assert by_stats == sorted((a["size_bytes"], to_ms(a["modification_time"])) for a in actions)
    counts = sum(json.loads(row["stats"])["numRecords"] for row in ours.values())
    assert counts == theirs.to_pyarrow_table().num_rows
    assert state.layout.schema.equals(pa.schema(theirs.schema().to_arrow()))
    assert state.layout.partition_by == tuple(theirs.metadata().partition_columns)
    assert state.table_id == theirs.metadata().id
    assert dict(state.layout.properties) == theirs.metadata().configuration


def to_ms(value: Any) -> int:
    return value if isinstance(value, int) else int(value.timestamp() * 1000)


def all_types() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "i": pa.array([1, None, 3], pa.int32()),
            "s": pa.array([1, None, 3], pa.int16()),
            "b": pa.array([1, None, 3], pa.int8()),
            "f": pa.array([1.5, None, 2.5], pa.float32()),
            "d": pa.array([1.5, None, float("nan")], pa.float64()),
            "dec": pa.array([Decimal("1.10"), None, Decimal("-3.33")], pa.decimal128(10, 2)),
            "text": pa.array(["a", None, "ü"], pa.string()),
            "bytes": pa.array([b"a", None, b"\xff"], pa.binary()),
            "flag": pa.array([True, None, False], pa.bool_()),
            "day": pa.array([dt.date(2024, 1, 2), None, dt.date(1969, 1, 1)], pa.date32()),
            "at": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
            "local": pa.array([MOMENT.replace(tzinfo=None)] * 3, pa.timestamp("us")),
            "list": pa.array([[1], None, []], pa.list_(pa.int64())),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "row": pa.array(
                [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
                pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))]),
            ),
        }
    )


def test_columns_of_every_type_are_read_as_deltalake_reads_them(tables: Tables) -> None:
    write_deltalake(str(tables.root / "t"), all_types())
    state = tables.open()
    same(tables, state)
    state.check_writable()
    assert "timestampNtz" in state.protocol["writerFeatures"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_partitions_with_awkward_values_are_read_as_deltalake_reads_them(
    tables: Tables, checkpoint: bool
) -> None:
    path = str(tables.root / "t")
    values = ["a b", "ü:/x%", "c=[d]", None, "100%25", "#?&+", "x'y\"z"]
    rows = pa.table({"p": values, "id": list(range(len(values)))})
    write_deltalake(path, rows, partition_by=["p"])
    DeltaTable(path).delete("id = 2")
    if checkpoint:
        DeltaTable(path).create_checkpoint()
        write_deltalake(path, rows.slice(0, 1), mode="append")
    state = tables.open()
    same(tables, state)
    found = {dict(v)["p"] for v in tables.files(state).column("partition_values").to_pylist()}
    assert found == set(values) - {"c=[d]"}
    assert tables.files(state).column("raw_path").null_count == tables.files(state).num_rows


def test_a_table_is_the_same_to_both_after_updates_deletes_merges_and_a_checkpoint(
    tables: Tables,
) -> None:
    path = str(tables.root / "t")
    rows = pa.table({"p": [n % 3 for n in range(30)], "id": list(range(30))})
    write_deltalake(path, rows, partition_by=["p"])
    for number in range(14):
        table = DeltaTable(path)
        match number % 4:
            case 0:
                write_deltalake(path, rows.slice(number, 3), mode="append")
            case 1:
                table.update({"id": "id + 100"}, predicate=f"id = {number}")
            case 2:
                table.delete(f"id = {number}")
            case _:
                table.optimize.compact()
        if number == 6:
            DeltaTable(path).create_checkpoint()
        same(tables, tables.open())
    same(tables, tables.run(tables.format.open_at("t", "t", DeltaTable(path).version())))


def test_every_version_is_the_same_to_lakevilla_and_deltalake(tables: Tables) -> None:
    path = str(tables.root / "t")
    write_deltalake(path, pa.table({"id": [0]}))
    for number in range(1, 8):
        write_deltalake(path, pa.table({"id": [number]}), mode="append")
        if number == 5:
            DeltaTable(path).create_checkpoint()
    for version in range(8):
        state = tables.run(tables.format.open_at("t", "t", version))
        assert len(tables.paths(state)) == version + 1


@pytest.mark.parametrize("reconciled", [True, False])
def test_a_compaction_of_a_table_rewritten_six_times_gives_its_five_rows(
    tables: Tables, reconciled: bool
) -> None:
    """Hazard 37: deltalake's own compaction, and a file that only concatenates the log entries."""
    path = str(tables.root / "t")
    write_deltalake(path, pa.table({"id": list(range(5))}))
    for _ in range(6):
        DeltaTable(path).update({"id": "id + 1"}, predicate="true")
    write_deltalake(path, pa.table({"id": pa.array([], pa.int64())}), mode="append")
    if reconciled:
        DeltaTable(path).compact_logs(0, 6)
    else:
        entries = [(tables.log() / f"{number:020}.json").read_text() for number in range(7)]
        text = "".join(entry.rstrip("\n") + "\n" for entry in entries)
        (tables.log() / f"{0:020}.{6:020}.compacted.json").write_text(text)
    with tables.runner.requests.counting() as made:
        same(tables, tables.open())
    assert made.get == (2 if reconciled else 10), "the compaction and 7, then all entries"
    with lv.connect(str(tables.root)) as lake, lake.snapshot() as state:
        assert sorted(state.read("t")["id"].to_pylist()) == list(range(6, 11))


def test_schema_evolution_and_constraints_are_read(tables: Tables) -> None:
    path = str(tables.root / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    DeltaTable(path).alter.add_constraint({"positive": "id > 0"})
    write_deltalake(path, pa.table({"id": [2], "n": ["x"]}), mode="append", schema_mode="merge")
    state = tables.open()
    same(tables, state)
    assert [(c.name, c.sql) for c in state.layout.constraints] == [("positive", "id > 0")]
    state.check_writable()


def test_application_versions_of_deltalake_survive_a_checkpoint(tables: Tables) -> None:
    path = str(tables.root / "t")
    properties = CommitProperties(app_transactions=[Transaction("app", 7)])
    write_deltalake(path, pa.table({"id": [1]}), commit_properties=properties)
    assert tables.open().application_version("app") == 7
    DeltaTable(path).create_checkpoint()
    assert tables.run(tables.format.open_at("t", "t", 0)).application_version("app") == 7


def test_log_entries_of_deltalake_are_described_in_the_history(tables: Tables) -> None:
    path = str(tables.root / "t")
    write_deltalake(path, pa.table({"id": [1, 2]}))
    DeltaTable(path).update({"id": "id + 1"}, predicate="id = 1")
    entry = tables.entry(1)
    assert entry.operation == "UPDATE"
    assert (len(entry.change.adds), len(entry.change.removes)) == (1, 1)
    assert (entry.txn_ids, entry.nonce) == ((), None)
    assert entry.timestamp_ms == DeltaTable(path).history(1)[0]["timestamp"]
