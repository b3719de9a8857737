"""Check that no two rows of a table can have one id (docs/design/0063-row-ids.md).

The ids that rows inherit from their files follow from the log. Of the ids that files store, only
the highest is compared, which the files' footers have.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.errors import CorruptObject, LakeVillaError
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.commit import high_water_mark
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import file_key, rows_in
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, parallel

#: The number of footers that are read in one round.
_AT_ONCE = 128
#: The number of bytes fetched from a file's end, which mostly contain the whole footer.
_FOOTER_BYTES = 16 * 1024
_MAGIC = b"PAR1"
_REMEDY = "readers take rows for others: write the table's rows into a new one, with the ids anew"


def look_at_row_ids(
    snapshot: TableSnapshot, files: pa.Table, some: pa.Table
) -> Program[list[Finding]]:
    """Return findings on the ids of rows in files of a table, by the footers of ``some`` of them.

    The table's rows have ids (``Layout.lineage``).
    """
    table = snapshot.location
    try:
        mark = mark_of(snapshot)
    except LakeVillaError as error:
        return [Finding("error", error.kind, error.message, table=table)]
    found = list(_wrong_ranges(files, mark))
    for part in some.to_batches(max_chunksize=_AT_ONCE):
        found += yield from _stored_above(snapshot, pa.Table.from_batches([part]), mark)
    return [Finding("error", "row_ids", f"{what}: {_REMEDY}", table=table) for what in found]


def mark_of(snapshot: TableSnapshot) -> int:
    """Return the highest row id that a table has assigned, -1 for none."""
    if isinstance(snapshot, DeltaSnapshot):
        return high_water_mark(snapshot.domains, snapshot.location)
    return int(snapshot.metadata.get("next-row-id") or 0) - 1


def _wrong_ranges(files: pa.Table, mark: int) -> Iterator[str]:
    """Yield what is wrong with the ids that rows inherit."""
    given = files.filter(pc.is_valid(files["base_row_id"])).sort_by("base_row_id")
    columns = (given[name].to_pylist() for name in ("base_row_id", "path", "stats"))
    before, after = "", -1
    for first, path, stats in zip(*columns, strict=True):
        if first < after:
            yield f"rows of files {before} and {path} have the same ids, from {first} on"
        last = first + (rows_in(stats) or 0)
        if last - 1 > mark:
            yield f"rows of file {path} have ids up to {last - 1}, and the table's mark is {mark}"
        if last > after:
            before, after = path, last


def _stored_above(snapshot: TableSnapshot, files: pa.Table, mark: int) -> Program[list[str]]:
    """Return what is wrong with the ids that files store; damaged files are reported elsewhere."""
    paths, sizes = files["path"].to_pylist(), files["size"].to_pylist()
    name = snapshot.layout.lineage[0].name
    keys = [file_key(snapshot.location, path) for path in paths]
    highest = yield from parallel(
        [_highest_stored(key, size, name) for key, size in zip(keys, sizes, strict=True)]
    )
    return [
        f"file {path} stores the row id {id_}, and the table's mark is {mark}"
        for path, id_ in zip(paths, highest, strict=True)
        if id_ is not None and id_ > mark
    ]


def _highest_stored(key: str, size: int, name: str) -> Program[int | None]:
    """Return the highest id that a file stores, by its footer; None if it has none."""
    try:
        footer = yield from footer_of(key, size)
    except LakeVillaError:
        return None
    if footer is None:
        return None
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    chunks = (group.column(i) for group in groups for i in range(group.num_columns))
    stored = [
        chunk.statistics.max
        for chunk in chunks
        if chunk.path_in_schema == name and chunk.is_stats_set and chunk.statistics.has_min_max
    ]
    return max(stored, default=None)


def footer_of(key: str, size: int) -> Program[pq.FileMetaData | None]:
    """Return the footer of a Parquet file; None if the file was deleted meanwhile.

    It takes one request, or two if the footer is long. Raises ``CorruptObject`` if it is damaged.
    """
    wanted = min(_FOOTER_BYTES, size)
    while True:
        outcome = yield from get(key, byte_range=(size - wanted, size))
        if not isinstance(outcome, Found):
            return None
        end = outcome.body
        if len(end) < 12 or end[-4:] != _MAGIC:
            raise CorruptObject("has no Parquet footer", key=key)
        length = int.from_bytes(end[-8:-4], "little") + 8
        if length > size:
            raise CorruptObject("has a footer that is longer than the file", key=key)
        if length <= len(end):
            break
        wanted = length
    try:
        # Parse the footer as a file of its own, without the data pages that it describes.
        return pq.read_metadata(io.BytesIO(_MAGIC + end[-length:]))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CorruptObject(f"has a footer that can't be read ({reason})", key=key) from None
