"""Count the rows in which two states of a table differ, without reading a row.

If files only came, or only went, their rows are the difference. If both, the files may share most
rows; then the one commit between the states that has exchanged exactly these files has counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import LakeVillaError, VersionNotFound
from lakevilla.formats.files import DataFile, RemovedFile, size_of
from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program

#: The operations whose counts of rows are the difference that they make.
_COUNTING = ("UPDATE", "DELETE", "MERGE")
_COUNTS = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")

#: The rows added and removed, an updated row being one of each; None if that is not known.
RowCounts = tuple[int | None, int | None]
_UNKNOWN: RowCounts = (None, None)


def commits_between(head: Head, one: int, other: int) -> Program[Sequence[CommitSummary]]:
    """Return the lake's commits between two of its versions; none if they are not kept."""
    try:
        commits = yield from Timeline.of(head).after(min(one, other))
    except VersionNotFound:
        return ()
    return [commit for commit in commits if commit.sequence <= max(one, other)]


def row_counts(
    context: Context,
    location: str,
    adds: Sequence[DataFile],
    removes: Sequence[DataFile],
    commits: Iterable[CommitSummary],
) -> Program[RowCounts]:
    """Return the rows that were added to a table, and removed from it, where that can be told.

    ``adds`` and ``removes`` are the files in which its states differ, ``commits`` the commits
    between the states.
    """
    if not (adds and removes):
        return size_of(adds).rows, size_of(removes).rows
    changing = [
        one for one in commits if location in one.tables and one.tables[location].data_change
    ]
    if len(changing) != 1 or not changing[0].hash:
        return _UNKNOWN
    try:
        commit = yield from context.commit_object(changing[0].txn, changing[0].hash)
    except LakeVillaError:
        return _UNKNOWN  # the object is damaged, or gone, which the doctor reports
    part = commit.tables.get(location)
    counted = None if part is None else _counted(part)
    if part is None or counted is None:
        return _UNKNOWN
    came, went = _paths(part.change.adds), _paths(part.change.removes)
    if (came, went) == (_paths(adds), _paths(removes)):
        return counted
    if (went, came) == (_paths(adds), _paths(removes)):  # from the later state to the earlier one
        return counted[1], counted[0]
    return _UNKNOWN


def _counted(part: TablePart) -> tuple[int, int] | None:
    if part.operation not in _COUNTING or not any(name in part.metrics for name in _COUNTS):
        return None
    inserted, updated, deleted = (int(part.metrics.get(name, "0")) for name in _COUNTS)
    return inserted + updated, deleted + updated


def _paths(files: Iterable[DataFile | RemovedFile]) -> set[str]:
    return {file.path for file in files}
