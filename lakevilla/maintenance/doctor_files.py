"""What the doctor tells of data files: that each is there, whole, and holds the logged rows.

Two requests a file, a HEAD and a GET of its footer, and one for each that deletes rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.engines.base import TableInput
from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedTableFeature
from lakevilla.formats.files import file_key
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.view import build_view
from lakevilla.maintenance.doctor_tables import unreadable
from lakevilla.results import Finding
from lakevilla.store.base import Found, Missing
from lakevilla.store.effects import Program, get, parallel
from lakevilla.store.effects import stat as object_info

#: Reads all that deletes rows of some files, or raises what is wrong with it.
ReadDeletes = Callable[[TableInput], Program[object]]

#: Files asked for in one round.
_AT_ONCE = 128
#: What is fetched of a file's end: mostly all of its footer.
_FOOTER_BYTES = 16 * 1024
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class _File:
    """A live file as the log tells it; ``rows`` is None where it does not say."""

    key: str
    size: int
    rows: int | None


def look_at_files(
    context: Context, head: Head, locations: Iterable[str], read_deletes: ReadDeletes
) -> Program[list[Finding]]:
    """Look at every live file of the tables, one table after the other."""
    findings: list[Finding] = []
    for location in locations:
        try:
            tail = yield from probe(context, (yield from open_tail(context, location)))
            view = yield from build_view(context, head, location, tail)
            files = yield from view.snapshot.files()
        except LakeVillaError as error:
            findings.append(unreadable(location, error))
            continue
        layout = view.snapshot.layout
        for part in files.to_batches(max_chunksize=_AT_ONCE):
            rows = pa.Table.from_batches([part])
            found = yield from parallel([_look(location, file) for file in _files(layout, rows)])
            findings.extend(finding for finding in found if finding is not None)
            findings.extend((yield from _deletes(read_deletes, layout, location, rows)))
    return list(dict.fromkeys(findings))  # one delete file is of many data files


def _files(layout: Layout, files: pa.Table) -> Iterator[_File]:
    columns = (files[name].to_pylist() for name in ("path", "size", "stats"))
    for path, size, stats in zip(*columns, strict=True):
        yield _File(file_key(layout.location, path), size, _logged_rows(stats))


def _logged_rows(stats: str | None) -> int | None:
    try:
        count = None if stats is None else json.loads(stats).get("numRecords")
    except (ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None


def _look(table: str, file: _File) -> Program[Finding | None]:
    info = yield from object_info(file.key)
    if isinstance(info, Missing):
        return _finding(table, file.key, "missing_file", "is gone although the table names it")
    if info.size != file.size:
        what = f"has {info.size} bytes, and the table's log says {file.size}"
        return _finding(table, file.key, "damaged_file", what)
    try:
        rows = yield from _rows_in_footer(file)
    except CorruptObject as error:
        return _finding(table, file.key, "damaged_file", error.message)
    if rows is None or file.rows is None or rows == file.rows:
        return None
    what = f"holds {rows} rows by its footer, and the table's log says {file.rows}"
    return _finding(table, file.key, "damaged_file", what)


def _rows_in_footer(file: _File) -> Program[int | None]:
    """None if the file went while it was looked at."""
    wanted = min(_FOOTER_BYTES, file.size)
    while True:
        outcome = yield from get(file.key, byte_range=(file.size - wanted, file.size))
        if not isinstance(outcome, Found):
            return None
        end = outcome.body
        if len(end) < 12 or end[-4:] != _MAGIC:
            raise CorruptObject("has no Parquet footer", key=file.key)
        length = int.from_bytes(end[-8:-4], "little") + 8
        if length > file.size:
            raise CorruptObject("has a footer that is longer than the file", key=file.key)
        if length <= len(end):
            break
        wanted = length
    try:
        # The footer alone, as a file: nobody looks for the pages that it tells of.
        return int(pq.read_metadata(io.BytesIO(_MAGIC + end[-length:])).num_rows)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CorruptObject(f"has a footer that can't be read ({reason})", key=file.key) from None


def _deletes(
    read_deletes: ReadDeletes, layout: Layout, location: str, files: pa.Table
) -> Program[list[Finding]]:
    try:
        yield from read_deletes(TableInput(layout, files))
        return []
    except UnsupportedTableFeature as error:
        return [Finding("warning", error.kind, error.message, table=location)]
    except CorruptObject as error:
        if len(files) == 1:
            return [Finding("error", "damaged_file", error.message, table=location, key=error.key)]
    findings = []
    for place in range(len(files)):
        one = files.slice(place, 1)
        findings.extend((yield from _deletes(read_deletes, layout, location, one)))
    return findings


def _finding(table: str, key: str, kind: str, what: str) -> Finding:
    remedy = "restore it from a backup, or restore the table to a version that does not name it"
    return Finding("error", kind, f"data file {key} {what}: {remedy}", table=table, key=key)
