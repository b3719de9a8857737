"""Rewrites in which a large file is several tasks': it is removed once, and all its rows are kept.

A task rewrites those parts of its bin that it changes a row of. Only the driver can tell that a
file is changed: by any of its parts. Then its other parts are copied, in a second job; of a file
that no task has changed nothing is written. All of it is one rewrite, so one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakevilla.engines.base import FileNamer, Rewrite, TableInput
from lakevilla.engines.spark.bins import Bins, balanced, bytes_of, listed, most_bytes
from lakevilla.engines.spark.reported import Jobs
from lakevilla.engines.spark.tasks import CopyTask, Task, TaskReport, joined, parts_in
from lakevilla.formats.files import FileRef
from lakevilla.store.effects import Program


def rewritten(jobs: Jobs, bins: Bins, task: Task, name: FileNamer) -> Program[Rewrite]:
    """What a job over bins has done, with the rest of the files that it has changed."""
    reports = yield from jobs.reported(bins.layout, bins, task)
    return (yield from completed(jobs, bins, reports, name))


def completed(
    jobs: Jobs, bins: Bins, reports: Sequence[TaskReport], name: FileNamer
) -> Program[Rewrite]:
    """The rewrites of tasks over ``bins`` as one, with copies of the parts that none changed."""
    done = joined([report.rewrite for report in reports])
    rest = _rest(bins, {one for report in reports for one in report.hit})
    if rest:
        size = bytes_of(rest)
        some = balanced([bytes_of([one]) for one in rest], most_bytes(size, jobs.tasks))
        copies = Bins(bins.layout, tuple(_together([rest[n] for n in one]) for one in some))
        task = CopyTask(jobs.place, copies, name)
        copied = yield from jobs.rewritten(bins.layout, copies, task, besides=done)
        done = joined([done, copied])
    removed = {file.ref: file for file in done.removed}
    return replace(done, removed=tuple(removed.values()))


def _together(parts: Sequence[TableInput]) -> bytes:
    """Parts as one bin."""
    files = pa.concat_tables([table.files for table in parts])
    return listed(files, [part for table in parts for part in table.parts])


def _rest(bins: Bins, hit: set[tuple[FileRef, int]]) -> list[TableInput]:
    """The parts that no task has changed, of the files that one has."""
    changed = {ref for ref, _ in hit}
    if not changed:
        return []
    return [
        table
        for number in range(len(bins.files))
        for table in bins.within(number)
        if any(ref in changed and (ref, part) not in hit for ref, part in parts_in(table))
    ]
