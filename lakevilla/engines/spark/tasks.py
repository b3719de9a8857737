"""The work of a task on a worker."""

from __future__ import annotations

import heapq
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from lakevilla.arrow.cast import array
from lakevilla.arrow.input import to_reader
from lakevilla.clock import SystemClock
from lakevilla.engines.base import (
    FileNamer,
    FilePart,
    MergeSpec,
    Rewrite,
    StagedRows,
    TableInput,
    Written,
)
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.duckdb.writing.merge import numbered
from lakevilla.engines.spark.reused import forget_archives, in_worker, naming_worker
from lakevilla.engines.spark.rows import for_spark
from lakevilla.engines.staged import read_staged, to_ipc
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.formats.files import FILES_SCHEMA, FileRef, file_key, file_refs
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.backends.endpoints import azure_account
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.reach import Reach
from lakevilla.store.base import ANY, Stored
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import Program, parallel, put
from lakevilla.store.runner import Runner

# -------------------- tasks
#
# The work of a task of a Spark job, in a worker's Python; the driver gets a ``TaskReport`` of each.
#
# A task writes under names that no other attempt has, and reports them in the one result that Spark
# accepts of it. So a retry or a speculative copy adds no file to a commit twice; the files of the
# other attempts belong to no commit, and gc deletes them. An error that another attempt would raise
# again is reported, not raised: Spark would only repeat it.


#: Rows are staged in objects of about this many bytes of Arrow.
_STAGED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """The arguments of ``connect``: a worker's access to the lake. Its ``repr`` has no secret.

    ``elsewhere``: the places beyond the root that it reads from, by ``store.backends.reach``.
    """

    root: str
    storage_options: Mapping[str, object] | None
    settings: Settings
    elsewhere: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"LakeAddress({self.root!r})"


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The result of a task: files are on the store, and described here.

    ``matched`` are numbers of source rows that a merge found a target row for; ``staged`` are keys
    of objects with staged rows, and the number of rows in each; ``hit`` are the parts of files, by
    file and number, of which the rewrite has changed a row.
    """

    rewrite: Rewrite = field(default_factory=Rewrite)
    matched: np.ndarray | None = None
    staged: tuple[tuple[str, int], ...] = ()
    error: LakeVillaError | None = None
    hit: tuple[tuple[FileRef, int], ...] = ()


class Task(Protocol):
    """A job's work, pickled to each of its tasks; ``batches`` are the rows of the task."""

    @property
    def place(self) -> LakeAddress: ...

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport: ...


class ReadTask(Protocol):
    """A task whose input rows are rows of a DataFrame."""

    @property
    def place(self) -> LakeAddress: ...

    def rows(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]: ...


class Worker:
    """A worker's access to the lake: made once in its process, with one thread for each task."""

    def __init__(self, place: LakeAddress) -> None:
        ids = Ids(SystemClock())
        store = open_store(place.root, place.storage_options, settings=place.settings)
        for outside in place.elsewhere:
            store.name(outside)
        reach = Reach(store.root.uri, place.elsewhere, azure_account(place.storage_options))
        self.runner = Runner(store, ids, place.settings, reach=reach)
        self.ids = ids
        self.data = DataFiles(self.runner)
        self.engine = DuckDBEngine(self.data, place.settings, ids, threads=1)

    def kept(self, layout: Layout, program: Program[Rewrite]) -> Rewrite:
        """Run a rewrite, and store the small files that it left in memory."""
        return self.runner.run(_stored(layout, program))


def reports(payload: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a pickled task over its rows; yield one row, its pickled report."""
    task: Task = pickle.loads(payload)
    try:
        with naming_worker(task.place.root):
            report = task.run(worker_at(task.place), batches)
    except LakeVillaError as error:
        report = TaskReport(error=error)
    # Read the remaining rows, or Spark would treat an early end as a broken worker.
    for _ in batches:
        pass
    forget_archives()
    yield pa.record_batch({"report": pa.array([pickle.dumps(report)], pa.binary())})


def rows_of(payload: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a pickled ``ReadTask``; yield its rows."""
    task: ReadTask = pickle.loads(payload)
    with in_worker(), naming_worker(task.place.root):
        yield from task.rows(worker_at(task.place), batches)


def worker_at(place: LakeAddress) -> Worker:
    """Return this process's worker for a lake: it is made once."""
    return _worker(pickle.dumps(place))


@lru_cache(maxsize=8)
def _worker(place: bytes) -> Worker:
    return Worker(pickle.loads(place))


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A task that reads bins of files; ``own`` is the transaction whose changes are among them."""

    place: LakeAddress
    bins: Bins
    columns: tuple[str, ...] | None
    where: Expr | None
    own: str | None = None

    def rows(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for table in self.bins.of(batches):
                rows = worker.runner.run(worker.engine.scan(table, self.columns, self.where))
                yield from map(for_spark, rows)
        except StoreError as error:
            if self.own is None or self.own not in error.message:  # names of files contain the id
                raise
            raise StoreError(
                f"table {self.bins.layout.table}: the DataFrame shows what transaction {self.own} "
                "had changed, and those files are deleted: the transaction has aborted, or they "
                "were vacuumed since; use such a DataFrame before its transaction ends, or read "
                "the table again",
                table=self.bins.layout.table,
            ) from None


@dataclass(frozen=True, slots=True)
class StagedTask:
    """A task that reads some columns of staged rows, one object for each number."""

    place: LakeAddress
    source: StagedRows
    columns: tuple[str, ...]

    def rows(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in read_staged(worker.data, self.source.only(number)):
                    yield for_spark(rows.select(self.columns))


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A task that writes the rows of a frame into files of a table; ``columns`` are their names."""

    place: LakeAddress
    layout: Layout
    columns: tuple[str, ...]
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        rows = _reader(batches, self.columns)
        if rows is None:
            return TaskReport()
        data = to_reader(rows, table=self.layout.table, schema=self.layout.schema)

        def write() -> Program[Rewrite]:
            written = yield from worker.engine.write(self.layout, data, self.name)
            return Rewrite(written=written)

        return TaskReport(worker.kept(self.layout, write()))


@dataclass(frozen=True, slots=True)
class StageTask:
    """A task that stages the rows of a frame on the store, so that they can be read several times.

    ``columns`` are the names of the frame's columns. ``prefix`` begins the keys of the objects;
    ``keys`` are columns that must hold no NULL.
    """

    place: LakeAddress
    table: str
    columns: tuple[str, ...]
    schema: pa.Schema
    prefix: str
    keys: tuple[str, ...]

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        rows = _reader(batches, self.columns)
        if rows is None:
            return TaskReport()
        staged = []
        for part in in_parts(to_reader(rows, table=self.table, schema=self.schema)):
            for name in self.keys:
                if part[name].null_count:
                    raise InvalidOperation(f"key column {name} has NULL; a key must have a value")
            key = f"{self.prefix}{worker.ids.nonce()}.arrow"
            worker.runner.run(put(key, to_ipc(part), ANY))
            staged.append((key, part.num_rows))
        return TaskReport(staged=tuple(staged))


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """A task that rewrites the files of a bin that hold a row for which ``where`` is true."""

    place: LakeAddress
    bins: Bins
    assignments: Mapping[str, Expr]
    where: Expr
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        return _of_each(
            worker,
            self.bins,
            batches,
            lambda table: worker.engine.update(table, self.assignments, self.where, self.name),
        )


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """A task that deletes the rows of a bin for which ``where`` is true."""

    place: LakeAddress
    bins: Bins
    where: Expr
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        return _of_each(
            worker,
            self.bins,
            batches,
            lambda table: worker.engine.delete(table, self.where, self.name),
        )


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A task that copies a bin's rows unchanged.

    These are parts of files of which other tasks change a row.
    """

    place: LakeAddress
    bins: Bins
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        return _of_each(
            worker, self.bins, batches, lambda table: worker.engine.copied(table, self.name)
        )


@dataclass(frozen=True, slots=True)
class ChangeFilesTask:
    """A task that writes change files with every row of a bin."""

    place: LakeAddress
    bins: Bins
    change_type: Literal["insert", "delete"]
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        def write_change_files(table: TableInput) -> Program[Rewrite]:
            written = yield from worker.engine.write_change_files(
                table, self.change_type, self.name
            )
            return Rewrite(change_files=written)

        return _of_each(worker, self.bins, batches, write_change_files)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A task that updates and deletes the rows of a bin for a merge; it inserts nothing.

    Each task has the whole source, so it alone can decide what every clause means for the rows of
    its files. No task can decide that a source row matches none of the table's rows: the numbers of
    the source rows that match are sent to the driver.
    """

    place: LakeAddress
    bins: Bins
    source: TaskInput
    spec: MergeSpec
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        matched: list[np.ndarray] = []

        def merge(table: TableInput) -> Program[Rewrite]:
            source = numbered(self.source.read(worker))
            rewrite, found = yield from worker.engine.merge_part(
                table, source, self.spec, self.name
            )
            matched.append(found)
            return rewrite

        report = _of_each(worker, self.bins, batches, merge)
        return replace(report, matched=np.concatenate(matched) if matched else None)


@dataclass(frozen=True, slots=True)
class InsertTask:
    """A task that inserts those rows of a staged source that match no row of the table.

    The rows of a task are places in ``source``; ``matched`` shows, bit by bit, which source rows
    match.
    """

    place: LakeAddress
    layout: Layout
    source: StagedRows
    matched: bytes
    spec: MergeSpec
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        starts = [0, *itertools.accumulate(self.source.counts)]
        rest = ~np.unpackbits(np.frombuffer(self.matched, np.uint8), count=starts[-1]).view(bool)

        def insert(index: int) -> Program[Rewrite]:
            mask = rest[starts[index] : starts[index + 1]]
            rows = unmatched(read_staged(worker.data, self.source.only(index)), mask)
            table = TableInput(self.layout, no_files())
            return (yield from worker.engine.merge(table, rows, self.spec, self.name))

        done = [
            worker.kept(self.layout, insert(place))
            for batch in batches
            for place in batch.column(0).to_pylist()
        ]
        return TaskReport(joined(done))


@dataclass(frozen=True, slots=True)
class TaskInput:
    """The source of a merge for a task: few rows within the task, or many on the store."""

    rows: StagedRows | bytes

    def read(self, worker: Worker) -> pa.RecordBatchReader:
        if isinstance(self.rows, bytes):
            return pa.ipc.open_stream(self.rows)
        return read_staged(worker.data, self.rows)


def joined(parts: Sequence[Rewrite]) -> Rewrite:
    """Return several rewrites of different files as one."""

    def total(name: str) -> Any:
        return sum(getattr(part, name) for part in parts)

    return Rewrite(
        written=tuple(one for part in parts for one in part.written),
        removed=tuple(one for part in parts for one in part.removed),
        change_files=tuple(one for part in parts for one in part.change_files),
        rows_matched=total("rows_matched"),
        rows_inserted=total("rows_inserted"),
        rows_updated=total("rows_updated"),
        rows_deleted=total("rows_deleted"),
        rows_copied=total("rows_copied"),
    )


def unmatched(rows: pa.RecordBatchReader, mask: np.ndarray) -> pa.RecordBatchReader:
    """Return the rows, in order, for which ``mask`` is true."""

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for batch in rows:
            yield batch.filter(pa.array(mask[first : first + batch.num_rows]))
            first += batch.num_rows

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def only_bin() -> pa.RecordBatch:
    """Return the rows of a task for one bin: one row, with the bin's number.

    It is made where rows are read: pyarrow imports pandas for it, and a plan does not need that.
    """
    # docs/upstream.md, "The first value that is converted imports pandas"
    return pa.record_batch({"number": pa.array([0], pa.int64())})


def no_files() -> pa.Table:
    return FILES_SCHEMA.empty_table()


@dataclass(slots=True)
class TaskProgress:
    """The work that a task has done so far, file by file and part by part."""

    rewrites: list[Rewrite] = field(default_factory=list)
    hit: list[tuple[FileRef, int]] = field(default_factory=list)

    def add(self, table: TableInput, rewrite: Rewrite) -> None:
        self.rewrites.append(rewrite)
        if rewrite.removed:
            self.hit += parts_in(table)

    def report(self, error: LakeVillaError | None = None) -> TaskReport:
        """Return the report. If it has an error, the driver deletes what was stored before."""
        return TaskReport(joined(self.rewrites), error=error, hit=tuple(self.hit))


def parts_in(table: TableInput) -> list[tuple[FileRef, int]]:
    """Return the parts of files that an input has, by file and number."""
    refs = file_refs(table.files) if table.parts else []
    cut = zip(refs, table.parts, strict=True)
    return [(ref, part.number) for ref, part in cut if part is not None]


def _of_each(
    worker: Worker,
    bins: Bins,
    batches: Iterator[pa.RecordBatch],
    do: Callable[[TableInput], Program[Rewrite]],
) -> TaskReport:
    done = TaskProgress()
    try:
        for table in bins.of(batches):
            done.add(table, worker.kept(bins.layout, do(table)))
    except LakeVillaError as error:
        return done.report(error)
    return done.report()


def _stored(layout: Layout, program: Program[Rewrite]) -> Program[Rewrite]:
    rewrite = yield from program
    bodies = {path: body for one in rewrite.written for path, body in one.bodies.items()}
    bodies.update((file.path, body) for file, body in rewrite.change_files if body is not None)
    keys = [file_key(layout.location, path) for path in bodies]
    puts = [put(key, body, ANY) for key, body in zip(keys, bodies.values(), strict=True)]
    outcomes = yield from parallel(puts)
    for key, outcome in zip(keys, outcomes, strict=True):
        if not isinstance(outcome, Stored):
            raise StoreError(f"could not store {key}: run the transaction again")
    return replace(
        rewrite,
        written=tuple(Written(one.file) for one in rewrite.written),
        change_files=tuple((file, None) for file, _ in rewrite.change_files),
    )


def _reader(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> pa.RecordBatchReader | None:
    named = (batch.rename_columns(list(columns)) for batch in batches)
    first = next(named, None)
    if first is None:
        return None
    whole = itertools.chain([first], named)
    return pa.RecordBatchReader.from_batches(first.schema, whole)


def in_parts(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield the rows in tables of about ``_STAGED_BYTES``; no table if there are no rows."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        pending.append(batch)
        size += batch.nbytes
        if size >= _STAGED_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if any(batch.num_rows for batch in pending):
        yield pa.Table.from_batches(pending)


# -------------------- bins
#
# The files of a table in bins of about equal bytes, one for each task.
#
# A file that is larger than a bin is cut into parts, if its reader can read a part of it: a task
# finds the row groups of its part in the footer, which it reads anyway.


#: A task reads about so many bytes, or fewer where cores would have no work otherwise; as Spark
#: does.
_MOST_BYTES = 128 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024
#: Columns in addition to a file's own: the part of it that is read, and the number of parts.
_PART = (pa.field("part", pa.int32()), pa.field("parts", pa.int32()))


@dataclass(frozen=True, slots=True)
class Bins:
    """The files of a table, some for each task: an Arrow IPC stream for each task, by its number.

    ``verify`` is that of the table's ``TableInput``.
    """

    layout: Layout
    files: tuple[bytes, ...]
    verify: bool = False

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TableInput]:
        """Yield the files of the bins whose numbers are the rows: whole files, then parts."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.within(number)

    def within(self, number: int) -> list[TableInput]:
        """Return the inputs of one bin; for a bin without files, one input of no files."""
        return inputs_of(self.layout, self.files[number], verify=self.verify)


def inputs_of(layout: Layout, files: bytes, *, verify: bool = False) -> list[TableInput]:
    """Return the files of an Arrow IPC stream: the whole ones together, then each part alone.

    For a stream without files, return one input of no files.
    """
    listed = pa.ipc.open_stream(files).read_all()
    own, counts = listed.select(FILES_SCHEMA.names), listed["parts"].to_pylist()
    whole = [index for index, count in enumerate(counts) if count is None]
    found = []
    if whole or not counts:
        found.append(TableInput(layout, own.take(array(whole, pa.int64())), verify))
    for index, (part, count) in enumerate(zip(listed["part"].to_pylist(), counts, strict=True)):
        if count is not None:
            found.append(TableInput(layout, own.slice(index, 1), verify, (FilePart(part, count),)))
    return found


def listed(
    files: pa.Table, parts: Sequence[FilePart | None] = (), *, with_stats: bool = False
) -> bytes:
    """Return files as ``inputs_of`` reads them.

    Statistics are no longer needed, except of a file that may stay with more deleted rows.
    """
    if not with_stats:
        stats = files.schema.get_field_index("stats")
        files = files.set_column(stats, "stats", pa.nulls(files.num_rows, pa.string()))
    cut = parts or [None] * files.num_rows
    numbers = [None if part is None else part.number for part in cut]
    counts = [None if part is None else part.count for part in cut]
    for column, values in zip(_PART, (numbers, counts), strict=True):
        files = files.append_column(column, array(values, column.type))
    return to_ipc(files)


def bytes_of(inputs: Iterable[TableInput]) -> int:
    """Return about the number of bytes that a task reads of files."""
    size = 0
    for table in inputs:
        parts = table.parts or [None] * table.files.num_rows
        for one, part in zip(table.files["size"].to_pylist(), parts, strict=True):
            size += one if part is None else one // part.count
    return size


def most_bytes(whole: int, tasks: int) -> int:
    """Return one task's bytes, if about ``tasks`` tasks at a time process ``whole`` bytes."""
    return min(_MOST_BYTES, max(_LEAST_BYTES, -(-whole // tasks)))


def balanced(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Divide items of these sizes, by place, into bins of about ``limit``; one empty bin if there
    are none.
    """
    count = max(1, min(len(sizes), -(-sum(sizes) // limit)))
    # Take the largest first, each into the bin with the fewest bytes so far.
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        load, number = heapq.heappop(loads)
        bins[number].append(index)
        heapq.heappush(loads, (load + sizes[index], number))
    return [sorted(one) for one in bins]


def in_bins(table: TableInput, tasks: int) -> Bins:
    """Return the files for about ``tasks`` tasks at a time; one bin of no files if there are none.

    A file is cut only if it is larger than any task's share. A smaller file has a row group or two,
    so most of its parts would be tasks that find nothing to do; and if it is rewritten, each part
    becomes a file. A file that is compared with its hash before it is read is not cut.
    """
    sizes = table.files.column("size").to_pylist()
    limit = most_bytes(sum(sizes), tasks)
    pieces = list(_pieces(sizes, 0 if table.verify else _MOST_BYTES))
    bins = balanced([size for _, _, size in pieces], limit)
    parts = []
    for one in bins:
        some = [pieces[place] for place in one]
        files = table.files.take(array([place for place, _, _ in some], pa.int64()))
        with_stats = bool(table.layout.marks_deletes)
        parts.append(listed(files, [part for _, part, _ in some], with_stats=with_stats))
    return Bins(table.layout, tuple(parts), table.verify)


def _pieces(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, FilePart | None, int]]:
    """Yield files by place, or parts of up to ``limit`` bytes of the larger ones, and sizes."""
    for index, size in enumerate(sizes):
        count = -(-size // limit) if limit else 1
        if count <= 1:
            yield index, None, size
        for part in range(count if count > 1 else 0):
            yield index, FilePart(part, count), size // count
