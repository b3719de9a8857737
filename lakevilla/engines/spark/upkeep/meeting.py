"""Rows of several sides meet where they are equal, and a judge looks at them there.

Tasks send the rows of files, and rows that were put aside, to the place that a hash of some columns
says. A place has about as many bytes as a task holds. What its judge makes of them is put
aside again, under names of the attempt's own, so a lost attempt leaves what gc deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import StagedRows
from lakevilla.engines.duckdb.writing.routing import HASH
from lakevilla.engines.meeting import Judge, Met, Side
from lakevilla.engines.spark.bins import bytes_of, inputs_of
from lakevilla.engines.spark.reported import Jobs, first_error
from lakevilla.engines.spark.tasks import LakeAddress, TaskReport, Worker, in_parts
from lakevilla.engines.spark.upkeep.parcels import delivered, packed, sending_of, unpacked
from lakevilla.engines.spark.upkeep.places import duckdb_here, placed
from lakevilla.engines.staged import read_staged, to_ipc
from lakevilla.errors import LakeVillaError
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import ANY, Missing, ObjectInfo
from lakevilla.store.effects import Program, Stat, delete, parallel, put

#: Where rows meet, a task gets those of about so many bytes as they are stored.
_MEETING_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SideSource:
    """What tasks need to know of a side: whose files they are, or what was put aside.

    ``among`` is the side without which its rows are of no use, where tasks are to look at that.
    """

    rows: Layout | StagedRows
    by: tuple[str, ...]
    where: Expr | None = None
    among: SideSource | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def read(self, worker: Worker, piece: bytes | int) -> Iterator[pa.RecordBatchReader]:
        """The rows of some files, as an Arrow IPC stream of them, or of an object by its place."""
        if isinstance(self.rows, StagedRows):
            assert isinstance(piece, int)
            yield read_staged(worker.data, self.rows.only(piece))
            return
        assert isinstance(piece, bytes)
        for table in inputs_of(self.rows, piece):
            yield worker.runner.run(worker.engine.scan(table, None, self.where))

    def hashes(self, worker: Worker, table: str) -> np.ndarray:
        """Those of all rows that were put aside."""
        assert isinstance(self.rows, StagedRows)
        found = [np.empty(0, np.uint64)]
        for batch in worker.engine.hashed(read_staged(worker.data, self.rows), self.by, table):
            found.append(np.unique(batch.column(HASH.name).to_numpy(zero_copy_only=False)))
        return np.unique(np.concatenate(found))


@dataclass(frozen=True, slots=True)
class Meeting:
    """What the tasks have in common; ``duckdb`` is its version, as another may hash otherwise."""

    place: LakeAddress
    sources: tuple[tuple[str, SideSource], ...]
    places: int
    judge: Judge
    duckdb: str


@dataclass(frozen=True, slots=True)
class SendTask:
    """Send rows to where they meet others: for each task pieces of sides, by the side's place."""

    meeting: Meeting
    tasks: tuple[tuple[int, bytes | int], ...]

    @property
    def place(self) -> LakeAddress:
        return self.meeting.place

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                side, piece = self.tasks[number]
                yield from packed(self._rows(worker, side, piece), side)

    def _rows(
        self, worker: Worker, side: int, piece: bytes | int
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        meeting = self.meeting
        source, table = meeting.sources[side][1], meeting.judge.table
        wanted = None if source.among is None else source.among.hashes(worker, table)
        for rows in source.read(worker, piece):
            hashed = worker.engine.hashed(rows, source.by, table)
            if wanted is not None:
                hashed = _of_hashes(hashed, wanted)
            yield from placed(worker, meeting.duckdb, table, hashed, meeting.places)


@dataclass(frozen=True, slots=True)
class MetReport(TaskReport):
    """What was said at the places of a task; what was put aside is ``staged``."""

    said: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """Where rows meet: have the judge look at them, and put aside what that makes."""

    meeting: Meeting
    prefix: str

    @property
    def place(self) -> LakeAddress:
        return self.meeting.place

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        said: list[Any] = []
        staged: list[tuple[str, int]] = []
        try:
            for _, came in unpacked(batches):
                views = self._views(came)

                def look(sql: str, views: dict[str, pa.Table] = views) -> pa.Table:
                    given = {name: rows.to_reader() for name, rows in views.items() if name in sql}
                    return worker.runner.run(worker.engine.query(sql, {}, given, {}))

                judged = self.meeting.judge.judged(look)
                said.append(judged.said)
                for part in () if judged.rows is None else in_parts(judged.rows.to_reader()):
                    key = f"{self.prefix}{worker.ids.nonce()}.arrow"
                    worker.runner.run(put(key, to_ipc(part), ANY))
                    staged.append((key, part.num_rows))
        except LakeVillaError as error:
            return MetReport(staged=tuple(staged), error=error)
        return MetReport(staged=tuple(staged), said=tuple(said))

    def _views(self, came: Iterable[tuple[int, bytes]]) -> dict[str, pa.Table]:
        sources = self.meeting.sources
        parts: list[list[pa.Table]] = [[one.schema.empty_table()] for _, one in sources]
        for side, rows in came:
            parts[side].append(pa.ipc.open_stream(rows).read_all())
        return {
            name: pa.concat_tables(some) for (name, _), some in zip(sources, parts, strict=True)
        }


def _of_hashes(batches: Iterator[pa.RecordBatch], wanted: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The rows that have one of these hashes: all that are wanted, and seldom another."""
    for batch in batches:
        here = np.isin(batch.column(HASH.name).to_numpy(zero_copy_only=False), wanted)
        yield batch.filter(pa.array(here))


def met(jobs: Jobs, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
    """Have rows meet; see ``engines.meeting.MeetingEngine``."""
    sources: dict[str, SideSource] = {}
    tasks: list[tuple[int, bytes | int]] = []
    sizes: dict[str, int] = {}
    for number, (name, side) in enumerate(sides.items()):
        if isinstance(side.rows, StagedRows):
            sources[name] = SideSource(side.rows, side.by)
            tasks += [(number, place) for place in range(len(side.rows.keys))]
            sizes[name] = yield from staged_bytes(side.rows)
            continue
        files = jobs.bins(side.rows).files
        tasks += [(number, one) for one in files]
        sizes[name] = bytes_of([side.rows])
        among = None
        # Each task reads no more for it than it reads of its own.
        if side.for_side is not None and sizes[side.for_side] * len(files) <= sizes[name]:
            among = sources[side.for_side]
        sources[name] = SideSource(side.rows.layout, side.by, side.where, among)
    places = max(1, -(-sum(sizes.values()) // _MEETING_BYTES))
    meeting = Meeting(jobs.place, tuple(sources.items()), places, judge, duckdb_here())
    sending = sending_of(jobs.session, len(tasks), SendTask(meeting, tuple(tasks)))
    task = JudgeTask(meeting, prefix)
    reports = jobs.run(delivered(sending, places), task, f"table {judge.table}")
    staged = [one for report in reports for one in report.staged]
    error = first_error(reports)
    if error is not None:
        yield from parallel([delete(key) for key, _ in staged])
        raise error
    rows = StagedRows(tuple(key for key, _ in staged), tuple(n for _, n in staged), judge.schema)
    return Met(rows, [one for r in reports if isinstance(r, MetReport) for one in r.said])


def staged_bytes(rows: StagedRows) -> Program[int]:
    """How many bytes rows that were put aside have on the store."""
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for key in rows.keys])
    return sum(one.size for one in infos if not isinstance(one, Missing))
