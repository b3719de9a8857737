"""Planted bugs of the queues. Most of them only cost order and time: named tests find these."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lakevilla.deadlock import give_way, graph
from lakevilla.deadlock import wait as waiting
from lakevilla.maintenance import recovery, stale_places
from lakevilla.markers import ahead, places, reservation, stale
from lakevilla.markers.claims import HeldTicket
from lakevilla.markers.queue import State
from lakevilla.markers.repo import place_first
from lakevilla.settings import Settings
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs import own_record
from lakevilla.sublogs.record import Edge, TxnRecord
from lakevilla.transaction.queue import places as own_places
from lakevilla.transaction.queue import wait as turns
from lakevilla.transaction.state import late_reads
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import abort as rerun
from lakevilla.transaction.verbs import bind, save
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted

_CT = (Feature.R | Feature.CT, Feature.R | Feature.CT | Feature.I)
_IMPATIENT = Settings(lease_seconds=5.0, escalate_after=1)


# ---------------------------------------------------------------- deadlocks


@planted(for_histories=False)
def both_give_way() -> Iterator[None]:
    """Every member that sees a cycle shifts, and not only its youngest."""

    def gives_way(me: str, edges: Collection[Edge]) -> frozenset[Edge]:
        newest = "~" + me  # all other transactions are older than this one
        renamed = [
            Edge(
                newest if e.waiter == me else e.waiter,
                e.waiter_ticket,
                newest if e.holder == me else e.holder,
                e.holder_ticket,
                e.table,
            )
            for e in edges
        ]
        into = original(newest, renamed)
        return frozenset(e for e, other in zip(edges, renamed, strict=True) if other in into)

    original = graph.gives_way
    with instead(original, gives_way):
        yield


@planted(for_histories=False)
def edges_without_tickets() -> Iterator[None]:
    """A wait is recorded by two ids, and so outlives the tickets for which it was recorded."""

    def live_edges(
        records: Mapping[str, TxnRecord], reserved: Collection[tuple[str, str]]
    ) -> frozenset[Edge]:
        return frozenset(e for r in records.values() for e in r.edges if e.holder in records)

    with instead(graph.live_edges, live_edges):
        yield


@planted(for_histories=False)
def edges_written_after_reading() -> Iterator[None]:
    """Of two transactions that begin to wait at once, neither may see the other's wait."""
    write, read = waiting._write_edges, waiting._read_records

    def read_records(wait: Any, before: Any, txn: Any) -> Program[None]:
        yield from read(wait, before, txn)
        yield from write(txn, before)

    unwritten = attribute(waiting, "_write_edges", nothing)
    with unwritten, attribute(waiting, "_read_records", read_records):
        yield


@planted(for_histories=False)
def time_out_shifts() -> Iterator[None]:
    """A transaction whose wait has timed out moves to the end of every queue, as in the paper."""
    original = turns.wait_for_turn

    def wait_for_turn(txn: Any, *given: Any) -> Program[bool]:
        waited = yield from original(txn, *given)
        if txn.claims.queue is not None and txn.context.clock.elapsed() >= txn.claims.patience_ends:
            yield from parallel([give_way.shift(txn, table) for table in txn.claims.queue.tables])
            txn.context.report("shift", txn.id, f"transaction {txn.id} gives way", {})
        return waited

    with instead(original, wait_for_turn):
        yield


# ------------------------------------------------------------------- places


@planted(features=_CT, kinds=("lists", "transfer", "add"))
def marker_without_record() -> Iterator[None]:
    """A place is taken without a record, so that its owner and the owner's state are unknown."""
    without = (attribute(module, "create_record", nothing) for module in (places, ahead))
    with next(without), next(without):
        yield


@planted(for_histories=False)
def state_before_marker() -> Iterator[None]:
    """A transaction reads a table's state before it takes its place, and not again after it."""

    def take_places(txn: Any, locations: Any, access: Any, **named: Any) -> Program[None]:
        yield from own_places.enter(txn, dict.fromkeys(locations, access))

    original = bind.take_places
    with instead(original, take_places):
        yield


@planted(for_histories=False)
def appends_pass_everybody() -> Iterator[None]:
    """A transaction without a place does not check whether other transactions have places."""
    with instead(ahead.unplaced_appends, lambda txn: []):
        yield


@planted(for_histories=False)
def reads_take_no_place() -> Iterator[None]:
    """Reads are forgotten when places are taken."""
    with instead(late_reads.unplaced_reads, lambda txn: {}):
        yield


@planted(for_histories=False)
def nobody_places_those_who_think() -> Iterator[None]:
    """A transaction that reads and then pauses for long takes no place before it writes."""
    with instead(late_reads.is_due_for_places, lambda txn: False):
        yield


@planted(for_histories=False)
def readers_take_places_at_once() -> Iterator[None]:
    """A transaction that only reads takes a place, like one that writes."""
    with instead(late_reads.may_read_without_place, lambda txn: False):
        yield


@planted(for_histories=False)
def heartbeat_leaves_marker() -> Iterator[None]:
    """A place that is taken between two verbs is not freed when the transaction ends."""

    def place_reads(txn: Any) -> Program[None]:
        yield from original(txn)
        txn.claims.queue = None

    original = own_places.place_reads
    with instead(original, place_reads):
        yield


@planted(for_histories=False)
def put_off_takes_no_place() -> Iterator[None]:
    """A deferred operation is performed although transactions ahead wait for their turn."""
    with attribute(own_places, "_places", lambda txn: {}):
        yield


@planted(for_histories=False)
def one_look_for_a_record() -> Iterator[None]:
    """A marker without a record does not count at the first check, though its record may follow."""
    original = stale.dead

    def dead(txn: Any, wait: Any, before: Any) -> Any:
        wait.unrecorded.update(one.txn for one in before)
        return original(txn, wait, before)

    with attribute(waiting, "dead", dead):
        yield


@planted(for_histories=False)
def nobody_steps_back() -> Iterator[None]:
    """A transaction with ticket 1 keeps it, whatever transactions had places before."""

    def take_place(txn: Any, table: str, access: Any) -> Program[bool]:
        met_nobody = yield from original(txn, table, access)
        guess = yield from place_first(table, txn.id, access, txn.context.ids)
        if not met_nobody and guess.is_held:
            txn.claims.queue.places.append(HeldTicket(guess.ticket, State.FIRST))
        return met_nobody

    original = places._take_place
    with attribute(places, "_take_place", take_place):
        yield


@planted(for_histories=False)
def stale_not_swept() -> Iterator[None]:
    """Only a transaction without a record counts as dead: clients wait for a dead one with a
    record.
    """

    def dead(txn: Any, wait: Any, before: Any) -> Any:
        return [one for one in before if one.txn and one.txn not in wait.records]

    with attribute(waiting, "dead", dead):
        yield


@planted(first_seed=1, features=_CT, kinds=("lists", "transfer"), transactions=5, intensity=2.0)
def dead_places_kept() -> Iterator[None]:
    """Recovery leaves the queues alone."""

    def give_up_places(*_: Any) -> Program[Any]:
        yield from ()
        return stale_places.Swept()

    with attribute(recovery, "give_up_places", give_up_places):
        yield


@planted(for_histories=False)
def places_given_back_too_early() -> Iterator[None]:
    """The markers are deleted before the commit point instead of after it."""
    original = turns.wait_for_turn

    def wait_for_turn(txn: Any, *given: Any) -> Program[bool]:
        waited = yield from original(txn, *given)
        yield from places.leave(txn)
        return waited

    with instead(original, wait_for_turn):
        yield


# ------------------------------------------------------------------ re-runs


@planted(for_histories=False)
def rerun_with_a_new_ticket() -> Iterator[None]:
    """A rerun transaction moves to the end of the queue, under its old id."""

    def again(old: Any, *, escalate: bool = False) -> Program[Any]:
        yield from places.leave(old)
        return (yield from original(old, escalate=escalate))

    original = rerun.rerun
    with instead(original, again):
        yield


@planted(for_histories=False)
def failed_is_not_renewed() -> Iterator[None]:
    """The heartbeat of a transaction stops when an attempt has lost."""

    def renew(txn: Any) -> Program[bool]:
        return (yield from original(txn)) if txn.state is Status.OPEN else False

    original = own_record.renew
    with instead(original, renew):
        yield


@planted(for_histories=False)
def rerun_counts_as_ended() -> Iterator[None]:
    """The next user of an idempotency key takes a transaction that still commits for ended."""

    def again(old: Any, *, escalate: bool = False) -> Program[Any]:
        new = yield from original(old, escalate=escalate)
        old.context.ended.add(old.id)
        return new

    original = rerun.rerun
    with instead(original, again):
        yield


@planted(738, kinds=("shared", "lists"), transactions=5, attempts=5, settings=_IMPATIENT)
def rerun_while_it_can_be_resumed() -> Iterator[None]:
    """The saved sublog stays: a resumer may commit it concurrently with the next attempt."""

    def unsave(txn: Any) -> Program[None]:
        yield from ()
        txn.claims.saved, txn.ending.shared = None, False

    with instead(save.unsave, unsave):
        yield


# ------------------------------------------------------------- reservations


@planted(for_histories=False)
def reservation_ignored() -> Iterator[None]:
    """Optimistic transactions do not check the reservations in HEAD."""
    with instead(reservation.reserved_ahead, lambda txn, head: []):
        yield


@planted(for_histories=False)
def reservation_outlives_its_commit() -> Iterator[None]:
    """A transaction that has committed with a reservation leaves it in HEAD."""
    with instead(reservation.remaining, lambda txn, head: head.reserved):
        yield
