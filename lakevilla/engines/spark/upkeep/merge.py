"""Which way the source of a merge comes to its tasks, and the jobs of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import FileNamer, MergeSpec, Rewrite, StagedRows, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.duckdb.writing.routing import keys_of
from lakevilla.engines.spark.bins import Bins
from lakevilla.engines.spark.jobs import numbers
from lakevilla.engines.spark.reported import Jobs
from lakevilla.engines.spark.tasks import (
    InsertTask,
    MergeTask,
    TaskInput,
    TaskReport,
    joined,
    no_files,
    unmatched,
)
from lakevilla.engines.spark.upkeep.by_parts import completed
from lakevilla.engines.spark.upkeep.meeting import staged_bytes
from lakevilla.engines.spark.upkeep.merging import (
    BinsTask,
    BroadcastMergeTask,
    KeysTask,
    RoutedMergeTask,
    RouteTask,
    RowsTask,
    Shuffle,
    SourceTask,
)
from lakevilla.engines.spark.upkeep.parcels import delivered, sending_of, sent_from
from lakevilla.engines.spark.upkeep.places import duckdb_here
from lakevilla.engines.staged import to_ipc
from lakevilla.store.effects import Program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A source of up to so many bytes, as it lies on the store, is broadcast.
BROADCAST_BYTES = 64 * 1024 * 1024
#: Where keys meet, a task gets about so many bytes of the source.
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
    into, new = _apart(spec)
    if not isinstance(source, StagedRows):
        return (yield from _given(jobs, embedded, table, source.read_all(), into, new, name))
    keys = None
    size = 0
    if table.files.num_rows and source.keys:
        size = yield from staged_bytes(source)
        if size > BROADCAST_BYTES:
            keys = keys_of(spec, table.layout.schema, source.schema)
    if keys is None:
        broadcast = 0 < size <= BROADCAST_BYTES
        return (yield from _in_two(jobs, table, source, into, new, name, broadcast=broadcast))
    hashes = max(jobs.tasks, -(-size // _MEETING_BYTES))
    shuffle = Shuffle(table.layout, source, spec, keys, hashes, duckdb_here())
    return (yield from _shuffled(jobs, table, shuffle, into, new, name))


def _given(
    jobs: Jobs,
    embedded: DuckDBEngine,
    table: TableInput,
    rows: pa.Table,
    into: MergeSpec,
    new: MergeSpec,
    name: FileNamer,
) -> Program[Rewrite]:
    """Rows of the driver, which go to each task with it; the driver inserts those that are new."""
    layout = table.layout
    merged = Rewrite()
    found = np.zeros(rows.num_rows, bool)
    if table.files.num_rows:
        bins = jobs.bins(table)
        task = MergeTask(jobs.place, bins, TaskInput(to_ipc(rows)), into, name)
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
    into: MergeSpec,
    new: MergeSpec,
    name: FileNamer,
    *,
    broadcast: bool,
) -> Program[Rewrite]:
    """All of the source to each task; then those rows that matched nowhere."""
    layout = table.layout
    merged = Rewrite()
    found = np.zeros(sum(source.counts), bool)
    if table.files.num_rows:
        bins = jobs.bins(table)
        over: DataFrame | Bins = bins
        task: BroadcastMergeTask | MergeTask
        if broadcast:
            over = _beside(jobs, bins, source)
            task = BroadcastMergeTask(jobs.place, bins, source.schema, into, name)
        else:
            task = MergeTask(jobs.place, bins, TaskInput(source), into, name)
        reports = yield from jobs.reported(layout, over, task)
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
    """Each bin's number beside all parcels of the source."""
    from pyspark.sql import functions

    sending = sending_of(jobs.session, len(source.keys), SourceTask(jobs.place, source))
    return numbers(jobs.session, len(bins.files)).crossJoin(functions.broadcast(sending))


def _shuffled(
    jobs: Jobs,
    table: TableInput,
    shuffle: Shuffle,
    into: MergeSpec,
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
    task = RoutedMergeTask(place, bins, shuffle, into, name)
    reports = yield from jobs.reported(table.layout, frame, task)
    return (yield from completed(jobs, bins, reports, name))


def _note(reports: list[TaskReport], found: np.ndarray) -> None:
    """Note in ``found`` which rows of the source matched."""
    for report in reports:
        if report.matched is not None:
            found[report.matched] = True


def _apart(spec: MergeSpec) -> tuple[MergeSpec, MergeSpec]:
    """The merge without what it inserts, and what it inserts alone."""
    new = tuple(clause for clause in spec.clauses if clause.kind == "not_matched_insert")
    old = tuple(clause for clause in spec.clauses if clause.kind != "not_matched_insert")
    aliases = spec.source_alias, spec.target_alias
    return MergeSpec(spec.on, *aliases, old), MergeSpec(spec.on, *aliases, new)
