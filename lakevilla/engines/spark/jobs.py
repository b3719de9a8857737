"""Jobs: a task for each partition of a DataFrame, and what the tasks report.

Nothing but reports comes to the driver. Only the DataFrame API is used, so a job
runs on a classic session and on Spark Connect alike, and a worker needs no
more than Python with LakeVilla.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla import errors
from lakevilla.engines.spark.importing import LACKS, importer
from lakevilla.engines.spark.rows import first_line
from lakevilla.engines.spark.session import STOPPED
from lakevilla.engines.spark.tasks import ReadTask, Task, TaskReport
from lakevilla.errors import CorruptObject, InvalidOperation, LakeVillaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The last line of a Python traceback within Spark's message.
_RAISED = re.compile(
    r"^(?:lakevilla\.errors\.|(?:\w+\.)*(?=\w*(?:Error|Exception|Interrupt)))(\w+: .+)$",
    re.MULTILINE,
)
#: How our error about one begins.
_DATA_FILE = re.compile(r"data file '?(?P<key>\S+?)'? (?:of table|is gone|ends before)")


def run_job(
    session: SparkSession, frame: DataFrame, task: Task, *, job: str, tag: str
) -> list[TaskReport]:
    """Run ``task`` on each partition of ``frame``; their reports, of which some may be errors.

    ``job`` names it in messages. ``tag`` is the job's own: if the caller is
    interrupted, so is the job.

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
    """A block whose jobs the session's pages describe so; Connect has no place for it."""
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
    """The rows that ``tasks`` tasks read, each those of its number; ``shown`` in its plan."""
    return rows_at(numbers(session, tasks), task, schema, shown)


def rows_at(
    frame: DataFrame, task: ReadTask, schema: StructType, shown: str | None = None
) -> DataFrame:
    """The rows that tasks make of those of a frame."""
    function = in_worker("rows_of", pickle.dumps(task))
    if shown is not None:
        function.__name__ = shown  # a plan shows it: nothing else of a source in Python is its own
    return frame.mapInArrow(function, schema)


def numbers(session: SparkSession, tasks: int) -> DataFrame:
    """A frame whose partitions are ``tasks`` many, each with its number as its one row."""
    try:
        return session.range(0, tasks, 1, max(tasks, 1))
    except AttributeError:  # what a classic session is made of is gone
        raise InvalidOperation(STOPPED) from None


def parallelism(session: SparkSession) -> int:
    """How many tasks the session runs at a time, as it says itself."""
    from pyspark.sql import functions

    try:
        places = session.range(0, 1 << 14).select(functions.spark_partition_id().alias("place"))
        row: Any = places.agg(functions.max("place").alias("last")).first()
    except Exception as error:
        raise failure(error, "the first job") from None
    return int(row["last"]) + 1


def failure(error: Exception, job: str) -> LakeVillaError:
    """Spark's error as ours: what a task has raised of ours as that, and of others the reason.

    It is raised from None: Spark's own, with all stack traces, is its context.
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
    """A function of ``module`` for ``mapInArrow``; pickled by its value."""
    imported = importer(module)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return getattr(imported(), entry)(payload, iter(batches))  # type: ignore[no-any-return]

    return run
