"""Jobs whose tasks report: each once, and what they have stored taken back if one has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakevilla.engines.base import Rewrite, TableInput
from lakevilla.engines.spark.bins import Bins, in_bins
from lakevilla.engines.spark.jobs import numbers, parallelism, run_job
from lakevilla.engines.spark.tasks import LakeAddress, Task, TaskReport, joined
from lakevilla.errors import LakeVillaError
from lakevilla.formats.files import file_key
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.meter import note
from lakevilla.store.effects import Program, delete, parallel

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
        """How workers reach the lake, with credentials that are valid now."""
        return self._place()

    @property
    def tasks(self) -> int:
        """How many tasks the session runs at a time."""
        if not self._tasks:
            self._tasks = parallelism(self.session)
        return self._tasks

    def bins(self, table: TableInput) -> Bins:
        """The files in bins, one for each task; see ``in_bins``."""
        return in_bins(table, self.tasks)

    def rewritten(
        self,
        layout: Layout,
        over: DataFrame | Bins,
        task: Task,
        *,
        besides: Rewrite | None = None,
    ) -> Program[Rewrite]:
        """What all tasks of a job have done, as one."""
        reports = yield from self.reported(layout, over, task, besides=besides)
        return joined([report.rewrite for report in reports])

    def reported(
        self,
        layout: Layout,
        over: DataFrame | Bins | int,
        task: Task,
        *,
        besides: Rewrite | None = None,
    ) -> Program[list[TaskReport]]:
        """Run a job: over the rows of a frame, over bins, or over so many numbers.

        If one of its tasks has failed, take back what the others have stored, and ``besides``.
        What a task that did not report has stored is gc's: nobody knows its names.
        """
        try:
            if isinstance(over, Bins):
                over = len(over.files)
            if isinstance(over, int):
                over = numbers(self.session, over)
            reports = self.run(over, task, f"table {layout.table}")
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
        """Delete what was written: nothing refers to it yet."""
        paths = [one.file.path for one in rewrite.written]
        paths += [file.path for file, _ in rewrite.change_files]
        yield from parallel([delete(file_key(layout.location, path)) for path in paths])


def first_error(reports: Sequence[TaskReport]) -> LakeVillaError | None:
    return next((one.error for one in reports if one.error is not None), None)
