"""The steps of a change feed, and their rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from lakevilla.engines.base import projection
from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import Change
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary, Touch
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.operations.changes import (
    CHANGE_COLUMNS,
    Reading,
    TableStep,
    all_rows,
    changed_rows,
    changes_of,
    refuse_missing,
    refuse_own_columns,
    sources_of,
    stamped,
)
from lakevilla.lake.past import past_at, recorded, view_at
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.store.effects import Program

# -------------------- feed rows
#
# The rows that a step of the feed changed in one table, in the columns of that very version.


#: The number of layouts that are kept; to find a table's layout its log must be read.
_MOST_LAYOUTS = 256


@dataclass(slots=True)
class Shapes:
    """The known columns of tables, from step to step of one walk.

    ``changed`` has by location the last commit that may have changed them; ``layouts`` are kept
    with that number. Threads may share it: a lost update costs one more read of a log.
    """

    changed: dict[str, int] = field(default_factory=dict)
    layouts: OrderedDict[str, tuple[int, Layout]] = field(default_factory=OrderedDict)

    def keep(self, table: TouchedTable, layout: Layout) -> None:
        self.layouts[table.location] = table.shape, layout
        while len(self.layouts) > _MOST_LAYOUTS:
            self.layouts.popitem(last=False)


@dataclass(frozen=True, slots=True)
class RequestedRows:
    """The rows that a step changed in a table; ``columns`` may be None, for all."""

    timeline: Timeline
    shapes: Shapes
    step: Step
    table: TouchedTable
    columns: Sequence[str] | None


def rows_of(context: Context, request: RequestedRows) -> Program[pa.Table]:
    """Return the changed rows, with the columns that describe the change.

    Raises
    ------
    VersionNotFound
        The files that hold the changes were removed.
    InvalidOperation
        The table has other columns.
    """
    with _kept_so_far(request):
        reading, changes = yield from _to_read(context, request)
        parts: list[pa.Table] = []
        for change in changes:
            rows = yield from changed_rows(reading, change)
            parts.extend(stamped(rows, request.step.commit))
    schema = pa.schema([*projection(reading.layout, request.columns), *CHANGE_COLUMNS])
    return pa.Table.from_batches([], schema) if not parts else pa.concat_tables(parts)


def rows_to_read(context: Context, request: RequestedRows) -> Program[tuple[Reading, list[Change]]]:
    """Return what ``rows_of`` reads, for a caller that reads it later; errors are the same.

    It first checks that the files exist, except those of a table that was added with all that
    it has.
    """
    with _kept_so_far(request):
        reading, changes = yield from _to_read(context, request)
        projection(reading.layout, request.columns)
        if not request.table.enters:
            for change in changes:
                for source in sources_of(reading.layout, change):
                    yield from refuse_missing(request.table.location, source.files)
    return reading, changes


@contextmanager
def _kept_so_far(request: RequestedRows) -> Iterator[None]:
    """Run a block whose ``VersionNotFound`` says which version of the feed is gone."""
    location, sequence = request.table.location, request.step.commit.sequence
    try:
        yield
    except VersionNotFound as error:
        why = error.message.partition("; request")[0]
        raise VersionNotFound(
            f"the changes of table {location} by global version {sequence} are not kept any more: "
            f"{why}; later changes may be kept: read the table, and continue from the version read",
            table=location,
        ) from error


def _to_read(context: Context, request: RequestedRows) -> Program[tuple[Reading, list[Change]]]:
    layout = yield from _layout(context, request)
    changes = yield from changes_in(context, request.timeline, request.step, request.table)
    return Reading(context, request.table.location, layout, request.columns, None), changes


def _layout(context: Context, request: RequestedRows) -> Program[Layout]:
    """Return the table's columns at the step's version."""
    table, shapes = request.table, request.shapes
    shape, layout = shapes.layouts.get(table.location, (None, None))
    if layout is None or shape != table.shape:
        past = yield from past_at(request.timeline, request.step.commit.sequence, [table.location])
        view = yield from view_at(context, past, table.location)
        layout = view.snapshot.layout
        refuse_own_columns(table.location, layout)
        shapes.keep(table, layout)
    return layout


def changes_in(
    context: Context, timeline: Timeline, step: Step, table: TouchedTable
) -> Program[list[Change]]:
    """Return the changes of a step to the files of a table that exists after it."""
    location, commit = table.location, step.commit
    is_one = len(table.commits) == 1
    if table.enters and not (is_one and not table.commits[0].tables[location].removes):
        # Files that the first commit removes again were never in the lake.
        return [(yield from all_rows(context, timeline, location, commit.sequence))]
    if not is_one:
        tail = yield from open_tail(context, location, missing_ok=True)
        return (yield from changes_of(context, timeline, tail, location, table.as_step))
    [own] = table.commits
    if own.kind == "transaction" and not table.enters:
        part = (yield from recorded(context, own)).tables.get(location)  # without a read of the log
        found = [] if part is None else [part.change]
    else:
        tail = yield from open_tail(context, location, missing_ok=True)
        if tail.tip < own.tables[location].published:
            tail = yield from probe(context, tail)
        found = yield from changes_of(context, timeline, tail, location, table.as_step)
    if step.net:
        # A difference has no row that was changed twice: all rows are inserted or deleted.
        found = [msgspec.structs.replace(change, change_files=()) for change in found]
    return found


# -------------------- feed steps
#
# The commits that are shown as one, and how each such step adds and removes tables of the lake.
#
# Pure. Between two steps the lake had a state that nothing in the same range takes back.


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """The changes of a step to one table, as far as the summaries of its commits show them.

    ``enters``: all its rows are new. ``leaves``: the earlier table under that name does not exist
    any more. ``shape`` is the last commit that may have changed its columns, as far as commits were
    read.
    """

    location: str
    commits: tuple[CommitSummary, ...]
    enters: bool
    leaves: bool
    shape: int

    @property
    def is_there(self) -> bool:
        """True if the lake has the table after the step."""
        return self.enters or not self.leaves

    @property
    def as_step(self) -> TableStep:
        return TableStep(self.commits)


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive commits that are shown as one version, by the number of the last.

    ``net``: requested as one difference, whatever they are.
    """

    commits: tuple[CommitSummary, ...]
    tables: tuple[TouchedTable, ...] = ()
    net: bool = False

    @property
    def commit(self) -> CommitSummary:
        return self.commits[-1]

    @property
    def since(self) -> int:
        """The version before the step."""
        return self.commits[0].sequence - 1


def in_steps(commits: Sequence[CommitSummary]) -> list[Step]:
    """Return consecutive commits, cut where the lake has a state that none of them takes back.

    A ``reconcile`` is in one step with the ``foreign`` commit of the same replacement, with those
    of these commits that it replaces, and with all between: a commit to several tables stays in one
    step.
    """
    steps: list[Step] = []
    first = commits[0].sequence if commits else 0
    end = len(commits)
    while end:
        start = lowest = end - 1
        while start >= lowest:
            commit = commits[start]
            if commit.kind == "reconcile":
                known = [number - first for number in commit.replaces if number >= first]
                lowest = max(0, min(lowest, start - 1, *known))
            start -= 1
        steps.append(Step(tuple(commits[lowest:end])))
        end = lowest
    return list(reversed(steps))


class TableTracker:
    """The tables that the lake has, followed along the commits.

    Parameters
    ----------
    now : Mapping of str to (str or None)
        By location the id of the table that the lake has after all of ``commits``; None: none.
    commits : sequence of CommitSummary
        All from the first that will be followed, to the newest.
    """

    def __init__(self, now: Mapping[str, str | None], commits: Sequence[CommitSummary]) -> None:
        self._ids: dict[str, str | None] = {}
        for commit in reversed(commits):
            for location, touch in commit.tables.items():
                self._ids.setdefault(location, now.get(location))
                if touch.left is not None or touch.entered is not None:
                    self._ids[location] = touch.left

    def past(self, step: Step, shapes: dict[str, int]) -> Iterator[TouchedTable]:
        """Yield what the next step did to each table; ``shapes`` is brought up to date."""
        touched: dict[str, list[CommitSummary]] = {}
        for commit in step.commits:
            for location, touch in commit.tables.items():
                touched.setdefault(location, []).append(commit)
                if may_reshape(commit, touch):
                    shapes[location] = commit.sequence
        for location in sorted(touched):
            commits = tuple(touched[location])
            before = self._ids.get(location)
            after, is_another = _followed(before, location, commits)
            self._ids[location] = after
            if before is None and after is None:
                continue  # it was added and removed again
            enters = after is not None and (before is None or is_another)
            leaves = before is not None and (after is None or is_another)
            yield TouchedTable(location, commits, enters, leaves, shapes.get(location, -1))


def may_reshape(commit: CommitSummary, touch: Touch) -> bool:
    """Return whether the columns of a table may have changed by a commit that touched it.

    A ``reconcile`` may have taken a change of them back.
    """
    epochs = touch.left is not None or touch.entered is not None
    return touch.metadata or epochs or commit.kind == "reconcile"


def _followed(
    before: str | None, location: str, commits: Sequence[CommitSummary]
) -> tuple[str | None, bool]:
    """Return the table's id after the commits, and whether it is another table than before.

    A table that left and returned with its id is the same. So is a table whose id was replaced
    in its place, by a commit that shows its changed rows.
    """
    now, parted, is_another = before, None, False
    for commit in commits:
        touch = commit.tables[location]
        if touch.left is None and touch.entered is None:
            continue
        if touch.entered is None:
            parted = touch.left
        elif touch.left is None:
            is_another = is_another or (before is not None and touch.entered != parted)
        now = touch.entered
    return now, is_another
