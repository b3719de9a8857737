"""What changed in a table between two global versions, as rows (design, section 12).

Commit by commit: what a commit changed is the difference between the state that
it made and the one before it. Where the commit brought change files, they tell it;
else the rows of the files that it removed are held against the rows of those that
it added, and what is in both is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from lakevilla.engines.base import projection
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import DataFile, RemovedFile, data_files, file_refs, removal
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary, Head, application_id
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.operations.changed_rows import CHANGE_COLUMNS, Reading, changed_rows, stamped
from lakevilla.lake.past import Past, past_at, recorded, view_at
from lakevilla.lake.table_log import entry_at, open_tail, snapshot_at
from lakevilla.lake.tail import Tail
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class TableStep:
    """Commits to one table that are told as one: mostly a single one, ``commits[-1]``.

    A ``reconcile`` commit is told with what it has replaced: between them there are
    states that no log ever showed, and whose files may be gone. One by which the table came
    back into the lake is told with that by which it left: between them there was none.
    """

    commits: tuple[CommitSummary, ...]

    @property
    def commit(self) -> CommitSummary:
        return self.commits[-1]

    @property
    def is_net(self) -> bool:
        """Told as the difference of the states before and after, not by what the commit did."""
        return len(self.commits) > 1 or self.commit.kind == "reconcile"


def changes(
    context: Context,
    past: Past,
    location: str,
    since: int,
    columns: Sequence[str] | None = None,
    where: Expr | None = None,
) -> Program[pa.Table]:
    """The rows of a table changed after global version ``since``, up to that of ``past``.

    In the columns of the bound version. A table that entered the lake in between
    comes with all its rows, by the commit by which it entered; one that left it and came
    back with what is different since.

    Raises
    ------
    TableNotFound
        It is not in the lake at the bound version.
    VersionNotFound
        ``since`` is not kept any more or not there yet, or files that tell the
        changes were removed.
    """
    reading, found = yield from changes_to_read(context, past, location, since, columns, where)
    parts = []
    for commit, change in found:
        rows = yield from changed_rows(reading, change)
        parts.extend(stamped(rows, commit))
    schema = pa.schema([*projection(reading.layout, columns), *CHANGE_COLUMNS])
    return pa.Table.from_batches([], schema) if not parts else pa.concat_tables(parts)


def changes_to_read(
    context: Context,
    past: Past,
    location: str,
    since: int,
    columns: Sequence[str] | None,
    where: Expr | None,
) -> Program[tuple[Reading, list[tuple[CommitSummary, Change]]]]:
    """What ``changes`` reads, in order; parameters and errors are the same."""
    walk = yield from walk_through(context, past, location, since)
    predicate = None if where is None else bind(where, walk.layout.schema)
    projection(walk.layout, columns)
    found: list[tuple[CommitSummary, Change]] = []
    for step in walk.steps:
        found += [(step.commit, change) for change in (yield from walk.changes_of(step))]
    return Reading(context, location, walk.layout, columns, predicate), found


@dataclass(frozen=True, slots=True)
class Walk:
    """The steps of a table over a range of global versions; ``layout`` is that at its end."""

    context: Context
    timeline: Timeline
    tail: Tail
    location: str
    layout: Layout
    steps: tuple[TableStep, ...]

    def changes_of(self, step: TableStep) -> Program[list[Change]]:
        """What one of the steps did."""
        return changes_of(self.context, self.timeline, self.tail, self.location, step)


def walk_through(context: Context, past: Past, location: str, since: int) -> Program[Walk]:
    """The steps after global version ``since`` up to that of ``past``; errors as ``changes``."""
    timeline = past.timeline
    if since > past.sequence:
        raise VersionNotFound(
            f"changes of {location} since global version {since}: the state bound to is "
            f"version {past.sequence}",
            table=location,
        )
    since = (yield from past_at(timeline, since)).sequence
    view = yield from view_at(context, past, location)
    layout = view.snapshot.layout
    refuse_own_columns(location, layout)
    commits = yield from timeline.after(since)
    mine = [c for c in commits if c.sequence <= past.sequence and location in c.tables]
    tail = yield from open_tail(context, location, missing_ok=True)
    steps = tuple(_steps(mine, location, since))
    return Walk(context, timeline, tail, location, layout, steps)


def _steps(commits: Sequence[CommitSummary], location: str, since: int) -> list[TableStep]:
    """The commits in order, each ``reconcile`` together with what it stands for."""
    start = 0
    parted: CommitSummary | None = None
    #: By the sequence of the commit by which it came back: that of the one by which it left.
    since_left: dict[int, int] = {}
    for index, commit in enumerate(commits):
        touch = commit.tables[location]
        if touch.entered is not None and touch.left is None:
            if parted is not None and parted.tables[location].left == touch.entered:
                since_left[commit.sequence] = parted.sequence
            else:
                start = index  # what was under that name before is another table
        if touch.left is not None:
            parted = commit if touch.entered is None else None
    steps: list[TableStep] = []
    left = list(commits[start:])
    while left:
        lowest = left[-1].sequence
        known: list[CommitSummary] = []
        while left and left[-1].sequence >= lowest:
            commit = left.pop()
            known.append(commit)
            lowest = min(lowest, since_left.get(commit.sequence, lowest))
            if commit.kind == "reconcile":
                kept = [sequence for sequence in commit.replaces if sequence > since]
                lowest = min(lowest, commit.sequence - 1, *kept)
        steps.append(TableStep(tuple(reversed(known))))
    return list(reversed(steps))


def refuse_own_columns(location: str, layout: Layout) -> None:
    """Refuse a table with a column that is called as those that tell of a change."""
    taken = [name for name in layout.schema.names if name.lower() in CHANGE_COLUMNS.names]
    if taken:
        raise InvalidOperation(
            f"table {location} has a column {taken[0]} of its own, so its changes can't be told: "
            "rename the column",
            table=location,
        )


def changes_of(
    context: Context, timeline: Timeline, tail: Tail, location: str, step: TableStep
) -> Program[list[Change]]:
    """What a step did to the table, each file that it removed told in full."""
    commit = step.commit
    touch = commit.tables[location]
    if step.is_net:
        before = yield from past_at(timeline, step.commits[0].sequence - 1, [location])
        if location not in before.head.tables:
            # It came in with the first of them.
            return [(yield from all_rows(context, timeline, location, commit.sequence))]
        return [(yield from _net(context, timeline, location, before, commit))]
    found = []
    if touch.entered is not None and touch.left is None and touch.published >= 0:
        found.append((yield from _whole((yield from snapshot_at(context, tail, touch.published)))))
    elif commit.kind == "foreign":
        found.extend((yield from _foreign(context, timeline.head, tail, location, commit)))
    if commit.hash and commit.kind != "foreign":
        part = (yield from recorded(context, commit)).tables.get(location)
        if part is not None:
            found.append(part.change)
    return found


def all_rows(context: Context, timeline: Timeline, location: str, sequence: int) -> Program[Change]:
    """All that the table has at a version, as one change."""
    past = yield from past_at(timeline, sequence, [location])
    view = yield from view_at(context, past, location)
    return (yield from _whole(view.snapshot))


def _whole(snapshot: TableSnapshot) -> Program[Change]:
    files = yield from snapshot.files()
    return Change(adds=tuple(data_files(files)))


def _net(
    context: Context, timeline: Timeline, location: str, before: Past, commit: CommitSummary
) -> Program[Change]:
    """The files of one state held against those of the other, whatever lies between.

    Each counts, though its writer said ``dataChange=false``: that is true of its entry as a
    whole, and not of the part of it that is left where what the commit had removed is taken
    out of the sum. Rows that are in both states cancel when the rows are compared.
    """
    after = yield from past_at(timeline, commit.sequence, [location])
    old = yield from view_at(context, before, location)
    new = yield from view_at(context, after, location)
    was = yield from old.snapshot.files()
    now = yield from new.snapshot.files()
    added, removed = _apart(now, was), _apart(was, now)
    return Change(adds=tuple(added), removes=tuple(removal(file) for file in removed))


def _apart(files: pa.Table, others: pa.Table) -> list[DataFile]:
    """The files that are not among the others."""
    known = set(file_refs(others))
    numbers = [number for number, ref in enumerate(file_refs(files)) if ref not in known]
    return data_files(files.take(pa.array(numbers, pa.int64())))


def _foreign(
    context: Context, head: Head, tail: Tail, location: str, commit: CommitSummary
) -> Program[list[Change]]:
    """What another client did in the entries that the commit took in."""
    touch = commit.tables[location]
    assert touch.first is not None
    application = application_id(head)
    found = []
    for version in range(touch.first, touch.published + 1):
        entry = yield from entry_at(context, tail, version)
        if entry is None:
            raise _forgotten(location, commit.sequence, f"log entry {version} was cleaned up")
        if application in entry.applications:
            continue  # ours, told at its own commit
        change = entry.change
        if any(file.size is None or file.partition_values is None for file in change.removes):
            before = yield from snapshot_at(context, tail, version - 1)
            removes = yield from _completed(before, change.removes)
            change = msgspec.structs.replace(change, removes=removes)
        found.append(change)
    return found


def _completed(
    before: TableSnapshot, removes: Iterable[RemovedFile]
) -> Program[tuple[RemovedFile, ...]]:
    """The removals with sizes and partition values, which their writers may leave out."""
    removes = tuple(removes)
    lacking = {f.ref for f in removes if f.size is None or f.partition_values is None}
    if not lacking:
        return removes
    files = data_files((yield from before.files()))
    known = {file.ref: file for file in files if file.ref in lacking}
    return tuple(
        msgspec.structs.replace(
            file,
            size=known[file.ref].size,
            partition_values=known[file.ref].partition_values,
        )
        if file.ref in known
        else file
        for file in removes
    )


def _forgotten(location: str, sequence: int, why: str) -> VersionNotFound:
    return VersionNotFound(
        f"the changes of table {location} by global version {sequence} are not kept: {why}; "
        "ask for those since a newer version",
        table=location,
    )
