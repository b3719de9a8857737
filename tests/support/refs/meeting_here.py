"""The embedded engine with tasks that exchange rows, which run in this process: a list replaces
Spark.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.spark.tasks import LakeAddress, in_bins, reports
from lakevilla.engines.spark.upkeep import meeting
from lakevilla.engines.spark.upkeep.moving import sent
from lakevilla.engines.staged import Judge, Met, Side
from lakevilla.store.effects import Program


class JobsHere:
    """Implement the part of ``engines.spark.reported.Jobs`` that the exchange of rows needs."""

    def __init__(self, place: LakeAddress, tasks: int) -> None:
        self.place, self.tasks = place, tasks
        self.kinds: list[str] = []
        #: For each exchange the number of rows that were sent of each side, by the side's number.
        self.sent: list[dict[int, int]] = []
        self.session = self

    def bins(self, table: Any) -> Any:
        return in_bins(table, self.tasks)

    def run(self, frame: list[pa.RecordBatch], task: Any, about: str) -> list[Any]:
        self.kinds.append(type(task).__name__)
        found = []
        for batch in frame or [_EMPTY]:
            (report,) = reports(pickle.dumps(task), iter([batch]))
            found.append(pickle.loads(report.column(0)[0].as_py()))
        return found


_EMPTY = pa.record_batch(
    {
        "to": pa.array([], pa.int32()),
        "kind": pa.array([], pa.int32()),
        "rows": pa.array([], "binary"),
    }
)


def sending_here(session: JobsHere, tasks: int, sender: Any) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    for number in range(tasks):
        batches += sent(pickle.dumps(sender), iter([pa.record_batch({"id": [number]})]))
    counts: dict[int, int] = defaultdict(int)
    for batch in batches:
        for kind, rows in zip(batch["kind"].to_pylist(), batch["rows"].to_pylist(), strict=True):
            counts[kind] += 0 if kind < 0 else pa.ipc.open_stream(rows).read_all().num_rows
    session.sent.append(dict(counts))
    return batches


def delivered_here(frame: list[pa.RecordBatch], places: int) -> list[pa.RecordBatch]:
    """Return the batches of each task: one task for each place to which rows are sent."""
    came: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in frame:
        for n, to in enumerate(batch.column(0).to_pylist()):
            assert to < places
            came[to].append(batch.slice(n, 1))
    return [pa.concat_batches(some) for some in came.values()]


class MeetingHere(DuckDBEngine):
    """An embedded engine whose tasks exchange rows."""

    jobs: JobsHere

    def meet(self, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
        return (yield from meeting.met(self.jobs, sides, judge, prefix))  # type: ignore[arg-type]


def hand_over(monkeypatch: Any, engine: DuckDBEngine, jobs: JobsHere) -> None:
    """Make an engine exchange rows between tasks; the functions here replace Spark's."""
    monkeypatch.setattr(meeting, "sending_of", sending_here)
    monkeypatch.setattr(meeting, "delivered", delivered_here)
    monkeypatch.setattr(engine, "__class__", MeetingHere)
    monkeypatch.setattr(engine, "jobs", jobs, raising=False)
