"""Merges by jobs of Spark."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import FileNamer, MergeSpec, Rewrite, StagedRows, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.duckdb.writing.merge import NUMBER, numbered
from lakevilla.engines.duckdb.writing.routing import PART, Keys, Routing, keys_of
from lakevilla.engines.spark.jobs import Jobs, numbers
from lakevilla.engines.spark.tasks import (
    Bins,
    InsertTask,
    LakeAddress,
    MergeTask,
    TaskInput,
    TaskProgress,
    TaskReport,
    Worker,
    joined,
    no_files,
    unmatched,
)
from lakevilla.engines.spark.upkeep.meeting import duckdb_here, placed, staged_bytes
from lakevilla.engines.spark.upkeep.moving import (
    FAILED,
    PARCEL_BYTES,
    completed,
    delivered,
    opened,
    packed,
    parcels,
    sending_of,
    sent_from,
    unpacked,
)
from lakevilla.engines.staged import read_staged, to_ipc
from lakevilla.errors import LakeVillaError
from lakevilla.formats.layout import Layout
from lakevilla.store.effects import Program

# -------------------- merge
#
# The ways by which the source of a merge reaches its tasks, and the jobs of each.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A source of up to this many stored bytes is broadcast.
BROADCAST_BYTES = 64 * 1024 * 1024
#: A task that joins equal keys gets about this many bytes of the source.
_MEETING_BYTES = 32 * 1024 * 1024


def merged(
    jobs: Jobs,
    embedded: DuckDBEngine,
    table: TableInput,
    source: pa.RecordBatchReader | StagedRows,
    spec: MergeSpec,
    name: FileNamer,
) -> Program[Rewrite]:
    """Merge a source; see ``engines.base.Engine``."""
    existing, new = _split_inserts(spec)
    if not isinstance(source, StagedRows):
        return (yield from _given(jobs, embedded, table, source.read_all(), existing, new, name))
    keys = None
    size = 0
    if table.files.num_rows and source.keys:
        size = yield from staged_bytes(source)
        if size > BROADCAST_BYTES:
            keys = keys_of(spec, table.layout.schema, source.schema)
    if keys is None:
        broadcast = 0 < size <= BROADCAST_BYTES
        return (yield from _in_two(jobs, table, source, existing, new, name, broadcast=broadcast))
    hashes = max(jobs.tasks, -(-size // _MEETING_BYTES))
    shuffle = Shuffle(table.layout, source, spec, keys, hashes, duckdb_here())
    return (yield from _shuffled(jobs, table, shuffle, existing, new, name))


def _given(
    jobs: Jobs,
    embedded: DuckDBEngine,
    table: TableInput,
    rows: pa.Table,
    existing: MergeSpec,
    new: MergeSpec,
    name: FileNamer,
) -> Program[Rewrite]:
    """Merge rows of the driver, which each task contains; the driver inserts the new rows."""
    layout = table.layout
    merged = Rewrite()
    found = np.zeros(rows.num_rows, bool)
    if table.files.num_rows:
        bins = jobs.bins(table)
        task = MergeTask(jobs.place, bins, TaskInput(to_ipc(rows)), existing, name)
        reports = yield from jobs.reported(layout, bins, task)
        _note(reports, found)
        merged = yield from completed(jobs, bins, reports, name)
    if not new.clauses or found.all():
        return merged
    rest = unmatched(rows.to_reader(), ~found)
    try:
        none = TableInput(layout, no_files())
        inserted = yield from embedded.merge(none, rest, new, name)
    except (Exception, KeyboardInterrupt):
        yield from jobs.withdraw(layout, merged)
        raise
    return joined([merged, inserted])


def _in_two(
    jobs: Jobs,
    table: TableInput,
    source: StagedRows,
    existing: MergeSpec,
    new: MergeSpec,
    name: FileNamer,
    *,
    broadcast: bool,
) -> Program[Rewrite]:
    """Merge by passing all of the source to each task; then insert rows that matched nowhere."""
    layout = table.layout
    merged = Rewrite()
    found = np.zeros(sum(source.counts), bool)
    if table.files.num_rows:
        bins = jobs.bins(table)
        input_: DataFrame | Bins = bins
        task: BroadcastMergeTask | MergeTask
        if broadcast:
            input_ = _beside(jobs, bins, source)
            task = BroadcastMergeTask(jobs.place, bins, source.schema, existing, name)
        else:
            task = MergeTask(jobs.place, bins, TaskInput(source), existing, name)
        reports = yield from jobs.reported(layout, input_, task)
        _note(reports, found)
        merged = yield from completed(jobs, bins, reports, name)
    if not new.clauses or found.all():
        return merged
    places = numbers(jobs.session, len(source.keys))
    matched = np.packbits(found).tobytes()
    insert = InsertTask(jobs.place, layout, source, matched, new, name)
    inserted = yield from jobs.rewritten(layout, places, insert, besides=merged)
    return joined([merged, inserted])


def _beside(jobs: Jobs, bins: Bins, source: StagedRows) -> DataFrame:
    """Return each bin's number joined with all parcels of the source."""
    from pyspark.sql import functions

    sending = sending_of(jobs.session, len(source.keys), SourceTask(jobs.place, source))
    return numbers(jobs.session, len(bins.files)).crossJoin(functions.broadcast(sending))


def _shuffled(
    jobs: Jobs,
    table: TableInput,
    shuffle: Shuffle,
    existing: MergeSpec,
    new: MergeSpec,
    name: FileNamer,
) -> Program[Rewrite]:
    session, place = jobs.session, jobs.place
    bins = jobs.bins(table)
    count = len(bins.files)
    keys = sending_of(session, count, KeysTask(place, bins, shuffle))
    rows = sending_of(session, len(shuffle.source.keys), RowsTask(place, shuffle))
    met = delivered(keys.union(rows), shuffle.hashes)
    routed = sent_from(met, RouteTask(place, shuffle, new, name))
    every = sending_of(session, count, BinsTask(place))
    frame = delivered(routed.union(every), count)
    task = RoutedMergeTask(place, bins, shuffle, existing, name)
    reports = yield from jobs.reported(table.layout, frame, task)
    return (yield from completed(jobs, bins, reports, name))


def _note(reports: list[TaskReport], found: np.ndarray) -> None:
    """Note in ``found`` which rows of the source matched."""
    for report in reports:
        if report.matched is not None:
            found[report.matched] = True


def _split_inserts(spec: MergeSpec) -> tuple[MergeSpec, MergeSpec]:
    """Return the merge without its inserts, and its inserts alone."""
    new = tuple(clause for clause in spec.clauses if clause.kind == "not_matched_insert")
    old = tuple(clause for clause in spec.clauses if clause.kind != "not_matched_insert")
    aliases = spec.source_alias, spec.target_alias
    return MergeSpec(spec.on, *aliases, old), MergeSpec(spec.on, *aliases, new)


# -------------------- merging
#
# Merges: the ways by which the source reaches the tasks that have files of the target.
#
# Few rows are sent within the task. A source on the store that fits a broadcast is read once, and
# Spark passes it to each executor. A larger source is shuffled by its keys: tasks send the keys of
# their files and the rows of the source to where equal keys meet. From there each row is sent to
# the files that it concerns, and the rows for no file are inserted. Which clause applies is decided
# where the files are, by the embedded engine's merge, whichever way the rows were sent.


#: Kinds of parcels: keys of files, rows of the source, the files that a task has written, and a
#: bin's number.
_KEYS, _ROWS, _REPORT, _BIN = range(4)


@dataclass(frozen=True, slots=True)
class SourceTask:
    """A task that sends the objects of a source, each as parcels in the order of its rows."""

    place: LakeAddress
    source: StagedRows

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            rows = read_staged(worker.data, self.source.only(number))
            for part, table in enumerate(_in_parts(rows)):
                yield parcels([(number, part, to_ipc(table))])


@dataclass(frozen=True, slots=True)
class BroadcastMergeTask:
    """A task that merges into a bin from a broadcast source: a row for the bin and each parcel.

    Each task has the whole source, so it alone can decide what every clause means for the rows of
    its files. No task can decide that a source row matches none of the table's rows: the numbers of
    the source rows that match are sent to the driver.
    """

    place: LakeAddress
    bins: Bins
    schema: pa.Schema
    spec: MergeSpec
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        by_bin: dict[int, list[tuple[int, int, bytes]]] = {}
        for batch in batches:
            for bin_, *parcel in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if parcel[1] == FAILED:
                    raise pickle.loads(parcel[2])
                by_bin.setdefault(bin_, []).append(tuple(parcel))
        matched: list[np.ndarray] = []
        done = TaskProgress()

        def merge(table: TableInput, parts: list[tuple[int, int, bytes]]) -> Program[Rewrite]:
            # Use the order of the objects, which the numbers of their rows follow.
            rows = opened(((part, body) for _, part, body in sorted(parts)), self.schema)
            rewrite, found = yield from worker.engine.merge_part(
                table, numbered(rows), self.spec, self.name
            )
            matched.append(found)
            return rewrite

        try:
            for bin_, parts in by_bin.items():
                for table in self.bins.within(bin_):
                    done.add(table, worker.kept(self.bins.layout, merge(table, parts)))
        except LakeVillaError as error:
            return done.report(error)
        return replace(done.report(), matched=np.concatenate(matched) if matched else None)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The common data of the tasks of a merge by keys; ``hashes`` is the number of meeting places.

    ``duckdb`` is its version: another one may hash otherwise.
    """

    layout: Layout
    source: StagedRows
    spec: MergeSpec
    keys: Keys
    hashes: int
    duckdb: str

    @property
    def numbered(self) -> pa.Schema:
        return self.source.schema.append(NUMBER)

    def hashed(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield rows with the meeting place by their hash, which is the last column."""
        return placed(worker, self.duckdb, self.layout.table, batches, self.hashes)


@dataclass(frozen=True, slots=True)
class KeysTask:
    """A task that sends the keys of each bin to their meeting places."""

    place: LakeAddress
    bins: Bins
    shuffle: Shuffle

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        keys = self.shuffle.keys

        def rows() -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                for table in self.bins.within(number):
                    finding = worker.engine.keys_in(table, keys.columns, keys.target)
                    for batch in worker.runner.run(finding):
                        part = pa.array(np.full(batch.num_rows, number), PART.type)
                        yield batch.append_column(PART, part)

        yield from packed(self.shuffle.hashed(worker, rows()), _KEYS)


@dataclass(frozen=True, slots=True)
class RowsTask:
    """A task that sends the rows of each object of the source to their meeting places."""

    place: LakeAddress
    shuffle: Shuffle

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        source, keys = self.shuffle.source, self.shuffle.keys
        starts = [0, *itertools.accumulate(source.counts)]

        def rows() -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                read = numbered(read_staged(worker.data, source.only(number)), starts[number])
                yield from worker.engine.hashed(read, keys.source, self.shuffle.layout.table)

        yield from packed(self.shuffle.hashed(worker, rows()), _ROWS)


@dataclass(frozen=True, slots=True)
class RouteTask:
    """A task at a meeting place of equal keys: it sends rows to the bins with their keys, inserts
    the rest.

    It reports what it inserts in a parcel that one task of the merge reads whole, so one attempt is
    reported.
    """

    place: LakeAddress
    shuffle: Shuffle
    new: MergeSpec
    name: FileNamer

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        shuffle = self.shuffle
        routing = worker.engine.routing(
            shuffle.layout, shuffle.spec, shuffle.keys.columns, shuffle.numbered
        )
        try:
            for _, received in unpacked(batches):
                for kind, rows in received:
                    table = pa.ipc.open_stream(rows).read_all()
                    routing.add("keys" if kind == _KEYS else "source", table)
            routing.pair()
            if self.new.clauses:
                inserting = worker.engine.merge(
                    TableInput(shuffle.layout, no_files()),
                    routing.unmatched(),
                    self.new,
                    self.name,
                )
                rewrite = worker.kept(shuffle.layout, inserting)
                yield parcels([(0, _REPORT, pickle.dumps(rewrite))])
            yield from packed(self._routed(routing), _ROWS)
        finally:
            routing.close()

    def _routed(self, routing: Routing) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        for batch in routing.routed():
            to = batch.column(PART.name).to_numpy(zero_copy_only=False)
            yield batch.drop_columns([PART.name]), to


@dataclass(frozen=True, slots=True)
class BinsTask:
    """A task that sends each bin its own number, so that a bin without rows is processed too."""

    place: LakeAddress

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            yield parcels([(number, _BIN, b"")])


@dataclass(frozen=True, slots=True)
class RoutedMergeTask:
    """A task that merges rows into a bin that has their keys."""

    place: LakeAddress
    bins: Bins
    shuffle: Shuffle
    into: MergeSpec
    name: FileNamer

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        done = TaskProgress()

        def noted(received: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """Note the files that other tasks have reported, even if this task fails."""
            for batch in received:
                for kind, body in zip(*(batch.column(n).to_pylist() for n in (1, 2)), strict=True):
                    if kind == _REPORT:
                        done.rewrites.append(pickle.loads(body))
                yield batch

        rest = noted(batches)
        try:
            for bin_, received in unpacked(rest):
                self._merge(worker, bin_, received, done)
        except LakeVillaError as error:
            for _ in rest:
                pass
            return done.report(error)
        return done.report()

    def _merge(
        self, worker: Worker, bin_: int, received: Iterator[tuple[int, bytes]], done: TaskProgress
    ) -> None:
        inputs = self.bins.within(bin_)
        routed = (one for one in received if one[0] == _ROWS)
        # Read the parcels once as they arrive, unless several parts must be merged with them.
        source_rows = list(routed) if len(inputs) > 1 else routed

        def merge(table: TableInput) -> Program[Rewrite]:
            rows = opened(source_rows, self.shuffle.numbered)
            rewrite, _ = yield from worker.engine.merge_part(table, rows, self.into, self.name)
            return rewrite

        for table in inputs:
            done.add(table, worker.kept(self.bins.layout, merge(table)))


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _in_parts(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        pending.append(batch)
        size += batch.nbytes
        if size >= PARCEL_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)
