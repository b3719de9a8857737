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
# The rows that a step of the feed changed in one table, with the columns of the step's version.


#: The most layouts that are cached; for the layout of any other table, the table's log is read.
_MOST_LAYOUTS = 256


@dataclass(slots=True)
class Shapes:
    """The layouts of tables that are cached during one walk through the steps of a feed.

    ``changed`` has, by location, the last commit that may have changed a table's columns;
    ``layouts`` are cached with that number. Threads may share this object: a lost update costs one
    more read of a log.
    """

    changed: dict[str, int] = field(default_factory=dict)
    layouts: OrderedDict[str, tuple[int, Layout]] = field(default_factory=OrderedDict)

    def keep(self, table: TouchedTable, layout: Layout) -> None:
        self.layouts[table.location] = table.shape, layout
        while len(self.layouts) > _MOST_LAYOUTS:
            self.layouts.popitem(last=False)


@dataclass(frozen=True, slots=True)
class RequestedRows:
    """A request for the rows that a step changed in a table; ``columns`` is None for all."""

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
        The files with the changes were deleted.
    InvalidOperation
        The table does not have the requested columns.
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
    """Return the changes that ``rows_of`` would read, for a later reader; raise the same errors.

    The program checks that the files exist, except those of a table that the step has added.
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
    """Run a block; let its ``VersionNotFound`` name the version of the feed that is not kept."""
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
    location, paired = request.table.location, not request.step.net
    return Reading(context, location, layout, request.columns, None, paired), changes


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
        # All present rows count as new: files that a commit of the step removed do not matter.
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
        # A net difference shows inserted and deleted rows only, and no updates of change files.
        found = [msgspec.structs.replace(change, change_files=()) for change in found]
    return found


# -------------------- feed steps
#
# Steps of the feed: the commits that are shown as one, and the tables that a step adds or removes.
#
# All functions are pure. Steps are cut where the lake had a state that no later commit replaces.


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """The changes of a step to one table, as far as the summaries of its commits show them.

    ``enters``: the step adds the table, so all its rows are new. ``leaves``: the step removes the
    table that was at the location before. ``shape`` is the last commit, of those that were read,
    that may have changed the table's columns.
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
    """Consecutive commits that are shown as one version, with the number of the last.

    ``net``: the caller has requested the changes of these commits as one difference.
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
    """Return consecutive commits as steps, cut where no later commit replaces an earlier one.

    A ``reconcile`` is in one step with the ``foreign`` commit of the same replacement, with the
    commits that it replaces, and with all commits between them: so a commit to several tables stays
    in one step.
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
    """The ids of the lake's tables, followed from commit to commit.

    Parameters
    ----------
    now : Mapping of str to (str or None)
        The id of the table at each location after all of ``commits``; None if there is none.
    commits : sequence of CommitSummary
        All commits from the first that the caller will pass to ``past``, to the newest.
    """

    def __init__(self, now: Mapping[str, str | None], commits: Sequence[CommitSummary]) -> None:
        self._ids: dict[str, str | None] = {}
        for commit in reversed(commits):
            for location, touch in commit.tables.items():
                self._ids.setdefault(location, now.get(location))
                if touch.left is not None or touch.entered is not None:
                    self._ids[location] = touch.left

    def past(self, step: Step, shapes: dict[str, int]) -> Iterator[TouchedTable]:
        """Yield the effect of the next step on each table, and update ``shapes``."""
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
                continue  # the table was added and removed again
            enters = after is not None and (before is None or is_another)
            leaves = before is not None and (after is None or is_another)
            yield TouchedTable(location, commits, enters, leaves, shapes.get(location, -1))


def may_reshape(commit: CommitSummary, touch: Touch) -> bool:
    """Return whether a commit that touched a table may have changed its columns.

    A ``reconcile`` may have undone a change of columns.
    """
    epochs = touch.left is not None or touch.entered is not None
    return touch.metadata or epochs or commit.kind == "reconcile"


def _followed(
    before: str | None, location: str, commits: Sequence[CommitSummary]
) -> tuple[str | None, bool]:
    """Return the table's id after the commits, and whether it is another table than before.

    A table that was removed and added again with its id is the same table. So is a table whose id
    was replaced by a single commit, because that commit itself has the rows that it changed.
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
