"""Clients of Iceberg tables without LakeVilla, which work as Spark's ``hadoop`` catalog.

Each is a program for the simulator that knows the Iceberg format and nothing else. To find the
newest version it follows the hint and then the numbers. To commit it checks whether the next number
is free and creates it if absent (the rename of a file system), then moves the hint. When it has
lost a race it reads the new version and starts again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyiceberg.manifest import DataFile

from lakevilla.store.base import ABSENT, ANY, Found, Missing, Refused, Stored
from lakevilla.store.effects import Program, delete, get, list_objects, put, sleep, stat
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.tables.delta_writer import delete_table
from lakevilla_testing.tables.iceberg_reader import (
    IcebergTable,
    deleted_rows,
    metadata_key,
    named_objects,
    read_metadata,
    read_rows,
    rows_by_place,
    uri_of,
)
from lakevilla_testing.tables.iceberg_snapshots import (
    Metadata,
    now_ms,
    with_current,
    with_snapshot,
    write_rows,
    write_vectors,
)
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.rows import Row

Columns = Mapping[str, str]


def create(
    client: Client,
    location: str,
    columns: Columns,
    rows: Sequence[Row] = (),
    *,
    properties: Mapping[str, str] | None = None,
    version: int = 2,
    marks: bool = False,
) -> Program[bool]:
    """Create a table of ``columns`` (name to Iceberg type), with rows; False if there is one.

    ``marks``: its deleted rows are marked by vectors, once it is of version 3.
    """
    fields = [
        {"id": number, "name": name, "required": False, "type": kind}
        for number, (name, kind) in enumerate(columns.items(), 1)
    ]
    metadata: Metadata = {
        "format-version": version,
        "table-uuid": client.ids.uuid(),
        "location": uri_of(location),
        "last-sequence-number": 0,
        "last-updated-ms": now_ms(client),
        "last-column-id": len(fields),
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {**(properties or {}), **(_MODES if marks else {})},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    if version >= 3:
        metadata["next-row-id"] = 0
    blank = IcebergTable(location, -1, metadata)
    if rows:
        added = yield from write_rows(client, blank, rows)
        metadata = yield from with_snapshot(client, blank, "append", added)
    return isinstance((yield from _publish(client, location, 0, metadata)), Stored)


def append(client: Client, location: str, rows: Sequence[Row]) -> Program[bool]:
    """Add rows blindly: commits since do not conflict."""
    written: list[DataFile] = []

    def change(table: IcebergTable) -> Program[Metadata]:
        if not written:
            written.extend((yield from write_rows(client, table, rows)))
        return (yield from with_snapshot(client, table, "append", written))

    return (yield from _commit(client, location, change))


def rewrite(
    client: Client, location: str, change: Callable[[Row], Row | None], *, files: int | None = None
) -> Program[bool]:
    """Update (or, for None, delete) each row of the first ``files`` files, by copying them."""

    def rewritten(table: IcebergTable) -> Program[Metadata | None]:
        chosen = sorted(table.files)[:files]
        if not chosen:
            return None
        rows = yield from read_rows(only(table, chosen))
        changed = [new for row in rows if (new := change(row)) is not None]
        written = (yield from write_rows(client, table, changed)) if changed else []
        return (yield from with_snapshot(client, table, "overwrite", written, chosen))

    return (yield from _commit(client, location, rewritten))


def mark(client: Client, location: str, change: Callable[[Row], Row]) -> Program[bool]:
    """Update rows by vectors, as Spark's merge-on-read does; in version 2, by ``rewrite``."""
    table = yield from _read(location)
    if table is None or table.metadata["format-version"] < 3:
        return (yield from rewrite(client, location, change))

    def marked(table: IcebergTable) -> Program[Metadata | None]:
        placed = yield from rows_by_place(table, sorted(table.files))
        hit = {
            path: [place for place, row in rows.items() if change(row) != row]
            for path, rows in placed.items()
        }
        hit = {path: places for path, places in hit.items() if places}
        if not hit:
            return None
        rows = [change(placed[path][place]) for path, places in hit.items() for place in places]
        deleted = {}
        for path, places in hit.items():
            known = yield from deleted_rows(table, table.vectors.get(path))
            deleted[path] = {*known, *places}
        written = yield from write_rows(client, table, rows)
        vectors = yield from write_vectors(client, table, deleted)
        return (yield from with_snapshot(client, table, "overwrite", written, vectors=vectors))

    return (yield from _commit(client, location, marked))


def optimize(client: Client, location: str) -> Program[bool]:
    """Put all rows into one file, as ``rewrite_data_files`` does: no row changes."""

    def change(table: IcebergTable) -> Program[Metadata | None]:
        if len(table.files) < 2:
            return None
        written = yield from write_rows(client, table, (yield from read_rows(table)))
        return (yield from with_snapshot(client, table, "replace", written, sorted(table.files)))

    return (yield from _commit(client, location, change))


def rewrite_manifests(client: Client, location: str) -> Program[bool]:
    """Put all entries into one manifest: a new snapshot of the same files."""

    def change(table: IcebergTable) -> Program[Metadata | None]:
        if len(table.manifests) < 2:
            return None
        return (yield from with_snapshot(client, table, "replace", merge=True))

    return (yield from _commit(client, location, change))


def restore(client: Client, location: str, snapshots_back: int = 1) -> Program[bool]:
    """Set the table back to an earlier snapshot, as ``rollback_to_snapshot`` does."""

    def change(table: IcebergTable) -> Program[Metadata | None]:
        yield from ()
        chosen = table.current
        for _ in range(snapshots_back):
            if chosen is None:
                return None
            parent = chosen.get("parent-snapshot-id")
            known = table.metadata["snapshots"]
            chosen = next((s for s in known if s["snapshot-id"] == parent), None)
        if chosen is None:
            return None
        return with_current(client, table.metadata, chosen["snapshot-id"])

    return (yield from _commit(client, location, change))


def set_property(client: Client, location: str, name: str, value: str) -> Program[bool]:
    """Change the table's definition."""

    def change(table: IcebergTable) -> Program[Metadata]:
        yield from ()
        return {**table.metadata, "properties": {**table.metadata["properties"], name: value}}

    return (yield from _commit(client, location, change))


def upgrade(client: Client, location: str) -> Program[bool]:
    """Upgrade the table to version 3, as a change of properties does in Spark."""

    def change(table: IcebergTable) -> Program[Metadata | None]:
        yield from ()
        if table.metadata["format-version"] >= 3:
            return None
        return {**table.metadata, "format-version": 3, "next-row-id": 0}

    return (yield from _commit(client, location, change))


def commit_beside(client: Client, location: str, rows: Sequence[Row]) -> Program[bool]:
    """Add rows to a snapshot that no branch has as its newest: only ids are given out."""

    def change(table: IcebergTable) -> Program[Metadata]:
        written = yield from write_rows(client, table, rows)
        made = yield from with_snapshot(client, table, "append", written)
        main = ("current-snapshot-id", "refs", "snapshot-log")
        return {**made, **{name: table.metadata[name] for name in main}}

    return (yield from _commit(client, location, change))


def add_column(client: Client, location: str, name: str) -> Program[bool]:
    """Add a column of whole numbers."""

    def change(table: IcebergTable) -> Program[Metadata]:
        yield from ()
        last = table.metadata["last-column-id"] + 1
        field = {"id": last, "name": name, "required": False, "type": "long"}
        return {**_reshaped(table, [*table.schema, field]), "last-column-id": last}

    return (yield from _commit(client, location, change))


def toggle_not_null(client: Client, location: str, name: str) -> Program[bool]:
    """Make a column required, or optional again."""

    def change(table: IcebergTable) -> Program[Metadata]:
        yield from ()
        fields = [
            {**f, "required": not f["required"]} if f["name"] == name else f for f in table.schema
        ]
        return _reshaped(table, fields)

    return (yield from _commit(client, location, change))


def name_fields(client: Client, location: str, names: Mapping[str, str]) -> Program[bool]:
    """Give columns other names, by their ids."""

    def change(table: IcebergTable) -> Program[Metadata]:
        yield from ()
        renamed = [{**f, "name": names.get(str(f["id"]), f["name"])} for f in table.schema]
        return _reshaped(table, renamed)

    return (yield from _commit(client, location, change))


def expire(client: Client, location: str, retention_seconds: float) -> Program[bool]:
    """Expire snapshots that are old enough, then delete the files that only they have named."""
    before = now_ms(client) - int(1000 * retention_seconds)
    doomed: set[str] = set()

    def change(table: IcebergTable) -> Program[Metadata | None]:
        doomed.clear()
        current = table.metadata["current-snapshot-id"]
        known = table.metadata["snapshots"]
        kept = [s for s in known if s["timestamp-ms"] >= before or s["snapshot-id"] == current]
        if len(kept) == len(known):
            return None
        after = {**table.metadata, "snapshots": kept}
        ids = {s["snapshot-id"] for s in kept}
        log = [one for one in after["snapshot-log"] if one["snapshot-id"] in ids]
        doomed.update((yield from _named_by(table, table.metadata)))
        doomed.difference_update((yield from _named_by(table, after)))
        return {**after, "snapshot-log": log}

    done = yield from _commit(client, location, change)
    if not done:
        return False
    # Publish first: then a client that reads the newest version finds all that it names.
    for path in sorted(doomed):
        yield from delete(f"{location}/{path}")
    client.simulation.fired[Fault.CLEAN_UP] += 1
    return True


def remove_orphans(client: Client, location: str, retention_seconds: float) -> Program[int]:
    """Delete old files that no snapshot of the table names, as ``remove_orphan_files`` does."""
    started = client.clock.now()
    listed = yield from list_objects(location)
    table = yield from _read(location)
    if table is None:
        return 0
    named = yield from _named_by(table, table.metadata)
    named.add("metadata/version-hint.text")
    log = [table.path(one["metadata-file"]) for one in table.metadata["metadata-log"]]
    named.update((*log, f"metadata/v{table.version + 1}.metadata.json"))
    deleted = 0
    for info in listed:
        path = info.key[len(location) + 1 :]
        hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
        if info.modified_seconds < started - retention_seconds and not hidden and path not in named:
            yield from delete(info.key)
            deleted += 1
    if deleted:
        client.simulation.fired[Fault.CLEAN_UP] += 1
    return deleted


def drop_and_recreate(
    client: Client, location: str, columns: Columns, rows: Sequence[Row]
) -> Program[bool]:
    """Delete the table's files and metadata, then make another table there."""
    yield from delete_table(location, f"{location}/metadata")
    created = yield from create(client, location, columns, rows)
    if created:
        client.simulation.fired[Fault.FOREIGN_COMMIT] += 1
    return created


# ------------------------------------------------------------------ inside


def _commit(
    client: Client, location: str, change: Callable[[IcebergTable], Program[Metadata | None]]
) -> Program[bool]:
    """Publish the result of ``change`` on the newest version, again on each new one."""
    for attempt in range(10):
        if attempt:
            yield from sleep(client.ids.jitter() * attempt)
        table = yield from _read(location)
        if table is None:
            return False
        try:
            metadata = yield from change(table)
        except UnreadableTable:
            continue  # a file was deleted meanwhile: read the newest version again
        if metadata is None:
            return False
        log = [*table.metadata["metadata-log"], _log_entry(table)]
        longest = int(table.metadata["properties"].get(_LONGEST, 100))
        version = table.version + 1
        metadata = {**metadata, "metadata-log": log[-longest:]}
        metadata["last-updated-ms"] = max(now_ms(client), table.metadata["last-updated-ms"])
        outcome = yield from _publish(client, location, version, metadata)
        if isinstance(outcome, Stored):
            client.simulation.fired[Fault.FOREIGN_COMMIT] += 1
            if table.metadata["properties"].get(_CLEANED) == "true":
                for entry in log[:-longest]:
                    yield from delete(f"{location}/{table.path(entry['metadata-file'])}")
            return True
        if not isinstance(outcome, Refused):
            return False
    return False


def _reshaped(table: IcebergTable, fields: list[dict[str, Any]]) -> Metadata:
    """Return the metadata with a new schema as the current one."""
    schemas = table.metadata["schemas"]
    number = max(schema["schema-id"] for schema in schemas) + 1
    schema = {"type": "struct", "schema-id": number, "fields": fields}
    return {**table.metadata, "schemas": [*schemas, schema], "current-schema-id": number}


def _publish(client: Client, location: str, version: int, metadata: Metadata) -> Program[Any]:
    key = metadata_key(location, version)
    if not isinstance((yield from stat(key)), Missing):
        return Refused()
    outcome = yield from put(key, json.dumps(metadata).encode(), ABSENT)
    if isinstance(outcome, Stored):
        yield from put(f"{location}/metadata/version-hint.text", str(version + 1).encode(), ANY)
    return outcome


def _read(location: str) -> Program[IcebergTable | None]:
    """Return the newest version, or None where a table is absent or is being deleted."""
    hint = yield from get(f"{location}/metadata/version-hint.text")
    version = None
    if isinstance(hint, Found) and hint.body.isdigit():
        version = int(hint.body) - 1
        while not isinstance((yield from stat(metadata_key(location, version + 1))), Missing):
            version += 1
    try:
        return (yield from read_metadata(location, version))
    except UnreadableTable:
        return None


def _named_by(table: IcebergTable, metadata: Metadata) -> Program[set[str]]:
    """Return the paths that the snapshots of one metadata file name."""
    alone = IcebergTable(table.location, table.version, metadata, {table.version: metadata})
    return (yield from named_objects(alone, with_removed=False))


def only(table: IcebergTable, paths: Sequence[str]) -> IcebergTable:
    """Return the table with only some of its files."""
    chosen = set(paths)
    manifests = tuple(
        (
            manifest,
            tuple(
                e
                for e in entries
                if table.path(e.data_file.file_path) in chosen
                or table.target(e.data_file) in chosen
            ),
        )
        for manifest, entries in table.manifests
    )
    return IcebergTable(table.location, table.version, table.metadata, {}, manifests)


def _log_entry(table: IcebergTable) -> dict[str, Any]:
    key = uri_of("") + metadata_key(table.location, table.version)
    return {"metadata-file": key, "timestamp-ms": table.metadata["last-updated-ms"]}


_MODES = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
_LONGEST = "write.metadata.previous-versions-max"
_CLEANED = "write.metadata.delete-after-commit.enabled"
