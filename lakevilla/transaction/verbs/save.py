"""Save a transaction, and resume it in another process (design, sections 5, 6 and 8).

A saved transaction commits through HEAD, and keeps its id when it is resumed. If two processes have
the same transaction, only one of them commits it: a client that replaces HEAD has read all commits
since the transaction began, and does not commit if its id is among them.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    LakeVillaError,
    StoreError,
    TransactionAborted,
    TransactionNotFound,
    VersionNotFound,
)
from lakevilla.global_log.head import PendingRef, TableState, find_commit
from lakevilla.global_log.repo import commits_until, load_tables
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.frozen.frozen import mounted_view
from lakevilla.lake.frozen.mounts import mounted_at
from lakevilla.lake.publishing.outcome import check_id, find_in_history, result_of
from lakevilla.lake.table_log import open_tail, probe, snapshot_at
from lakevilla.lake.view import Placement, View, is_another, pending_parts
from lakevilla.markers.claims import Queue
from lakevilla.phases import during
from lakevilla.results import Counts
from lakevilla.store.base import ANY, Found, Match, Stored, Token
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, delete, get, parallel, put
from lakevilla.sublogs.own_record import (
    HeldRecord,
    Renewal,
    change_record,
    create_record,
    delete_record,
)
from lakevilla.sublogs.record import (
    FORMAT_WITH_EPOCHS,
    SavedOperation,
    SavedTable,
    Sublog,
    TxnRecord,
    record_key,
    sublog_key,
)
from lakevilla.transaction.redo.rebase import rebase
from lakevilla.transaction.state.files import (
    found_in_log,
    make_promised,
    own_files,
    store_files,
)
from lakevilla.transaction.state.parts import Done, Options, Working, laid_over
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature, KeyUse, Saved
from lakevilla.transaction.validation.validate import examine
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.idempotency import enter_key

_states = msgspec.json.Decoder(TableState | None)


def save(txn: TransactionState) -> Program[None]:
    """Write the transaction's files, sublog and record to the store.

    Raises
    ------
    AlreadyCommitted
        Its commit was tried before and was stored, though the store's answer was lost.
    CommitOutcomeUnknown
        Its commit was tried as a log entry, which may yet be stored.
    TransactionAborted
        Another process has resumed it.
    StoreError
        It could not be saved, or never can be, as in a lake whose HEAD is a log; it can go on.
    """
    if (yield from txn.context.is_only_creating()):
        raise StoreError(
            f"transaction {txn.id} can't be saved: that takes a store that replaces an object "
            "under a condition, and this lake was made on one that only creates; it can still "
            "commit",
            txn_id=txn.id,
        )
    if txn.work.merging is not None:
        raise StoreError(
            f"transaction {txn.id} can't be saved: it merges branch {txn.work.merging.name!r}, and "
            "what is merged is noted by its own commit alone; it can still commit",
            txn_id=txn.id,
        )
    if not txn.through_head or txn.bound.held is None:
        yield from _settle_entry(txn)
        yield from _join_head(txn)
    yield from make_promised(txn, replaced=True)
    yield from store_files(txn)
    with during("marker"):
        yield from _store_sublog(txn)


def _store_sublog(txn: TransactionState) -> Program[None]:
    context = txn.context
    body = encode(sublog_of(txn))
    digest = blake3(body).hexdigest(length=16)
    stored = yield from put(sublog_key(txn.id, digest), body, ANY)
    if not isinstance(stored, Stored):
        raise StoreError(f"could not save transaction {txn.id}: try again", txn_id=txn.id)
    # Noted before the record is sent: a process can resume it even if the store's answer is lost.
    txn.ending.shared = True
    if txn.claims.record is None:
        yield from create_record(txn, sublog=digest)
    else:
        yield from change_record(txn, sublog=digest)
    earlier = () if txn.claims.saved is None else txn.claims.saved.sublogs
    txn.claims.saved = Saved(context.clock.elapsed(), len(txn.work.done), (*earlier, digest))


def unsave(txn: TransactionState) -> Program[None]:
    """Take back the saved state, before the transaction is run again under its id, or aborted.

    This replaces the record, as a process that resumes the transaction does, too: so either that
    process is refused from now on, or it was first, and this raises ``TransactionAborted``. After
    it, no other process has committed or can commit the files that this process has made.
    """
    if not txn.ending.shared:
        return
    if txn.claims.record is None:
        # The store's answer to the record's creation was lost: create it again, to be sure.
        yield from create_record(txn)
    else:
        yield from change_record(txn, sublog="", edges=())
    held = yield from txn.context.head()
    # It may have been saved, resumed and committed, and its record deleted: HEAD shows that.
    commits = None
    if held is not None:
        commits = yield from commits_until(held.head, txn.bound.began, txn.id)
    if commits is None or find_commit(commits, txn.id) is not None:
        raise txn.fail(
            TransactionAborted(
                f"transaction {txn.id} was resumed by another process and may have committed: "
                f"call `lake.outcome({txn.id!r})`",
                txn_id=txn.id,
            )
        )
    txn.ending.shared = False
    saved, txn.claims.saved = txn.claims.saved, None
    digests = () if saved is None else saved.sublogs
    yield from parallel([delete(sublog_key(txn.id, digest)) for digest in digests])


def _settle_entry(txn: TransactionState) -> Program[None]:
    """Make sure that no log entry of the transaction can be stored, before it commits through HEAD.

    An entry can't be fenced. So while the version that it was tried as is free, the transaction
    must not commit through HEAD: it could commit twice.
    """
    if txn.ending.entry_tried is None:
        return
    location = txn.work.done[0].table
    tail = yield from open_tail(txn.context, location)
    tail = yield from probe(txn.context, tail)
    version = yield from found_in_log(txn, tail)
    if version is not None:
        result = txn.note_committed({location: version}, None)
        txn.ending.answered = True
        raise AlreadyCommitted(
            f"transaction {txn.id} has committed as version {version} of table {location}: "
            "nothing is left to do",
            result=result,
            table=location,
            txn_id=txn.id,
        )
    tried = txn.ending.entry_tried
    if tried is not None:
        raise CommitOutcomeUnknown(
            f"transaction {txn.id} may still become version {tried.version} of table "
            f"{location}, because its commit was tried, so it can't be saved: commit it again",
            table=location,
            txn_id=txn.id,
        )


def _join_head(txn: TransactionState) -> Program[None]:
    """Change a transaction that was to commit by a log entry to one that commits through HEAD.

    It moves from the state of the log to the state at HEAD; a difference that touches what it has
    read or written is a conflict.
    """
    txn.through_head = True
    txn.bound.is_bound = False
    yield from bind_to_head(txn)
    assert txn.bound.held is not None
    tails = yield from parallel([open_tail(txn.context, location) for location in txn.work.tables])
    yield from parallel([probe(txn.context, tail) for tail in tails])
    examination = yield from examine(txn, txn.bound.held.head, exact=True, extending=True)
    if examination.conflict is not None:
        raise txn.fail(examination.conflict)
    yield from rebase(txn, txn.bound.held, examination)
    yield from store_files(txn)


def sublog_of(txn: TransactionState) -> Sublog:
    tables = {location: _saved_table(working) for location, working in txn.work.tables.items()}
    needed = [FORMAT, *(done.change.format for done in txn.work.done)]
    if any(table.epochs for table in tables.values()):
        needed.append(FORMAT_WITH_EPOCHS)
    return Sublog(
        max(needed),
        txn.context.ids.nonce(),
        txn.id,
        txn.options.features.value,
        txn.bound.started_ms,
        txn.bound.sequence,
        tables,
        tuple(
            SavedOperation(
                done.operation,
                done.change,
                (*done.counts.rows, done.counts.files_added, done.counts.files_removed),
                done.metrics,
                done.observed,
                done.deferred,
                done.fitted,
            )
            for done in txn.work.done
        ),
        tuple(txn.work.reads.values()),
        txn.options.metadata,
        txn.options.applications,
        tuple(txn.work.stored),
        None if txn.claims.key is None else (txn.claims.key.key, txn.claims.key.version),
        txn.options.isolation,
        txn.options.validation,
        txn.options.slack,
        txn.work.behind,
        txn.options.defer,
        tuple(txn.work.catalog),
        *((None, "", False) if txn.claims.key is None else txn.claims.key.batch),
        read_only=txn.options.read_only,
        names={name: one for name, one in txn.bound.meant.items() if one[0] in txn.work.tables},
    )


def _saved_table(working: Working) -> SavedTable:
    view = working.view
    overlay = view.placement.overlay
    return SavedTable(
        view.placement.logged,
        tuple((ref.sequence, ref.txn, ref.hash, ref.base) for ref in overlay),
        view.placement.hidden,
        view.probed,
        working.probed,
        msgspec.Raw(msgspec.json.encode(view.state)),
        working.snapshot.format,
        "" if view.mount is None else view.mount.entry.id,
        working.snapshot.catalog,
        tuple(ref.epoch for ref in overlay) if any(ref.epoch for ref in overlay) else (),
    )


def resume(context: Context, txn_id: str, owner: str) -> Program[TransactionState]:
    """Resume a saved transaction in this process, in the state of its last save.

    Raises
    ------
    AlreadyCommitted, TransactionAborted
        The transaction has ended.
    TransactionNotFound
        No transaction with that id was saved.
    ConflictError
        One of its tables was dropped, or created again.
    """
    check_id(txn_id)
    held = yield from context.head()
    if held is not None:
        try:
            summary = yield from find_in_history(held.head, txn_id)
        except VersionNotFound:
            return (yield from resume(context, txn_id, owner))  # gc was faster: read HEAD again
        if summary is not None:
            raise AlreadyCommitted(
                f"transaction {txn_id} has committed: nothing is left to do",
                result=(yield from result_of(context, held.head, summary, txn_id)),
                txn_id=txn_id,
            )
        if held.head.is_fenced(txn_id):
            raise TransactionAborted(
                f"transaction {txn_id} was aborted: run it again", txn_id=txn_id
            )
    key = record_key(txn_id)
    outcome = yield from get(key)
    if held is None or not isinstance(outcome, Found):
        raise TransactionNotFound(
            f"no transaction {txn_id} was saved in this lake: only saved ones can be resumed",
            txn_id=txn_id,
        )
    record = decode(key, outcome.body, TxnRecord)
    if not record.sublog:
        raise TransactionNotFound(
            f"transaction {txn_id} is under way and was never saved: "
            "only saved ones can be resumed",
            txn_id=txn_id,
        )
    sublog = yield from load_sublog(txn_id, record.sublog)
    held_record = yield from _taken_over(context, txn_id, record, outcome.token, owner)
    txn = revived(context, txn_id, owner, sublog)
    txn.bound.held = held
    txn.bound.began = record.began
    txn.claims.claim = held_record.record.claim
    txn.claims.record = held_record
    txn.claims.saved = Saved(context.clock.elapsed(), len(sublog.operations), (record.sublog,))
    if Feature.CT in txn.options.features:
        txn.claims.queue = Queue.resumed(record.tickets)
    key = sublog_key(txn_id, record.sublog)
    for location, saved in sublog.tables.items():
        txn.work.tables[location] = yield from working_of(txn, key, location, saved)
    for done in operations_of(sublog):
        txn.work.done.append(done)
        working = txn.work.tables[done.table]
        working.snapshot = laid_over(working.view, working.snapshot, done)
    if sublog.key is not None:
        # Another run with the same key may have committed meanwhile.
        txn.claims.key = KeyUse(*sublog.key, sublog.checkpoint, sublog.planned, sublog.gapless)
        yield from enter_key(txn, txn.claims.key)
    # Renew the record only from here on: after an error above nothing would ever stop the renewal.
    context.renewed(Renewal(txn))
    return txn


def _taken_over(
    context: Context, txn_id: str, record: TxnRecord, token: Token, owner: str
) -> Program[HeldRecord]:
    """Replace the record by one with a new claim, so that its old owner is refused from now on."""
    taken = msgspec.structs.replace(
        record,
        nonce=context.ids.nonce(),
        owner=owner,
        heartbeat=record.heartbeat + 1,
        lease_seconds=context.settings.lease_seconds,
        claim=context.ids.nonce(),
        edges=(),
    )
    stored = yield from put(record_key(txn_id), encode(taken), Match(token))
    if not isinstance(stored, Stored):
        raise CommitOutcomeUnknown(
            f"transaction {txn_id} was saved or resumed by another process just now: check its "
            "state before you resume it",
            txn_id=txn_id,
        )
    return HeldRecord(taken, stored.token, context.clock.elapsed())


def revived(context: Context, txn_id: str, owner: str, sublog: Sublog) -> TransactionState:
    """Return the transaction of a sublog, without its tables and operations."""
    options = Options(
        Feature(sublog.features),
        owner=owner,
        isolation=sublog.isolation,
        validation=sublog.validation,
        slack=sublog.slack,
        defer=sublog.defer,
        read_only=sublog.read_only,
        metadata=dict(sublog.metadata),
        applications=dict(sublog.applications),
    )
    txn = begin(TransactionState(context, txn_id, options, through_head=True))
    txn.bound.is_bound = True
    txn.bound.sequence = sublog.bound_sequence
    txn.bound.meant = dict(sublog.names)
    # It may have been stored for long: this makes the commit check its files (hazard 6).
    txn.bound.began_at = context.clock.elapsed() - context.settings.checked_tip_seconds
    txn.bound.started_ms = sublog.started_ms
    txn.work.behind = dict(sublog.behind)
    txn.work.stored = own_files(txn_id, sublog.stored)
    txn.work.reads = {(read.table, read.where): read for read in sublog.reads}
    txn.work.catalog = list(sublog.catalog)
    # The old owner may be at its commit point right now: so this process must not delete the files.
    txn.ending.tried = txn.ending.shared = True
    return txn


def operations_of(sublog: Sublog) -> list[Done]:
    return [
        Done(
            saved.operation,
            saved.change,
            Counts(*saved.counts),
            dict(saved.metrics),
            saved.observed,
            saved.deferred,
            saved.fitted,
        )
        for saved in sublog.operations
    ]


def load_sublog(txn_id: str, digest: str) -> Program[Sublog]:
    """Return the saved sublog that a record names. Raises ``CorruptObject`` if it is missing."""
    key = sublog_key(txn_id, digest)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"{key}, the sublog of transaction {txn_id}, is missing: it can't be resumed; "
            f"`lake.abort({txn_id!r})` ends it",
            key=key,
            txn_id=txn_id,
        )
    return decode(key, outcome.body, Sublog)


def working_of(
    txn: TransactionState, key: str, location: str, saved: SavedTable
) -> Program[Working]:
    """Return a table's state to which the transaction was bound, built again from its sublog."""
    context, txn_id = txn.context, txn.id
    epochs = saved.epochs or ("",) * len(saved.overlay)
    try:
        pairs = zip(saved.overlay, epochs, strict=True)
        refs = tuple(PendingRef(*ref, epoch) for ref, epoch in pairs)
        state = _states.decode(saved.state)
    except (ValueError, RecursionError) as error:
        raise CorruptObject(
            f"{key}, the sublog of transaction {txn_id}, has an unreadable state of table "
            f"{location} ({error}): `lake.abort({txn_id!r})` ends it",
            key=key,
            table=location,
            txn_id=txn_id,
        ) from None
    context.expected.setdefault(location, saved.format)
    if saved.catalog:
        context.catalogs.setdefault(location, saved.catalog)
    if saved.clone:
        assert txn.head is not None, "it was resumed on a HEAD"
        mount = yield from mounted_at(txn.head, location)
        if mount is None or mount.entry.id != saved.clone:
            raise _replaced(txn, location)
        view = yield from mounted_view(context, mount, location)
        return Working(view, view.snapshot, saved.probed_for_reading)
    tail = yield from open_tail(context, location, missing_ok=True)
    if tail.tip < saved.logged:
        tail = yield from probe(context, tail)
    try:
        base = yield from snapshot_at(context, tail, saved.logged)
    except VersionNotFound as error:
        if not (yield from _is_another(txn, location, state, tail, or_dropped=True)):
            raise
        raise _replaced(txn, location) from error
    if (yield from _is_another(txn, location, state, tail)):
        raise _replaced(txn, location)
    parts = yield from pending_parts(context, location, refs)
    snapshot = base
    for part in parts:
        snapshot = snapshot.apply(part.change)
    placement = Placement(saved.logged, refs, saved.hidden)
    view = View(location, state, placement, tuple(parts), base, snapshot, saved.probed)
    return Working(view, snapshot, saved.probed_for_reading)


def _is_another(
    txn: TransactionState,
    location: str,
    state: TableState | None,
    tail: Tail,
    *,
    or_dropped: bool = False,
) -> Program[bool]:
    """Return whether HEAD, or the log, has another table now in place of the saved one.

    ``or_dropped``: also true for a table that was dropped meanwhile, since its log was deleted.
    """
    if state is None or state.dropped:
        return False
    assert txn.head is not None
    yield from load_tables(txn.head, [location])
    now = txn.head.tables.get(location)
    if now is None or now.dropped:
        return or_dropped
    return now.table_id != state.table_id or (yield from is_another(txn.context, state, tail))


def _replaced(txn: TransactionState, location: str) -> LakeVillaError:
    return txn.fail(
        ConflictError(
            f"transaction {txn.id} was saved on table {location}, which was dropped or created "
            f"again since, so it can't commit: run it again; `lake.abort({txn.id!r})` ends it",
            table=location,
            txn_id=txn.id,
        )
    )


def forget(txn: TransactionState) -> Program[None]:
    """Delete the record, sublogs and markers of a transaction that has ended, or is being aborted.

    Without the record no process can resume it, and its markers do not count: so all are deleted in
    one round. If it was saved, the record is deleted first: if another process has resumed it, that
    delete fails, and the rest belongs to that process.
    """
    claims = txn.claims
    if (
        claims.saved is None
        and claims.queue is None
        and claims.record is None
        and not txn.ending.shared
    ):
        return
    with during("free"):
        yield from _forget(txn)


def _forget(txn: TransactionState) -> Program[None]:
    saved, txn.claims.saved = txn.claims.saved, None
    queue, txn.claims.queue = txn.claims.queue, None
    rest = [] if queue is None else queue.give_back(txn.id, committed=txn.has_committed)
    if saved is not None:
        rest += [delete(sublog_key(txn.id, digest)) for digest in saved.sublogs]
    if not txn.ending.shared:
        yield from parallel(
            [*rest, *([delete_record(txn)] if txn.claims.record is not None else [])]
        )
    elif (yield from delete_record(txn)):
        yield from parallel(rest)
