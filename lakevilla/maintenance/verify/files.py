"""Verify data files and their footers."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from blake3 import blake3

from lakevilla.engines.base import TableInput
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.commit import high_water_mark
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import FileRef, file_key, file_refs, hashes, rows_in
from lakevilla.formats.layout import Layout
from lakevilla.global_log.bases import Base
from lakevilla.ids import txn_in
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import not_kept
from lakevilla.lake.frozen.states import AtBase, AtHead, LakeState
from lakevilla.lake.integrity import with_hashes
from lakevilla.lake.view import View
from lakevilla.maintenance.recovery import out_of_reach, unreadable
from lakevilla.meter import note
from lakevilla.results import Finding
from lakevilla.store.base import Found, Missing
from lakevilla.store.content import Damage, HashedFile, compare_all
from lakevilla.store.effects import Program, get, parallel
from lakevilla.store.effects import stat as object_info

# -------------------- files
#
# Check that each data file exists, is complete, and is unchanged, by its hash or by the log.
#
# A file with a known hash is fetched whole, by a request for each 16 MiB, and compared with the
# hash. Of other files the footer is read, by a HEAD request and a GET. Deletes of rows are read as
# a scan reads them.


#: A function that reads all deletes of rows of some files, or raises an error on what is wrong.
ReadDeletes = Callable[[TableInput], Program[object]]

#: The number of files that are requested in one round, and of tables that are opened in one.
_AT_ONCE = 128
_TABLES_AT_ONCE = 32
_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Depth:
    """The depth of the check: the shares of files whose content is compared, and footer is read."""

    hashes: float
    footers: float


@dataclass(slots=True)
class Looked:
    """The numbers of checked files, by the kind of check, and the findings."""

    findings: list[Finding] = field(default_factory=list)
    compared: int = 0
    by_footer: int = 0
    by_size: int = 0
    #: The number of checked files without a known hash.
    without_hash: int = 0

    @property
    def files(self) -> int:
        return self.compared + self.by_footer + self.by_size


@dataclass(frozen=True, slots=True)
class _File:
    """A file as a table's state describes it; ``rows`` is None if the state does not say it."""

    state: _State
    ref: FileRef
    key: str
    size: int
    rows: int | None
    hash: str | None
    base: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A table in one state of the lake, with those of its files that no earlier state has."""

    source: LakeState
    view: View
    files: pa.Table

    @property
    def layout(self) -> Layout:
        return self.view.snapshot.layout

    @property
    def base(self) -> Base | None:
        """The base that keeps the state, if it is the state of a ref."""
        return self.source.base if isinstance(self.source, AtBase) else None

    def each(self) -> Iterator[_File]:
        location = self.layout.location
        for part in self.files.to_batches(max_chunksize=_AT_ONCE):
            rows = pa.Table.from_batches([part])
            columns = (
                rows["size"].to_pylist(),
                rows["stats"].to_pylist(),
                hashes(rows),
                rows["base_row_id"].to_pylist(),
            )
            for ref, size, stats, content, base in zip(file_refs(rows), *columns, strict=True):
                key = file_key(location, ref[0])
                yield _File(self, ref, key, size, rows_in(stats), content, base)


def look_at_files(
    context: Context,
    states: Sequence[LakeState],
    locations: Iterable[str],
    read_deletes: ReadDeletes,
    depth: Depth,
) -> Program[Looked]:
    """Check every data file of these tables in the given states, each file once."""
    checked = Looked()
    drawn = _Drawn(depth, int(context.clock.now()) // _DAY_SECONDS)
    at_once = _AT_ONCE * context.engine.spreads
    rest = list(locations)
    while rest:
        batch_of_tables, rest = rest[:_TABLES_AT_ONCE], rest[_TABLES_AT_ONCE:]
        opened = yield from parallel([_opened(context, states, one) for one in batch_of_tables])
        read: list[_State] = []
        for found, wrong in opened:
            read += found
            checked.findings += wrong
        batch: list[_File] = []
        for file in (file for state in read for file in state.each()):
            batch.append(file)
            if len(batch) == at_once:
                yield from _look(context, batch, drawn, checked)
                batch = []
        yield from _look(context, batch, drawn, checked)
        for state in read:
            checked.findings += yield from _deletes(read_deletes, state)
            if state.layout.lineage:
                read_too = pa.array([drawn.reads_footer(file) for file in state.each()], pa.bool_())
                some = state.files.filter(read_too)
                snapshot = state.view.snapshot
                checked.findings += yield from look_at_row_ids(snapshot, state.files, some)
    checked.findings = list(_each_once(checked.findings))
    return checked


def _each_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Drop repeated findings: files may share a delete file, and a lost state is reported once."""
    seen = set()
    for one in findings:
        of_ref = one.message.partition("data file")[0] if one.kind == "ref_lost" else one.message
        if (one.table, one.kind, one.key, of_ref) not in seen:
            seen.add((one.table, one.kind, one.key, of_ref))
            yield one


def _opened(
    context: Context, states: Sequence[LakeState], location: str
) -> Program[tuple[list[_State], list[Finding]]]:
    """Return a table's states and the findings; a state has only files that no earlier one has."""
    beyond = None
    if context.held is not None:
        beyond = out_of_reach(context, context.held.head, location)
    if beyond is not None:
        return [], [beyond]
    found: list[_State] = []
    wrong: list[Finding] = []
    seen: pa.ChunkedArray | None = None
    for state in states:
        try:
            view = (yield from state.views(context, [location]))[location]
            if view is None:
                continue
            files = yield from view.snapshot.files()
        except StoreError:
            raise
        except VersionNotFound as error:
            wrong.append(_lost(location, error.message))
            continue
        except LakeVillaError as error:
            wrong.append(unreadable(location, error))
            continue
        names = _names(files)
        if seen is not None:
            files = files.filter(pc.invert(pc.is_in(names, value_set=seen)))
        if len(states) > 1:
            chunks = names.chunks if seen is None else [*seen.chunks, *names.chunks]
            seen = pa.chunked_array(chunks, pa.string())
        with suppress(CorruptObject):  # the report on the history names this error
            files = yield from with_hashes(context, location, view.snapshot.format, files)
        found.append(_State(state, view, files))
    return found, wrong


def _names(files: pa.Table) -> pa.ChunkedArray:
    """Return a column that identifies files: the path, and the deletes of its rows."""
    deletes = pc.fill_null(files["dv_id"], "")
    joined = pc.binary_join_element_wise(files["path"], deletes, "\n")
    return joined if isinstance(joined, pa.ChunkedArray) else pa.chunked_array([joined])


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The random choice of files to check, which is the same all day and changes each day."""

    depth: Depth
    day: int

    def compares(self, file: _File) -> bool:
        return file.hash is not None and self._has(file, self.depth.hashes)

    def reads_footer(self, file: _File) -> bool:
        return self._has(file, self.depth.footers)

    def _has(self, file: _File, share: float) -> bool:
        if share >= 1 or not share:
            return bool(share)
        number = int.from_bytes(blake3(f"{self.day}:{file.key}".encode()).digest(4), "big")
        return number < share * 2**32


def _look(
    context: Context, files: Sequence[_File], drawn: _Drawn, checked: Looked
) -> Program[None]:
    checks = [_check_of(file, drawn) for file in files]
    portions = in_portions(checks)
    outcomes = yield from context.engine.spread(look_into, portions)
    checked.compared += sum(one.how == "hash" for one in checks)
    checked.by_footer += sum(one.how == "footer" for one in checks)
    checked.by_size += sum(one.how == "size" for one in checks)
    checked.without_hash += sum(file.hash is None for file in files)
    note(files=len(files), bytes=sum(one.size for one in checks if one.how == "hash"))
    for file, wrong in zip(files, chain.from_iterable(outcomes), strict=True):
        if wrong is None:
            continue
        if wrong.is_missing and not (yield from _is_named(context, file)):
            continue
        checked.findings.append(_finding(file, wrong))


def _check_of(file: _File, drawn: _Drawn) -> FileCheck:
    table = file.state.layout.table
    how: How = "hash" if drawn.compares(file) else "footer" if drawn.reads_footer(file) else "size"
    return FileCheck(file.key, file.size, file.rows, file.hash, table, how, file.base)


def _is_named(context: Context, file: _File) -> Program[bool]:
    """Return whether a missing file is still needed; its table may have removed it meanwhile."""
    state = file.state
    location = state.view.location
    if not isinstance(state.source, AtHead):
        return True
    held = yield from context.head()
    if held is None:
        return True
    try:
        view = (yield from AtHead(held.head).views(context, [location]))[location]
    except LakeVillaError:
        return True
    return view is not None and not (yield from view.snapshot.missing([file.ref]))


def _finding(file: _File, wrong: Damage) -> Finding:
    table, txn, base = file.state.view.location, txn_in(file.key), file.state.base
    if base is not None and wrong.is_missing:
        return _lost(table, not_kept(base, table, f"data file {file.key} was removed").message)
    if wrong.is_elsewhere:
        return Finding("warning", "file_elsewhere", wrong.what, table=table, key=file.key)
    kept = "" if base is None else f", which {base.kind} {base.name!r} keeps,"
    kind = "missing_file" if wrong.is_missing else "damaged_file"
    remedy = "restore it from a backup, or restore the table to a version that does not name it"
    message = f"data file {file.key}{kept} {wrong.what}: {remedy}"
    return Finding("error", kind, message, table=table, txn_id=txn, key=file.key)


def _lost(table: str, message: str) -> Finding:
    return Finding("warning", "ref_lost", message, table=table)


def _deletes(read_deletes: ReadDeletes, state: _State) -> Program[list[Finding]]:
    """Return findings on the deletes of rows of a state's files."""
    has_deletes = pc.or_(
        state.files["deletion_vector"].is_valid(), state.files["deletes"].is_valid()
    )
    files = state.files.filter(has_deletes)
    findings: list[Finding] = []
    for part in files.to_batches(max_chunksize=_AT_ONCE):
        rows = pa.Table.from_batches([part])
        findings += yield from _deletes_of(read_deletes, state, rows)
    return findings


def _deletes_of(
    read_deletes: ReadDeletes, state: _State, files: pa.Table
) -> Program[list[Finding]]:
    location = state.view.location
    try:
        yield from read_deletes(TableInput(state.layout, files))
        return []
    except UnsupportedTableFeature as error:
        return [Finding("warning", error.kind, error.message, table=location)]
    except InvalidOperation as error:
        if len(files) == 1:
            return [Finding("warning", "file_elsewhere", error.message, table=location)]
    except CorruptObject as error:
        if len(files) == 1:
            return [(yield from _of_deletes(state, error))]
    findings = []
    for index in range(len(files)):
        findings.extend((yield from _deletes_of(read_deletes, state, files.slice(index, 1))))
    return findings


def _of_deletes(state: _State, error: CorruptObject) -> Program[Finding]:
    location, base, key = state.view.location, state.base, error.key
    if base is not None and key is not None:
        info = yield from object_info(key)
        if isinstance(info, Missing):
            return _lost(location, not_kept(base, location, f"{key} was removed").message)
    return Finding("error", "damaged_file", error.message, table=location, key=key)


# -------------------- looking
#
# Check data files, some at a time: by their hashes, footers or sizes.
#
# A check needs only the descriptions that it is given, so it can run in another process.


How = Literal["hash", "footer", "size"]
#: Limits of one portion: the number of files, and the number of bytes to fetch.
_MOST_FILES = 128
_MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A file to check: its known properties, and how to check it; ``rows`` may be None.

    ``base``: the id of its first row by the log. Ids that the file holds itself are older ones.
    """

    key: str
    size: int
    rows: int | None
    hash: str | None
    table: str
    how: How
    base: int | None = None


def in_portions(files: Iterable[FileCheck]) -> list[list[FileCheck]]:
    """Divide files, in order, into portions of about equal work."""
    portions: list[list[FileCheck]] = []
    size = _MOST_BYTES
    for file in files:
        if size >= _MOST_BYTES or len(portions[-1]) >= _MOST_FILES:
            portions.append([])
            size = 0
        portions[-1].append(file)
        size += file.size if file.how == "hash" else 0
    return portions


def look_into(files: Sequence[FileCheck]) -> Program[list[Damage | None]]:
    """Check each file; return what is wrong with it, or None."""
    try:
        return (yield from _look_into(files))
    except InvalidOperation as error:
        if len(files) == 1:
            return [Damage(error.message, is_elsewhere=True)]
    found: list[Damage | None] = []
    for file in files:
        found += yield from look_into([file])
    return found


def _look_into(files: Sequence[FileCheck]) -> Program[list[Damage | None]]:
    whole = [file for file in files if file.how == "hash"]
    others = [file for file in files if file.how != "hash"]
    hashed = [HashedFile(one.key, one.size, one.hash or "", one.table) for one in whole]
    compared = yield from compare_all(hashed)
    by_end = yield from parallel([_look_at_end(one) for one in others])
    wrong = dict(zip([*whole, *others], [*compared, *by_end], strict=True))
    return [wrong[file] for file in files]


def _look_at_end(file: FileCheck) -> Program[Damage | None]:
    info = yield from object_info(file.key)
    if isinstance(info, Missing):
        return Damage("is missing although the table names it", is_missing=True)
    if info.size != file.size:
        return Damage(f"has {info.size} bytes, and the table's log says {file.size}")
    if file.how == "size":
        return None
    try:
        footer = yield from footer_of(file.key, file.size)
    except CorruptObject as error:
        return Damage(error.message)
    if footer is None:
        return None
    if file.rows is not None and footer.num_rows != file.rows:
        return Damage(
            f"holds {footer.num_rows} rows by its footer, and the table's log says {file.rows}"
        )
    highest = None if file.base is None else _highest_row_id(footer)
    if highest is None or file.base is None or highest < file.base:
        return None
    return Damage(
        f"holds row ids up to {highest}, and by the table's log its new rows have ids from "
        f"{file.base} on: two rows may have one id"
    )


def _highest_row_id(footer: pq.FileMetaData) -> int | None:
    """Return the highest id of a row that an Iceberg file holds; None if it holds none."""
    names = {
        field.name
        for field in footer.schema.to_arrow_schema()
        if (field.metadata or {}).get(b"PARQUET:field_id") == _ROW_ID
    }
    return _highest_in(footer, names)


# -------------------- footers
#
# Read the footer of a Parquet file: one request, or two if the footer is long.


#: The number of bytes fetched from a file's end, which mostly contain the whole footer.
_FOOTER_BYTES = 16 * 1024
_MAGIC = b"PAR1"
#: The field id of the column in which an Iceberg file holds ids of rows.
_ROW_ID = b"2147483540"


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


# -------------------- row ids
#
# Check that no two rows of a table can have one id (docs/design/0063-row-ids.md).
#
# The ids that rows inherit from their files follow from the log. Of the ids that files store, only
# the highest is compared, which the files' footers have.


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
    if mark is not None:
        for part in some.to_batches(max_chunksize=_AT_ONCE):
            found += yield from _stored_above(snapshot, pa.Table.from_batches([part]), mark)
    return [Finding("error", "row_ids", f"{what}: {_REMEDY}", table=table) for what in found]


def mark_of(snapshot: TableSnapshot) -> int | None:
    """Return the highest row id that a table has assigned, -1 for none.

    It is None for the state of an Iceberg table that is kept separately: what a ref keeps is a
    definition and files, and the mark is in the table's own metadata.
    """
    if isinstance(snapshot, DeltaSnapshot):
        return high_water_mark(snapshot.domains, snapshot.location)
    following = snapshot.next_row_id
    return None if following is None else following - 1


def _wrong_ranges(files: pa.Table, mark: int | None) -> Iterator[str]:
    """Yield what is wrong with the ids that rows inherit."""
    given = files.filter(pc.is_valid(files["base_row_id"])).sort_by("base_row_id")
    columns = (given[name].to_pylist() for name in ("base_row_id", "path", "stats"))
    before, after = "", -1
    for first, path, stats in zip(*columns, strict=True):
        if first < after:
            yield f"rows of files {before} and {path} have the same ids, from {first} on"
        last = first + (rows_in(stats) or 0)
        if mark is not None and last - 1 > mark:
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
    return _highest_in(footer, {name})


def _highest_in(footer: pq.FileMetaData, names: Collection[str]) -> int | None:
    """Return the highest value of the columns ``names``, by a footer; None if it has none."""
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    chunks = (group.column(i) for group in groups for i in range(group.num_columns))
    stored = [
        int(chunk.statistics.max)
        for chunk in chunks
        if chunk.path_in_schema in names and chunk.is_stats_set and chunk.statistics.has_min_max
    ]
    return max(stored, default=None)
