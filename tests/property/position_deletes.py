"""Write positional deletes of Iceberg as Spark does; pyiceberg only reads them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)


def delete_positions(table: Table, keys: Collection[int], rng: Random) -> None:
    """Delete the rows whose ``id`` is among the keys: one delete file for each data file or
    partition.
    """
    wide = rng.random() < 0.5
    found: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    for task in table.scan().plan_files():
        data = task.file
        with table.io.new_input(data.file_path).open() as source:
            own = pq.read_table(source, columns=["id"])["id"].to_pylist()
        places = [(data.file_path, at) for at, key in enumerate(own) if key in keys]
        if places:
            found[data.spec_id, data.partition, "" if wide else data.file_path] += places
    files = defaultdict(list)
    for (spec_id, partition, _), places in found.items():
        files[spec_id].append(_written(table, partition, sorted(places), rng))
    with table.transaction() as transaction:
        _PositionDeletes(transaction, table, files).commit()


def _written(table: Table, partition: Any, places: list[tuple[str, int]], rng: Random) -> DataFile:
    rows = pa.table([list(column) for column in zip(*places, strict=True)], schema=_SCHEMA)
    output = table.io.new_output(f"{table.location()}/data/deletes-{uuid.uuid4()}.parquet")
    with output.create() as target:
        pq.write_table(rows, target)
    low, high = ({_PATH_ID: path.encode()} for path in (places[0][0], places[-1][0]))
    bounds = {"lower_bounds": low, "upper_bounds": high} if rng.random() < 0.7 else {}
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(places),
        file_size_in_bytes=len(output),
        **bounds,
    )


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _PositionDeletes(_FastAppendFiles):
    """A snapshot that adds the delete files, by partition spec, and keeps all existing files."""

    def __init__(self, transaction: Any, table: Table, files: dict[int, list[DataFile]]) -> None:
        super().__init__(Operation.DELETE, transaction, table.io)
        self._files = files

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        output = self.new_manifest_output()
        return _DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression)

    def _manifests(self) -> list[ManifestFile]:
        made = []
        for spec_id, files in self._files.items():
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in files:
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        data_file=file,
                    )
                    writer.add(entry)
            made.append(writer.to_manifest_file())
        return made + self._existing_manifests()
