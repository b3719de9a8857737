"""The verbs of ``engines.base.Engine`` as Spark jobs; small work is done in the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import pyarrow as pa

from lakevilla.engines.base import (
    FileNamer,
    KeptRows,
    MergeSpec,
    Refreshed,
    Rewrite,
    StagedRows,
    TableInput,
    Written,
    projection,
)
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.spark.jobs import Jobs, failure, first_error, rows_at, scanned
from lakevilla.engines.spark.rows import SparkRows, spark_schema, spark_types
from lakevilla.engines.spark.tasks import (
    ChangeFilesTask,
    DeleteTask,
    LakeAddress,
    ScanTask,
    StagedTask,
    StageTask,
    UpdateTask,
    WriteTask,
)
from lakevilla.engines.spark.upkeep.changes import ChangeStep, Comparing, change_jobs
from lakevilla.engines.spark.upkeep.meeting import digested, found_one, met, spread_over
from lakevilla.engines.spark.upkeep.merge import merged
from lakevilla.engines.spark.upkeep.moving import compacted, delivered, rewritten, sending_of
from lakevilla.engines.staged import Judge, Met, Side
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import ChangeFile, DataFile
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, delete, parallel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

P = TypeVar("P")
R = TypeVar("R")


class SparkEngine:
    """The engine that processes rows of tables by a Spark session.

    Parameters
    ----------
    session : callable
        Returns the session; called for each job.
    place : callable
        Returns how workers reach the lake; called for each job, as credentials expire.
    embedded : DuckDBEngine
        Does in the driver the work that needs no job: writing rows of the driver, queries over
        them, digests that one task would compute.
    ids : Ids
        Names jobs.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        place: Callable[[], LakeAddress],
        embedded: DuckDBEngine,
        ids: Ids,
    ) -> None:
        self._embedded = embedded
        self._jobs = Jobs(session, place, ids)

    @property
    def reads_by_parts(self) -> bool:
        """Return False: Spark's workers read the files, and can't use files in the
        driver's memory.
        """
        return False

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """Return a block without effect: see ``reads_by_parts``."""
        return nullcontext()

    def keep(self, layout: Layout, limit_bytes: int) -> KeptRows | None:
        """Return None: the rows are on other machines."""
        return None

    # -- frames ------------------------------------------------------------------

    def frame(
        self,
        table: TableInput,
        columns: Sequence[str] | None,
        where: Expr | None,
        shown: str | None = None,
        own: str | None = None,
    ) -> DataFrame:
        """Return the rows for which ``where`` is true, as a DataFrame: read when it is used.

        ``shown``: the name of its source in the plan. ``own``: the transaction that changed some
        rows.
        """
        schema = projection(table.layout, columns)
        bins = self._jobs.bins(table)
        names = None if columns is None else tuple(columns)
        task = ScanTask(self._jobs.place, bins, names, where, own)
        return scanned(self._jobs.session, task, len(bins.files), spark_schema(schema), shown)

    def stage(
        self, frame: DataFrame, schema: pa.Schema, table: str, prefix: str, keys: Sequence[str]
    ) -> Program[StagedRows]:
        """Stage a DataFrame's rows on the store: Spark computes them once, and tasks read them from
        there.
        """
        plain, names = _plain(frame)
        task = StageTask(self._jobs.place, table, names, schema, prefix, tuple(keys))
        reports = self._jobs.run(plain, task, f"table {table}")
        staged = [one for report in reports for one in report.staged]
        error = first_error(reports)
        if error is not None:
            yield from parallel([delete(key) for key, _ in staged])
            raise error
        return StagedRows(tuple(key for key, _ in staged), tuple(n for _, n in staged), schema)

    def has_twice(self, rows: StagedRows, columns: Sequence[str], table: str) -> bool:
        """Return whether two of the rows have the same values in ``columns``."""
        from pyspark.sql import functions

        if not rows.keys:
            return False
        schema = pa.schema([rows.schema.field(name) for name in columns])
        task = StagedTask(self._jobs.place, rows, tuple(columns))
        frame = scanned(self._jobs.session, task, len(rows.keys), spark_schema(schema))
        counted = frame.toDF(*(f"k{n}" for n in range(len(columns))))
        counted = counted.groupBy(*counted.columns).agg(functions.count("*").alias("n"))
        try:
            return not counted.where("n > 1").limit(1).isEmpty()
        except Exception as error:
            raise failure(error, f"table {table}: the job that searches for double keys") from None

    def changes(
        self,
        layout: Layout,
        steps: Sequence[ChangeStep],
        columns: Sequence[str] | None,
        where: Expr | None,
        comparing: Comparing,
        own: pa.Schema,
    ) -> DataFrame:
        """Return the changes of commits, as a DataFrame: read when it is used.

        ``own`` are the columns that describe a change: its kind, version and time.
        """
        jobs, session = self._jobs, self._jobs.session
        work = change_jobs(jobs.place, jobs.tasks, layout, steps, columns, where, comparing, own)
        shown = spark_schema(work.reading.shown.schema)
        # A frame of no tasks has no rows.
        frame = scanned(session, work.reading, len(work.reading.tasks), shown)
        if not work.meetings:
            return frame
        sending = sending_of(session, len(work.comparing.tasks), work.comparing)
        met = delivered(sending, work.meetings)
        return frame.union(rows_at(met, work.differing, shown))

    def given(self, rows: pa.Table) -> DataFrame:
        """Return rows of the driver as a DataFrame."""
        if any(pa.types.is_nested(kind) for kind in rows.schema.types):
            # Spark can't read a slice of lists, and a copy is no slice.
            rows = rows.take(np.arange(rows.num_rows))
        declared = spark_schema(rows.schema)
        return self._jobs.session.createDataFrame(rows.cast(spark_types(rows.schema)), declared)

    # -- the protocol's verbs ------------------------------------------------------

    def write(
        self, layout: Layout, data: SparkRows | pa.RecordBatchReader, name: FileNamer
    ) -> Program[tuple[Written, ...]]:
        """Write rows into files with statistics; see ``engines.base.Engine``."""
        if not isinstance(data, SparkRows):
            return (yield from self._embedded.write(layout, data, name))
        plain, names = _plain(data.frame)
        task = WriteTask(self._jobs.place, layout, names, name)
        return (yield from self._jobs.rewritten(layout, plain, task)).written

    def write_by_key(
        self,
        layout: Layout,
        data: object,
        key: Sequence[str],
        live: Sequence[DataFile],
        name: FileNamer,
        present: pa.Table | None = None,
    ) -> Program[Refreshed]:
        """Refuse: Spark's rows are in partitions of its own, each written by another task."""
        raise InvalidOperation(
            f"table {layout.table}: reuse_by needs the embedded engine: leave it out, or pass the "
            "rows to a lake that was connected without spark=",
            table=layout.table,
        )

    def scan(
        self, table: TableInput, columns: Sequence[str] | None, where: Expr | None
    ) -> Program[pa.RecordBatchReader]:
        """Return the rows for which ``where`` is true, streamed by the driver in bounded memory."""
        return (yield from self._embedded.scan(table, columns, where))

    def find_one(self, table: TableInput, where: Expr) -> Program[pa.RecordBatch | None]:
        """Return one row for which ``where`` is true: each task searches until it has found one."""
        return (yield from found_one(self._jobs, table, where))

    @property
    def spreads(self) -> int:
        """Return a few portions for each task that runs at a time: not all take equally long."""
        return 4 * self._jobs.tasks

    def spread(
        self, function: Callable[[P], Program[R]], portions: Sequence[P]
    ) -> Program[list[R]]:
        """Run a program for each portion, each in a task; see ``engines.base.Engine``."""
        yield from ()
        return spread_over(self._jobs, function, portions)

    def update(
        self, table: TableInput, assignments: Mapping[str, Expr], where: Expr, name: FileNamer
    ) -> Program[Rewrite]:
        """Rewrite the files that hold a row for which ``where`` is true."""
        bins = self._jobs.bins(table)
        task = UpdateTask(self._jobs.place, bins, dict(assignments), where, name)
        return (yield from rewritten(self._jobs, bins, task, name))

    def delete(self, table: TableInput, where: Expr, name: FileNamer) -> Program[Rewrite]:
        """Delete rows; a file whose rows all match is removed, not rewritten."""
        bins = self._jobs.bins(table)
        task = DeleteTask(self._jobs.place, bins, where, name)
        return (yield from rewritten(self._jobs, bins, task, name))

    def merge(
        self,
        table: TableInput,
        source: pa.RecordBatchReader | StagedRows,
        spec: MergeSpec,
        name: FileNamer,
    ) -> Program[Rewrite]:
        """Merge a source; see ``upkeep.merge`` for the ways by which it reaches the tasks."""
        return (yield from merged(self._jobs, self._embedded, table, source, spec, name))

    def compact(
        self, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
    ) -> Program[tuple[tuple[Written, ...], ...]]:
        """Write the same rows into new files; see ``engines.base.Engine``."""
        return (yield from compacted(self._jobs, parts, z_order_by, name))

    def write_change_files(
        self, table: TableInput, change_type: Literal["insert", "delete"], name: FileNamer
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files with every row of the files as inserted, or as deleted."""
        bins = self._jobs.bins(table)
        task = ChangeFilesTask(self._jobs.place, bins, change_type, name)
        return (yield from self._jobs.rewritten(table.layout, bins, task)).change_files

    def matching_rows(self, table: TableInput, where: Expr) -> Program[str]:
        """Return a digest of the multiset of rows for which ``where`` is true, over all tasks."""
        return str((yield from digested(self._jobs, self._embedded, table, where)))

    def has_ids_of(self, table: TableInput, others: TableInput) -> Program[bool]:
        """Return whether a row of ``table`` has the id of a row of ``others``; the driver reads."""
        return (yield from self._embedded.has_ids_of(table, others))

    def meet(self, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
        """Join rows of several sides in tasks; see ``engines.staged.MeetingEngine``."""
        return (yield from met(self._jobs, sides, judge, prefix))

    def rows_within(
        self, sql: str, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> Mapping[str, Expr]:
        """Return a predicate that holds for each row that ``query`` uses."""
        return self._embedded.rows_within(sql, params, schemas)

    def query(
        self,
        sql: str,
        tables: Mapping[str, TableInput],
        views: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> Program[pa.Table]:
        """Run one SELECT in DuckDB's dialect; in the driver. See ``frame`` for Spark's own."""
        return (yield from self._embedded.query(sql, tables, views, params))


def _plain(frame: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the frame with names that need no quoting, which Spark omits here, and its own."""
    names = tuple(frame.columns)
    return frame.toDF(*(f"c{number}" for number in range(len(names)))), names
