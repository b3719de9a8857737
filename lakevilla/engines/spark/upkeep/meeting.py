"""Join equal rows of several sides by jobs of Spark."""

from __future__ import annotations

import importlib.metadata
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import StagedRows, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.duckdb.writing.rewrite import Digest
from lakevilla.engines.duckdb.writing.routing import HASH
from lakevilla.engines.spark.jobs import Jobs, first_error, numbers
from lakevilla.engines.spark.tasks import (
    Bins,
    LakeAddress,
    TaskReport,
    Worker,
    bytes_of,
    in_parts,
    inputs_of,
)
from lakevilla.engines.spark.upkeep.moving import delivered, packed, sending_of, unpacked
from lakevilla.engines.staged import Judge, Met, Side, read_staged, to_ipc
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import ANY, Missing, ObjectInfo
from lakevilla.store.effects import Program, Stat, delete, parallel, put

# -------------------- meeting
#
# Equal rows of several sides are sent to one place, where a judge examines them.
#
# Tasks send the rows of files, and staged rows, to the meeting place that a hash of some columns
# determines. A place gets about as many bytes as a task holds. The task stages the rows that its
# judge returns, under names of the attempt's own, so gc deletes what a lost attempt leaves.


#: A task at meeting places gets the rows of about so many stored bytes.
_MEETING_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SideSource:
    """The data of a side that tasks need: the layout of its files, or its staged rows.

    ``among`` names another side if rows without an equal row on that side are useless, and tasks
    must check that.
    """

    rows: Layout | StagedRows
    by: tuple[str, ...]
    where: Expr | None = None
    among: SideSource | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    def read(self, worker: Worker, piece: bytes | int) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows of some files, listed as an Arrow IPC stream, or of an object by place."""
        if isinstance(self.rows, StagedRows):
            assert isinstance(piece, int)
            yield read_staged(worker.data, self.rows.only(piece))
            return
        assert isinstance(piece, bytes)
        for table in inputs_of(self.rows, piece):
            yield worker.runner.run(worker.engine.scan(table, None, self.where))

    def hashes(self, worker: Worker, table: str) -> np.ndarray:
        """Return the hashes of all staged rows."""
        assert isinstance(self.rows, StagedRows)
        found = [np.empty(0, np.uint64)]
        for batch in worker.engine.hashed(read_staged(worker.data, self.rows), self.by, table):
            found.append(np.unique(batch.column(HASH.name).to_numpy(zero_copy_only=False)))
        return np.unique(np.concatenate(found))


@dataclass(frozen=True, slots=True)
class Meeting:
    """The common data of the tasks; ``duckdb`` is its version: another may hash otherwise."""

    place: LakeAddress
    sources: tuple[tuple[str, SideSource], ...]
    places: int
    judge: Judge
    duckdb: str


@dataclass(frozen=True, slots=True)
class SendTask:
    """A task that sends rows to their meeting places: pieces of sides, by the side's place."""

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
    """The summaries of the judge at the places of a task; ``staged`` are the staged rows."""

    said: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A task at meeting places: the judge examines rows, and the task stages the resulting rows."""

    meeting: Meeting
    prefix: str

    @property
    def place(self) -> LakeAddress:
        return self.meeting.place

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        outcomes: list[Any] = []
        staged: list[tuple[str, int]] = []
        try:
            for _, parcels in unpacked(batches):
                views = self._views(parcels)

                def look(sql: str, views: dict[str, pa.Table] = views) -> pa.Table:
                    given = {name: rows.to_reader() for name, rows in views.items() if name in sql}
                    return worker.runner.run(worker.engine.query(sql, {}, given, {}))

                judged = self.meeting.judge.judged(look)
                outcomes.append(judged.said)
                for part in () if judged.rows is None else in_parts(judged.rows.to_reader()):
                    key = f"{self.prefix}{worker.ids.nonce()}.arrow"
                    worker.runner.run(put(key, to_ipc(part), ANY))
                    staged.append((key, part.num_rows))
        except LakeVillaError as error:
            return MetReport(staged=tuple(staged), error=error)
        return MetReport(staged=tuple(staged), said=tuple(outcomes))

    def _views(self, parcels: Iterable[tuple[int, bytes]]) -> dict[str, pa.Table]:
        sources = self.meeting.sources
        parts: list[list[pa.Table]] = [[one.schema.empty_table()] for _, one in sources]
        for side, rows in parcels:
            parts[side].append(pa.ipc.open_stream(rows).read_all())
        return {
            name: pa.concat_tables(some) for (name, _), some in zip(sources, parts, strict=True)
        }


def _of_hashes(batches: Iterator[pa.RecordBatch], wanted: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows that have one of these hashes: all wanted rows, and rarely an unwanted one."""
    for batch in batches:
        here = np.isin(batch.column(HASH.name).to_numpy(zero_copy_only=False), wanted)
        yield batch.filter(pa.array(here))


def met(jobs: Jobs, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
    """Join rows of several sides; see ``engines.staged.MeetingEngine``."""
    sources: dict[str, SideSource] = {}
    tasks: list[tuple[int, bytes | int]] = []
    sizes: dict[str, int] = {}
    for number, (name, side) in enumerate(sides.items()):
        if isinstance(side.rows, StagedRows):
            sources[name] = SideSource(side.rows, side.by)
            tasks += [(number, index) for index in range(len(side.rows.keys))]
            sizes[name] = yield from staged_bytes(side.rows)
            continue
        files = jobs.bins(side.rows).files
        tasks += [(number, one) for one in files]
        sizes[name] = bytes_of([side.rows])
        among = None
        # No task reads more of the other side than of its own files.
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
    """Return the number of bytes that staged rows have on the store."""
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for key in rows.keys])
    return sum(one.size for one in infos if not isinstance(one, Missing))


# -------------------- looking
#
# Reads of tables by tasks: of rows for which a condition is true, and by any program over files.


P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FoundReport(TaskReport):
    """A row, if one was found."""

    row: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class FindTask:
    """A task that finds one row in a bin."""

    place: LakeAddress
    bins: Bins
    where: Expr

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        for table in self.bins.of(batches):
            row = worker.runner.run(worker.engine.find_one(table, self.where))
            if row is not None:
                return FoundReport(row=row)
        return FoundReport()


def found_one(jobs: Jobs, table: TableInput, where: Expr) -> Program[pa.RecordBatch | None]:
    """Return a row for which ``where`` is true."""
    bins = jobs.bins(table)
    reports = yield from jobs.reported(table.layout, bins, FindTask(jobs.place, bins, where))
    rows = (one.row for one in reports if isinstance(one, FoundReport))
    return next((row for row in rows if row is not None), None)


@dataclass(frozen=True, slots=True)
class DigestReport(TaskReport):
    """The digest of a bin's rows."""

    digest: Digest = field(default_factory=Digest)


@dataclass(frozen=True, slots=True)
class DigestTask:
    """A task that computes a digest of the rows of a bin for which ``where`` is true."""

    place: LakeAddress
    bins: Bins
    where: Expr

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        whole = Digest()
        for table in self.bins.of(batches):
            whole += worker.runner.run(worker.engine.digest(table, self.where))
        return DigestReport(digest=whole)


def digested(jobs: Jobs, embedded: DuckDBEngine, table: TableInput, where: Expr) -> Program[Digest]:
    """Return the digest of the rows for which ``where`` is true.

    The driver computes it if it is the work of one task: a transaction waits for it, and a job
    takes longer.
    """
    bins = jobs.bins(table)
    if len(bins.files) == 1:
        return (yield from embedded.digest(table, where))
    reports = yield from jobs.reported(table.layout, bins, DigestTask(jobs.place, bins, where))
    return sum((one.digest for one in reports if isinstance(one, DigestReport)), Digest())


@dataclass(frozen=True, slots=True)
class ProgramReport(TaskReport):
    """The result of the program of one portion, with the number of the portion."""

    portion: int = 0
    outcome: Any = None


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """A task that runs a program for a portion.

    The function is pickled by its name, its arguments by value.
    """

    place: LakeAddress
    function: Callable[[Any], Program[Any]]
    portions: tuple[bytes, ...]

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        (number,) = [number for batch in batches for number in batch.column(0).to_pylist()]
        program = self.function(pickle.loads(self.portions[number]))
        return ProgramReport(portion=number, outcome=worker.runner.run(program))


def spread_over(jobs: Jobs, function: Callable[[P], Program[R]], portions: Sequence[P]) -> list[R]:
    """Run a program for each portion; return the results, in order."""
    if not portions:
        return []
    task = ProgramTask(jobs.place, function, tuple(map(pickle.dumps, portions)))
    about = f"{function.__module__.rpartition('.')[2]}"
    reports = jobs.run(numbers(jobs.session, len(portions)), task, about)
    error = first_error(reports)
    if error is not None:
        raise error
    found = {one.portion: one.outcome for one in reports if isinstance(one, ProgramReport)}
    return [found[number] for number in range(len(portions))]


# -------------------- places
#
# Meeting places of rows: each is chosen by a hash that all workers must compute alike.


def duckdb_here() -> str:
    """Return the version of the driver's DuckDB: another one may hash otherwise."""
    return importlib.metadata.version("duckdb")


def placed(
    worker: Worker, duckdb: str, table: str, batches: Iterator[pa.RecordBatch], places: int
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield rows, each with one of ``places`` places, by its hash, which is the last column.

    Raises
    ------
    InvalidOperation
        The worker has another DuckDB than the driver's, ``duckdb``.
    """
    here = worker.engine.version
    if here != duckdb:
        raise InvalidOperation(
            f"table {table}: Spark's workers have duckdb {here}, and this driver {duckdb}: "
            "install the same on all"
        )
    for batch in batches:
        to = batch.column(HASH.name).to_numpy(zero_copy_only=False) % places
        yield batch.drop_columns([HASH.name]), to.astype(np.int32)
