"""Applicability: which pending commits of a table are not in its log, and which don't fit it.

A commit can't be added to the log if a foreign entry has made it unfit, or if its files were
deleted: another client's clean-up does not know of commits that are decided and not published
(hazards 29 and 38, note 19).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lakevilla.formats.base import Change
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.formats.files import file_key
from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import Head, PendingRef, application_id
from lakevilla.ids import started_at
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import entry_at
from lakevilla.lake.view import breaks, breaks_unseen, changes_contract, is_another, replaced
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, parallel
from lakevilla.store.effects import Stat as HeadOf
from lakevilla.sublogs.operations import given_files, source_files

#: The errors (``LakeVillaError.kind``) that a read of a deleted file may raise.
UNREADABLE = ("store", "corrupt_object", "unsupported_format")


def is_lost(context: Context, head: Head, location: str, tail: Tail) -> Program[bool]:
    """Return whether the table in HEAD was lost: its log is gone, set back, or another's."""
    state = head.tables[location]
    if state.published < 0:
        return False
    return tail.tip < state.published or (yield from is_another(context, state, tail))


def refuse_shorter_log(context: Context, head: Head, location: str, tail: Tail) -> Program[None]:
    """Refuse to publish to a log that ends before a version that HEAD knows (note 83).

    It was deleted, or is an older copy, and the newer one may be restored. Another table's log at
    this place is not refused, nor that of a dropped table.

    Raises
    ------
    TableNotFound
    """
    state = head.tables[location]
    if state.dropped or tail.tip >= state.published:
        return
    if not (yield from is_another(context, state, tail)):
        raise replaced(location, state, tail)


def unpublished(head: Head, location: str, tail: Tail) -> tuple[PendingRef, ...]:
    """Return the table's commits that are decided in HEAD and not in the known log."""
    state = head.tables.get(location)
    if state is None:
        return ()
    if tail.tip < 0:
        return state.pending
    done = tail.snapshot.application_version(application_id(head))
    return tuple(ref for ref in state.pending if done is None or ref.sequence > done)


def first_unfit(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: Sequence[PendingRef],
    parts: Sequence[TablePart],
    stores_now: Callable[[str], bool] = lambda txn: False,
) -> Program[int | None]:
    """Return the index of the first of ``waiting`` that is unfit or whose files were deleted.

    A commit becomes unfit by the first foreign entry that removes a file which the commit removes,
    too, or whose metadata the commit does not fit. The commit stays unfit if a later entry adds the
    file again (RESTORE, hazard 31), so entries are checked one by one.

    Files are checked if ``may_lack_files`` is true, unless the commit is young and ``stores_now``
    says that its transaction has just stored them.
    """
    if (yield from is_lost(context, head, location, tail)):
        return 0
    unfit = yield from _first_broken(context, head, tail, waiting, parts)
    for index in range(len(waiting) if unfit is None else unfit):
        ref = waiting[index]
        trusted = stores_now(ref.txn) and not is_old(context, ref)
        if may_lack_files(context, head, location, ref) and not trusted:
            paths = [*paths_written(location, parts[index].change), *parts[index].objects]
            if (yield from lost_for_good([file_key(location, path) for path in paths])):
                return index
    return unfit


def may_lack_files(context: Context, head: Head, location: str, ref: PendingRef) -> bool:
    """Return whether another client may have deleted files of a decided commit.

    Clean-up deletes old files. And even if HEAD does not state that a table's creation was
    published, the table may have had a log, which another client deleted with some or all of the
    files. Then each pending commit may lack files, also after a client has published the creation
    again.
    """
    return head.tables[location].published < 0 or is_old(context, ref)


def is_old(context: Context, ref: PendingRef) -> bool:
    """Return whether a decided commit's files are so old that clean-up may have deleted them.

    The files of a younger commit are not checked: no client deletes files that young. If a commit's
    time is in the future, its client's clock differs from this client's: it counts as old.
    """
    age = context.clock.now() - started_at(ref.txn)
    return abs(age) > context.settings.checked_tip_seconds


def lost_for_good(keys: Collection[str]) -> Program[list[str]]:
    """Return the keys, URIs left out, whose files are lost: no client writes a key twice."""
    own = [key for key in keys if "://" not in key]
    found: list[ObjectInfo | Missing] = yield from parallel([HeadOf(key) for key in own])
    return [key for key, info in zip(own, found, strict=True) if isinstance(info, Missing)]


def needed_files(context: Context, location: str, refs: Sequence[PendingRef]) -> Program[set[str]]:
    """Return the paths of the files that pending commits need to be published or performed again.

    An operation that is performed again needs the files that it was given, also those that a later
    operation of the same transaction has rewritten, and that the commit's change does not name. A
    transplant may read the files that it removes, too.
    """
    paths: set[str] = set()
    for ref in refs:
        (commit,) = yield from context.commit_objects([ref])
        change = commit.tables[location].change
        paths.update(commit.tables[location].objects)
        paths.update(path for file in change.adds for path in paths_of(location, file))
        paths.update(file.path for file in change.change_files)
        for operation in commit.operations:
            if operation.table == location:
                for file in (*given_files(operation), *source_files(operation)):
                    paths.update(paths_of(location, file))
    return paths


def paths_written(location: str, change: Change) -> list[str]:
    """Return the paths, relative to the table, of all files that a change adds."""
    paths = [path for file in change.adds for path in sorted(paths_of(location, file))]
    return [*paths, *(file.path for file in change.change_files)]


def _first_broken(
    context: Context,
    head: Head,
    tail: Tail,
    waiting: Sequence[PendingRef],
    parts: Sequence[TablePart],
) -> Program[int | None]:
    application = application_id(head)
    for index, (ref, part) in enumerate(zip(waiting, parts, strict=True)):
        for version in range(ref.base + 1, tail.tip + 1):
            entry = yield from entry_at(context, tail, version)
            if entry is None:
                if (yield from breaks_unseen(tail.snapshot, parts[:index], part)):
                    return index
                break
            if application in entry.applications:
                continue
            if breaks(entry, (yield from changes_contract(context, tail, entry, part)), part):
                return index
    return None
