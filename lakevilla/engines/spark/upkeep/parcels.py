"""Rows on their way from one task to another: Arrow streams in a column of bytes.

Spark moves them and does not look inside. So rows of any type that a table has can
travel, as compressed blocks of columns, and no JVM takes them apart row by row.
Which task a parcel goes to is its number ``to``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from lakevilla.engines.spark.jobs import in_worker, numbers
from lakevilla.engines.spark.tasks import LakeAddress, Worker, worker_at
from lakevilla.engines.staged import to_ipc
from lakevilla.errors import LakeVillaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: As Spark declares it, and as Arrow does.
COLUMNS = "to int, kind int, rows binary"
_SCHEMA = pa.schema([("to", pa.int32()), ("kind", pa.int32()), ("rows", pa.binary())])
#: A parcel of this kind is an error of the task that would have sent rows.
FAILED = -1
#: Rows wait for others with the same way to go up to so many bytes of all.
_WAITING_BYTES = 32 * 1024 * 1024
#: One parcel holds about so many bytes of rows.
PARCEL_BYTES = 4 * 1024 * 1024


class Sender(Protocol):
    """A task whose rows go to other tasks."""

    @property
    def place(self) -> LakeAddress: ...

    def parcels(
        self, worker: Worker, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]: ...


def sent(payload: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a pickled ``Sender``; what it sends comes out.

    An error that another attempt would meet again is sent too: whoever gets it reports it.
    """
    task: Sender = pickle.loads(payload)
    try:
        yield from task.parcels(worker_at(task.place), batches)
    except LakeVillaError as error:
        yield parcels([(0, FAILED, pickle.dumps(error))])
    for _ in batches:
        pass


def parcels(rows: Iterable[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """Parcels as Spark takes them: (to, kind, rows)."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def packed(
    batches: Iterable[tuple[pa.RecordBatch, np.ndarray]], kind: int
) -> Iterator[pa.RecordBatch]:
    """Rows, each with where it goes, as parcels of some size."""
    waiting: list[pa.RecordBatch] = []
    ways: list[np.ndarray] = []
    size = 0
    for batch, to in batches:
        waiting.append(batch)
        ways.append(to)
        size += batch.nbytes
        if size >= _WAITING_BYTES:
            yield parcels(_sorted_out(waiting, ways, kind))
            waiting, ways, size = [], [], 0
    if waiting:
        yield parcels(_sorted_out(waiting, ways, kind))


def _sorted_out(
    batches: list[pa.RecordBatch], ways: list[np.ndarray], kind: int
) -> Iterator[tuple[int, int, bytes]]:
    to = np.concatenate(ways)
    order = np.argsort(to, kind="stable")
    rows = pa.Table.from_batches(batches).take(pa.array(order))
    to = to[order]
    starts = np.flatnonzero(np.r_[True, to[1:] != to[:-1]]) if len(to) else np.array([], int)
    for start, end in zip(starts, [*starts[1:], len(to)], strict=True):
        part = rows.slice(start, end - start)
        step = max(1, int(part.num_rows * PARCEL_BYTES / max(part.nbytes, 1)))
        for first in range(0, part.num_rows, step):
            yield int(to[start]), kind, to_ipc(part.slice(first, step))


def sending_of(session: SparkSession, tasks: int, sender: Sender) -> DataFrame:
    """What ``tasks`` tasks, each with its number, send."""
    return sent_from(numbers(session, tasks), sender)


def sent_from(frame: DataFrame, sender: Sender) -> DataFrame:
    """What tasks send that get the rows of a frame."""
    return frame.mapInArrow(in_worker("sent", pickle.dumps(sender), __name__), COLUMNS)


def delivered(frame: DataFrame, tasks: int) -> DataFrame:
    """The parcels, each in the partition of its number where Spark can do so (from 4.1 on).

    Those of one number come one after the other in any case.
    """
    if hasattr(frame, "repartitionById") and not frame.sparkSession.version.startswith("4.0"):
        return frame.repartitionById(tasks, "to")
    return frame.repartition(tasks, "to").sortWithinPartitions("to")


def unpacked(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, Iterator[tuple[int, bytes]]]]:
    """What came, by its number: kinds and rows.

    Raises the error of a task that could not send what it should have.
    """

    def each() -> Iterator[tuple[int, int, bytes]]:
        for batch in batches:
            for to, kind, rows in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                if kind == FAILED:
                    raise pickle.loads(rows)
                yield to, kind, rows

    for to, group in groupby(each(), key=lambda parcel: parcel[0]):
        yield to, ((kind, rows) for _, kind, rows in group)


def opened(parts: Iterable[tuple[int, bytes]], schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows of parcels, as they come."""
    batches = (batch for _, rows in parts for batch in pa.ipc.open_stream(rows))
    return pa.RecordBatchReader.from_batches(schema, batches)
