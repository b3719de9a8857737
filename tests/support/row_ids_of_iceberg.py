"""Ids of rows in Iceberg tables of version 3, as LakeVilla's list of files implies them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakevilla as lv
from lakevilla.engines.deletes import rows_marked
from lakevilla.formats.files import FILES_SCHEMA, data_files, file_key
from tests.support.inside import inside

#: The id of a row, and the sequence number of the commit that last changed it.
Lineage = tuple[int | None, int | None]
_ROW_ID, _LAST_UPDATED = b"2147483540", b"2147483539"


def files_of(lake: lv.Lake, table: str) -> list[dict[str, Any]]:
    """Return the rows of the table's list of files."""
    parts = inside(lake)
    snapshot = parts.run(parts.context.formats.open(table, table))
    found: list[dict[str, Any]] = parts.run(snapshot.files()).to_pylist()
    return found


def row_ids(lake: lv.Lake, table: str, key: str = "k") -> dict[Any, Lineage]:
    """Return the lineage of each row by its key.

    Rows of files with deletes other than vectors are left out.
    """
    found: dict[Any, Lineage] = {}
    for file in files_of(lake, table):
        if any(one["kind"] != "vector" for one in file["deletes"] or ()):
            continue
        deleted = _deleted(lake, table, file)
        location = f"{inside(lake).context.root.removeprefix('file://')}/{table}"
        path = file_key(location, file["path"]).removeprefix("file://")
        rows = pq.ParquetFile(path).read()
        stored = {(f.metadata or {}).get(b"PARQUET:field_id"): f.name for f in rows.schema}
        ids, since = _column(rows, stored.get(_ROW_ID)), _column(rows, stored.get(_LAST_UPDATED))
        base, default = file["base_row_id"], file["default_row_commit_version"]
        for number, value in enumerate(rows[key].to_pylist()):
            if number in deleted:
                continue
            inherited = None if base is None else base + number
            own = inherited if ids[number] is None else ids[number]
            assert value not in found, f"{key} {value} twice"
            found[value] = own, default if since[number] is None else since[number]
    return found


def lineage_of(lake: lv.Lake, table: str, key: str) -> dict[Any, tuple[int, int]]:
    """Return the lineage of all rows; a row without an id, or two with one, fails the test."""
    found: dict[Any, tuple[int, int]] = {}
    for k, (row, since) in row_ids(lake, table, key).items():
        assert row is not None, f"row {k} has no id"
        assert since is not None, f"row {k} has no number of its last change"
        found[k] = row, since
    ids = {row for row, _ in found.values()}
    assert len(ids) == len(found), f"two rows have one id: {found}"
    directory = Path(lake.table(table).uri.removeprefix("file://")) / "metadata"
    newest = max(
        directory.glob("v*.metadata.json"), key=lambda one: int(one.name[1:].partition(".")[0])
    )
    assert not ids or max(ids) < json.loads(newest.read_text())["next-row-id"]
    return found


def _deleted(lake: lv.Lake, table: str, file: dict[str, Any]) -> set[int]:
    parts = inside(lake)
    snapshot = parts.run(parts.context.formats.open(table, table))
    (one,) = data_files(pa.Table.from_pylist([file], schema=FILES_SCHEMA))
    return set(parts.run(rows_marked(snapshot.layout, one)).tolist())


def _column(rows: pa.Table, name: str | None) -> list[int | None]:
    if name is None:
        return [None] * rows.num_rows
    found: list[int | None] = rows[name].to_pylist()
    return found
