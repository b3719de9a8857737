"""The views of tables: a page of them, and one with its columns, files and versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakevilla.results import TransactionInfo
from lakevilla.serve.page.shown import Body, Params, Shown

#: A page has so many tables, files, versions, or statistics.
ROWS = 50
#: A page has so many columns.
COLUMNS = 200
#: The parts of a table that are shown, each on a page of its own.
PARTS = ("columns", "files", "versions", "statistics")
_FILES = """
    SELECT path, size_bytes, rows, partition, modified, deletes FROM lakevilla_files
    WHERE "table" = :table ORDER BY path LIMIT :limit OFFSET :offset
"""
_STATISTICS = """
    SELECT path, "column", min, max, nulls FROM lakevilla_statistics
    WHERE "table" = :table ORDER BY path, "column" LIMIT :limit OFFSET :offset
"""
_OF_FILE = """
    SELECT path, "column", min, max, nulls FROM lakevilla_statistics
    WHERE "table" = :table AND path = :path ORDER BY "column" LIMIT :limit OFFSET :offset
"""
#: Who makes a commit of each kind, in a word.
_WRITERS = {"transaction": "LakeVilla", "foreign": "another client"}


def tables(shown: Shown, params: Params) -> Body:
    """Show the tables whose names begin with ``prefix``, a page of them."""
    prefix = params.text("prefix")
    page = shown.state.tables(prefix or None, after=params.text("after") or None, limit=ROWS)
    writing = _writing(shown.lake.transactions()) if shown.version is None else {}
    rows = [
        {
            "name": one.name,
            "format": one.format,
            "rows": one.rows,
            "bytes": one.bytes,
            "files": one.files,
            "version": one.changed_version,
            "changed": one.changed,
            "by": _WRITERS.get(one.changed_by or "", one.changed_by),
            "writing": writing.get(one.name, 0),
            "guarded": one.guarded,
        }
        for one in page
    ]
    return Body("tables.html", "Tables", {"tables": rows, "prefix": prefix, "next": page.next})


def _writing(transactions: Iterable[TransactionInfo]) -> dict[str, int]:
    """Return how many open transactions each table has."""
    found: dict[str, int] = {}
    for one in transactions:
        if one.state in ("running", "waiting", "saved"):
            for table in one.tables:
                found[table] = found.get(table, 0) + 1
    return found


def table(shown: Shown, params: Params) -> Body:
    """Show one part of a table."""
    name = params.needed("name")
    part = params.text("part") or PARTS[0]
    start = params.number("from") or 0
    described = shown.state.table(name)
    rows, more = _PARTS.get(part, _columns)(shown, params, described, start)
    values = {
        "table": described,
        "part": part if part in _PARTS else PARTS[0],
        "parts": PARTS,
        "rows": rows,
        "file": params.text("file"),
        "start": start,
        "next": start + len(rows) if more else None,
    }
    return Body("table.html", name, values)


def _columns(shown: Shown, params: Params, table: Any, start: int) -> tuple[list[Any], bool]:
    fields = [table.schema.field(at) for at in range(start, len(table.schema))[:COLUMNS]]
    rows = [
        {
            "name": one.name,
            "type": one.type,
            "nullable": one.nullable,
            "partition": one.name in table.partition_by,
        }
        for one in fields
    ]
    return rows, start + COLUMNS < len(table.schema)


def _files(shown: Shown, params: Params, table: Any, start: int) -> tuple[list[Any], bool]:
    return _queried(shown, _FILES, start, table=table.name)


def _statistics(shown: Shown, params: Params, table: Any, start: int) -> tuple[list[Any], bool]:
    path = params.text("file")
    if path:
        return _queried(shown, _OF_FILE, start, table=table.name, path=path)
    return _queried(shown, _STATISTICS, start, table=table.name)


def _versions(shown: Shown, params: Params, table: Any, start: int) -> tuple[list[Any], bool]:
    """Return the newest entries of the table's own log: it has no places to begin at."""
    found = shown.lake.table(table.name).history(start + ROWS + 1)[start:]
    return found[:ROWS], len(found) > ROWS


_PARTS = {
    "columns": _columns,
    "files": _files,
    "versions": _versions,
    "statistics": _statistics,
}


def _queried(shown: Shown, query: str, start: int, **names: str) -> tuple[list[Any], bool]:
    params = {**names, "limit": ROWS + 1, "offset": start}
    found = shown.lake.sql(query, params, version=shown.version).to_pylist()
    return found[:ROWS], len(found) > ROWS
