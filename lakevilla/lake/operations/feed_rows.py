"""The rows that a step of the feed changed in one table, in the columns of that very version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from lakevilla.engines.base import projection
from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import Change
from lakevilla.formats.layout import Layout
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.operations.changed_rows import (
    CHANGE_COLUMNS,
    Reading,
    changed_rows,
    refuse_missing,
    sources_of,
    stamped,
)
from lakevilla.lake.operations.changes import all_rows, changes_of, refuse_own_columns
from lakevilla.lake.operations.feed_steps import Step, TouchedTable
from lakevilla.lake.past import past_at, recorded, view_at
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.store.effects import Program

#: Layouts that are kept; a table's costs its log.
_MOST_LAYOUTS = 256


@dataclass(slots=True)
class Shapes:
    """What is known of the tables' columns, from step to step of one walk.

    ``changed`` is by location the last commit that may have changed them; ``layouts`` are kept
    with that number. Threads may share it: a lost update costs a look at a log.
    """

    changed: dict[str, int] = field(default_factory=dict)
    layouts: OrderedDict[str, tuple[int, Layout]] = field(default_factory=OrderedDict)

    def keep(self, table: TouchedTable, layout: Layout) -> None:
        self.layouts[table.location] = table.shape, layout
        while len(self.layouts) > _MOST_LAYOUTS:
            self.layouts.popitem(last=False)


@dataclass(frozen=True, slots=True)
class AskedRows:
    """The rows that a step changed in a table; ``columns`` may be None, for all."""

    timeline: Timeline
    shapes: Shapes
    step: Step
    table: TouchedTable
    columns: Sequence[str] | None


def rows_of(context: Context, asked: AskedRows) -> Program[pa.Table]:
    """The changed rows, with the columns that tell of the change.

    Raises
    ------
    VersionNotFound
        What tells them was removed.
    InvalidOperation
        The table has other columns.
    """
    with _kept_so_far(asked):
        reading, changes = yield from _to_read(context, asked)
        parts: list[pa.Table] = []
        for change in changes:
            rows = yield from changed_rows(reading, change)
            parts.extend(stamped(rows, asked.step.commit))
    schema = pa.schema([*projection(reading.layout, asked.columns), *CHANGE_COLUMNS])
    return pa.Table.from_batches([], schema) if not parts else pa.concat_tables(parts)


def rows_to_read(context: Context, asked: AskedRows) -> Program[tuple[Reading, list[Change]]]:
    """What ``rows_of`` reads, for who reads it later; errors are the same.

    That the files are there is looked at first, but for those of a table that came in with all
    that it has.
    """
    with _kept_so_far(asked):
        reading, changes = yield from _to_read(context, asked)
        projection(reading.layout, asked.columns)
        if not asked.table.enters:
            for change in changes:
                for source in sources_of(reading.layout, change):
                    yield from refuse_missing(asked.table.location, source.files)
    return reading, changes


@contextmanager
def _kept_so_far(asked: AskedRows) -> Iterator[None]:
    """A block whose ``VersionNotFound`` says which version of the feed is gone."""
    location, sequence = asked.table.location, asked.step.commit.sequence
    try:
        yield
    except VersionNotFound as error:
        why = error.message.partition("; ask for")[0]
        raise VersionNotFound(
            f"what global version {sequence} changed in table {location} can't be had any more: "
            f"{why}; later versions may be: read the table, and go on from the version read",
            table=location,
        ) from error


def _to_read(context: Context, asked: AskedRows) -> Program[tuple[Reading, list[Change]]]:
    layout = yield from _layout(context, asked)
    changes = yield from changes_in(context, asked.timeline, asked.step, asked.table)
    return Reading(context, asked.table.location, layout, asked.columns, None), changes


def _layout(context: Context, asked: AskedRows) -> Program[Layout]:
    """The table's columns at the step's version."""
    table, shapes = asked.table, asked.shapes
    shape, layout = shapes.layouts.get(table.location, (None, None))
    if layout is None or shape != table.shape:
        past = yield from past_at(asked.timeline, asked.step.commit.sequence, [table.location])
        view = yield from view_at(context, past, table.location)
        layout = view.snapshot.layout
        refuse_own_columns(table.location, layout)
        shapes.keep(table, layout)
    return layout


def changes_in(
    context: Context, timeline: Timeline, step: Step, table: TouchedTable
) -> Program[list[Change]]:
    """What a step did to the files of a table that is there after it."""
    location, commit = table.location, step.commit
    is_one = len(table.commits) == 1
    if table.enters and not (is_one and not table.commits[0].tables[location].removes):
        # What the first commit takes out again was never in the lake.
        return [(yield from all_rows(context, timeline, location, commit.sequence))]
    if not is_one:
        tail = yield from open_tail(context, location, missing_ok=True)
        return (yield from changes_of(context, timeline, tail, location, table.as_step))
    [own] = table.commits
    if own.kind == "transaction" and not table.enters:
        part = (yield from recorded(context, own)).tables.get(location)  # and no look at the log
        found = [] if part is None else [part.change]
    else:
        tail = yield from open_tail(context, location, missing_ok=True)
        if tail.tip < own.tables[location].published:
            tail = yield from probe(context, tail)
        found = yield from changes_of(context, timeline, tail, location, table.as_step)
    if step.net:
        # A difference has no row that was changed twice: all come and go.
        found = [msgspec.structs.replace(change, change_files=()) for change in found]
    return found
