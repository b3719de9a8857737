"""What a task of a write does: rows become files, which nobody knows until they are committed.

Each attempt writes under names of its own, and tells of them in its message; Spark takes one
message of each task. Files of the other attempts belong to nobody, and gc deletes them.
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lakevilla.api.spark.source.writing.plan import WritePlan
from lakevilla.engines.spark.planned import default_location
from lakevilla.engines.spark.streams import checkpoint_of_task
from lakevilla.engines.spark.tasks import TaskReport, reports
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.store.location import root_location

__all__ = ["Message", "written"]


@dataclass(frozen=True, slots=True)
class Message:
    """What one attempt has done, and where.

    ``plan``: the stream's batch that it did it for, and ``checkpoint`` that which counts it, in the
    directory ``location``; None if that is unknown.
    """

    report: TaskReport
    host: str
    plan: WritePlan | None = None
    checkpoint: str = ""
    location: str | None = None


def written(state: bytes, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Write the rows of a task; what comes out is a pickled ``Message``.

    An error that another attempt would meet again is told in it: Spark would only repeat it.
    """
    plan: WritePlan = pickle.loads(state)
    host = socket.gethostname()
    report = TaskReport()
    if plan.task is not None:
        try:
            _check_reachable(plan.access.place.root, host)
            (row,) = reports(pickle.dumps(plan.task), batches)
            report = pickle.loads(row.column("report")[0].as_py())
        except LakeVillaError as error:
            report = TaskReport(error=error)
        if isinstance(report.error, StoreError) and not report.error.message.startswith("worker"):
            report.error.message = f"worker {host}: {report.error.message}"
            report.error.args = (report.error.message,)
    for _ in batches:  # what is left is read, or Spark would take an early end for a broken worker
        pass
    if plan.options.query_id is None:
        return pickle.dumps(Message(report, host))
    location = plan.options.checkpoint_location or default_location(plan.options.query_name)
    of_batch = replace(plan, task=None)
    return pickle.dumps(Message(report, host, of_batch, checkpoint_of_task(), location))


def _check_reachable(root: str, host: str) -> None:
    """Refuse a local root that is another directory here: its files nobody else would find."""
    location = root_location(root)
    if location.scheme == "file" and not Path(location.uri, HEAD_KEY).exists():
        raise InvalidOperation(
            f"worker {host} can't reach the lake: there is no {HEAD_KEY} below {root} there; a "
            "local root must be on a disk that all machines share, so mount it, or use an object "
            "store"
        )
