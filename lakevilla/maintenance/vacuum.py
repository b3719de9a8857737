"""Delete the files of a table that are not needed any more (Delta's VACUUM).

A file is deleted if it is older than the retention, and is named neither by a state of the table
nor by a transaction that may still commit. The files are listed first, and the states are read
after that: so files made in between are not deleted, and commits made in between are seen.

A file is kept if one of these names it:

- the state of the table by HEAD, with its pending commits, and the state by the log alone;
- the state from which a replay of the pending commits would begin;
- a state that was replaced within the retention, or since the oldest transaction with a record
  began: so snapshots of the lake and versions of the table from that time can be read;
- a transaction through HEAD that is neither fenced nor committed. No time-out ends such a
  transaction; only ``gc`` does, which advances HEAD first;
- a ref of the lake. After the LIST, HEAD is replaced by one that records the vacuum: a client that
  makes a ref meanwhile loses the race, reads HEAD again, and uses no state whose files may be
  deleted (docs/design/0030-refs.md).

The age of a file is by the store's clock (``maintenance.gc.listing``), never by this client's. A
dry run (``dry_run``) writes nothing, and uses this client's clock.

The metadata of an Iceberg table lists its states, so the states that were replaced before the
retention are expired first (``docs/design/0017-expiry.md``). Apart from that, and from HEAD, vacuum
only deletes. It does not write Delta's optional log entries VACUUM START and END: they change no
row, each would take a log number from a transaction, and on a guarded table they would have to go
through HEAD. The event ``vacuum`` reports the deletions instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from lakevilla.errors import ConflictError, InvalidOperation, TableNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.deletion_vectors import is_vector_of_a_lake, paths_of
from lakevilla.formats.delta.shown import is_shown, states_beside
from lakevilla.formats.files import DataFile, RemovedFile, file_key
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.repo import (
    check_lake,
    commits_since,
    load_tables,
    make_room,
)
from lakevilla.ids import started_at
from lakevilla.lake.absorb import absorb, counted_sizes, moved_to
from lakevilla.lake.applicability import needed_files
from lakevilla.lake.context import Context, Event, branch_of, owner_of
from lakevilla.lake.frozen.kept import BranchEpochs, KeptByRefs, kept_of
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.newer import refuse_older, refuse_older_head
from lakevilla.lake.table_log import entries_at, refresh
from lakevilla.lake.tables.dropped import is_within, nested_tables, refuse_held_back
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.lake.view import View, build_view
from lakevilla.maintenance.gc.listing import ask_time, shown_time
from lakevilla.store.base import ObjectInfo
from lakevilla.store.effects import Program, delete, list_objects, parallel
from lakevilla.sublogs.record import TXNS_PREFIX

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
#: Objects of a version that are stored before it is published, in addition to data files.
_MANIFEST = re.compile(r"metadata/[^/]+\.avro")
_RECORD = re.compile(rf"{TXNS_PREFIX}/({_UUID})\.json")
_AT_ONCE = 1000
_MAX_LOOKS = 10


def vacuum(
    context: Context,
    location: str,
    *,
    retention_seconds: float | None = None,
    dry_run: bool = True,
    enforce_retention: bool = True,
) -> Program[list[str]]:
    """Delete the files that are not needed any more; return their paths, relative to the table.

    Parameters
    ----------
    retention_seconds : float, optional
        Default: the table's ``delta.deletedFileRetentionDuration`` (7 days), or
        ``history.expire.max-snapshot-age-ms`` (5 days).
    dry_run : bool
        Only return the paths.
    enforce_retention : bool
        Refuse a retention below the table's.

    Raises
    ------
    InvalidOperation
        The retention is below the table's, or the files of the table must not be deleted.
    UnsupportedTableFeature
        The table is in a catalog.
    """
    if not dry_run:
        yield from refuse_older_head(context, f"vacuum of table {location}", [location])
    is_checked = not dry_run and (yield from _refuse_anothers(context, location))
    request = None if dry_run else (yield from ask_time(context, f"{location}/_lakevilla"))
    listed = yield from list_objects(location)
    records = yield from list_objects(TXNS_PREFIX)
    head, view = yield from _newest(context, location)
    if view is None:
        return []
    if not is_checked and (head is None or location not in head.tables):
        yield from check_lake(location, head, context.root)
    if not dry_run:
        context.refuse_foreign_root()
        context.refuse_unconfirmed(f"vacuum of table {location}")
        yield from refuse_held_back(context, head, location, view.snapshot.table_id)
    view.snapshot.check_writable()
    table_format = context.formats.of(view.snapshot)
    least = table_format.file_retention_seconds(view.snapshot)
    wanted = least if retention_seconds is None else retention_seconds
    if enforce_retention and wanted < least:
        raise _too_short(location, wanted, least, table_format.file_retention_source)
    table_format.check_cleanable(view.snapshot, (info.key for info in listed))
    now = context.clock.now() if request is None else (yield from shown_time(request, listed))
    before = now - wanted
    since = min([before, *_began(head, records)])
    times = int(since * 1000), int(now * 1000)
    # raises if it can't decide what would be kept
    table_format.without_expired(view.snapshot, *times)
    if head is not None and location in head.tables and not dry_run:
        yield from _tell(context, location, times[0])
        head, view = yield from _newest(context, location)
        assert view is not None, "no clone shows what HEAD itself has, or had"
    kept = yield from _kept_by_refs(context, head, location)
    if not dry_run and (yield from table_format.expire(view.snapshot, *times, kept.snapshots)):
        head, view = yield from _newest(context, location)
        assert view is not None, "its log has just grown"
    states = yield from _states(context, location, view)
    if dry_run:
        states = [table_format.without_expired(one, *times, kept.snapshots) for one in states]
    named = set(kept.keys)
    if not dry_run:
        named |= yield from _named_since(context, location, head)
    # Checkpoints drop the removals that are older than the table's own retention.
    is_forgotten = since < now - least
    named |= yield from _named(context, location, view, states, times[0], is_forgotten)
    ages = Ages(before, now - context.settings.max_age_seconds)
    to_delete = yield from _doomed(context, head, view, listed, named, ages)
    if not dry_run:
        yield from _delete(context, location, to_delete)
    return sorted(info.key[len(location) + 1 :] for info in to_delete)


@dataclass(frozen=True, slots=True)
class Ages:
    """Times, by the store's clock: files from before them are old.

    Files from before ``retained`` may be deleted. A transaction by log entry that wrote a file
    before ``open`` has had time enough to commit.
    """

    retained: float
    open: float


def _refuse_anothers(context: Context, location: str) -> Program[bool]:
    """Refuse, by the cached HEAD, a table in whose directory this lake may write nothing.

    Return True if the table's claim was checked, because the cached HEAD lacks the table.
    """
    held = context.held or (yield from context.head())
    head = None if held is None else held.head
    context.refuse_foreign_root()
    context.refuse_unconfirmed(f"vacuum of table {location}")
    yield from load_tables(head, [location])
    if head is not None and location in head.tables:
        # For a place outside of the root, HEAD's entry is no permission to write there (note 52).
        table_id = head.tables[location].table_id
        yield from refuse_held_back(context, head, location, table_id)
        return False
    yield from check_lake(location, head, context.root)
    return True


def _named(
    context: Context,
    location: str,
    view: View,
    states: Sequence[TableSnapshot],
    since_ms: int,
    also_in_log: bool,
) -> Program[set[str]]:
    """Return the keys that the table's states since a time, and its pending commits, name."""
    table_format = context.formats.of(view.snapshot)
    named: set[str] = set()
    for state in states:
        named |= yield from table_format.named_objects(state, since_ms)
    paths: set[str] = set()
    if also_in_log:
        paths |= yield from table_format.named_in_log(states[0])
    paths |= yield from needed_files(context, location, view.placement.overlay)
    return named | {file_key(location, path) for path in paths}


def _doomed(
    context: Context,
    head: Head | None,
    view: View,
    listed: Sequence[ObjectInfo],
    named: set[str],
    ages: Ages,
) -> Program[list[ObjectInfo]]:
    """Return the listed objects that are old enough, and that no state or transaction needs."""
    location, table_format = view.location, context.formats.of(view.snapshot)
    nested = nested_tables(location, [info.key for info in listed], head)
    old = [info for info in listed if info.modified_seconds < ages.retained]
    rest = yield from _not_named(location, old, named, {info.key for info in listed}, head)
    table_files = [info for info in rest if table_format.may_name(info.key[len(location) + 1 :])]
    unnamed = [info for info in table_files if not is_within(info.key, nested)]
    to_delete = yield from _unowned(head, location, unnamed, ages)
    if view.placement.overlay:
        # A client that publishes the pending commits may already have stored manifests.
        to_delete = [
            info for info in to_delete if not _MANIFEST.fullmatch(info.key, len(location) + 1)
        ]
    return _with_states(location, to_delete, listed)


def _with_states(
    location: str, doomed: Sequence[ObjectInfo], listed: Sequence[ObjectInfo]
) -> list[ObjectInfo]:
    """Return the objects, and those that show states to Iceberg clients by files among them."""
    keys = {info.key for info in doomed}
    by_path = {info.key[len(location) + 1 :]: info for info in listed if info.key not in keys}
    states = states_beside((key[len(location) + 1 :] for key in keys), by_path)
    return [*doomed, *(by_path[path] for path in sorted(states))]


def _kept_by_refs(context: Context, head: Head | None, location: str) -> Program[KeptByRefs]:
    """Return the files of the table that refs keep; refuse if these can't be determined."""
    kept = yield from kept_of(context, head, location)
    if kept.lost:
        raise InvalidOperation(
            f"vacuum of table {location}: {kept.lost[0].message}; the files that this state needs "
            "are not known, so nothing is deleted: delete_ref first, if it is not needed any more",
            table=location,
        )
    return kept


def _tell(context: Context, location: str, since_ms: int) -> Program[None]:
    """Replace HEAD by one that records the vacuum, and has absorbed the table's log."""

    def change(head: Head) -> Program[Head | None]:
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        if state is None or state.dropped:
            raise TableNotFound(
                f"vacuum of table {location}: it was dropped meanwhile", table=location
            )
        tail = yield from refresh(context, location)
        absorbed = yield from absorb(context, head, {location: tail})
        vacuumed_ms = max(since_ms, state.vacuumed_ms or since_ms)
        moved = moved_to(state, absorbed.placements[location])
        sizes = yield from counted_sizes(context, head, tail, absorbed)
        return successor(
            head,
            nonce=context.ids.nonce(),
            now_ms=context.now_ms(),
            commits=absorbed.commits,
            tables={location: msgspec.structs.replace(moved, vacuumed_ms=vacuumed_ms)},
            sizes=sizes,
            page=(yield from make_room(head, context.ids)) if absorbed.commits else None,
        )

    yield from replace_until_stored(context, change)


def _named_since(context: Context, location: str, head: Head | None) -> Program[set[str]]:
    """Return the keys of files in all log entries that HEAD does not know yet.

    A ref that a client makes from now on may use any state among these entries.
    """
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if state is None:
        return set()
    tail = yield from refresh(context, location)
    keys: set[str] = set()
    for entry in (yield from entries_at(context, tail, range(state.published + 1, tail.tip + 1))):
        if entry is None:
            paths = yield from context.formats.of(tail.snapshot).named_in_log(tail.snapshot)
            return {file_key(location, path) for path in paths}
        files: list[DataFile | RemovedFile] = [*entry.change.adds, *entry.change.removes]
        for file in files:
            keys.update(file_key(location, path) for path in paths_of(location, file))
    return keys


def _too_short(location: str, wanted: float, least: float, source: str) -> InvalidOperation:
    return InvalidOperation(
        f"vacuum of table {location}: a retention of {wanted / 3600:g} hours is below the table's "
        f"{least / 3600:g} ({source}), so readers and writers that are running may lose files: "
        "choose a longer one, or, if there are none, switch this check off: `--no-enforce` on the "
        "command line, in Python enforce_retention_duration=False",
        table=location,
    )


def _not_named(
    location: str,
    files: Iterable[ObjectInfo],
    named: set[str],
    listed: set[str],
    head: Head | None,
) -> Program[list[ObjectInfo]]:
    """Return the files of the table that no state of the table names."""
    epochs = yield from BranchEpochs.of(head)
    # A named file that was not listed may be stored here under another spelling of its path, so
    # files with the same last part are kept.
    bases = {key.rsplit("/", 1)[-1] for key in named - listed}
    return [
        info
        for info in files
        if info.key not in named
        and info.key.startswith(f"{location}/")
        and not _is_hidden(info.key[len(location) + 1 :], epochs)
        and info.key.rsplit("/", 1)[-1] not in bases
    ]


def _delete(context: Context, location: str, files: Sequence[ObjectInfo]) -> Program[None]:
    for start in range(0, len(files), _AT_ONCE):
        batch = files[start : start + _AT_ONCE]
        yield from parallel([delete(info.key) for info in batch])
    size = sum(info.size for info in files)
    context.notify(
        Event(
            "vacuum",
            None,
            f"vacuum deleted {len(files)} files of table {location} ({size} bytes)",
            {"table": location, "files": len(files), "bytes": size},
        )
    )


def _newest(context: Context, location: str) -> Program[tuple[Head | None, View | None]]:
    """Return HEAD with all its tables, and the table's state by it; None if a clone shows the
    table.

    A table that a clone shows has no files of its own yet. If the log shows that a newer HEAD
    exists, HEAD is read again.
    """
    for _ in range(_MAX_LOOKS):
        held = yield from context.head()
        head = None if held is None else held.head
        yield from load_tables(head)
        if (yield from mount_of(head, location)) is not None:
            return head, None
        tail = yield from refresh(context, location)
        view = yield from build_view(context, head, location, tail)
        if not view.placement.stale:
            return head, view
        yield from refuse_older(context, f"vacuum of table {location}", [tail])
    raise ConflictError(
        f"vacuum of table {location}: it was written so fast that no state of it could be read: "
        "run it again later",
        table=location,
    )


def _states(context: Context, location: str, view: View) -> Program[list[TableSnapshot]]:
    """Return the table's state by HEAD, and its state by the log alone if that differs.

    Clients that read only the log don't see decided commits before these are published, so they
    still need the files that these commits remove.
    """
    tail = yield from refresh(context, location)
    same = view.base.version == tail.tip and not view.is_anothers(tail)
    return (
        [view.snapshot] if same and not view.placement.overlay else [view.snapshot, tail.snapshot]
    )


def _began(head: Head | None, records: Iterable[ObjectInfo]) -> list[float]:
    """Return the start times of the transactions that have a record and may still commit.

    A time is by the clock of the client that began the transaction, but at most the store's time of
    the record, because that clock may be ahead.
    """
    found = [(_RECORD.fullmatch(info.key), info.modified_seconds) for info in records]
    ids = [(match[1], written) for match, written in found if match is not None]
    return [
        min(started_at(txn), written)
        for txn, written in ids
        if head is None or not head.is_fenced(txn)
    ]


def _is_hidden(path: str, epochs: BranchEpochs) -> bool:
    """Return whether a file is in a directory in which other programs keep their own files.

    The names of such directories begin with ``_`` or ``.``, but so may the name of a partition
    column. An empty part of a path is no name in a lake. Files that were written on an ended branch
    are the table's own, and so are files of vectors and those that show states to Iceberg clients.
    """
    epoch = branch_of(path)
    if epoch is not None and epochs.is_dead(epoch):
        return False
    if epoch is None and (is_vector_of_a_lake(path) or is_shown(path)):
        return False
    return any(part[:1] in ("", "_", ".") and "=" not in part for part in path.split("/"))


def _unowned(
    head: Head | None, location: str, files: Iterable[ObjectInfo], ages: Ages
) -> Program[list[ObjectInfo]]:
    """Return the files that no transaction may still commit.

    These include files that were written on an ended branch, which no client commits any more. A
    transaction that commits by its log entry can't be fenced. So its files are kept for
    ``max_age_seconds`` after the store got them, because the clock in its id may be slow, and as
    long after it began, because a copied file may have an old time. A transaction that takes longer
    loses its files, by its own fault (hazard 6).
    """
    files = list(files)
    owners = {
        info.key: None if branch_of(info.key[len(location) + 1 :]) else owner_of(info.key)
        for info in files
    }
    through_head = {owner[1] for owner in owners.values() if owner is not None and owner[0] == "h"}
    ended: set[str] = set()
    if head is not None:
        ended = {txn for txn in through_head if head.is_fenced(txn)}
        undecided = through_head - ended
        if undecided:
            commits = (yield from commits_since(head, head.history_start)) or ()
            ended |= {t for one in commits if one.hash for t in (one.txn, *one.members)}
    kept = []
    for info in files:
        owner = owners[info.key]
        if owner is None or (
            owner[1] in ended
            if owner[0] == "h"
            else max(started_at(owner[1]), info.modified_seconds) < ages.open
        ):
            kept.append(info)
    return kept
