"""Jobs of Spark: their tasks, and the reports of these."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla import errors
from lakevilla.engines.base import Rewrite, TableInput
from lakevilla.engines.spark.rows import first_line
from lakevilla.engines.spark.session import LACKS, STOPPED, importer
from lakevilla.engines.spark.tasks import (
    Bins,
    LakeAddress,
    ReadTask,
    Task,
    TaskReport,
    in_bins,
    joined,
)
from lakevilla.errors import CorruptObject, InvalidOperation, LakeVillaError
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.formats.files import file_key
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.meter import note
from lakevilla.store.effects import Program, delete, parallel

# -------------------- jobs
#
# Jobs: a task for each partition of a DataFrame, and the reports of the tasks.
#
# Only reports are sent to the driver. Only the DataFrame API is used, so a job runs on a classic
# session and on Spark Connect alike, and a worker needs no more than Python with LakeVilla.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The last line of a Python traceback within Spark's message.
_RAISED = re.compile(
    r"^(?:lakevilla\.errors\.|(?:\w+\.)*(?=\w*(?:Error|Exception|Interrupt)))(\w+: .+)$",
    re.MULTILINE,
)
#: The beginning of LakeVilla's error about a data file.
_DATA_FILE = re.compile(r"data file '?(?P<key>\S+?)'? (?:of table|is missing|ends before)")


def run_job(
    session: SparkSession, frame: DataFrame, task: Task, *, job: str, tag: str
) -> list[TaskReport]:
    """Run ``task`` on each partition of ``frame``; return their reports, which may be errors.

    ``job`` names the job in messages. No other job has its ``tag``, by which the job is interrupted
    if the caller is.

    Raises
    ------
    InvalidOperation
        Spark could not run the job.
    """
    function = in_worker("reports", pickle.dumps(task))
    try:
        session.addTag(tag)
        try:
            with described(session, f"lakevilla {task.place.root}: {job}"):
                table = frame.mapInArrow(function, "report binary").toArrow()
        except BaseException:
            with suppress(Exception):
                session.interruptTag(tag)
            raise
        finally:
            with suppress(Exception):
                session.removeTag(tag)
    except Exception as error:
        raise failure(error, job) from None
    return [pickle.loads(report) for report in table.column("report").to_pylist()]


@contextmanager
def described(session: SparkSession, text: str) -> Iterator[None]:
    """Return a block whose jobs the session's pages describe by this text; Connect shows none."""
    name = "spark.job.description"
    context: Any = None
    with suppress(Exception):
        context = session.sparkContext
        before = context.getLocalProperty(name)
        context.setLocalProperty(name, text)
    try:
        yield
    finally:
        if context is not None:
            with suppress(Exception):
                context.setLocalProperty(name, before)


def scanned(
    session: SparkSession, task: ReadTask, tasks: int, schema: StructType, shown: str | None = None
) -> DataFrame:
    """Return the rows that ``tasks`` tasks read, each task by its number; plans show ``shown``."""
    return rows_at(numbers(session, tasks), task, schema, shown)


def rows_at(
    frame: DataFrame, task: ReadTask, schema: StructType, shown: str | None = None
) -> DataFrame:
    """Return the rows that tasks make of the rows of a frame."""
    function = in_worker("rows_of", pickle.dumps(task))
    if shown is not None:
        function.__name__ = shown  # a plan shows it: the rest is alike for all sources in Python
    return frame.mapInArrow(function, schema)


def numbers(session: SparkSession, tasks: int) -> DataFrame:
    """Return a frame with ``tasks`` partitions, each with its number as its one row."""
    try:
        return session.range(0, tasks, 1, max(tasks, 1))
    except AttributeError:  # the attributes of a classic session are missing
        raise InvalidOperation(STOPPED) from None


def parallelism(session: SparkSession) -> int:
    """Return how many tasks the session runs at a time, as it reports itself."""
    from pyspark.sql import functions

    try:
        places = session.range(0, 1 << 14).select(functions.spark_partition_id().alias("place"))
        row: Any = places.agg(functions.max("place").alias("last")).first()
    except Exception as error:
        raise failure(error, "the first job") from None
    return int(row["last"]) + 1


def failure(error: Exception, job: str) -> LakeVillaError:
    """Return Spark's error as LakeVilla's: the error that a task raised, else one with Spark's
    reason.

    It is raised from None: Spark's own error, with all stack traces, is its context.
    """
    text = str(error)
    if isinstance(error, AttributeError):
        return InvalidOperation(f"{job}: {STOPPED}")
    if LACKS in text:
        reason = text.partition(LACKS)[2].splitlines()[0]
        return InvalidOperation(f"{job}: {reason}")
    if "stopped SparkContext" in text or "SESSION_CLOSED" in text or "is stopped" in text:
        return InvalidOperation(f"{job}: {STOPPED}")
    raised = _RAISED.findall(text)
    reason = raised[-1].strip()[:500] if raised else first_line(error)
    kind, _, message = reason.partition(": ")
    if kind == CorruptObject.__name__:
        file = _DATA_FILE.match(message)
        return CorruptObject(f"{job}: {message}", key=None if file is None else file["key"])
    own = getattr(errors, kind, None) if kind in errors.__all__ else None
    if own is not None and own.__init__ is LakeVillaError.__init__:
        found: LakeVillaError = own(f"{job}: {message}")
        return found
    return InvalidOperation(f"{job}: the Spark job failed: {reason}")


def in_worker(
    entry: str, payload: bytes, module: str = "lakevilla.engines.spark.tasks"
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return a function of ``module`` for ``mapInArrow``; it is pickled by its value."""
    imported = importer(module)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return getattr(imported(), entry)(payload, iter(batches))  # type: ignore[no-any-return]

    return run


# -------------------- reported
#
# Jobs whose tasks report, each once; if one has failed, the files that the tasks stored are
# deleted.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Jobs:
    """The jobs of one engine; parameters as ``SparkEngine``."""

    def __init__(
        self, session: Callable[[], SparkSession], place: Callable[[], LakeAddress], ids: Ids
    ) -> None:
        self._session, self._place, self._ids = session, place, ids
        self._tasks = 0

    @property
    def session(self) -> SparkSession:
        return self._session()

    @property
    def place(self) -> LakeAddress:
        """Return how workers reach the lake, with credentials that are valid now."""
        return self._place()

    @property
    def tasks(self) -> int:
        """Return how many tasks the session runs at a time."""
        if not self._tasks:
            self._tasks = parallelism(self.session)
        return self._tasks

    def bins(self, table: TableInput) -> Bins:
        """Return the files in bins, one for each task; see ``in_bins``."""
        return in_bins(table, self.tasks)

    def rewritten(
        self,
        layout: Layout,
        input_: DataFrame | Bins,
        task: Task,
        *,
        besides: Rewrite | None = None,
    ) -> Program[Rewrite]:
        """Run a job; return the rewrites of all its tasks as one."""
        reports = yield from self.reported(layout, input_, task, besides=besides)
        return joined([report.rewrite for report in reports])

    def reported(
        self,
        layout: Layout,
        input_: DataFrame | Bins | int,
        task: Task,
        *,
        besides: Rewrite | None = None,
    ) -> Program[list[TaskReport]]:
        """Run a job: over the rows of a frame, over bins, or over numbers of tasks.

        If one of its tasks has failed, delete what the other tasks have stored, and ``besides``. If
        a task did not report, gc deletes what it has stored: the names are unknown.
        """
        try:
            if isinstance(input_, Bins):
                input_ = len(input_.files)
            if isinstance(input_, int):
                input_ = numbers(self.session, input_)
            reports = self.run(input_, task, f"table {layout.table}")
            error = first_error(reports)
        except (Exception, KeyboardInterrupt):
            yield from self.withdraw(layout, besides or Rewrite())
            raise
        if error is not None:
            done = joined([report.rewrite for report in reports] + [besides or Rewrite()])
            yield from self.withdraw(layout, done)
            raise error
        written = [one.file for report in reports for one in report.rewrite.written]
        note(files=len(written), bytes=sum(file.size for file in written))
        return reports

    def run(self, frame: DataFrame, task: Task, about: str) -> list[TaskReport]:
        kind = type(task).__name__.removesuffix("Task").lower()
        tag = f"lakevilla-{kind}-{self._ids.nonce()[:12]}"
        return run_job(self.session, frame, task, job=f"{about}: job {tag}", tag=tag)

    def withdraw(self, layout: Layout, rewrite: Rewrite) -> Program[None]:
        """Delete the written files: nothing refers to them yet. Files that stay are not new."""
        place = layout.location
        stays = {path for file in rewrite.removed for path in paths_of(place, file)}
        paths = [path for one in rewrite.written for path in sorted(paths_of(place, one.file))]
        paths = [path for path in paths if path not in stays]
        paths += [file.path for file, _ in rewrite.change_files]
        yield from parallel([delete(file_key(place, path)) for path in paths])


def first_error(reports: Sequence[TaskReport]) -> LakeVillaError | None:
    return next((one.error for one in reports if one.error is not None), None)
