"""Delta tables for tests: logs written by hand, and a table that is changed through the format."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakevilla.clock import SystemClock
from lakevilla.formats.base import Attempt, Change, CommitInfo, TableSnapshot
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.files import DataFile
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.base import Stored
from lakevilla.store.effects import put
from lakevilla.store.runner import Runner

TABLE_ID = "5fba94ed-9794-4965-ba6e-6ee3c0d22af9"


class Tables:
    """A directory of tables, with a runner and a format."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runner = Runner(
            LocalStore(str(root)), Ids(SystemClock(), random.Random(1)), Settings()
        )
        self.format = DeltaFormat()

    def run(self, program: Any) -> Any:
        return self.runner.run(program)

    def rounds(self, program: Any) -> tuple[Any, int]:
        """Return the program's result, and the number of its rounds of requests."""
        count = 0

        def counted() -> Any:
            nonlocal count
            value = None
            while True:
                try:
                    effect = program.send(value)
                except StopIteration as stop:
                    return stop.value
                count += 1
                value = yield effect

        return self.run(counted()), count

    def open(self, name: str = "t", cached: TableSnapshot | None = None) -> Any:
        return self.run(self.format.open(name, name, cached))

    def files(self, snapshot: TableSnapshot, where: Any = None) -> pa.Table:
        return self.run(snapshot.files(where))

    def paths(self, snapshot: TableSnapshot, where: Any = None) -> list[str]:
        return sorted(self.files(snapshot, where).column("path").to_pylist())

    def create(
        self,
        schema: pa.Schema,
        name: str = "t",
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        blank = self.format.blank(name, name)
        change = self.format.create(
            blank,
            schema,
            table_id=TABLE_ID,
            partition_by=partition_by,
            properties=properties or {},
            created_ms=1,
        )
        return self.commit(blank, change, CommitInfo("CREATE TABLE"))

    def commit(
        self,
        snapshot: TableSnapshot,
        change: Change,
        info: CommitInfo | None = None,
        timestamp_ms: int = 1_700_000_000_000,
    ) -> Any:
        """Publish a change as the next entry; return the state after it."""
        ready = self.prepare(snapshot, change, info or CommitInfo("WRITE"), timestamp_ms)
        assert isinstance(self.run(put(ready.key, ready.body, ready.condition)), Stored)
        return self.format.advance(snapshot, ready.entry)

    def prepare(
        self, snapshot: TableSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Attempt:
        return self.run(self.format.prepare(snapshot, change, info, timestamp_ms))

    def entry(self, version: int, name: str = "t") -> Any:
        return self.run(self.format.entry(self.format.blank(name, name), version))

    def log(self, name: str = "t") -> Path:
        return self.root / name / "_delta_log"

    def write_entry(self, version: int, *actions: Mapping[str, Any], name: str = "t") -> None:
        """Write an entry by hand."""
        self.log(name).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (self.log(name) / f"{version:020}.json").write_text(text)

    def write_log(self, entries: int, name: str = "t") -> None:
        """Write a log of ``entries`` entries by hand, each with a file ``f<n>.parquet``."""
        self.write_entry(0, protocol(), metadata(), add("f0.parquet"), name=name)
        for version in range(1, entries):
            self.write_entry(version, commit_info(version), add(f"f{version}.parquet"), name=name)


def data_file(path: str, rows: int = 1, **fields: Any) -> DataFile:
    return DataFile(
        path, size=100, modification_time=7, stats=json.dumps({"numRecords": rows}), **fields
    )


def protocol(
    reader: Sequence[str] | None = None, writer: Sequence[str] | None = None
) -> dict[str, Any]:
    action: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
    if writer is not None:
        action |= {"minWriterVersion": 7, "writerFeatures": list(writer)}
    if reader is not None:
        action |= {"minReaderVersion": 3, "readerFeatures": list(reader)}
    return {"protocol": action}


def field(name: str, kind: Any = "long", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def metadata(
    fields: Sequence[Mapping[str, Any]] | None = None,
    partition_by: Sequence[str] = (),
    **configuration: str,
) -> dict[str, Any]:
    fields = [field("id")] if fields is None else fields
    return {
        "metaData": {
            "id": TABLE_ID,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partition_by),
            "configuration": {key.replace("__", "."): v for key, v in configuration.items()},
            "createdTime": 1,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    action = {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": 7,
        "dataChange": True,
        "stats": '{"numRecords":1}',
    }
    return {"add": {**action, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 9, "dataChange": True, **fields}}


def commit_info(timestamp: int, **fields: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": timestamp, "operation": "WRITE", **fields}}
