"""The same rows in other files: each part of a table in one task, or along a Z curve over many.

A part that is one task's fair share is ordered by that task. Of a larger one the tasks first
sample what it is ordered by; the driver cuts the curve into ranges of about a file each; then
rows go to the task of their range, which sorts and writes them. The driver holds samples
(a bounded number of rows) and reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import FileNamer, Rewrite, TableInput, Written, target_file_size
from lakevilla.engines.duckdb.writing.z_order import Z
from lakevilla.engines.spark.bins import balanced, bytes_of, in_bins, inputs_of, listed, most_bytes
from lakevilla.engines.spark.reported import Jobs
from lakevilla.engines.spark.tasks import LakeAddress, TaskReport, Worker, joined
from lakevilla.engines.spark.upkeep.parcels import (
    delivered,
    opened,
    packed,
    sending_of,
    unpacked,
)
from lakevilla.engines.zorder import SAMPLE_ROWS, boundaries, z_values
from lakevilla.formats.layout import Layout
from lakevilla.store.effects import Program

#: The samples of all parts together have about so many rows at most, but each has the fewest.
_MOST_SAMPLED = 1_000_000
_FEWEST_SAMPLED = 2_000


@dataclass(frozen=True, slots=True)
class MovedReport(TaskReport):
    """``parts`` are the numbers of those that the files written hold the rows of, one each."""

    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleReport(TaskReport):
    """Some rows of a part, of the columns that it is to be ordered by."""

    part: int = 0
    sample: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class PartBins:
    """PartBins of a table: for each task some, by number, as Arrow IPC streams of their files."""

    layout: Layout
    tasks: tuple[tuple[tuple[int, bytes], ...], ...]

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, TableInput]]:
        """The parts of the tasks whose numbers are the rows."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part, files in self.tasks[number]:
                    for table in inputs_of(self.layout, files):
                        yield part, table


@dataclass(frozen=True, slots=True)
class MoveTask:
    """Write each part of the task anew."""

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
    """Take some rows of each part of the task; ``counts`` says how many, by task."""

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
    """A part's way along the curve: the cuts of its columns, and where its ranges end.

    ``first`` is the number of its first range. ``some`` is one file of it: its partition.
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
    """Send each row of the task's parts to the range of the curve that it belongs to."""

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
                for batch in worker.runner.run(worker.engine.scan(table, None, None)):
                    z = z_values(batch.select(list(self.columns)), curve.cuts)
                    rows = pa.RecordBatch.from_arrays([*batch.columns, z], schema=schema)
                    to = np.searchsorted(curve.ends, z.to_numpy(zero_copy_only=False), "right")
                    yield rows, to.astype(np.int32) + curve.first

        yield from packed(placed(), 0)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """Sort the rows that came to a range, and write them."""

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
        for to, came in unpacked(batches):
            curve = self.curves[int(np.searchsorted(starts, to, "right")) - 1]
            (part,) = inputs_of(self.layout, curve.some)
            program = self._written(worker, part, opened(came, schema))
            new = worker.kept(self.layout, program).written
            written += new
            parts += [curve.part] * len(new)
        return MovedReport(Rewrite(written=tuple(written)), parts=tuple(parts))

    def _written(
        self, worker: Worker, part: TableInput, rows: pa.RecordBatchReader
    ) -> Program[Rewrite]:
        made = yield from worker.engine.sorted_along(part, rows, self.columns, self.name)
        return Rewrite(written=made)


def placed_schema(layout: Layout) -> pa.Schema:
    return pa.schema([*layout.schema, Z])


def compacted(
    jobs: Jobs, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
) -> Program[tuple[tuple[Written, ...], ...]]:
    """The same rows in new files; see ``engines.base.Engine``."""
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
