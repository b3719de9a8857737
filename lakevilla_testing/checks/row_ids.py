"""Checks of the ids of rows in Iceberg tables of version 3, over all kept versions of a table."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

from pyiceberg.manifest import ManifestContent

from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.tables.iceberg_reader import (
    IcebergTable,
    Manifest,
    first_row_id,
    id_of_first_row,
    manifests_in,
)
from lakevilla_testing.tables.reader import read_table, run_now
from lakevilla_testing.world.store import SimulatedStore

_ADDED, _DELETED = 1, 2


def row_ids_are_unique(store: SimulatedStore, tables: Collection[str]) -> int:
    """Check that no two rows of a table ever had one id; return the number of compared files."""
    compared = 0
    for name in tables:
        table = run_now(store, read_table(name))
        assert isinstance(table, IcebergTable)
        _marks_rise(table)
        compared += _ranges_are_apart(store, table)
    return compared


def _marks_rise(table: IcebergTable) -> None:
    """Check the marks of versions, and that each snapshot's ids are those between two marks."""
    versions = [table.kept[number] for number in sorted(table.kept)]
    for before, after in pairwise(versions):
        mark = before.get("next-row-id", 0)
        if after["format-version"] < 3:
            continue
        if after.get("next-row-id", -1) < mark:
            raise Violated(f"{table.location}: the mark {mark} became {after.get('next-row-id')}")
        known = {one["snapshot-id"] for one in before["snapshots"]}
        for one in after["snapshots"]:
            if one["snapshot-id"] in known:
                continue
            first, count = one.get("first-row-id"), one.get("added-rows")
            if (first, count) != (mark, after["next-row-id"] - mark):
                raise Violated(
                    f"{table.location}: a snapshot has ids from {first} on, {count} of them, "
                    f"between the marks {mark} and {after['next-row-id']}"
                )


def _ranges_are_apart(store: SimulatedStore, table: IcebergTable) -> int:
    """Check the ids of the files of all kept snapshots."""
    if table.metadata["format-version"] < 3:
        return 0
    mark = table.metadata["next-row-id"]
    snapshots = {
        one["snapshot-id"]: one for kept in table.kept.values() for one in kept["snapshots"]
    }
    found: dict[int, tuple[int, str]] = {}
    of_snapshot: dict[int, dict[str, int]] = {}
    for number, snapshot in snapshots.items():
        try:
            manifests = run_now(store, manifests_in(table, snapshot))
        except UnreadableTable:
            continue  # a snapshot that was expired since
        given = _given_in(table, snapshot, manifests)
        of_snapshot[number] = {path: base for path, (base, _, _) in given.items()}
        for path, (base, rows, is_added) in given.items():
            if base + rows > mark:
                raise Violated(f"{table.location}: {path} has ids to {base + rows}, above {mark}")
            if found.setdefault(base, (rows, path)) != (rows, path):
                raise Violated(
                    f"{table.location}: {path} and {found[base][1]} both begin at {base}"
                )
            before = of_snapshot.get(snapshot.get("parent-snapshot-id", -1), {}).get(path, base)
            if before != base and not is_added:
                raise Violated(f"{table.location}: {path} had ids from {before} on, now {base}")
    for (base, (rows, path)), (later, (_, other)) in pairwise(sorted(found.items())):
        if base + rows > later:
            raise Violated(f"{table.location}: {path} and {other} share the id {later}")
    return len(found)


def _given_in(
    table: IcebergTable, snapshot: dict[str, Any], manifests: tuple[Manifest, ...]
) -> dict[str, tuple[int, int, bool]]:
    """Return the first id and the number of rows of each live file, and whether it was added."""
    found = {}
    for manifest, entries in manifests:
        if manifest.content != ManifestContent.DATA or "first-row-id" not in snapshot:
            continue
        if first_row_id(manifest) is None:
            raise Violated(f"{table.location}: {manifest.manifest_path} has no ids")
        for entry in entries:
            base = id_of_first_row(entry.data_file)
            if entry.status == _DELETED:
                continue
            assert base is not None
            own = entry.status == _ADDED and entry.snapshot_id == snapshot["snapshot-id"]
            path = table.path(entry.data_file.file_path)
            found[path] = base, entry.data_file.record_count, own
    return found
