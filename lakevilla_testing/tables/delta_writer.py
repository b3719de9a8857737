"""Clients without LakeVilla, as writers of Delta tables of a lake.

Each is a program for the simulator that knows the Delta format and nothing else. Like any writer of
the format it creates the next number if absent, refuses a table that requires a writer feature it
does not know, and reads the new tip when it has lost a race.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from lakevilla.formats.delta.deletion_vectors import RowIndices, encode_bitmap, encode_z85
from lakevilla.formats.files import DeletionVector
from lakevilla.store.base import ABSENT, ANY, Refused, Stored
from lakevilla.store.effects import Program, delete, list_objects, put, sleep, stat
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.tables.delta_reader import (
    PHYSICAL_NAME,
    LoggedTable,
    deleted_rows,
    read_all_rows,
    read_log,
    read_rows,
    read_tip,
)
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.rows import Row, encode_rows

Actions = list[dict[str, Any]]
Columns = Mapping[str, str]


def create(
    client: Client,
    location: str,
    columns: Columns,
    rows: Sequence[Row] = (),
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    mapped: bool = False,
    marks: bool = False,
) -> Program[bool]:
    """Create a table of ``columns`` (name to Delta type), with rows; False if there is one.

    ``mapped``: its columns can be renamed. ``marks``: it allows deletion vectors.
    """
    schema = [
        _field(name, kind, number if mapped else None)
        for number, (name, kind) in enumerate(columns.items(), 1)
    ]
    mapping = {_MODE: "name", _LAST_ID: str(len(schema))} if mapped else {}
    metadata = {
        "id": client.ids.uuid(),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": schema}),
        "partitionColumns": list(partition_by),
        "configuration": {**mapping, **(_MARKS if marks else {}), **(properties or {})},
        "createdTime": int(client.clock.now() * 1000),
    }
    table = LoggedTable(location, metadata=metadata)
    actions: Actions = [
        _commit_info(client, "CREATE TABLE"),
        {"protocol": _protocol(mapped, marks)},
        {"metaData": metadata},
        *(yield from _write(client, table, rows)),
    ]
    return isinstance((yield from _put_entry(location, 0, actions)), Stored)


def append(client: Client, location: str, rows: Sequence[Row]) -> Program[bool]:
    """Add rows blindly: commits since do not conflict."""
    written: Actions = []

    def actions(table: LoggedTable) -> Program[Actions]:
        if not written:
            written.extend((yield from _write(client, table, rows)))
        return [_commit_info(client, "WRITE", blind=True), *written]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def rewrite(
    client: Client, location: str, change: Callable[[Row], Row | None], *, files: int | None = None
) -> Program[bool]:
    """Update (or, for None, delete) each row of the first ``files`` files."""

    def actions(table: LoggedTable) -> Program[Actions]:
        chosen = sorted(table.files)[:files]
        if not chosen:
            return []
        rows = yield from read_rows(_only(table, chosen))
        changed = [new for row in rows if (new := change(row)) is not None]
        written = yield from _write(client, table, changed)
        removes = [_remove(client, table.files[path]) for path in chosen]
        return [_commit_info(client, "UPDATE"), *removes, *written]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def mark(client: Client, location: str, change: Callable[[Row], Row | None]) -> Program[bool]:
    """Update (or, for None, delete) the rows that ``change`` does not return as they are.

    They are marked as deleted in their files, and written to a new one.
    """

    def actions(table: LoggedTable) -> Program[Actions]:
        removes: Actions = []
        adds: Actions = []
        rows: list[Row] = []
        for path, add in sorted(table.files.items()):
            deleted = yield from deleted_rows(location, add)
            hit = {}
            for place, row in enumerate((yield from read_all_rows(table, path))):
                if place not in deleted and (new := change(row)) is not row:
                    hit[place] = new
            if hit:
                removes.append(_remove(client, add))
                adds.append({"add": _marked(add, deleted | hit.keys())})
                rows += [row for row in hit.values() if row is not None]
        if not adds:
            return []
        written = yield from _write(client, table, rows)
        return [_commit_info(client, "UPDATE"), *removes, *adds, *written]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def inline_vector(rows: RowIndices) -> DeletionVector:
    """Return a vector that the log itself holds; ``rows`` are distinct and ascending."""
    data = encode_bitmap(rows)
    return DeletionVector("i", encode_z85(data + bytes(-len(data) % 4)), len(data), len(rows))


def _marked(add: dict[str, Any], places: AbstractSet[int]) -> dict[str, Any]:
    vector = inline_vector(np.array(sorted(places), np.int64))
    return {
        **add,
        "dataChange": True,
        "stats": json.dumps({**json.loads(add["stats"]), "tightBounds": False}),
        "deletionVector": {
            "storageType": vector.storage_type,
            "pathOrInlineDv": vector.path_or_inline,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        },
    }


def optimize(client: Client, location: str) -> Program[bool]:
    """Put all rows into one file; no row changes, and every action declares that."""

    def actions(table: LoggedTable) -> Program[Actions]:
        if len(table.files) < 2:
            return []
        written = yield from _write(client, table, (yield from read_rows(table)))
        removes = [_remove(client, add) for add in table.files.values()]
        moved = [*removes, *written]
        for action in moved:
            next(iter(action.values()))["dataChange"] = False
        return [_commit_info(client, "OPTIMIZE"), *moved]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def restore(client: Client, location: str, versions_back: int = 1) -> Program[bool]:
    """Set the table back, as RESTORE does: removed files return, later ones are removed."""

    def actions(table: LoggedTable) -> Program[Actions]:
        old = yield from read_log(location, max(0, table.version - versions_back))
        if old is None:
            return []
        # A file is the same with the same vector, whatever else an entry or a checkpoint says.
        before = [(path, add.get("deletionVector")) for path, add in old.files.items()]
        now = [(path, add.get("deletionVector")) for path, add in table.files.items()]
        adds = [old.files[path] for path, vector in before if (path, vector) not in now]
        removes = [
            _remove(client, table.files[path])
            for path, vector in now
            if (path, vector) not in before
        ]
        if not adds and not removes:
            return []
        for add in adds:
            found = yield from stat(f"{location}/{add['path']}")
            if not hasattr(found, "size"):
                return []  # vacuumed: a real RESTORE refuses in this case, too
        return [
            _commit_info(client, "RESTORE"),
            {"metaData": old.metadata},
            *removes,
            *({"add": {**add, "dataChange": True}} for add in adds),
        ]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def set_property(client: Client, location: str, name: str, value: str) -> Program[bool]:
    """Change the table's metadata."""

    def actions(table: LoggedTable) -> Program[Actions]:
        configuration = {**table.metadata.get("configuration", {}), name: value}
        metadata = {**table.metadata, "configuration": configuration}
        yield from ()
        return [_commit_info(client, "SET TBLPROPERTIES"), {"metaData": metadata}]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def add_column(client: Client, location: str, name: str) -> Program[bool]:
    """Add a column of whole numbers to a table that maps columns."""

    def actions(table: LoggedTable) -> Program[Actions]:
        yield from ()
        last = int(table.metadata["configuration"][_LAST_ID]) + 1
        schema = [*table.schema, _field(name, "long", last, f"{client.ids.uuid()}")]
        return _reshaped(client, table, schema, {_LAST_ID: str(last)})

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def toggle_not_null(client: Client, location: str, name: str) -> Program[bool]:
    """Make a column NOT NULL, or let it have NULL again."""

    def actions(table: LoggedTable) -> Program[Actions]:
        yield from ()
        schema = [
            {**f, "nullable": not f["nullable"]} if f["name"] == name else f for f in table.schema
        ]
        return _reshaped(client, table, schema, {})

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def toggle_constraint(client: Client, location: str, name: str) -> Program[bool]:
    """Add a CHECK constraint on a column of numbers from 0 on, or drop it again."""

    def actions(table: LoggedTable) -> Program[Actions]:
        yield from ()
        configuration = dict(table.metadata["configuration"])
        key = f"delta.constraints.others_{name}"
        if configuration.pop(key, None) is None:
            configuration[key] = f"{name} >= 0"
        metadata = {**table.metadata, "configuration": configuration}
        return [_commit_info(client, "ALTER TABLE"), {"metaData": metadata}]

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def name_fields(client: Client, location: str, names: Mapping[str, str]) -> Program[bool]:
    """Give columns other names, by their names in data files."""

    def actions(table: LoggedTable) -> Program[Actions]:
        yield from ()
        if any(key.startswith("delta.constraints.") for key in table.metadata["configuration"]):
            return []  # the constraints' names would keep their old meaning
        schema = [
            {**f, "name": names.get(f["metadata"].get(PHYSICAL_NAME, ""), f["name"])}
            for f in table.schema
        ]
        return _reshaped(client, table, schema, {})

    return (yield from _commit(client, location, actions, Fault.FOREIGN_COMMIT))


def drop_and_recreate(
    client: Client, location: str, columns: Columns, rows: Sequence[Row]
) -> Program[bool]:
    """Delete the table's files and log, then make another table there."""
    yield from delete_table(location, f"{location}/_delta_log")
    created = yield from create(client, location, columns, rows)
    if created:
        client.simulation.fired[Fault.FOREIGN_COMMIT] += 1
    return created


def delete_table(location: str, log: str) -> Program[None]:
    """Delete all objects of a table, its log first, except those that LakeVilla keeps there."""
    for directory in (log, location):
        for info in (yield from list_objects(directory)):
            if not info.key.startswith(f"{location}/_lakevilla/"):
                yield from delete(info.key)


# ------------------------------------------------------------------ inside


def _field(name: str, kind: str, number: int | None, physical: str = "") -> dict[str, Any]:
    metadata = (
        {}
        if number is None
        else {"delta.columnMapping.id": number, PHYSICAL_NAME: physical or f"col-{name}"}
    )
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _reshaped(
    client: Client, table: LoggedTable, schema: Actions, configuration: Mapping[str, str]
) -> Actions:
    metadata = {
        **table.metadata,
        "schemaString": json.dumps({"type": "struct", "fields": schema}),
        "configuration": {**table.metadata["configuration"], **configuration},
    }
    return [_commit_info(client, "ALTER TABLE"), {"metaData": metadata}]


def _commit(
    client: Client,
    location: str,
    actions: Callable[[LoggedTable], Program[Actions]],
    counts_as: Fault,
) -> Program[bool]:
    """Publish the result of ``actions`` on the tip, again on each new tip."""
    for attempt in range(10):
        if attempt:
            yield from sleep(client.ids.jitter() * attempt)
        table = yield from read_tip(location)
        if table is None or not _WRITER_FEATURES.issuperset(
            table.protocol.get("writerFeatures") or ()
        ):
            return False
        try:
            entry = yield from actions(table)
        except UnreadableTable:
            continue  # a file was deleted meanwhile: read the new tip
        if not entry:
            return False
        outcome = yield from _put_entry(location, table.version + 1, entry)
        if isinstance(outcome, Stored):
            client.simulation.fired[counts_as] += 1
            return True
        if not isinstance(outcome, Refused):
            return False
    return False


def _put_entry(location: str, version: int, actions: Actions) -> Program[Any]:
    body = "\n".join(json.dumps(action) for action in actions).encode()
    return (yield from put(f"{location}/_delta_log/{version:020}.json", body, ABSENT))


def _write(client: Client, table: LoggedTable, rows: Sequence[Row]) -> Program[Actions]:
    """Store rows, with a file for each partition; return the ``add`` actions."""
    partition_by = table.metadata["partitionColumns"]
    columns = [f for f in table.schema if f["name"] not in partition_by]
    physical = table.physical
    schema = pa.schema([(physical[f["name"]], _ARROW_TYPES[f["type"]]) for f in columns])
    groups: dict[tuple[str | None, ...], list[Row]] = {}
    for row in rows:
        values = tuple(_partition_text(row[name]) for name in partition_by)
        groups.setdefault(values, []).append(row)
    adds: Actions = []
    for values, some in groups.items():
        group = [{physical[name]: row[name] for name in row} for row in some]
        body = encode_rows(group, schema)
        path = f"part-{client.ids.uuid()}.parquet"
        yield from put(f"{table.location}/{path}", body, ANY)
        adds.append(
            {
                "add": {
                    "path": path,
                    "partitionValues": dict(zip(partition_by, values, strict=True)),
                    "size": len(body),
                    "modificationTime": int(client.clock.now() * 1000),
                    "dataChange": True,
                    "stats": json.dumps(_statistics(group, schema)),
                }
            }
        )
    return adds


def _statistics(rows: Sequence[Row], schema: pa.Schema) -> dict[str, Any]:
    low, high, nulls = {}, {}, {}
    for name in schema.names:
        values = [row[name] for row in rows if row.get(name) is not None]
        nulls[name] = len(rows) - len(values)
        # Long strings may be incomplete in statistics: like most writers, leave them out.
        plain = all(isinstance(v, int) or (isinstance(v, str) and len(v) <= 32) for v in values)
        if values and plain and not isinstance(values[0], bool):
            low[name], high[name] = min(values), max(values)
    return {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}


def _only(table: LoggedTable, paths: Sequence[str]) -> LoggedTable:
    files = {path: table.files[path] for path in paths}
    return LoggedTable(table.location, table.version, table.metadata, table.protocol, files)


def _remove(client: Client, add: dict[str, Any]) -> dict[str, Any]:
    repeated = ("path", "partitionValues", "size", "deletionVector")
    kept = {key: add[key] for key in repeated if key in add}
    now = int(client.clock.now() * 1000)
    return {
        "remove": {
            **kept,
            "dataChange": True,
            "deletionTimestamp": now,
            "extendedFileMetadata": True,
        }
    }


def _commit_info(client: Client, operation: str, *, blind: bool = False) -> dict[str, Any]:
    return {
        "commitInfo": {
            "timestamp": int(client.clock.now() * 1000),
            "operation": operation,
            "operationParameters": {},
            "isBlindAppend": blind,
            "engineInfo": "foreign",
            # Two writes never have equal bytes.
            "txnId": client.ids.uuid(),
        }
    }


def _partition_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _protocol(mapped: bool, marks: bool) -> dict[str, Any]:
    if not marks:
        return dict(zip(_VERSIONS, (2, 5) if mapped else (1, 2), strict=True))
    readers = ["deletionVectors", *(["columnMapping"] if mapped else [])]
    writers = [*readers, "appendOnly", "invariants"]
    return {
        **dict(zip(_VERSIONS, (3, 7), strict=True)),
        "readerFeatures": readers,
        "writerFeatures": writers,
    }


_WRITER_FEATURES = {"appendOnly", "invariants", "columnMapping", "deletionVectors"}
_MARKS = {"delta.enableDeletionVectors": "true"}
_VERSIONS = ("minReaderVersion", "minWriterVersion")
_MODE = "delta.columnMapping.mode"
_LAST_ID = "delta.columnMapping.maxColumnId"

_ARROW_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
