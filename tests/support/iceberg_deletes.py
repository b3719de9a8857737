"""A client of Iceberg that deletes rows by delete files, which pyiceberg only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from lakevilla.api.given import TableChange


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def data_files(table: Table) -> list[str]:
    """Return the URIs of a table's data files, in the order of their names."""
    return sorted(task.file.file_path for task in table.scan().plan_files())


def deleting(
    table: Table, rows: Mapping[str, Sequence[int]], *, alone: bool = False
) -> TableChange:
    """Return the request that deletes rows by their places in data files, by one file for all.

    ``alone``: it drops all deletes that the table had.
    """
    pairs = [(file, place) for file, places in rows.items() for place in places]
    columns = {
        2147483546: pa.field("file_path", pa.string(), False),
        2147483545: pa.field("pos", pa.int64(), False),
    }
    fields = [one.with_metadata({"PARQUET:field_id": str(id_)}) for id_, one in columns.items()]
    listed = pa.table(
        [
            pa.array([file for file, _ in pairs]),
            pa.array([place for _, place in pairs], pa.int64()),
        ],
        schema=pa.schema(fields),
    )
    return _request(table, listed, DataFileContent.POSITION_DELETES, None, alone=alone)


def deleting_by_value(table: Table, column: str, values: Sequence[int]) -> TableChange:
    """Return the request that deletes the rows that have one of these values in a column."""
    field = table.schema().find_field(column)
    metadata = {"PARQUET:field_id": str(field.field_id)}
    schema = pa.schema([pa.field(column, pa.int64(), False, metadata)])
    listed = pa.table([pa.array(values, pa.int64())], schema=schema)
    return _request(table, listed, DataFileContent.EQUALITY_DELETES, [field.field_id])


def _request(
    table: Table,
    listed: pa.Table,
    content: DataFileContent,
    equality_ids: list[int] | None,
    *,
    alone: bool = False,
) -> TableChange:
    before, number = table.current_snapshot(), uuid4().int >> 66
    assert before is not None
    directory = table.location()
    path = f"{directory}/data/{uuid4()}-deletes.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(listed, local)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=listed.num_rows,
        file_size_in_bytes=local.stat().st_size,
        equality_ids=equality_ids,
    )
    name = f"{directory}/metadata/{uuid4()}"
    with _DeletesWriter(
        table.spec(), table.schema(), table.io.new_output(f"{name}-m0.avro"), number, "deflate"
    ) as writer:
        added = ManifestEntryStatus.ADDED
        writer.add_entry(ManifestEntry.from_args(status=added, snapshot_id=number, data_file=file))
    sequence = table.metadata.last_sequence_number + 1
    output = table.io.new_output(f"{name}.avro")
    with write_manifest_list(
        2, output, number, before.snapshot_id, sequence, "deflate"
    ) as manifests:
        known = before.manifests(table.io)
        kept = [one for one in known if not alone or one.content is ManifestContent.DATA]
        manifests.add_manifests([writer.to_manifest_file(), *kept])
    snapshot = {
        "snapshot-id": number,
        "parent-snapshot-id": before.snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": table.metadata.last_updated_ms + 1,
        "manifest-list": f"{name}.avro",
        "summary": {"operation": "delete"},
        "schema-id": table.schema().schema_id,
    }
    main = {"ref-name": "main", "type": "branch", "snapshot-id": number}
    wanted = {"ref": "main", "snapshot-id": before.snapshot_id}
    return TableChange(
        table.name()[-1],
        ({"type": "assert-ref-snapshot-id", **wanted},),
        (
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", **main},
        ),
    )
