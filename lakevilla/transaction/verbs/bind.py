"""What a transaction is bound to: HEAD at its first use, and each table as it takes it in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.global_log.head import HEAD_KEY, Head, application_id
from lakevilla.global_log.repo import HeldHead, check_lake, load_tables
from lakevilla.ids import is_by_entry
from lakevilla.lake.past import view_at
from lakevilla.lake.table_log import known_tail, open_tail, probe
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import View, build_view
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.record import Access
from lakevilla.transaction.queue.places import enter, leave
from lakevilla.transaction.state.record import no_queues
from lakevilla.transaction.state.transaction import Transaction, Working
from lakevilla.transaction.validation.validate import extend
from lakevilla.transaction.verbs.idempotency import enter_key
from lakevilla.transaction.verbs.replaced_tables import made_anew, replaced


def bind_to_head(
    txn: Transaction, locations: Sequence[str] = (), *, probing: bool = False
) -> Program[None]:
    """Bind to HEAD at the first use; warm tables are probed in the same round."""
    if txn.bound:
        return
    warm = [] if not probing else [_warm(txn, location) for location in locations]
    probes: list[Program[object]] = [probe(txn.context, tail) for tail in warm if tail is not None]
    if txn.through_head:
        results = yield from parallel([txn.context.head(), *probes])
        held = results[0]
        assert held is None or isinstance(held, HeldHead)
        if held is None and not txn.read_only:
            held = yield from txn.context.make_head()
        txn.held = held
        if held is not None:
            if not txn.read_only:
                txn.context.refuse_foreign_root()
            if txn.queues and held.head.as_log:
                raise txn.fail(no_queues(txn.id))
            txn.bound_sequence = txn.began = held.head.sequence
            if txn.id <= held.head.floor and not txn.done and not txn.told:
                # This machine's clock is behind: an id below the floor
                # could never commit, so take one above it.
                yield from leave(txn)
                by_entry = is_by_entry(txn.id)
                txn.id = txn.context.ids.txn_id(above=held.head.floor, by_entry=by_entry)
        if txn.key is not None and held is not None:
            yield from enter_key(txn, txn.key)
    else:
        yield from parallel(probes)
    for tail in warm:
        if tail is not None:
            txn.fresh.add(tail.location)
    txn.bound = True
    txn.started_ms = txn.started_ms or txn.context.now_ms()
    txn.began_at = txn.began_at or txn.context.clock.elapsed()


def _warm(txn: Transaction, location: str) -> Tail | None:
    tail = known_tail(txn.context, location)
    if tail is None or tail.tip < 0 or tail.snapshot.guarded:
        return None
    return tail


def touch(
    txn: Transaction, locations: Iterable[str], *, probing: bool, access: Access | None = None
) -> Program[None]:
    """Make the tables part of the transaction, at the state it is bound to.

    ``probing``: the rows matter, so foreign commits are looked for, once a
    table. A blind append needs none: the commit probes. ``access``: what is to
    be done there; with Feature.CT it takes a place in the queue first.
    """
    wanted = list(dict.fromkeys(locations))
    if access is not None:
        yield from take_places(txn, wanted, access)
    was_bound = txn.bound
    yield from bind_to_head(txn, wanted, probing=probing)
    missing = [
        location
        for location in wanted
        if location not in txn.tables or (probing and not txn.tables[location].probed)
    ]
    if was_bound and txn.reads_newest and not txn.tables.keys() >= set(wanted):
        # Not bound to one state of the lake: each table as it is when first used.
        txn.held = yield from txn.context.head()
    elif was_bound and txn.placed_since:
        # Whoever went before is in the newest HEAD, or is waited for: on an older
        # one the work that is done now would have to be done again.
        txn.placed_since = False
        held = yield from txn.context.head()
        if held is not txn.held:
            yield from extend(txn)
    yield from parallel([_open_table(txn, location, probing) for location in missing])
    if access is not None and txn.queues:
        yield from enter(txn, dict.fromkeys(wanted, access))


def take_places(
    txn: Transaction, locations: Iterable[str], access: Access, *, creating: bool = False
) -> Program[None]:
    """Take places in the queues of tables that are there, before their state is read."""
    if not txn.queues:
        return
    wanted = list(locations)
    if not creating:
        tails = yield from parallel(
            [open_tail(txn.context, where, missing_ok=True) for where in wanted]
        )
        # Where there is no log a name may be misspelt: nothing is left behind there.
        wanted = [tail.location for tail in tails if tail.tip >= 0]
    places = 0 if txn.queue is None else len(txn.queue.places)
    yield from enter(txn, dict.fromkeys(wanted, access))
    if txn.queue is not None and len(txn.queue.places) > places:
        # What is appended does not mind who went before.
        txn.placed_since |= txn.bound and access != "append" and not txn.reads_newest


def _open_table(txn: Transaction, location: str, probing: bool) -> Program[None]:
    """Take a table in at the bound state, which may move on to a newer HEAD meanwhile.

    Several tables are opened at once, and any of them may make the
    transaction move. A view counts only if it was built on the HEAD that
    the transaction is bound to when it is taken in; else it is built anew.
    """
    if txn.past is not None:
        view = yield from view_at(txn.context, txn.past, location)
        txn.tables[location] = Working(view, view.snapshot, probed=True)
        return
    behind = (
        txn.head is not None and txn.bound_sequence != txn.head.sequence and not txn.reads_newest
    )
    # Resumed: its tables are those of an older HEAD, which is gone. A further
    # one can be shown beside them only on a HEAD that they fit.
    if behind and not (yield from extend(txn)):
        raise txn.fail(
            ConflictError(
                f"transaction {txn.id} was resumed and what it has read was changed "
                f"meanwhile, so table {location} can't be read beside it: run it again",
                table=location,
                txn_id=txn.id,
            )
        )
    while True:
        held = txn.held
        try:
            view, probed = yield from _view(txn, location, probing)
        except (TableNotFound, VersionNotFound, CorruptObject, StoreError) as error:
            gone = yield from replaced(txn, [location])
            if gone or isinstance(error, VersionNotFound):
                # The log is another table's by now, or clean-up has taken what the
                # bound state needs: a newer HEAD means what is there, or needs less.
                moved = yield from extend(txn)
                if not moved and txn.reads_newest:
                    txn.held = txn.context.held
                if txn.held is not held:
                    continue
            if gone:
                raise made_anew(txn, location) from error
            raise
        if view.placement.stale:
            # The log has a commit of the lake that the bound HEAD does not know.
            if (yield from extend(txn)):
                _check_newer(txn, held, location)
                continue
            if txn.reads_newest and txn.held is not txn.context.held:
                txn.held = txn.context.held
                continue
            if view.state is None:
                raise txn.fail(_entered(txn, location))
        if txn.held is held:
            break
    snapshot = view.snapshot
    known = txn.tables.get(location)
    if known is not None and any(done.table == location for done in txn.done):
        before = known.view.snapshot
        if snapshot.metadata != before.metadata or snapshot.protocol != before.protocol:
            # Rows were only appended so far, and the probe that a read asks
            # for has found new metadata: they were made for the old.
            raise txn.fail(
                ConflictError(
                    f"the schema or properties of table {location} were changed by another "
                    f"client after transaction {txn.id} wrote to it: run it again",
                    table=location,
                    txn_id=txn.id,
                )
            )
    for done in txn.done:
        if done.table == location:
            snapshot = snapshot.apply(done.change)
    probed = probed or (known is not None and known.probed)
    txn.tables[location] = Working(view, snapshot, probed)


def _check_newer(txn: Transaction, held: HeldHead | None, location: str) -> None:
    """Refuse a HEAD that was set back: a log never shows what no HEAD has decided."""
    if (
        held is not None
        and txn.held is not None
        and txn.held.head.replacement <= held.head.replacement
    ):
        raise CorruptObject(
            f"{HEAD_KEY} (global version {held.head.sequence}) is older than the log of table "
            f"{location}, which holds a later commit of this lake: HEAD was set back, as by "
            "restoring it from a copy; bring back the newest one",
            key=HEAD_KEY,
            table=location,
            txn_id=txn.id,
        )


def _view(txn: Transaction, location: str, probing: bool) -> Program[tuple[View, bool]]:
    """The table's state at the bound HEAD, and whether foreign commits were looked for."""
    head = txn.head
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if txn.through_head and state is None:
        try:
            yield from check_lake(location, head, txn.context.root)
        except (InvalidOperation, CorruptObject):
            if head is not None or (yield from txn.context.head()) is None:
                raise
            # The lake came into being since this transaction looked for it;
            # run again, it will be told whose table this is.
            raise txn.fail(_entered(txn, location)) from None
    was_known = known_tail(txn.context, location) is not None
    tail = yield from open_tail(txn.context, location, missing_ok=state is not None)
    # A tail that was listed just now is as good as probed.
    fresh = not was_known or location in txn.fresh
    guarded = tail.tip >= 0 and tail.snapshot.guarded
    behind = state is not None and (
        tail.tip < state.published
        or (bool(state.pending) and not _covers(head, tail, state.pending[-1].sequence))
    )
    # A list that shows less than HEAD knows was stale: then numbers tell more.
    stale = state is not None and tail.tip < state.published
    if stale or (not fresh and (behind or (probing and not guarded))):
        tail = yield from probe(txn.context, tail)
        fresh = True
    if guarded and not txn.through_head:
        # On a guarded table every commit goes through HEAD (section 8).
        yield from join_head(txn)
    if txn.through_head and txn.held is None:
        # Read-only, and the lake had no HEAD. Looked for after the log was
        # read: while there is none, no log can show a state of the lake.
        moved = yield from extend(txn)
        if not moved and txn.context.held is not None:
            raise txn.fail(_entered(txn, location))
    view = yield from build_view(txn.context, txn.head, location, tail)
    return view, fresh or guarded


def join_head(txn: Transaction) -> Program[None]:
    txn.through_head = True
    txn.bound = False
    yield from bind_to_head(txn)


def _entered(txn: Transaction, location: str) -> ConflictError:
    return ConflictError(
        f"table {location} entered the lake after transaction {txn.id} began: "
        "run the transaction again",
        table=location,
        txn_id=txn.id,
    )


def _covers(head: Head | None, tail: Tail, sequence: int) -> bool:
    """Whether the known log has published the commit of that sequence."""
    if head is None or tail.tip < 0:
        return False
    version = tail.snapshot.application_version(application_id(head))
    return version is not None and version >= sequence
