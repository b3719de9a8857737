"""Whether files that a table had once are still there, and stay until a new HEAD names them.

Told file by file from a HEAD and the newest log, whatever state it was that had them. Safe because
whoever deletes moves HEAD first or keeps what HEAD keeps: a replacement of that very HEAD is
seen by a vacuum that comes after it, and refused where one came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import VersionNotFound
from lakevilla.formats.files import DataFile, data_files, file_key
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_of, owner_of
from lakevilla.lake.fitness import paths_of
from lakevilla.lake.frozen.kept import kept_by_clones, kept_of, outside
from lakevilla.lake.frozen.lives import BranchLives
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tail import Tail
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, Stat, parallel


def kept_marks(head: Head, location: str) -> tuple[object, ...]:
    """What of a HEAD says which files of the table may go: equal marks, equal answers.

    All that it says of the table: what its log holds besides is kept by every vacuum until a HEAD
    knows it, whatever the clocks of its writers say.
    """
    return head.tables.get(location), head.floor, head.aborted


def refuse_unkept(
    context: Context, head: Head, location: str, files: Sequence[DataFile]
) -> Program[bool]:
    """Refuse files that are gone, or that somebody may be deleting.

    Returns whether that depends on a ref of this HEAD.

    Raises
    ------
    VersionNotFound
    """
    if not files:
        return False
    of_clone = yield from _refuse_let_go(context, head, location, files)
    tail = yield from refresh(context, location)
    wanted = yield from _not_live(tail, files)
    if not wanted:
        return of_clone
    # All of a life that a ref owns stays.
    lives = yield from BranchLives.of(head)
    by_branch = any(lives.owns(file.path) for file in wanted)
    wanted = [file for file in wanted if not lives.owns(file.path)]
    if of_clone:
        wanted = [file for file in wanted if not outside(context, _keys(location, file))]
    if not wanted:
        return True
    keys = {key for file in wanted for key in _keys(location, file)}
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for key in sorted(keys)])
    for key, info in zip(sorted(keys), infos, strict=True):
        if isinstance(info, Missing):
            raise _not_kept(location, f"{key} was removed")
    why = yield from _may_go(context, head, tail, wanted, keys)
    if why is None:
        return by_branch or of_clone
    kept = yield from kept_of(context, head, location)
    if keys <= kept.keys:
        return True
    raise _not_kept(location, why)


def _refuse_let_go(
    context: Context, head: Head, location: str, files: Sequence[DataFile]
) -> Program[bool]:
    """Refuse files of another table that no clone keeps; whether there are any that one does.

    Also where the log has them yet: HEAD may not, and a clone may end that nobody needs any more.
    """
    needed = outside(context, {key for file in files for key in _keys(location, file)})
    if not needed:
        return False
    kept = yield from kept_by_clones(context, head, location)
    if not needed <= kept:
        raise _not_kept(
            location, f"{min(needed - kept)} is of another table, and no clone keeps it"
        )
    return True


def _not_live(tail: Tail, files: Iterable[DataFile]) -> Program[list[DataFile]]:
    """Those that the newest log does not have: nobody deletes what it has."""
    if tail.tip < 0:
        return list(files)
    live = {file.ref for file in data_files((yield from tail.snapshot.files()))}
    return [file for file in files if file.ref not in live]


def _may_go(
    context: Context, head: Head, tail: Tail, files: Sequence[DataFile], keys: set[str]
) -> Program[str | None]:
    """Why somebody may be deleting one of the files, or None."""
    location = tail.location
    if tail.tip < 0:
        return "its log is not there any more"
    table_format = context.formats.of(tail.snapshot)
    owners = {file.path: owner_of(file.path) for file in files}
    fenced = {p for p, owner in owners.items() if owner is not None and head.is_fenced(owner[1])}
    fenced |= {file.path for file in files if branch_of(file.path) is not None}
    if fenced:
        # What the fenced, or a branch that has ended, have made and no entry names is gc's.
        named = yield from table_format.named_in_log(tail.snapshot)
        if not fenced <= named:
            return f"{file_key(location, min(fenced - named))} is nobody's, or was replaced"
    state = head.tables.get(location)
    vacuumed_ms = None if state is None else state.vacuumed_ms
    if vacuumed_ms is not None:
        # As the vacuum itself tells what it leaves; no clock of this client counts.
        left = table_format.without_expired(tail.snapshot, vacuumed_ms, context.now_ms())
        kept = yield from table_format.named_objects(left, vacuumed_ms)
        if not keys <= kept:
            return f"{min(keys - kept)} was vacuumed, or may be"
    return None


def _keys(location: str, file: DataFile) -> set[str]:
    return {file_key(location, path) for path in paths_of(location, file)}


def _not_kept(location: str, why: str) -> VersionNotFound:
    return VersionNotFound(
        f"what table {location} had then is not kept any more: {why}; choose a newer state",
        table=location,
    )
