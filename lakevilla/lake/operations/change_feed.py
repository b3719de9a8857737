"""The change data feed: an entry's change files tell all of its changes, or there are none.

Readers of the feed pass over the files that an entry adds and removes as soon as
it has a change file (hazard 32). Where one entry is made of several changes, or
of rows that come in and rows that go, those that have brought no change files
get theirs here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakevilla.engines.base import FileNamer, TableInput
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import ChangeFile
from lakevilla.lake.context import Context
from lakevilla.lake.net_change import compose
from lakevilla.lake.row_changes import only
from lakevilla.store.effects import Program


def is_mixed(changes: Sequence[Change]) -> bool:
    """Whether some of the changes have change files, and others that touch rows have none."""
    listed = any(change.change_files for change in changes)
    return listed and any(c.changes_data and not c.change_files for c in changes)


def in_one_entry(
    context: Context, before: TableSnapshot, changes: Sequence[Change], name: FileNamer
) -> Program[tuple[Change, dict[str, bytes]]]:
    """The changes as one, with change files for all of them where any has some.

    Parameters
    ----------
    before : Snapshot
        The state that the first change was made on; the files of all must be stored.

    Returns
    -------
    Change
    dict of str to bytes
        Change files that are still to be stored, by key.
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
