"""A Delta table of a million files that do not exist: what only reads the log can't tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.clock import SystemClock
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta import DeltaFormat
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.runner import Runner

PARTITIONS = 1000
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "part", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "value", "type": "double", "nullable": True, "metadata": {}},
    ],
}
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
METADATA = pa.struct(
    [
        ("id", pa.string()),
        (
            "format",
            pa.struct(
                [
                    ("provider", pa.string()),
                    pa.field("options", pa.map_(pa.string(), pa.string()), nullable=False),
                ]
            ),
        ),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", pa.map_(pa.string(), pa.string())),
        ("createdTime", pa.int64()),
    ]
)
PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
CHECKPOINT = pa.schema([("protocol", PROTOCOL), ("metaData", METADATA), ("add", ADD)])
VERSION = 100


def _name(number: int) -> str:
    return f"part-{number:08}-5c5dbbf4-0bf4-4c3c-9d42-b1fb4f2ff3a1.snappy.parquet"


def create(table: Path, files: int, *, named: Callable[[int], str] = _name) -> None:
    """A table whose newest version is a checkpoint of ``files`` files that do not exist."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "00000000-0000-4000-8000-000000000012",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["part"],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    path = log / f"{VERSION:020}.checkpoint.parquet"
    with pq.ParquetWriter(path, CHECKPOINT, compression="zstd") as writer:
        # Arrow has maps as lists of pairs.
        pairs = {"format": {"provider": "parquet", "options": []}, "configuration": []}
        rows = [{"protocol": protocol}, {"metaData": {**metadata, **pairs}}]
        writer.write_table(pa.Table.from_pylist(rows, schema=CHECKPOINT))
        step = min(100_000, files)
        for start in range(0, files, step):
            adds = pa.array(
                [_add(number, named(number)) for number in range(start, start + step)], ADD
            )
            nothing = [pa.nulls(step, PROTOCOL), pa.nulls(step, METADATA)]
            writer.write_table(pa.Table.from_arrays([*nothing, adds], schema=CHECKPOINT))
    entry = [
        {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}},
        {"protocol": protocol},
        {"metaData": metadata},
    ]
    for version in (0, VERSION):
        actions = entry if version == 0 else entry[:1]
        text = "\n".join(json.dumps(action) for action in actions)
        (log / f"{version:020}.json").write_text(text)
    (log / "_last_checkpoint").write_text(json.dumps({"version": VERSION, "size": files + 2}))


def _add(number: int, name: str) -> dict[str, object]:
    part = number % PARTITIONS
    low = number * 1000
    stats = {
        "numRecords": 1000,
        "minValues": {"id": low, "value": low / 7},
        "maxValues": {"id": low + 999, "value": (low + 999) / 7},
        "nullCount": {"id": 0, "value": 0},
    }
    return {
        "path": f"part={part}/{name}",
        "partitionValues": [("part", str(part))],
        "size": 20_000,
        "modificationTime": 1_700_000_000_000,
        "dataChange": False,
        "stats": json.dumps(stats, separators=(",", ":")),
    }


def open_table(
    root: str, name: str, options: Mapping[str, str] | None
) -> tuple[Runner, TableSnapshot]:
    """Open a table with nothing cached."""
    store = open_store(root, dict(options) if options else None)
    runner = Runner(store, Ids(SystemClock()), Settings())
    return runner, runner.run(DeltaFormat().open(name, name))


def prune(root: str, table: str) -> dict[str, float]:
    """Open and prune to one partition by LakeVilla's own reader; how many files are left."""
    runner, snapshot = open_table(root, table, None)
    where = bind(parse_predicate("part = 7"), snapshot.layout.schema)
    return {"files": runner.run(snapshot.files(where)).num_rows}
