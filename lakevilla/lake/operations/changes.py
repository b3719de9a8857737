"""The changes of a table between two states, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import msgspec
import pyarrow as pa

from lakevilla.engines.base import FileNamer, TableInput, projection
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import RowIndices
from lakevilla.formats.files import (
    ChangeFile,
    DataFile,
    RemovedFile,
    data_files,
    file_key,
    file_refs,
    files_from_structs,
    removal,
)
from lakevilla.formats.layout import Layout
from lakevilla.formats.views import refuse_view
from lakevilla.global_log.head import CommitSummary, Head, application_id
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.past import Past, past_at, recorded, view_at
from lakevilla.lake.row_changes import compose, few_marks, inputs_at, only
from lakevilla.lake.table_log import entries_at, open_tail, snapshot_at
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.select import quoted
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, parallel
from lakevilla.store.effects import Stat as HeadOf

# -------------------- changes
#
# The changes of a table between two global versions, as rows (design, section 12).
#
# They are computed commit by commit: the changes of a commit are the difference between the state
# after it and the state before it. If the commit added change files, these have the changes.
# Otherwise the rows of the files that it removed are compared with the rows of the files that it
# added, and rows that are in both are left out.


@dataclass(frozen=True, slots=True)
class TableStep:
    """The commits to one table that are shown as one, ``commits[-1]``; mostly a single commit.

    A ``reconcile`` commit is shown with the commits that it has replaced: the states between them
    were never in a log, and their files may be deleted. A commit that adds the table to the lake
    again is shown with the commit that removed it: between them the lake did not have the table.
    """

    commits: tuple[CommitSummary, ...]

    @property
    def commit(self) -> CommitSummary:
        return self.commits[-1]

    @property
    def is_net(self) -> bool:
        """True if the step is shown as the difference of the states before and after it."""
        return len(self.commits) > 1 or self.commit.kind == "reconcile"


def changes(
    context: Context,
    past: Past,
    location: str,
    since: int,
    columns: Sequence[str] | None = None,
    where: Expr | None = None,
) -> Program[pa.Table]:
    """Return the rows of a table changed after global version ``since``, up to that of ``past``.

    The rows have the columns of the bound version. If the table was added to the lake in between,
    the commit that added it is shown with all rows of the table. If the table was removed and added
    again, the commit that added it is shown with the rows that have changed since the removal.

    Raises
    ------
    TableNotFound
        The table is not in the lake at the bound version.
    VersionNotFound
        ``since`` is not kept any more or does not exist yet, or files with the changes were
        deleted.
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
    """Return the changes that ``changes`` would read, in order; raise the same errors."""
    walk = yield from walk_through(context, past, location, since)
    refuse_view(walk.layout, "changes")
    predicate = None if where is None else bind(where, walk.layout.schema)
    projection(walk.layout, columns)
    found: list[tuple[CommitSummary, Change]] = []
    for step in walk.steps:
        found += [(step.commit, change) for change in (yield from walk.changes_of(step))]
    reading = Reading(context, location, walk.layout, columns, predicate, paired=True)
    return reading, found


@dataclass(frozen=True, slots=True)
class Walk:
    """The steps of a table over a range of global versions; ``layout`` is the layout at its end."""

    context: Context
    timeline: Timeline
    tail: Tail
    location: str
    layout: Layout
    steps: tuple[TableStep, ...]

    def changes_of(self, step: TableStep) -> Program[list[Change]]:
        """Return the changes of one of the steps."""
        return changes_of(self.context, self.timeline, self.tail, self.location, step)


def walk_through(context: Context, past: Past, location: str, since: int) -> Program[Walk]:
    """Return the steps after version ``since`` up to that of ``past``; errors as in ``changes``."""
    timeline = past.timeline
    if since > past.sequence:
        raise VersionNotFound(
            f"changes of {location} since global version {since}: the state that is read is the "
            f"older version {past.sequence}",
            table=location,
        )
    since = (yield from past_at(timeline, since)).sequence
    view = yield from view_at(context, past, location)
    layout = view.snapshot.layout
    refuse_own_columns(location, layout)
    commits = yield from timeline.after(since)
    of_table = [c for c in commits if c.sequence <= past.sequence and location in c.tables]
    tail = yield from open_tail(context, location, missing_ok=True)
    steps = tuple(_steps(of_table, location, since))
    return Walk(context, timeline, tail, location, layout, steps)


def _steps(commits: Sequence[CommitSummary], location: str, since: int) -> list[TableStep]:
    """Return the steps in order: single commits, and those that must be shown as one."""
    start = 0
    parted: CommitSummary | None = None
    #: The sequence of the commit that removed the table, by that of the commit that added it again.
    since_left: dict[int, int] = {}
    for index, commit in enumerate(commits):
        touch = commit.tables[location]
        if touch.entered is not None and touch.left is None:
            if parted is not None and parted.tables[location].left == touch.entered:
                since_left[commit.sequence] = parted.sequence
            else:
                start = index  # an earlier table at this location is another table
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
    """Refuse a table with a column that has the name of one of ``CHANGE_COLUMNS``."""
    taken = [name for name in layout.schema.names if name.lower() in CHANGE_COLUMNS.names]
    if taken:
        raise InvalidOperation(
            f"table {location} has a column {taken[0]} of its own, so its changes can't be "
            "returned: rename the column",
            table=location,
        )


def changes_of(
    context: Context, timeline: Timeline, tail: Tail, location: str, step: TableStep
) -> Program[list[Change]]:
    """Return the changes of a step to the table, with size and partition of each removed file."""
    commit = step.commit
    touch = commit.tables[location]
    if step.is_net:
        before = yield from past_at(timeline, step.commits[0].sequence - 1, [location])
        if location not in before.head.tables:
            # The first commit of the step has added the table to the lake.
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
    """Return all files of the table at a version, as one change that adds them."""
    past = yield from past_at(timeline, sequence, [location])
    view = yield from view_at(context, past, location)
    return (yield from _whole(view.snapshot))


def _whole(snapshot: TableSnapshot) -> Program[Change]:
    files = yield from snapshot.files()
    return Change(adds=tuple(data_files(files)))


def _net(
    context: Context, timeline: Timeline, location: str, before: Past, commit: CommitSummary
) -> Program[Change]:
    """Return the files that were added and removed between the states before and after a step.

    Each file counts, also if its writer set ``dataChange=false``: that is true for the writer's
    whole entry, but not if only some of its files differ between the two states. Rows that are in
    both states cancel when the rows are compared.
    """
    after = yield from past_at(timeline, commit.sequence, [location])
    old = yield from view_at(context, before, location)
    new = yield from view_at(context, after, location)
    was = yield from old.snapshot.files()
    now = yield from new.snapshot.files()
    added, removed = _files_not_among(now, was), _files_not_among(was, now)
    return Change(adds=tuple(added), removes=tuple(removal(file) for file in removed))


def _files_not_among(files: pa.Table, others: pa.Table) -> list[DataFile]:
    """Return those of ``files`` that are not among ``others``."""
    known = set(file_refs(others))
    numbers = [number for number, ref in enumerate(file_refs(files)) if ref not in known]
    return data_files(files.take(pa.array(numbers, pa.int64())))


def _foreign(
    context: Context, head: Head, tail: Tail, location: str, commit: CommitSummary
) -> Program[list[Change]]:
    """Return the changes of the foreign log entries that a commit has absorbed."""
    touch = commit.tables[location]
    assert touch.first is not None
    application = application_id(head)
    found = []
    versions = range(touch.first, touch.published + 1)
    entries = yield from entries_at(context, tail, versions)
    for version, entry in zip(versions, entries, strict=True):
        if entry is None:
            raise _forgotten(location, commit.sequence, f"log entry {version} was cleaned up")
        if application in entry.applications:
            continue  # an entry of the lake itself, which is shown at its own commit
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
    """Return the removals with sizes and partition values, which their writers may leave out."""
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
        "request those since a newer version",
        table=location,
    )


# -------------------- changed rows
#
# The rows of a change to a table: from its change files, or by comparison of the files that it
# added and removed.


_TYPE = pa.field("_change_type", pa.string(), nullable=False)
#: The columns that each changed row has in addition to the table's columns.
CHANGE_COLUMNS = pa.schema(
    [
        _TYPE,
        pa.field("_commit_version", pa.int64(), nullable=False),
        pa.field("_commit_timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)

#: Views over the added and the removed rows.
ADDED, REMOVED = "lakevilla_added", "lakevilla_removed"
#: A query for the rows of which one side has more copies than the other; it returns each surplus
#: copy. It is one pass that can spill to disk: EXCEPT ALL in both directions takes minutes for a
#: million rows.
DIFFERENCE = f"""
SELECT * EXCLUDE (lakevilla_more, lakevilla_copy)
FROM (
    SELECT
        *,
        CASE WHEN lakevilla_more < 0 THEN 'delete' ELSE 'insert' END AS _change_type,
        unnest(range(abs(lakevilla_more))) AS lakevilla_copy
    FROM (
        SELECT
            * EXCLUDE (lakevilla_side),
            CAST(sum(lakevilla_side) AS BIGINT) AS lakevilla_more
        FROM (
            SELECT *, -1 AS lakevilla_side FROM {REMOVED}
            UNION ALL
            SELECT *, 1 AS lakevilla_side FROM {ADDED}
        )
        GROUP BY ALL
        HAVING sum(lakevilla_side) <> 0
    )
)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """A request for changed rows, with the table's columns at the bound version.

    ``paired``: where rows have ids, a removed and an added row of one id are shown as an update.
    """

    context: Context
    location: str
    layout: Layout
    columns: Sequence[str] | None
    where: Expr | None
    paired: bool = False


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Files with changed rows, all of one ``kind``; None if a column of the files has the kind."""

    layout: Layout
    files: tuple[DataFile, ...]
    kind: Literal["insert", "delete"] | None


def sources_of(layout: Layout, change: Change) -> tuple[ChangeSource, ...]:
    """Return the files with the rows of a change, as no source, one source, or two.

    Two sources are the added and the removed files; rows that are in both have not changed.
    """
    if change.change_files and not layout.by_field_id:
        shown = replace(
            layout, schema=layout.schema.append(_TYPE), physical=layout.physical.append(_TYPE)
        )
        files = tuple(
            DataFile(file.path, file.size, 0, file.partition_values) for file in change.change_files
        )
        return (ChangeSource(shown, files, None),)
    added = tuple(file for file in change.adds if file.data_change)
    removed = tuple(_as_data(file) for file in change.removes if file.data_change)
    found = []
    if added:
        found.append(ChangeSource(layout, added, "insert"))
    if removed:
        found.append(ChangeSource(layout, removed, "delete"))
    return tuple(found)


def changed_rows(reading: Reading, change: Change) -> Program[list[pa.Table]]:
    """Return the rows of one change, with ``_change_type``."""
    names = projection(reading.layout, reading.columns).names
    sources = sources_of(reading.layout, change)
    if len(sources) == 2:
        added, removed = sources
        return [(yield from _difference(reading, added.files, removed.files))]
    if not sources:
        return []
    (source,) = sources
    if source.kind is None:
        return [(yield from _scanned(reading, source.layout, source.files, [*names, _TYPE.name]))]
    rows = yield from _scanned(reading, source.layout, source.files, names)
    types = pa.repeat(pa.scalar(source.kind, _TYPE.type), rows.num_rows)
    return [rows.append_column(_TYPE, types)]


def _difference(
    reading: Reading, added: Sequence[DataFile], removed: Sequence[DataFile]
) -> Program[pa.Table]:
    """Return the rows of which the added files have more or fewer copies than the removed files.

    Whole rows are compared, so all columns are read, even if only some are requested. Of a file of
    which rows are marked as deleted, these rows alone are read.
    """
    layout = reading.layout
    known = layout.schema.names
    ids = [one.name for one in layout.lineage[:1] if reading.paired and one.name not in known]
    names = [*known, *ids]
    marks = yield from few_marks(layout, removed, added)
    back, gone = {}, {}
    for path, one in marks.items():
        back[path], gone[path] = one.back, one.gone
    new = yield from _scanned(reading, layout, added, names, back)
    old = yield from _scanned(reading, layout, removed, names, gone)
    views = {ADDED: new.to_reader(), REMOVED: old.to_reader()}
    sql = _pairs(known, ids[0]) if ids else DIFFERENCE
    rows = yield from reading.context.engine.query(sql, {}, views, {})
    columns = projection(layout, reading.columns)
    schema = pa.schema([*columns, _TYPE])
    return rows.select(schema.names).cast(schema)


def _pairs(columns: Sequence[str], row_id: str) -> str:
    """Return ``DIFFERENCE``, with a removed and an added row of one id as an update's two rows.

    The two are next to each other. Rows that are equal have not changed, whatever their ids.
    """
    names, id_ = ", ".join(map(quoted, columns)), quoted(row_id)
    lone = f"count(*) FILTER ({{}} lakevilla_new) OVER (PARTITION BY {id_}) = 1"
    is_paired = f"{id_} IS NOT NULL AND {lone.format('WHERE')} AND {lone.format('WHERE NOT')}"
    return f"""
SELECT * REPLACE (CASE
    WHEN {is_paired} AND lakevilla_new THEN 'update_postimage'
    WHEN {is_paired} THEN 'update_preimage'
    ELSE _change_type END AS _change_type)
FROM (
    SELECT *, _change_type = 'insert' AS lakevilla_new
    FROM ({DIFFERENCE})
    QUALIFY row_number() OVER (PARTITION BY {names}, _change_type)
        > count(*) OVER (PARTITION BY {names}) - count(*) OVER (PARTITION BY {names}, _change_type)
)
ORDER BY {id_}, lakevilla_new
"""


def _scanned(
    reading: Reading,
    layout: Layout,
    files: Sequence[DataFile],
    columns: Sequence[str],
    places: Mapping[str, RowIndices] = MappingProxyType({}),
) -> Program[pa.Table]:
    """Return the rows of files; of a file that has ``places``, the rows at these."""
    context, location = reading.context, reading.location
    inputs = inputs_at(layout, files, places) or [TableInput(layout, files_from_structs(()))]
    found = []
    try:
        for table in inputs:
            reader = yield from context.engine.scan(table, columns, reading.where)
            found.append(reader.read_all())
    except Exception:
        # Only the engine knows which request failed: check whether a deleted file explains that.
        yield from refuse_missing(location, files)
        raise
    return pa.concat_tables(found)


def refuse_missing(location: str, files: Sequence[DataFile]) -> Program[None]:
    """Raise ``VersionNotFound`` if one of the files does not exist any more."""
    keys = [file_key(location, file.path) for file in files]
    infos: list[ObjectInfo | Missing] = yield from parallel([HeadOf(key) for key in keys])
    for key, info in zip(keys, infos, strict=True):
        if isinstance(info, Missing):
            raise VersionNotFound(
                f"the changes of table {location} are not kept so far back: {key} was removed; "
                "request those since a newer version",
                table=location,
            )


def _as_data(file: RemovedFile) -> DataFile:
    return DataFile(
        path=file.path,
        size=file.size or 0,
        modification_time=0,
        partition_values=file.partition_values or {},
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
        raw_path=file.raw_path,
        deletes=file.deletes,
    )


def stamped(tables: Sequence[pa.Table], commit: CommitSummary) -> list[pa.Table]:
    """Return the rows with the global version and the time of their commit."""
    version, timestamp = CHANGE_COLUMNS.field(1), CHANGE_COLUMNS.field(2)
    return [
        rows.append_column(
            version, pa.repeat(pa.scalar(commit.sequence, version.type), rows.num_rows)
        ).append_column(
            timestamp, pa.repeat(pa.scalar(commit.timestamp_ms, timestamp.type), rows.num_rows)
        )
        for rows in tables
    ]


# -------------------- change feed
#
# The change data feed of Delta: an entry has change files for all of its changes, or for none.
#
# If an entry has a change file, readers of the feed ignore the files that it adds and removes
# (hazard 32). So if several changes are combined into one entry, and some of them have change
# files, change files are written for the other changes, too.


def is_mixed(changes: Sequence[Change]) -> bool:
    """Return whether some changes have change files, and other changes of rows have none."""
    listed = any(change.change_files for change in changes)
    return listed and any(c.changes_data and not c.change_files for c in changes)


def in_one_entry(
    context: Context, before: TableSnapshot, changes: Sequence[Change], name: FileNamer
) -> Program[tuple[Change, dict[str, bytes]]]:
    """Return the changes as one; if any has change files, with change files for all of them.

    Parameters
    ----------
    before : Snapshot
        The state before the first change; the data files of all changes must be stored.

    Returns
    -------
    Change
    dict of str to bytes
        Change files that must still be stored, by key.
    """
    whole = compose(changes)
    if not is_mixed(changes):
        return whole, {}
    listed: list[ChangeFile] = []
    bodies: dict[str, bytes] = {}
    for change in changes:
        after = before.apply(change)
        if change.change_files or not change.changes_data:
            listed.extend(change.change_files)
        else:
            removed = yield from only(before, None, [file.ref for file in change.removes])
            added = yield from only(after, None, [file.ref for file in change.adds])
            written: list[tuple[ChangeFile, bytes | None]] = []
            if removed.num_rows:
                table = TableInput(before.layout, removed)
                written.extend(
                    (yield from context.engine.write_change_files(table, "delete", name))
                )
            if added.num_rows:
                table = TableInput(after.layout, added)
                written.extend(
                    (yield from context.engine.write_change_files(table, "insert", name))
                )
            for file, body in written:
                listed.append(file)
                if body is not None:
                    bodies[f"{after.location}/{file.path}"] = body
        before = after
    return msgspec.structs.replace(whole, change_files=tuple(listed)), bodies
