"""Bringing rows of several sides together where they are equal, over the tasks of an engine.

An engine that works by tasks has no place that holds all rows. It sends those that are equal in
some columns to one place, where a ``Judge`` looks at them; what that makes of them is put aside
on the store, and a little of it is said to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from lakevilla.engines.base import StagedRows, TableInput
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program


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
