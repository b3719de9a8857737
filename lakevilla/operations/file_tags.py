"""Tags of files of an Iceberg table, whose manifests have no room for them.

The newest commit that has refreshed the table tells those of all files that may stay in the next
refresh: of the files that it made, and of those that it kept (docs/design/0038-reuse.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakevilla.errors import VersionNotFound
from lakevilla.formats.files import DataFile
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.past import recorded
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import Refresh

#: Commits to the table that are looked at, newest first, and as many pages of HEAD's list.
_MOST_COMMITS = 8
_MOST_PAGES = 16


def with_tags(
    context: Context, head: Head | None, location: str, files: Sequence[DataFile]
) -> Program[list[DataFile]]:
    """The files, with the tags that the newest refresh has given them."""
    if head is None or not files:
        return list(files)
    commits = yield from _commits_to(head, location)
    objects = yield from parallel([_kept(context, commit) for commit in commits])
    for found in objects:
        operations = () if found is None else found.operations
        mine = [one for one in operations if isinstance(one, Refresh) and one.table == location]
        if mine:
            tags = {file.ref: file.tags for file in (*mine[-1].files, *mine[-1].kept)}
            return [msgspec.structs.replace(f, tags=f.tags or tags.get(f.ref)) for f in files]
    return list(files)


def _commits_to(head: Head, location: str) -> Program[list[CommitSummary]]:
    """The newest commits of the lake's own to a table, newest first."""
    timeline = Timeline.of(head)
    for _ in range(_MOST_PAGES):
        found = _of(timeline, location)
        if len(found) >= _MOST_COMMITS or timeline.older is None:
            break
        try:
            yield from timeline.after(timeline.older.last_sequence - 1)
        except VersionNotFound:
            break
    return _of(timeline, location)[: -_MOST_COMMITS - 1 : -1]


def _of(timeline: Timeline, location: str) -> list[CommitSummary]:
    return [c for c in timeline.commits if location in c.tables and c.kind != "foreign"]


def _kept(context: Context, commit: CommitSummary) -> Program[CommitObject | None]:
    try:
        return (yield from recorded(context, commit))
    except VersionNotFound:
        return None
