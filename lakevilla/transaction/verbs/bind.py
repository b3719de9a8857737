"""Bind a transaction to HEAD at its first use, and open each table when it is first used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.global_log.head import NOWHERE, Head, application_id
from lakevilla.global_log.history import went_back
from lakevilla.global_log.repo import (
    HeldHead,
    check_lake,
    check_not_closed,
    load_names,
    load_tables,
)
from lakevilla.ids import is_by_entry
from lakevilla.lake.context import Tail
from lakevilla.lake.frozen.frozen import frozen_view, mounted_view, not_kept_now
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.frozen.states import then_view
from lakevilla.lake.own_versions import own_view
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import known_tail, open_tail, probe
from lakevilla.lake.view import View, build_view
from lakevilla.markers.places import leave
from lakevilla.phases import during
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.own_record import no_queues
from lakevilla.sublogs.record import Access
from lakevilla.transaction.queue.places import enter, missing_places
from lakevilla.transaction.state.parts import Working, laid_over
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState, entered
from lakevilla.transaction.validation.checks import ask_now_and_then, refuse_dropped
from lakevilla.transaction.validation.validate import catch_up, extend
from lakevilla.transaction.verbs.idempotency import enter_key
from lakevilla.transaction.verbs.replaced_tables import (
    conflict_of_replaced,
    refuse_new_lake,
    replaced,
)

#: A transaction with fewer operations does not read HEAD to avoid a redo at the commit.
_FEW_OPERATIONS = 2


def bind_to_head(
    txn: TransactionState,
    locations: Sequence[str] = (),
    *,
    probing: bool = False,
    places: Mapping[str, Access] | None = None,
    makes: bool = True,
) -> Program[bool]:
    """Bind to HEAD at the first use; probe cached logs, and take places, in the same round.

    False if the queues have other tickets: then HEAD was read before these places were held.
    ``makes``: create HEAD if no lake exists; else the transaction stays unbound in this case.
    """
    if txn.bound.is_bound:
        return True
    with during("version"):
        return (yield from _bind(txn, locations, probing=probing, places=places or {}, makes=makes))


def _bind(
    txn: TransactionState,
    locations: Sequence[str],
    *,
    probing: bool,
    places: Mapping[str, Access],
    makes: bool,
) -> Program[bool]:
    warm = _warm(txn, locations) if probing else []
    beside: list[Program[object]] = [probe(txn.context, tail) for tail in warm]
    beside += [enter(txn, places)] if places else []
    met_nobody: object = True
    if txn.through_head:
        found = yield from parallel([txn.context.head(), *beside])
        held, met_nobody = found[0], not places or found[-1]
        assert held is None or isinstance(held, HeldHead)
        if held is None and not txn.options.read_only:
            if not makes:
                txn.bound.saw_no_lake = True
                return True
            held = yield from txn.context.make_head()
        yield from _take_head(txn, held)
        if txn.claims.key is not None and held is not None:
            yield from enter_key(txn, txn.claims.key)
    else:
        # A transaction that only appends reads HEAD in the same round as it stores its files.
        beside += [ask_now_and_then(txn)] if probing else []
        yield from parallel(beside)
    txn.bound.fresh.update(tail.location for tail in warm)
    _note_bound(txn)
    yield from _refuse_renamed(txn)
    return bool(met_nobody)


def _take_head(txn: TransactionState, held: HeldHead | None) -> Program[None]:
    txn.bound.held = held
    if held is None:
        return
    check_not_closed(held.head)
    refuse_new_lake(txn, held.head)
    if not txn.options.read_only:
        txn.context.refuse_foreign_root()
    if txn.queues and held.head.as_log:
        raise txn.fail(no_queues(txn.id))
    txn.bound.sequence = txn.bound.began = held.head.sequence
    if txn.id <= held.head.floor and not txn.work.done and not txn.ending.id_was_seen:
        # This machine's clock is slow: an id below the floor can never commit, so take an id above
        # it.
        yield from leave(txn)
        by_entry = is_by_entry(txn.id)
        txn.id = txn.context.new_txn_id(above=held.head.floor, by_entry=by_entry)
        if txn.phases is not None:
            txn.phases.txn_id = txn.id


def _note_bound(txn: TransactionState) -> None:
    txn.bound.is_bound = True
    txn.bound.started_ms = txn.bound.started_ms or txn.context.now_ms()
    txn.bound.began_at = txn.bound.began_at or txn.context.clock.elapsed()


def bind_to_stored(txn: TransactionState, held: HeldHead) -> Program[None]:
    """Bind a new transaction, without a request, to a HEAD that this process has stored.

    It does not search the known logs for foreign commits either: its commit does both again. If
    HEAD or a log has moved, its operations are performed twice (note 71).
    """
    yield from _take_head(txn, held)
    txn.bound.fresh.update(txn.context.tails)
    _note_bound(txn)


def bind_to_known(txn: TransactionState, held: HeldHead) -> Program[None]:
    """Bind a new transaction to a HEAD that its caller has just read.

    Only those logs are searched for new entries that the HEAD shows to be longer than is known: the
    commit searches all of them.
    """
    yield from _take_head(txn, held)
    if txn.claims.key is not None:
        yield from enter_key(txn, txn.claims.key)
    _note_bound(txn)


def _refuse_renamed(txn: TransactionState) -> Program[None]:
    """Refuse paths that led to tables in an older HEAD, if those tables were renamed since."""
    paths = sorted(txn.bound.paths)
    txn.bound.paths.clear()
    if txn.head is None or not paths:
        return
    yield from load_names(txn.head, paths)
    for location in paths:
        if txn.head.names.get(location) == NOWHERE:
            raise TableNotFound(f"table {location} does not exist: it was renamed", table=location)


def _warm(txn: TransactionState, locations: Iterable[str]) -> list[Tail]:
    """Return the cached logs of the tables that may have foreign commits: those without a guard."""
    known = (known_tail(txn.context, location) for location in locations)
    return [
        tail for tail in known if tail is not None and tail.tip >= 0 and not tail.snapshot.guarded
    ]


def touch(
    txn: TransactionState, locations: Iterable[str], *, probing: bool, access: Access | None = None
) -> Program[None]:
    """Make the tables part of the transaction, at the state to which it is bound.

    ``probing``: the transaction relies on the rows, so search each log for foreign commits, once. A
    blind append needs no such search, since the commit probes. ``access``: the planned access to
    the tables, for which a transaction with Feature.CT first takes a place in the queue.
    """
    wanted = list(dict.fromkeys(locations))
    if access is not None:
        yield from take_places(txn, wanted, access, probing=probing)
    yield from _confirm(txn)
    was_bound = txn.bound.is_bound
    yield from bind_to_head(txn, wanted, probing=probing)
    known = txn.work.tables
    missing = [x for x in wanted if x not in known or (probing and not known[x].probed)]
    relies_on_rows = probing or access in ("read", "write")
    if was_bound and txn.reads_newest and relies_on_rows and set(missing) - txn.bound.current:
        # The transaction is not bound to one state of the lake: it reads each table as it is when
        # the transaction first relies on its rows.
        warm = _warm(txn, missing) if probing else []
        with during("version"):
            held, *_ = yield from parallel(
                [txn.context.head(), *(probe(txn.context, tail) for tail in warm)]
            )
        assert isinstance(held, HeldHead | None)
        txn.bound.held = held
        txn.bound.fresh.update(tail.location for tail in warm)
    yield from parallel([_open_table(txn, location, probing) for location in missing])
    if access is not None and txn.queues:
        yield from enter(txn, dict.fromkeys(wanted, access))


def raise_if_outdated(
    txn: TransactionState, location: str, refusal: LakeVillaError
) -> Program[None]:
    """Raise a conflict if a verb was refused by rules that another client has changed since.

    A verb that relies on no rows uses the state of its table that this process has read last, whose
    rules (schema, properties) may be old. They are read again only after a verb was refused.
    """
    working = txn.work.tables.get(location)
    if txn.state is not Status.OPEN or txn.bound.is_past or working is None or working.probed:
        return
    before = working.view.snapshot.rules
    try:
        yield from touch(txn, [location], probing=True)
    except ConflictError:
        raise
    except LakeVillaError:
        return  # the caller raises the refusal, not the error of this check
    if txn.work.tables[location].view.snapshot.rules != before:
        raise txn.fail(
            ConflictError(
                f"the schema or properties of table {location} were changed by another client, "
                f"and transaction {txn.id} was refused by those of before: run it again",
                table=location,
                txn_id=txn.id,
            )
        ) from refusal


def touch_each(
    txn: TransactionState, locations: Iterable[str]
) -> Program[list[LakeVillaError | None]]:
    """Make the tables part of the transaction, in parallel; return each table's error or None.

    An error of the store is raised, because it is no error of one table.
    """
    yield from bind_to_head(txn)
    return (yield from parallel([_opened(txn, location) for location in locations]))


def _opened(txn: TransactionState, location: str) -> Program[LakeVillaError | None]:
    known = txn.work.tables.get(location)
    if known is not None and known.probed:
        return None
    try:
        yield from _open_table(txn, location, probing=True)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error
    return None


def take_places(
    txn: TransactionState,
    locations: Iterable[str],
    access: Access,
    *,
    creating: bool = False,
    probing: bool = False,
) -> Program[None]:
    """Take places in the queues of existing tables, and move to a HEAD as new as the places.

    HEAD, and with ``probing`` the logs, are read in the round in which the places are taken. If
    another client commits between the two, the transaction finds that at its commit, as without
    queues. An append relies on no state, so it takes its place at the commit, if any transaction is
    ahead. The places of reads are taken with the first write (note 25).
    """
    wanted = list(locations)
    if not missing_places(txn, dict.fromkeys(wanted, access)):
        return
    if not creating:
        with during("metadata"):
            tails = yield from parallel(
                [open_tail(txn.context, location, missing_ok=True) for location in wanted]
            )
        # A location without a log may be a misspelt name: store no marker there.
        wanted = [tail.location for tail in tails if tail.tip >= 0]
    places = missing_places(txn, dict.fromkeys(wanted, access))
    if not places:
        return
    txn.bound.current.update(places)
    txn.bound.unconfirmed_at = len(txn.work.done)
    if not txn.bound.is_bound:
        if (yield from bind_to_head(txn, wanted, probing=probing, places=places)):
            return
    elif not (yield from _enter_further(txn, places, probing=probing)):
        return
    txn.bound.unconfirmed_at = None
    # The newest HEAD has the transactions that went first and have committed; this one waits for
    # the rest. Work that is done now on an older HEAD would have to be redone.
    with during("version"):
        held = yield from txn.context.head()
    if txn.reads_newest:
        txn.bound.held = held
    elif held is not txn.bound.held:
        yield from extend(txn)


def _confirm(txn: TransactionState) -> Program[None]:
    """Check once, in a long transaction, that no client committed just before a place was taken.

    The place was taken, and HEAD read, in the same round, in any order. A transaction of one or two
    operations finds such a commit at its own commit, which costs no further request. A longer one
    would have to redo all its work then, so it reads HEAD once more (note 25).
    """
    since, done = txn.bound.unconfirmed_at, len(txn.work.done)
    if since is None or done == since or done < _FEW_OPERATIONS or not txn.work.tables:
        return
    txn.bound.unconfirmed_at = None
    with during("version"):
        held = yield from txn.context.head()
    if held is not txn.bound.held:
        yield from catch_up(txn, midway=True)


def _enter_further(
    txn: TransactionState, places: Mapping[str, Access], *, probing: bool
) -> Program[bool]:
    """Take further places, and read HEAD in the same round; return whether to move to that HEAD."""
    # A table that the transaction has read before was probed then, without taking a place.
    unseen = [place for place in places if place not in txn.bound.fresh]
    warm = _warm(txn, unseen) if probing else []
    probes: list[Program[object]] = [probe(txn.context, tail) for tail in warm]
    with during("version"):
        held, met_nobody, *_ = yield from parallel(
            [txn.context.head(), enter(txn, places), *probes]
        )
    txn.bound.fresh.update(tail.location for tail in warm)
    if met_nobody and txn.reads_newest:
        assert isinstance(held, HeldHead | None)
        txn.bound.held = held
        return False
    return not met_nobody or held is not txn.bound.held


def _open_table(txn: TransactionState, location: str, probing: bool) -> Program[None]:
    """Make a table part of the transaction, at the state to which the transaction is bound.

    Several tables are opened in parallel, and the opening of each may move the transaction to a
    newer HEAD. So a view that was built on an older HEAD than the one to which the transaction is
    bound at the end is built again.
    """
    with during("metadata", location):
        yield from _take_in(txn, location, probing)


def _take_in(txn: TransactionState, location: str, probing: bool) -> Program[None]:
    if txn.bound.is_past:
        view = yield from _past_view(txn, location)
        txn.work.tables[location] = Working(view, view.snapshot, probed=True)
        return
    behind = (
        txn.head is not None and txn.bound.sequence != txn.head.sequence and not txn.reads_newest
    )
    # The transaction was resumed: its tables are bound to an older HEAD, which was replaced. It can
    # read a further table only at the newest HEAD, and only if its tables are unchanged there.
    if behind and not (yield from extend(txn)):
        raise txn.fail(
            ConflictError(
                f"transaction {txn.id} was resumed and what it has read was changed meanwhile, so "
                f"table {location} can't be read in the state that it has read: run it again",
                table=location,
                txn_id=txn.id,
            )
        )
    view, probed = yield from _bound_view(txn, location, probing)
    snapshot = view.snapshot
    known = txn.work.tables.get(location)
    if known is not None and any(done.table == location for done in txn.work.done):
        before = known.view.snapshot
        if snapshot.metadata != before.metadata or snapshot.protocol != before.protocol:
            # The transaction has only appended rows so far, in files made for the old metadata; the
            # probe for a read has found new metadata.
            raise txn.fail(
                ConflictError(
                    f"the schema or properties of table {location} were changed by another "
                    f"client after transaction {txn.id} wrote to it: run it again",
                    table=location,
                    txn_id=txn.id,
                )
            )
    for done in txn.work.done:
        if done.table == location:
            snapshot = laid_over(view, snapshot, done)
    probed = probed or (known is not None and known.probed)
    txn.work.tables[location] = Working(view, snapshot, probed)


def _past_view(txn: TransactionState, location: str) -> Program[View]:
    if txn.bound.past is not None:
        return (yield from then_view(txn.context, txn.bound.past, location))
    own, frozen, until = txn.bound.own, txn.bound.frozen, None
    if frozen is not None:
        try:
            until = yield from frozen_view(txn.context, frozen.base, location)
        except VersionNotFound as error:
            raise (yield from not_kept_now(txn.context, frozen, error)) from error
        if own is None:
            return until
    assert own is not None
    return (yield from own_view(txn.context, txn.head, location, own, until))


def _bound_view(txn: TransactionState, location: str, probing: bool) -> Program[tuple[View, bool]]:
    """Return the table's view at the bound HEAD, built again after a move to a newer HEAD."""
    while True:
        held = txn.bound.held
        try:
            view, probed = yield from _view(txn, location, probing)
        except (TableNotFound, VersionNotFound, CorruptObject, StoreError) as error:
            others = yield from replaced(txn, [location])
            if others or isinstance(error, VersionNotFound):
                # The log belongs to another table by now, or clean-up has deleted objects of the
                # bound state: a newer HEAD has the present table, or needs fewer objects.
                if isinstance(error, VersionNotFound):
                    yield from _publish_pending(txn, location)
                moved = yield from extend(txn)
                if not moved and txn.reads_newest:
                    txn.bound.held = txn.context.held
                if txn.bound.held is not held:
                    continue
            if others:
                raise conflict_of_replaced(txn, location) from error
            raise
        if view.placement.stale:
            # The log has a commit of the lake that the bound HEAD does not know.
            if (yield from extend(txn)):
                _check_newer(txn, held, location)
                continue
            if txn.reads_newest and txn.bound.held is not txn.context.held:
                txn.bound.held = txn.context.held
                continue
            if view.state is None:
                raise txn.fail(entered(txn, location))
        if txn.bound.held is held:
            return view, probed


def _publish_pending(txn: TransactionState, location: str) -> Program[None]:
    """Publish a table's pending commits, as any writer to it does, so that the log has them."""
    if txn.options.read_only or not txn.through_head or txn.head is None or txn.context.epoch:
        return
    if txn.head.tables.missing([location]):
        return  # its leaf was deleted: this HEAD was replaced long ago
    state = txn.head.tables.get(location)
    if state is not None and state.pending:
        yield from publish_table(txn.context, txn.head, location)


def _check_newer(txn: TransactionState, held: HeldHead | None, location: str) -> None:
    """Refuse a HEAD that was set back: the log has a commit that only a later HEAD decided."""
    if (
        held is not None
        and txn.bound.held is not None
        and txn.bound.held.head.replacement <= held.head.replacement
    ):
        evidence = f"the log of table {location} holds a later commit of this lake"
        error = went_back(held.head, evidence, table=location)
        error.txn_id = txn.id
        raise error


def _view(txn: TransactionState, location: str, probing: bool) -> Program[tuple[View, bool]]:
    """Return the table's state at the bound HEAD, and whether foreign commits were searched for."""
    yield from refuse_dropped(txn, location)
    head = txn.head
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if state is None:
        mount = yield from mount_of(head, location)
        if mount is not None:
            return (yield from mounted_view(txn.context, mount, location)), True
    revives = txn.revives(location)
    # A dropped table may have been unregistered, and belong to another lake by now.
    enters = state is None or (revives and state.dropped)
    if txn.through_head and enters and not txn.context.epoch:
        try:
            yield from check_lake(location, head, txn.context.root)
        except (InvalidOperation, CorruptObject):
            if head is not None or (yield from txn.context.head()) is None:
                raise
            # The lake was created after this transaction found none; a rerun finds out to which
            # lake the table belongs.
            raise txn.fail(entered(txn, location)) from None
    was_known = known_tail(txn.context, location) is not None
    try:
        tail = yield from open_tail(txn.context, location, missing_ok=state is not None)
    except TableNotFound:
        if txn.through_head:
            raise
        # A clone may show the table, as only HEAD knows; if none does, that call raises the error.
        yield from join_head(txn)
        return (yield from _view(txn, location, probing))
    # A log that was listed just now needs no probe.
    fresh = not was_known or location in txn.bound.fresh
    guarded = tail.tip >= 0 and tail.snapshot.guarded
    behind = state is not None and (
        tail.tip < state.published
        or (bool(state.pending) and not _covers(head, tail, state.pending[-1].sequence))
    )
    # A list that ends below the version that HEAD names was stale: a probe by numbers finds more.
    stale = state is not None and tail.tip < state.published
    if stale or (not fresh and (behind or (probing and not guarded))):
        tail = yield from probe(txn.context, tail)
        fresh = True
    if guarded and not txn.through_head:
        # On a guarded table every commit goes through HEAD (design, section 8).
        yield from join_head(txn)
    if txn.through_head and txn.bound.held is None:
        # The transaction only reads, and the lake had no HEAD. HEAD is read again after the log: if
        # there is still none, the log has no commit of a lake.
        moved = yield from extend(txn)
        if not moved and txn.context.held is not None:
            raise txn.fail(entered(txn, location))
    view = yield from build_view(txn.context, txn.head, location, tail, revives=revives)
    return view, fresh or guarded


def join_head(txn: TransactionState) -> Program[None]:
    txn.through_head = True
    txn.bound.is_bound = False
    yield from bind_to_head(txn)


def _covers(head: Head | None, tail: Tail, sequence: int) -> bool:
    """Return whether the cached log has the lake's commit with this sequence."""
    if head is None or tail.tip < 0:
        return False
    version = tail.snapshot.application_version(application_id(head))
    return version is not None and version >= sequence
