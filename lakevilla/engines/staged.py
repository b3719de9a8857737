"""Rows staged on the store by an operation, and the join of equal rows of several sides."""

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
# Staged rows: Arrow IPC streams, in memory or on the store, where they are read several times.


def read_staged(data: DataAccess, rows: StagedRows) -> pa.RecordBatchReader:
    """Read the rows, object by object, in bounded memory.

    Raises
    ------
    CorruptObject
        While it is read: an object is missing, or cut short.
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
    """Return the rows as one Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


# -------------------- meeting
#
# Join of rows of several sides where they are equal, over the tasks of an engine.
#
# An engine that works by tasks has no place that holds all rows. It sends the rows that are equal
# in some columns to one place, where a ``Judge`` examines them. It stages the resulting rows on the
# store, and sends a small summary to the driver.


@dataclass(frozen=True, slots=True)
class Side:
    """Some rows of a meeting, which are joined with rows that are equal in the columns ``by``.

    ``where`` selects rows of a table's files. ``for_side`` names a side of staged rows; it is set
    if rows without an equal row on that side are useless.
    """

    rows: TableInput | StagedRows
    by: tuple[str, ...]
    where: Expr | None = None
    for_side: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for the rows of one place: rows to be staged, and a summary for the driver."""

    rows: pa.Table | None
    said: Any


#: Run a SELECT over the rows of a place. Each side is a view, which the SELECT names once.
Look = Callable[[str], pa.Table]


class Judge(Protocol):
    """The rule for rows that are joined; it is pickled to tasks. Two attempts return the same."""

    @property
    def table(self) -> str:
        """Return the name of the table of the rows, for messages."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the staged rows."""

    def judged(self, look: Look) -> Judgement:
        """Return the result for the rows at a place; a ``LakeVillaError`` ends the whole join."""


@dataclass(frozen=True, slots=True)
class Met:
    """The result of a join of sides."""

    rows: StagedRows
    said: Sequence[Any]


@runtime_checkable
class MeetingEngine(Protocol):
    """An engine that has no place with all rows of a table."""

    def meet(self, sides: Mapping[str, Side], judge: Judge, prefix: str) -> Program[Met]:
        """Join the rows of all sides; each side has the name of its view.

        ``prefix`` begins the keys of the staged objects, which the caller deletes. If the join
        fails, no object is left.
        """
