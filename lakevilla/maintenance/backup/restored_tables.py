"""The tables of a restored lake: set back to their states in a backup, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from blake3 import blake3

from lakevilla.branches.change import delete_ref, protect
from lakevilla.errors import ConflictError, LakeVillaError, TableNotFound, VersionNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import DataFile, data_files
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_all
from lakevilla.ids import uuid_of
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import made_elsewhere, mounted_view
from lakevilla.lake.frozen.mounts import mount_of, mounted_id
from lakevilla.lake.frozen.states import AtHead
from lakevilla.lake.operations.difference import difference
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.registration import register
from lakevilla.maintenance.backup.manifest import StateRef
from lakevilla.maintenance.backup.restored_states import RestoredStates
from lakevilla.results import Finding
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Create, Defined, Transplant
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.applying.apply import become, bound
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.bind import take_places
from lakevilla.transaction.verbs.create_table import copied_change
from lakevilla.transaction.verbs.read_write import execute, lookup

#: The most attempts while other clients write the tables.
_TRIES = 20


def restore_tables(context: Context, states: RestoredStates, owner: str) -> Program[list[Finding]]:
    """Give the tables their states in the backup, by one commit; return what is to be known.

    A table that has a log gets a new version, whatever its log has after the backup: no entry of it
    is deleted, and its older versions stay. A table without a log is created.
    """
    tables = states.tables()
    snapshots = {location: states.of(location, state) for location, state in tables.items()}
    for attempt in range(_TRIES):
        options = Options(Feature.R | Feature.I, owner=owner)
        txn = begin(TransactionState(context, context.new_txn_id(), options, through_head=True))
        try:
            head = yield from bound(txn)
            yield from load_all(head)
            for location, snapshot in sorted(snapshots.items()):
                yield from _restored(txn, states, location, snapshot)
            if not txn.work.done:
                yield from abort(txn)
            else:
                yield from commit(txn)
            return _not_in(head, states.manifest.tables)
        except ConflictError:
            yield from abort(txn)
            if attempt == _TRIES - 1:
                raise
        except LakeVillaError:
            yield from abort(txn)
            raise
    raise AssertionError("the last try returns or raises")


def settle_tables(context: Context, states: RestoredStates, nonce: str) -> Program[list[Finding]]:
    """Register the tables that have a log and are not in HEAD; settle which are to be made anew.

    Such a table gets a new id, the same one at each call with ``nonce``: the versions of its log
    begin again, and what names a version of the lost log must not find another state. A clone that
    shows tables which can't be read any more is ended: its tables are made anew.
    """
    held = yield from context.head()
    assert held is not None, "the restore has stored a HEAD"
    yield from load_all(held.head)
    findings = yield from _end_lost_clones(context, states, held.head)
    held = yield from context.head()
    assert held is not None, "the restore has stored a HEAD"
    head = held.head
    yield from load_all(head)
    logged: dict[str, str] = {}
    for location, saved in states.manifest.tables.items():
        if (yield from _is_unchanged(context, states, head, location, saved)):
            states.unchanged.add(location)
        state = head.tables.get(location)
        mount = yield from mount_of(head, location)
        new_id = uuid_of(blake3(f"{nonce} {location}".encode()).digest(length=16))
        if mount is not None:
            states.ids[location] = mounted_id(mount.entry.id, location)
        elif state is not None and not state.dropped:
            states.ids[location] = state.table_id
        elif (tail := (yield from open_tail(context, location, missing_ok=True))).tip >= 0:
            logged[location] = location
            states.ids[location] = tail.snapshot.table_id
        else:
            states.ids[location] = new_id
            states.anew.add(location)
        if states.ids[location] == new_id:
            states.remade.add(location)
    states.joined |= {*states.remade, *logged}
    if logged:
        yield from register(context, logged, {one: (one,) for one in logged})
    return findings


def _is_unchanged(
    context: Context, states: RestoredStates, head: Head, location: str, saved: StateRef
) -> Program[bool]:
    """Return whether a table that names files of others has them still, so that none is copied."""
    if states.manifest.root != context.root or not states.names_others(location, saved):
        return False
    try:
        view = (yield from AtHead(head).views(context, [location]))[location]
        if view is None:
            return False
        return (yield from difference(view.snapshot, states.as_it_was(location, saved))).is_empty
    except (VersionNotFound, TableNotFound):
        return False


def _end_lost_clones(
    context: Context, states: RestoredStates, head: Head
) -> Program[list[Finding]]:
    """End the clones that show a table of the backup whose state is in no log any more."""
    lost: dict[str, str] = {}
    for location in states.manifest.tables:
        mount = yield from mount_of(head, location)
        if mount is None or mount.name in lost:
            continue
        try:
            yield from mounted_view(context, mount, location)
        except VersionNotFound as error:
            lost[mount.name] = error.message
    findings = []
    for name, why in lost.items():
        entry = head.refs.get(name)
        if entry is not None and entry.protected:
            yield from protect(context, name, on=False)
        yield from delete_ref(context, name)
        message = f"clone {name!r} was ended, and its tables are ordinary ones: {why}"
        findings.append(Finding("warning", "ref_lost", message))
    return findings


def _restored(
    txn: TransactionState, states: RestoredStates, location: str, snapshot: TableSnapshot
) -> Program[None]:
    if location in states.anew:
        head = txn.head
        state = None if head is None else head.tables.get(location)
        if state is None or state.dropped:
            yield from _created(txn, location, snapshot)
            return
    yield from become(txn, location, snapshot, parameters={"to": "backup"})


def _created(txn: TransactionState, location: str, snapshot: TableSnapshot) -> Program[None]:
    """Make a table that has no log any more, or none at this root yet."""
    yield from take_places(txn, [location], "write", creating=True)
    yield from copied_change(txn, location, snapshot, is_filled=True)
    made = yield from made_elsewhere(
        snapshot, txn.context.root, location, snapshot.table_id, txn.context.now_ms()
    )
    change = msgspec.structs.replace(made, adds=())
    yield from execute(txn, Create(location, change, applied=True), "restore")
    files = tuple(_as_new(snapshot, file) for file in data_files((yield from snapshot.files())))
    if not files:
        return
    now = yield from lookup(txn, location)
    defined = Defined(dict(now.metadata), dict(now.protocol))
    operation = Transplant(
        location, (), files, defined, verb="RESTORE", parameters={"to": "backup"}
    )
    yield from store_files(txn, location)
    yield from execute(txn, operation, "restore")


def _as_new(snapshot: TableSnapshot, file: DataFile) -> DataFile:
    """Return a file as a new log adds it: the numbers of the old log's versions mean nothing."""
    version = file.default_row_commit_version if snapshot.format == "iceberg" else None
    return msgspec.structs.replace(
        file, raw_path=None, data_change=True, default_row_commit_version=version
    )


def _not_in(head: Head, tables: Mapping[str, object]) -> list[Finding]:
    """Report the tables that the lake has, and the backup has not: they stay as they are."""
    return [
        Finding(
            "note",
            "not_in_backup",
            f"table {location} is not in the backup, and stays as it is: drop it if it is to go",
            table=location,
        )
        for location, state in sorted(head.tables.items())
        if not state.dropped and location not in tables
    ]
