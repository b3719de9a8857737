"""Looking at tables by tasks: at rows of a kind, and by whatever program looks at files."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.duckdb.writing.digest import Digest
from lakevilla.engines.spark.bins import Bins
from lakevilla.engines.spark.jobs import numbers
from lakevilla.engines.spark.reported import Jobs, first_error
from lakevilla.engines.spark.tasks import LakeAddress, TaskReport, Worker
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FoundReport(TaskReport):
    """A row, if there was one."""

    row: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class FindTask:
    """Find one row in a bin."""

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
    """A row for which ``where`` is true."""
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
    """Tell the rows of a bin for which ``where`` is true by a digest."""

    place: LakeAddress
    bins: Bins
    where: Expr

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        whole = Digest()
        for table in self.bins.of(batches):
            whole += worker.runner.run(worker.engine.digest(table, self.where))
        return DigestReport(digest=whole)


def digested(jobs: Jobs, embedded: DuckDBEngine, table: TableInput, where: Expr) -> Program[Digest]:
    """The digest of the rows for which ``where`` is true.

    The driver looks at what would be one task's: a transaction waits for it, and a job takes
    longer.
    """
    bins = jobs.bins(table)
    if len(bins.files) == 1:
        return (yield from embedded.digest(table, where))
    reports = yield from jobs.reported(table.layout, bins, DigestTask(jobs.place, bins, where))
    return sum((one.digest for one in reports if isinstance(one, DigestReport)), Digest())


@dataclass(frozen=True, slots=True)
class ProgramReport(TaskReport):
    """What the program of a portion came to."""

    portion: int = 0
    outcome: Any = None


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """Run a program for a portion. The function is pickled by its name, its arguments by value."""

    place: LakeAddress
    function: Callable[[Any], Program[Any]]
    portions: tuple[bytes, ...]

    def run(self, worker: Worker, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        (number,) = [number for batch in batches for number in batch.column(0).to_pylist()]
        program = self.function(pickle.loads(self.portions[number]))
        return ProgramReport(portion=number, outcome=worker.runner.run(program))


def spread_over(jobs: Jobs, function: Callable[[P], Program[R]], portions: Sequence[P]) -> list[R]:
    """Run a program for each portion; what they come to, in order."""
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
