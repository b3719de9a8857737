"""Rewrite files by jobs of Spark: moves, parts of files, and parcels of rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import FileNamer, Rewrite, TableInput, Written, target_file_size
from lakevilla.engines.duckdb.writing.z_order import placed_schema
from lakevilla.engines.spark.jobs import Jobs, in_worker, numbers
from lakevilla.engines.spark.tasks import (
    Bins,
    CopyTask,
    LakeAddress,
    Task,
    TaskReport,
    Worker,
    balanced,
    bytes_of,
    in_bins,
    inputs_of,
    joined,
    listed,
    most_bytes,
    parts_in,
    worker_at,
)
from lakevilla.engines.staged import to_ipc
from lakevilla.engines.zorder import SAMPLE_ROWS, boundaries, z_values
from lakevilla.errors import LakeVillaError
from lakevilla.formats.files import FileRef
from lakevilla.formats.layout import Layout
from lakevilla.store.effects import Program

# -------------------- moving
#
# The same rows in other files: each part of a table by one task, or along a Z curve by many.
#
# A part that is one task's share is ordered by that task. Of a larger part, the tasks first
# sample the columns that it is ordered by. The driver cuts the curve into ranges of about a file
# each. Then rows are sent to the task of their range, which sorts and writes them. The driver holds
# samples (a bounded number of rows) and reports.


#: The samples of all parts together have about this many rows at most; each part has at least the
#: fewest.
_MOST_SAMPLED = 1_000_000
_FEWEST_SAMPLED = 2_000


@dataclass(frozen=True, slots=True)
class MovedReport(TaskReport):
    """The report of a move; ``parts`` has, for each written file, the number of its part."""

    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleReport(TaskReport):
    """Some rows of a part, with the columns by which it will be ordered."""

    part: int = 0
    sample: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class PartBins:
    """Parts of a table: for each task some, by number, as Arrow IPC streams of their files."""

    layout: Layout
    tasks: tuple[tuple[tuple[int, bytes], ...], ...]

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, TableInput]]:
        """Yield the inputs of tasks, each with the number of its part.

        Each row of ``batches`` is the number of a task.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part, files in self.tasks[number]:
                    for table in inputs_of(self.layout, files):
                        yield part, table


@dataclass(frozen=True, slots=True)
class MoveTask:
    """A task that writes the rows of its parts into new files."""

    place: LakeAddress
    parts: PartBins
    z_order_by: tuple[str, ...]
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        numbers, inputs = [], []
        for number, table in self.parts.of(batches):
            numbers.append(number)
            inputs.append(table)
        counts: list[int] = []

        def move() -> Program[Rewrite]:
            made = yield from worker.engine.compact(inputs, self.z_order_by, self.name)
            counts.extend(map(len, made))
            return Rewrite(written=tuple(chain.from_iterable(made)))

        rewrite = worker.kept(self.parts.layout, move())
        of_each = chain.from_iterable([n] * c for n, c in zip(numbers, counts, strict=True))
        return MovedReport(rewrite, parts=tuple(of_each))


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A task that samples rows of each of its parts; ``counts`` has the number of rows, by task."""

    place: LakeAddress
    parts: PartBins
    columns: tuple[str, ...]
    counts: tuple[int, ...]

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        (place,) = [number for batch in batches for number in batch.column(0).to_pylist()]
        inputs = list(self.parts.of(iter([pa.record_batch({"id": [place]})])))
        whole = bytes_of(table for _, table in inputs)
        samples = []
        for _, table in inputs:
            count = -(-self.counts[place] * bytes_of([table]) // max(whole, 1))
            taking = worker.engine.sample(table, self.columns, count)
            samples.append(worker.runner.run(taking))
        return SampleReport(part=inputs[0][0], sample=pa.concat_tables(samples))


@dataclass(frozen=True, slots=True)
class Curve:
    """A part's position on the curve: the cuts of its columns, and the ends of its ranges.

    ``first`` is the number of its first range. ``some`` is one file of the part: it has its
    partition.
    """

    part: int
    cuts: list[pa.Array]
    ends: np.ndarray
    first: int
    some: bytes

    @property
    def ranges(self) -> int:
        return len(self.ends) + 1


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """A task that sends each row of its parts to the range of the curve that it belongs to."""

    place: LakeAddress
    parts: PartBins
    columns: tuple[str, ...]
    curves: tuple[Curve, ...]

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        curves = {curve.part: curve for curve in self.curves}
        schema = placed_schema(self.parts.layout)

        def placed() -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
            for part, table in self.parts.of(batches):
                curve = curves[part]
                for batch in worker.runner.run(worker.engine.rows_to_move(table)):
                    z = z_values(batch.select(list(self.columns)), curve.cuts)
                    rows = pa.RecordBatch.from_arrays([*batch.columns, z], schema=schema)
                    to = np.searchsorted(curve.ends, z.to_numpy(zero_copy_only=False), "right")
                    yield rows, to.astype(np.int32) + curve.first

        yield from packed(placed(), 0)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """A task that sorts the rows sent to a range, and writes them."""

    place: LakeAddress
    layout: Layout
    columns: tuple[str, ...]
    curves: tuple[Curve, ...]
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        schema = placed_schema(self.layout)
        written: list[Written] = []
        parts: list[int] = []
        starts = np.array([curve.first for curve in self.curves])
        for to, received in unpacked(batches):
            curve = self.curves[int(np.searchsorted(starts, to, "right")) - 1]
            (part,) = inputs_of(self.layout, curve.some)
            program = self._written(worker, part, opened(received, schema))
            new = worker.kept(self.layout, program).written
            written += new
            parts += [curve.part] * len(new)
        return MovedReport(Rewrite(written=tuple(written)), parts=tuple(parts))

    def _written(
        self, worker: Worker, part: TableInput, rows: pa.RecordBatchReader
    ) -> Program[Rewrite]:
        made = yield from worker.engine.sorted_along(part, rows, self.columns, self.name)
        return Rewrite(written=made)


def compacted(
    jobs: Jobs, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
) -> Program[tuple[tuple[Written, ...], ...]]:
    """Write the same rows into new files; see ``engines.base.Engine``."""
    if not parts:
        return ()
    layout = parts[0].layout
    sizes = [bytes_of([part]) for part in parts]
    share = most_bytes(sum(sizes), jobs.tasks)
    large = [n for n, size in enumerate(sizes) if z_order_by and size > share]
    small = sorted(set(range(len(parts))) - set(large))
    reports: list[TaskReport] = []
    try:
        if small:
            spread = balanced([sizes[n] for n in small], share)
            tasks = tuple(
                tuple((small[k], listed(parts[small[k]].files)) for k in some) for some in spread
            )
            task = MoveTask(jobs.place, PartBins(layout, tasks), tuple(z_order_by), name)
            reports += yield from jobs.reported(layout, len(tasks), task)
        if large:
            reports += yield from _along_curve(
                jobs, {n: parts[n] for n in large}, tuple(z_order_by), name
            )
    except (Exception, KeyboardInterrupt):
        yield from jobs.withdraw(layout, joined([report.rewrite for report in reports]))
        raise
    made: list[list[Written]] = [[] for _ in parts]
    for report in reports:
        assert isinstance(report, MovedReport)
        for number, one in zip(report.parts, report.rewrite.written, strict=True):
            made[number].append(one)
    return tuple(map(tuple, made))


def _along_curve(
    jobs: Jobs, parts: dict[int, TableInput], columns: tuple[str, ...], name: FileNamer
) -> Program[list[TaskReport]]:
    layout = next(iter(parts.values())).layout
    tasks, counts = [], []
    wanted = max(_FEWEST_SAMPLED, min(SAMPLE_ROWS, _MOST_SAMPLED // len(parts)))
    for number, part in parts.items():
        whole = bytes_of([part])
        for files in in_bins(part, jobs.tasks).files:
            tasks.append(((number, files),))
            counts.append(-(-wanted * bytes_of(inputs_of(layout, files)) // whole))
    read = PartBins(layout, tuple(tasks))
    sampling = SampleTask(jobs.place, read, columns, tuple(counts))
    samples: dict[int, list[pa.Table]] = {number: [] for number in parts}
    for report in (yield from jobs.reported(layout, len(tasks), sampling)):
        assert isinstance(report, SampleReport)
        if report.sample is not None:
            samples[report.part].append(report.sample)
    curves: list[Curve] = []
    first = 0
    for number, part in parts.items():
        ranges = -(-bytes_of([part]) // target_file_size(layout, jobs.place.settings))
        curves.append(_curve(number, part, pa.concat_tables(samples[number]), ranges, first))
        first += curves[-1].ranges
    sending = PlaceTask(jobs.place, read, columns, tuple(curves))
    frame = delivered(sending_of(jobs.session, len(tasks), sending), first)
    writing = RangeTask(jobs.place, layout, columns, tuple(curves), name)
    return (yield from jobs.reported(layout, frame, writing))


def _curve(number: int, part: TableInput, sample: pa.Table, ranges: int, first: int) -> Curve:
    cuts = boundaries(sample)
    z = np.sort(z_values(sample, cuts).to_numpy(zero_copy_only=False))
    places = [i * len(z) // ranges for i in range(1, ranges)] if len(z) else []
    ends = np.unique(z[places]) if places else np.array([], np.uint64)
    return Curve(number, cuts, ends, first, listed(part.files.slice(0, 1)))


# -------------------- by parts
#
# Rewrites in which several tasks share a large file: it is removed once, and all its rows are kept.
#
# A task rewrites those parts of its bin of which it changes a row. Only the driver can decide that
# a file is changed: by any of its parts. Then its other parts are copied, in a second job; for a
# file that no task has changed, nothing is written. All of it is one rewrite, so one commit.


def rewritten(jobs: Jobs, bins: Bins, task: Task, name: FileNamer) -> Program[Rewrite]:
    """Run a job over bins; return its rewrite, with the rest of the files that it has changed."""
    reports = yield from jobs.reported(bins.layout, bins, task)
    return (yield from completed(jobs, bins, reports, name))


def completed(
    jobs: Jobs, bins: Bins, reports: Sequence[TaskReport], name: FileNamer
) -> Program[Rewrite]:
    """Join the rewrites of tasks over ``bins``, with copies of the parts that no task changed."""
    done = joined([report.rewrite for report in reports])
    rest = _rest(bins, {one for report in reports for one in report.hit})
    if rest:
        size = bytes_of(rest)
        some = balanced([bytes_of([one]) for one in rest], most_bytes(size, jobs.tasks))
        copies = Bins(bins.layout, tuple(_together([rest[n] for n in one]) for one in some))
        task = CopyTask(jobs.place, copies, name)
        copied = yield from jobs.rewritten(bins.layout, copies, task, besides=done)
        done = joined([done, copied])
    removed = {file.ref: file for file in done.removed}
    return replace(done, removed=tuple(removed.values()))


def _together(parts: Sequence[TableInput]) -> bytes:
    """Return parts as one bin."""
    files = pa.concat_tables([table.files for table in parts])
    return listed(files, [part for table in parts for part in table.parts])


def _rest(bins: Bins, hit: set[tuple[FileRef, int]]) -> list[TableInput]:
    """Return the parts that no task has changed, of the files that a task has changed."""
    changed = {ref for ref, _ in hit}
    if not changed:
        return []
    return [
        table
        for number in range(len(bins.files))
        for table in bins.within(number)
        if any(ref in changed and (ref, part) not in hit for ref, part in parts_in(table))
    ]


# -------------------- parcels
#
# Rows that are sent from one task to another: Arrow streams in a column of bytes.
#
# Spark moves them and does not read their content. So rows of any type that a table has can be
# sent, as compressed blocks of columns, and no JVM processes them row by row. The destination of a
# parcel is its number ``to``.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of parcels as Spark declares them, and as Arrow does.
COLUMNS = "to int, kind int, rows binary"
_SCHEMA = pa.schema([("to", pa.int32()), ("kind", pa.int32()), ("rows", pa.binary())])
#: A parcel of this kind contains an error of the task instead of rows.
FAILED = -1
#: Rows wait until those for all destinations have this many bytes, and are then sent as parcels.
_WAITING_BYTES = 32 * 1024 * 1024
#: A parcel has about this many bytes of rows.
PARCEL_BYTES = 4 * 1024 * 1024


class Sender(Protocol):
    """A task whose rows go to other tasks."""

    @property
    def place(self) -> LakeAddress: ...

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]: ...


def sent(payload: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a pickled ``Sender``; yield the parcels that it sends.

    An error that another attempt would raise again is sent too: the task that receives it reports
    it.
    """
    task: Sender = pickle.loads(payload)
    try:
        yield from task.parcels(worker_at(task.place), batches)
    except LakeVillaError as error:
        yield parcels([(0, FAILED, pickle.dumps(error))])
    for _ in batches:
        pass


def parcels(rows: Iterable[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """Return parcels as Spark accepts them: (to, kind, rows)."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def packed(
    batches: Iterable[tuple[pa.RecordBatch, np.ndarray]], kind: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows, each with its destination, as parcels of some size."""
    waiting: list[pa.RecordBatch] = []
    ways: list[np.ndarray] = []
    size = 0
    for batch, to in batches:
        waiting.append(batch)
        ways.append(to)
        size += batch.nbytes
        if size >= _WAITING_BYTES:
            yield parcels(_sorted_out(waiting, ways, kind))
            waiting, ways, size = [], [], 0
    if waiting:
        yield parcels(_sorted_out(waiting, ways, kind))


def _sorted_out(
    batches: list[pa.RecordBatch], ways: list[np.ndarray], kind: int
) -> Iterator[tuple[int, int, bytes]]:
    to = np.concatenate(ways)
    order = np.argsort(to, kind="stable")
    rows = pa.Table.from_batches(batches).take(pa.array(order))
    to = to[order]
    starts = np.flatnonzero(np.r_[True, to[1:] != to[:-1]]) if len(to) else np.array([], int)
    for start, end in zip(starts, [*starts[1:], len(to)], strict=True):
        part = rows.slice(start, end - start)
        step = max(1, int(part.num_rows * PARCEL_BYTES / max(part.nbytes, 1)))
        for first in range(0, part.num_rows, step):
            yield int(to[start]), kind, to_ipc(part.slice(first, step))


def sending_of(session: SparkSession, tasks: int, sender: Sender) -> DataFrame:
    """Return the parcels that ``tasks`` tasks, each with its number, send."""
    return sent_from(numbers(session, tasks), sender)


def sent_from(frame: DataFrame, sender: Sender) -> DataFrame:
    """Return the parcels of tasks that get the rows of a frame."""
    return frame.mapInArrow(in_worker("sent", pickle.dumps(sender), __name__), COLUMNS)


def delivered(frame: DataFrame, tasks: int) -> DataFrame:
    """Return the parcels, each in the partition of its number where Spark can do so (from 4.1 on).

    Parcels of one number follow each other in any case.
    """
    if hasattr(frame, "repartitionById") and not frame.sparkSession.version.startswith("4.0"):
        return frame.repartitionById(tasks, "to")
    return frame.repartition(tasks, "to").sortWithinPartitions("to")


def unpacked(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[tuple[int, bytes]]]]:
    """Yield the received parcels, by their number: kinds and rows.

    Raises the error of a task that could not send its rows.
    """

    def each() -> Iterator[tuple[int, int, bytes]]:
        for batch in batches:
            for to, kind, rows in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if kind == FAILED:
                    raise pickle.loads(rows)
                yield to, kind, rows

    for to, group in groupby(each(), key=lambda parcel: parcel[0]):
        yield to, ((kind, rows) for _, kind, rows in group)


def opened(parts: Iterable[tuple[int, bytes]], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return the rows of parcels, as they arrive."""
    batches = (batch for _, rows in parts for batch in pa.ipc.open_stream(rows))
    return pa.RecordBatchReader.from_batches(schema, batches)
