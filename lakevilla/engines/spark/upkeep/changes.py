"""The changes of a table as a frame: tasks read them, and compare replaced with new rows.

Tasks read rows that were only added, only deleted, or that change files describe. Where a commit
has replaced files, tasks send the rows of old and new files to places where equal rows arrive
together, and leave out rows that are in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.spark.rows import for_spark, spark_types
from lakevilla.engines.spark.tasks import (
    LakeAddress,
    ReadTask,
    Worker,
    balanced,
    bytes_of,
    in_bins,
    inputs_of,
    most_bytes,
)
from lakevilla.engines.spark.upkeep.meeting import duckdb_here, placed
from lakevilla.engines.spark.upkeep.moving import packed, unpacked
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.tree import Expr

#: A task that compares rows gets those of about so many bytes of files.
_MEETING_BYTES = 16 * 1024 * 1024
_KINDS = ("insert", "delete")


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """The changes of a commit: files, and the kind of their rows' change (None: a column has the
    kind).

    Of two sources, the first has the added rows and the second the removed ones.
    """

    version: int
    timestamp_ms: int
    sources: tuple[tuple[TableInput, Literal["insert", "delete"] | None], ...]


@dataclass(frozen=True, slots=True)
class Comparing:
    """A query that compares the views ``added`` and ``removed``.

    Rows count as equal by the columns ``by``; if ``by`` is empty, by all columns.
    """

    sql: str
    added: str
    removed: str
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownRows:
    """The columns of changed rows that are shown: some of the table's, and those of the change.

    ``own`` is its kind alone, or its kind, version and time.
    """

    table: pa.Schema
    columns: tuple[str, ...] | None
    own: pa.Schema

    @property
    def names(self) -> list[str]:
        return list(self.table.names if self.columns is None else self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*(self.table.field(name) for name in self.names), *self.own])

    def stamped(
        self, batch: pa.RecordBatch, kind: str | None, version: int, timestamp_ms: int
    ) -> pa.RecordBatch:
        """Return rows with the columns of the change; without ``kind``, the last column has it."""
        rows = batch.num_rows
        columns = [batch.column(name) for name in self.names]
        stamps = (kind, version, timestamp_ms * 1000)
        for field, value in zip(self.own, stamps, strict=False):
            if value is None:
                columns.append(batch.column(field.name))
            else:
                columns.append(pa.repeat(pa.scalar(value, field.type), rows))
        return for_spark(pa.RecordBatch.from_arrays(columns, schema=self.schema))


@dataclass(frozen=True, slots=True)
class _Source:
    """Some files of a step; ``layout`` is the number of a layout that the task knows."""

    layout: int
    files: bytes
    kind: Literal["insert", "delete"] | None
    version: int
    timestamp_ms: int
    step: int = 0

    def inputs(self, layouts: tuple[Layout, ...]) -> list[TableInput]:
        return inputs_of(layouts[self.layout], self.files)


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """A task that reads rows whose files determine the kind of their change."""

    place: LakeAddress
    layouts: tuple[Layout, ...]
    tasks: tuple[tuple[_Source, ...], ...]
    shown: ShownRows
    where: Expr | None

    def rows(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for source in _of(self.tasks, batches):
            names = list(self.shown.names)
            if source.kind is None:
                names.append(self.shown.own.field(0).name)
            for table in source.inputs(self.layouts):
                for batch in worker.runner.run(worker.engine.scan(table, names, self.where)):
                    stamps = source.kind, source.version, source.timestamp_ms
                    yield self.shown.stamped(batch, *stamps)


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A task that sends the rows of replaced and of new files to their meeting places.

    ``first`` is the number of each step's first meeting place, and of the place after the last.
    """

    place: LakeAddress
    layouts: tuple[Layout, ...]
    tasks: tuple[tuple[_Source, ...], ...]
    where: Expr | None
    first: tuple[int, ...]
    by: tuple[str, ...]
    duckdb: str

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for source in _of(self.tasks, batches):
            assert source.kind is not None
            for table in source.inputs(self.layouts):
                rows = self._rows(worker, table, source.step)
                yield from packed(rows, _KINDS.index(source.kind))

    def _rows(
        self, worker: Worker, table: TableInput, step: int
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        first, after = self.first[step], self.first[step + 1]
        rows = worker.runner.run(worker.engine.scan(table, None, self.where))
        name = table.layout.table
        hashed = worker.engine.hashed(rows, self.by or table.layout.schema.names, name)
        for batch, to in placed(worker, self.duckdb, name, hashed, after - first):
            yield batch, to + np.int32(first)


@dataclass(frozen=True, slots=True)
class DifferenceTask:
    """A task at meeting places of equal rows, which leaves out the rows that both sides have."""

    place: LakeAddress
    schema: pa.Schema
    shown: ShownRows
    comparing: Comparing
    first: tuple[int, ...]
    stamps: tuple[tuple[int, int], ...]

    def rows(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for to, received in unpacked(batches):
            sides: list[list[pa.Table]] = [[self.schema.empty_table()] for _ in _KINDS]
            for kind, rows in received:
                sides[kind].append(pa.ipc.open_stream(rows).read_all())
            added, removed = (pa.concat_tables(side).to_reader() for side in sides)
            views = {self.comparing.added: added, self.comparing.removed: removed}
            found = worker.runner.run(worker.engine.query(self.comparing.sql, {}, views, {}))
            fields = [*self.schema, self.shown.own.field(0)]
            found = found.select([field.name for field in fields]).cast(pa.schema(fields))
            version, timestamp = self.stamps[int(np.searchsorted(self.first, to, "right")) - 1]
            for batch in found.to_batches():
                yield self.shown.stamped(batch, None, version, timestamp)


@dataclass(frozen=True, slots=True)
class ChangeJobs:
    """The tasks that find changes: some read, some compare. ``meetings`` may be empty."""

    reading: ChangesTask
    comparing: CompareTask
    differing: DifferenceTask

    @property
    def meetings(self) -> int:
        return self.differing.first[-1]


@dataclass(frozen=True, slots=True)
class PairTask:
    """A task that compares all rows of new files with those of the replaced ones."""

    place: LakeAddress
    step: ChangeStep
    shown: ShownRows
    where: Expr | None
    comparing: Comparing

    def rows(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (added, _), (removed, _) = self.step.sources
        views = {self.comparing.added: added, self.comparing.removed: removed}
        schema = self.shown.table.append(self.shown.own.field(0))
        program = worker.engine.query_over(self.comparing.sql, views, self.where, schema)
        for batch in worker.runner.run(program):
            yield self.shown.stamped(batch, None, self.step.version, self.step.timestamp_ms)


def change_tasks(
    place: LakeAddress,
    tasks: int,
    layout: Layout,
    steps: Sequence[ChangeStep],
    columns: Sequence[str] | None,
    where: Expr | None,
    comparing: Comparing,
    own: pa.Schema,
) -> list[ReadTask]:
    """Return tasks for a caller that can't send rows between tasks: one each, for about ``tasks``.

    For each step that replaced rows, one task compares the new rows with the replaced ones.
    """
    plain = [step for step in steps if len(step.sources) == 1]
    jobs = change_jobs(place, tasks, layout, plain, columns, where, comparing, own)
    pairs = [step for step in steps if len(step.sources) == 2]
    return [
        *(replace(jobs.reading, tasks=(one,)) for one in jobs.reading.tasks),
        *(PairTask(place, step, jobs.reading.shown, where, comparing) for step in pairs),
    ]


def change_jobs(
    place: LakeAddress,
    tasks: int,
    layout: Layout,
    steps: Sequence[ChangeStep],
    columns: Sequence[str] | None,
    where: Expr | None,
    comparing: Comparing,
    own: pa.Schema,
) -> ChangeJobs:
    """Return the tasks for about ``tasks`` at a time."""
    # Spark's timestamps have microseconds.
    own = spark_types(own)
    shown = ShownRows(layout.schema, None if columns is None else tuple(columns), own)
    # All files are read by the table's columns; change files have one column more.
    layouts: dict[bool, int] = {}
    known: list[Layout] = []
    plain: list[tuple[_Source, int]] = []
    compared: list[tuple[_Source, int]] = []
    first: list[int] = [0]
    stamps: list[tuple[int, int]] = []
    for step in steps:
        pair = len(step.sources) == 2
        for table, kind in step.sources:
            number = layouts.setdefault(kind is None, len(known))
            if number == len(known):
                known.append(table.layout)
            for files in in_bins(table, tasks).files:
                source = _Source(number, files, kind, step.version, step.timestamp_ms, len(stamps))
                (compared if pair else plain).append(
                    (source, bytes_of(source.inputs(tuple(known))))
                )
        if pair:
            size = bytes_of(table for table, _ in step.sources)
            first.append(first[-1] + max(1, -(-size // _MEETING_BYTES)))
            stamps.append((step.version, step.timestamp_ms))
    at, layouts_ = tuple(first), tuple(known)
    return ChangeJobs(
        ChangesTask(place, layouts_, _spread(plain, tasks), shown, where),
        CompareTask(
            place, layouts_, _spread(compared, tasks), where, at, comparing.by, duckdb_here()
        ),
        DifferenceTask(place, layout.schema, shown, comparing, at, tuple(stamps)),
    )


def _spread(sources: Sequence[tuple[_Source, int]], tasks: int) -> tuple[tuple[_Source, ...], ...]:
    sizes = [size for _, size in sources]
    if not sizes:
        return ()
    bins = balanced(sizes, most_bytes(sum(sizes), tasks))
    return tuple(tuple(sources[place][0] for place in some) for some in bins)


def _of(
    tasks: tuple[tuple[_Source, ...], ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[_Source]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tasks[number]
