"""Deletion of a dropped table's data, and of late objects: those written to its log after that.

The next table at the same path uses the same numbers in its log again, and stores don't delete
under a condition. So a client that deletes a table's data notes that in HEAD before, during and
after the deletion, and no client creates a table there for ``reuse_after_seconds`` after the last
note (docs/design/0013-names-used-again.md). ``lake.tables.dropped`` decides what may be deleted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError, TableNotFound
from lakevilla.formats.delta.deletion_vectors import vector_paths
from lakevilla.formats.files import delete_paths
from lakevilla.global_log.bases import load_base_tables, load_bases
from lakevilla.global_log.head import NOWHERE, Head, TableState, successor
from lakevilla.global_log.repo import check_lake, lake_key, load_names, load_tables
from lakevilla.lake.context import Context, inner_branch_of
from lakevilla.lake.frozen.kept import BranchEpochs, refuse_kept
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.dropped import (
    is_abandoned,
    is_emptied,
    is_of_a_table,
    is_within,
    leftovers,
    nested_tables,
    refuse_held_back,
    refuse_until_free,
)
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.results import Finding
from lakevilla.store.effects import Program, delete, list_objects, parallel


def delete_data(context: Context, location: str) -> Program[list[str]]:
    """Delete the objects of a dropped table; its log is deleted last.

    The table's pending commits are first published and removed from HEAD: otherwise the next client
    would publish them into the empty directory. A second call finishes an interrupted deletion.

    Returns
    -------
    list of str
        The keys of objects in the directory that are not a table's: they were not deleted.

    Raises
    ------
    InvalidOperation
        The lake may not delete in this directory.
    """
    started = context.clock.elapsed()
    named = yield from _named(context, location)
    head, before = yield from _begin(context, location)
    if before.emptying and not (yield from _is_left_of(context, location, before)):
        # Another client has made a table there meanwhile: no object of the old table is left.
        yield from _note(context, location, before=True, after=False)
        return []
    listed = yield from list_objects(location)
    yield from load_tables(head)
    nested = nested_tables(location, [info.key for info in listed], head)
    # A branch may have made a table of its own at this path: its files are not this table's.
    epochs = yield from BranchEpochs.of(head)
    paths = [
        info.key[len(location) + 1 :]
        for info in listed
        if not (is_within(info.key, nested) or epochs.owns(info.key[len(location) + 1 :]))
    ]
    paths = yield from _without_inner(head, epochs, location, paths)
    to_delete = [path for path in paths if path in named or is_of_a_table(path)]
    if to_delete:
        yield from refuse_held_back(context, head, location, before.table_id)
    keys = [f"{location}/{path}" for path in to_delete]
    directory = context.formats[before.format].log_directory(location)
    log = [key for key in keys if key.startswith(f"{directory}/")]
    own = [key for key in keys if key.startswith(f"{location}/_lakevilla/")]
    last = {*log, *own}
    # The names of data files are never used again, so they may be deleted in any order.
    yield from parallel([delete(key) for key in keys if key not in last])
    # The newest log entries are deleted first: the rest of the log is an earlier state of the
    # table. The claim is deleted last: outside of the root, a client that finishes the deletion
    # needs the claim as the proof that it may delete.
    claim = lake_key(location)
    ordered = [key for key in own if key != claim] + sorted(log, reverse=True)
    ordered += [claim] if claim in last else []
    if (yield from _delete(context, location, ordered, started, emptying=True)):
        yield from _note(context, location, before=True, after=False)
    context.tails.pop(location, None)
    return [f"{location}/{path}" for path in paths if path not in set(to_delete)]


def _without_inner(
    head: Head, epochs: BranchEpochs, location: str, paths: list[str]
) -> Program[list[str]]:
    """Return the paths except those of inner tables that a live branch or a base has."""
    inner = {path: found for path in paths if (found := inner_branch_of(path)) is not None}
    if not inner:
        return paths
    locations = {f"{location}/{place}" for place, _ in inner.values()}
    kept = set[str]()
    for base in (yield from load_bases(head)):
        yield from load_base_tables(base, locations)
        kept |= {place for place in locations if base.has(place)}

    def stays(path: str) -> bool:
        place, epoch = inner[path]
        return not epochs.is_dead(epoch) or f"{location}/{place}" in kept

    return [path for path in paths if not (path in inner and stays(path))]


def _named(context: Context, location: str) -> Program[set[str]]:
    """Return the paths of all files that the log of a dropped table names."""
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        if tail.tip < 0:
            return set()
        paths = yield from context.formats.of(tail.snapshot).named_in_log(tail.snapshot)
        live = yield from tail.snapshot.files()
    except StoreError:
        raise
    except LakeVillaError:
        return set()  # a part of the log was deleted
    return paths | {*live["path"].to_pylist(), *delete_paths(live), *vector_paths(location, live)}


def make_free(context: Context, location: str) -> Program[bool]:
    """Refuse to create a table at a path too early; delete late objects of the earlier table.

    Return whether HEAD was replaced for the deletion.

    Raises
    ------
    TableExists
        A write to the earlier table, or a deletion of its objects, may be under way.
    """
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if state is None or not is_emptied(state):
        return False
    refuse_until_free(context, location, state)
    found = yield from leftovers(context, location, state)
    if not found.written_after:
        return False
    yield from check_lake(location, head, context.root)
    yield from refuse_held_back(context, head, location, state.table_id)
    yield from _delete_written_after(context, location, state)
    return (yield from make_free(context, location)) or True


def clean_emptied(
    context: Context, head: Head, now_ms: int, *, dry_run: bool
) -> Program[list[Finding]]:
    """Finish, for gc, interrupted deletions, and delete late objects of deleted tables."""
    findings: list[Finding] = []
    for location, state in list(head.tables.items()):
        if not is_emptied(state):
            continue
        try:
            if not state.emptying or is_abandoned(context, state, now_ms):
                findings += yield from _cleaned(context, head, location, state, dry_run=dry_run)
        except StoreError:
            raise
        except LakeVillaError as error:
            # The path may be another lake's by now: this must not stop the other deletions.
            message = f"the place {location} of a table whose data was deleted was skipped: "
            findings.append(Finding("note", error.kind, message + error.message, table=location))
    return findings


def _cleaned(
    context: Context, head: Head, location: str, state: TableState, *, dry_run: bool
) -> Program[list[Finding]]:
    word = "would be" if dry_run else "was"
    if state.emptying:
        yield from check_lake(location, head, context.root)
        left: list[str] = []
        if dry_run:
            yield from refuse_held_back(context, head, location, state.table_id)
        else:
            left = yield from delete_data(context, location)
        message = (
            f"the deletion of the data of table {location}, which was dropped, {word} finished"
        )
        finished = Finding("note", "half_deleted", message, table=location)
        return [finished, *(_left(location, key) for key in left)]
    found = yield from leftovers(context, location, state)
    if not found.written_after:
        return []
    yield from check_lake(location, head, context.root)
    yield from refuse_held_back(context, head, location, state.table_id)
    written_after = (
        found.written_after
        if dry_run
        else (yield from _delete_written_after(context, location, state))
    )
    return [
        Finding(
            "note",
            "stray",
            f"{key} {word} deleted: a client of table {location} wrote it after that was dropped "
            "and its data deleted",
            table=location,
            key=key,
        )
        for key in written_after
    ]


def _left(location: str, key: str) -> Finding:
    message = f"{key} was not deleted: it is not a file of a table"
    return Finding("note", "left", message, table=location, key=key)


def _delete_written_after(
    context: Context, location: str, state: TableState
) -> Program[tuple[str, ...]]:
    started = context.clock.elapsed()
    if not (yield from _note(context, location, before=False, after=False)):
        return ()
    # The log is listed after the note in HEAD: a table that a client of the lake has made there is
    # in that HEAD, or in the list.
    found = yield from leftovers(context, location, state)
    if not (yield from _delete(context, location, found.written_after, started, emptying=False)):
        return ()
    yield from _note(context, location, before=False, after=False)
    return found.written_after


def _delete(
    context: Context, location: str, keys: Iterable[str], noted: float, *, emptying: bool
) -> Program[bool]:
    """Delete objects one by one; note that at intervals. False if another client has finished."""
    patience = context.settings.reuse_after_seconds / 4 or math.inf
    for key in keys:
        now = context.clock.elapsed()
        if now - noted > patience:
            if not (yield from _note(context, location, before=emptying, after=emptying)):
                return False
            noted = now
        yield from delete(key)
    return True


def _begin(context: Context, location: str) -> Program[tuple[Head, TableState]]:
    """Note in HEAD that the data is being deleted; return this HEAD and the state before."""
    before: list[TableState] = []

    def change(head: Head) -> Program[Head | None]:
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        if state is None or not state.dropped:
            raise InvalidOperation(
                f"table {location} was registered again meanwhile: its data stays", table=location
            )
        yield from refuse_kept(head, location, "drop_table with delete_data: table")
        if not state.emptying:
            yield from refuse_held_back(context, head, location, state.table_id)
        settled = state
        if state.pending:
            published = yield from publish_table(context, head, location)
            if not published.complete:
                raise StoreError(
                    f"table {location} has commits that could not be published now, so its data "
                    "was not deleted: `register` it, and drop it again",
                    table=location,
                )
            if published.head is not head:
                return (yield from change(published.head))
            settled = msgspec.structs.replace(state, published=published.tail.tip, pending=())
        before.append(state)
        return _noting(context, head, location, settled, emptying=True)

    head = yield from replace_until_stored(context, change)
    return head, before[-1]


def _note(context: Context, location: str, *, before: bool, after: bool) -> Program[bool]:
    """Note the time in HEAD, and set ``emptying`` to ``after``; False if it was not ``before``."""
    agrees: list[bool] = []

    def change(head: Head) -> Program[Head | None]:
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        agrees.append(state is not None and is_emptied(state) and state.emptying == before)
        if state is None or not agrees[-1]:
            return None
        names = {} if after else (yield from _freed(head, location))
        return _noting(context, head, location, state, emptying=after, names=names)

    yield from replace_until_stored(context, change)
    return agrees[-1]


def _freed(head: Head, location: str) -> Program[dict[str, str | None]]:
    """Return the names to remove with a renamed table's data: its path is then a name again."""
    yield from load_names(head, [location])
    if head.names.get(location) != NOWHERE:
        return {}
    yield from load_names(head)
    return dict.fromkeys(
        name for name, place in head.names.items() if place == location or name == location
    )


def _noting(
    context: Context,
    head: Head,
    location: str,
    state: TableState,
    *,
    emptying: bool,
    names: Mapping[str, str | None] | None = None,
) -> Head:
    now = max(context.now_ms(), state.emptied_ms or 0)
    noted = msgspec.structs.replace(state, emptying=emptying, emptied_ms=now)
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        tables={location: noted},
        names=names,
    )


def _is_left_of(context: Context, location: str, state: TableState) -> Program[bool]:
    """Return whether the objects at a path are the rest of the table whose deletion was begun."""
    found = yield from leftovers(context, location, state)
    if not found.has_table:
        return True
    try:
        rest = yield from context.formats.open(location, location, state.format, state.catalog)
        if rest.table_id == state.table_id:
            return True
        if 0 <= state.published < rest.version:  # a later REPLACE may have changed the table's id
            then = yield from context.formats.of(rest).open_at(
                location, location, state.published, catalog=rest.catalog
            )
            return then.table_id == state.table_id
    except TableNotFound:
        return True  # only parts of a checkpoint are left
    return False
