"""Files that an operation has written, and the rows that meet in a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from lakevilla.engines.base import DataAccess, StagedRows, TableInput
from lakevilla.errors import CorruptObject
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program

# -------------------- staged
#
# Rows put aside: as Arrow IPC streams, of which those on the store are read again.


def read_staged(data: DataAccess, rows: StagedRows) -> pa.RecordBatchReader:
    """The rows, object by object, in bounded memory.

    Raises
    ------
    CorruptObject
        While it is read: an object is gone, or cut short.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for key in rows.keys:
            try:
                with data.open_input(key) as file, pa.ipc.open_stream(file) as stream:
                    yield from stream
            except (pa.ArrowException, OSError) as error:
                raise CorruptObject(
                    f"{key}, which holds rows of a transaction, can't be read: {error}; "
                    "run the transaction again",
                    key=key,
                ) from error

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def to_ipc(rows: pa.Table) -> bytes:
    """The rows as one Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


# -------------------- meeting
#
# Bringing rows of several sides together where they are equal, over the tasks of an engine.
#
# An engine that works by tasks has no place that holds all rows. It sends those that are equal in
# some columns to one place, where a ``Judge`` looks at them; what that makes of them is put aside
# on the store, and a little of it is said to the driver.


@dataclass(frozen=True, slots=True)
class Side:
    """Some rows, of which those meet others that are equal in the columns ``by``.

    ``where`` leaves out rows of a table's files. ``for_side`` is a side of rows that were put
    aside, if rows that meet none of those are of no use.
    """

    rows: TableInput | StagedRows
    by: tuple[str, ...]
    where: Expr | None = None
    for_side: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What comes of the rows at one place: rows to be put aside, and what the driver is told."""

    rows: pa.Table | None
    said: Any


#: Runs a SELECT over the rows of a place, of which each side is a view that is named once in it.
Look = Callable[[str], pa.Table]


class Judge(Protocol):
    """Looks at the rows that meet; pickled to tasks. Two attempts judge alike."""

    @property
    def table(self) -> str:
        """Whose rows they are, for messages."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of what is put aside."""

    def judged(self, look: Look) -> Judgement:
        """What comes of the rows at a place; an error of ours ends the meeting."""


@dataclass(frozen=True, slots=True)
class Met:
    """What a meeting came to."""

    rows: StagedRows
    said: Sequence[Any]


@runtime_checkable
class MeetingEngine(Protocol):
    """An engine whose rows are in no one place."""

    def meet(self, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
        """Have rows meet, sides by the names of their views; ``prefix`` begins the keys of what
        is put aside, which whoever calls deletes. Nothing is left if it fails.
        """
