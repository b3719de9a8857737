"""The transactions ahead of another one: known by markers, here given by hand, and reservations."""

from __future__ import annotations

import msgspec
import pytest

from lakevilla.formats.base import Change
from lakevilla.global_log.head import Reservation, empty_head
from lakevilla.lake.context import Context, Event
from lakevilla.markers.ahead import who_is_ahead
from lakevilla.markers.claims import HeldTicket, Queue
from lakevilla.markers.marker import Marker, marker_key
from lakevilla.markers.places import take_ticket
from lakevilla.markers.queue import State
from lakevilla.store.base import Found, ObjectInfo, Refused, Stored, Token
from lakevilla.store.codec import FORMAT, encode
from lakevilla.sublogs.operations import Append
from lakevilla.sublogs.own_record import HeldRecord
from lakevilla.sublogs.record import RESERVATION, Access, Ticket
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.by_hand import outcome
from tests.support.wait_graphs import record


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context)
    return context


@pytest.fixture
def txn(context: Context) -> TransactionState:
    """A transaction with ticket 3 of table ``t``."""
    txn = by_hand.begun(context, features=Feature.CT | Feature.I)
    txn.claims.queue = Queue([HeldTicket(Ticket("t", 3, "write"), State.FIRST)])
    txn.claims.record = HeldRecord(record(txn.id, [("t", 3)], []), Token("record"), 0.0)
    return txn


def other(context: Context, number: int, access: Access = "write") -> tuple[str, ObjectInfo, Found]:
    """Return a marker of another transaction, as an entry of a list and as an object."""
    txn = context.ids.txn_id()
    key, token = marker_key("t", number), Token(f"marker-{number}-{txn}")
    body = encode(Marker(FORMAT, "n", txn, "t", number, access))
    return txn, ObjectInfo(key, len(body), token, 0.0), Found(body, token, len(body))


def own(number: int = 3) -> ObjectInfo:
    return ObjectInfo(marker_key("t", number), 1, Token(f"own-{number}"), 0.0)


def state(txn: TransactionState) -> State:
    assert txn.claims.queue is not None
    return txn.claims.queue.places[0].state


def test_transactions_with_lower_tickets_are_ahead_and_those_with_higher_are_not(
    context: Context, txn: TransactionState
) -> None:
    first, info, body = other(context, 1)
    _, higher, _ = other(context, 4)
    (one,) = outcome(who_is_ahead(txn, None), [info, own(), higher], body)
    assert (one.txn, one.number, one.mine, one.key) == (first, 1, 3, marker_key("t", 1))
    assert state(txn) is State.WAITING
    # A marker never changes, so it is read once. A deleted marker delays no transaction.
    assert [who.txn for who in outcome(who_is_ahead(txn, None), [info, own()])] == [first]
    assert outcome(who_is_ahead(txn, None), [own()]) == []
    assert state(txn) is State.FIRST


def test_appends_pass_each_other_and_writes_pass_nothing(
    context: Context, txn: TransactionState
) -> None:
    assert txn.claims.queue is not None
    _, info, body = other(context, 1, "append")
    assert len(outcome(who_is_ahead(txn, None), [info, own()], body)) == 1
    txn.claims.queue.places = [HeldTicket(Ticket("t", 3, "append"), State.FIRST)]
    assert outcome(who_is_ahead(txn, None), [info, own()]) == []


def test_a_transaction_whose_marker_was_swept_gets_a_new_ticket_at_the_end(
    context: Context, txn: TransactionState
) -> None:
    assert txn.claims.queue is not None
    first, info, body = other(context, 4)
    # The list lacks our marker; we place a new one behind the other marker, which is then read.
    (one,) = outcome(who_is_ahead(txn, None), [info], Stored(Token("placed")), body)
    assert (one.txn, one.mine) == (first, 5)
    assert txn.claims.queue.tickets == (Ticket("t", 5, "write"),)
    assert txn.claims.queue.doubtful == [("t", 3)], (
        "it may yet be there: it is looked for at the end"
    )


def test_a_ticket_number_that_another_transaction_has_taken_is_skipped(
    context: Context, txn: TransactionState
) -> None:
    _, _, body = other(context, 1)
    held = outcome(take_ticket(txn, "t", "write", []), Refused(body), Stored(Token("placed")))
    assert held.ticket == Ticket("t", 2, "write")
    assert held.state is State.WAITING, "whoever was met there goes first"


def test_a_reservation_of_a_table_is_ahead_of_all_tickets_of_writers(
    context: Context, txn: TransactionState
) -> None:
    by_hand.did(txn, Append("t", ()), Change())
    reserved = (Reservation("0", ("t", "u")),)
    head = msgspec.structs.replace(empty_head("lake", "root", "0", 1), reserved=reserved)
    (one,) = outcome(who_is_ahead(txn, head), [own()])
    assert (one.txn, one.table, one.number, one.mine, one.key) == ("0", "t", RESERVATION, 3, "")


def test_a_transaction_does_not_wait_for_another_that_its_own_thread_has_open(
    context: Context, txn: TransactionState
) -> None:
    first, info, body = other(context, 1)
    told: list[Event] = []
    context.notify, context.is_callers = told.append, lambda txn_id: txn_id == first
    assert outcome(who_is_ahead(txn, None), [info, own()], body) == []
    assert outcome(who_is_ahead(txn, None), [info, own()]) == []
    assert [(event.kind, event.detail["holders"]) for event in told] == [("waiting", [first])]
