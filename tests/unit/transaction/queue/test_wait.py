"""Waiting in a queue: in every doubt, the transaction goes on."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from lakevilla.formats.base import Change
from lakevilla.global_log.head import Reservation
from lakevilla.ids import NO_TXN
from lakevilla.lake.context import Context, Event
from lakevilla.markers.claims import HeldTicket, Queue
from lakevilla.markers.marker import marker_key
from lakevilla.markers.queue import State
from lakevilla.store.base import ObjectInfo, Token
from lakevilla.store.codec import decode
from lakevilla.store.effects import Get, List, Put
from lakevilla.sublogs.operations import Append
from lakevilla.sublogs.own_record import HeldRecord
from lakevilla.sublogs.record import RESERVATION, Edge, Ticket, TxnRecord, record_key
from lakevilla.transaction.queue.wait import wait_for_turn
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.by_hand import first_asked, outcome
from tests.support.wait_graphs import record

OWN = ObjectInfo(marker_key("t", 3), 1, Token("own"), 0.0)


@pytest.fixture
def clock() -> by_hand.StoppedClock:
    return by_hand.StoppedClock()


@pytest.fixture
def context(clock: by_hand.StoppedClock) -> Context:
    context = by_hand.make_context(clock, wait_timeout_seconds=60)
    by_hand.make_tail(context)
    return context


@pytest.fixture
def txn(context: Context) -> TransactionState:
    txn = by_hand.begun(context, features=Feature.CT | Feature.I)
    txn.claims.queue = Queue([HeldTicket(Ticket("t", 3, "write"), State.FIRST)])
    txn.claims.record = HeldRecord(record(txn.id, [("t", 3)]), Token("record"), 0.0)
    return txn


def test_waiting_without_queues_and_reservations_costs_no_request(context: Context) -> None:
    assert outcome(wait_for_turn(by_hand.begun(context, features=Feature.I), None)) is False


def test_a_transaction_that_is_first_sends_one_list_and_does_not_wait(
    txn: TransactionState,
) -> None:
    assert first_asked(wait_for_turn(txn, None)) == List("t/_lakevilla/markers")
    assert outcome(wait_for_turn(txn, None), [OWN]) is False


def test_the_waiting_time_begins_with_the_first_wait_and_is_shared_by_all_waits(
    txn: TransactionState, clock: by_hand.StoppedClock
) -> None:
    outcome(wait_for_turn(txn, None), [OWN])
    assert txn.claims.patience_ends == clock.elapsed() + 60
    clock.seconds += 59
    outcome(wait_for_turn(txn, None), [OWN])
    clock.seconds += 1
    # From here on it goes on whatever is ahead: it lists no queue.
    told: list[Event] = []
    txn.context.notify = told.append
    assert outcome(wait_for_turn(txn, None)) is False
    assert told == [], "it has not waited, so it does not say that it stops"


def test_a_wait_timeout_of_the_transaction_overrides_the_setting(
    txn: TransactionState, clock: by_hand.StoppedClock
) -> None:
    txn.options = replace(txn.options, wait_timeout_seconds=0.0)
    assert outcome(wait_for_turn(txn, None)) is False
    assert txn.claims.patience_ends == clock.elapsed()


def test_a_transaction_that_others_wait_for_shows_for_whom_it_waits_itself(
    context: Context,
) -> None:
    """It has reserved the table, without a place in its queue, behind another reservation."""
    txn = by_hand.begun(context, features=Feature.I)
    txn.claims.record = HeldRecord(record(txn.id), Token("record"), 0.0)
    by_hand.did(txn, Append("t", ()), Change())
    first, own = (Reservation(holder, ("t",)) for holder in (NO_TXN, txn.id))
    empty = by_hand.empty_head("lake", "root", "0", 1)
    head = msgspec.structs.replace(empty, reserved=(first, own))
    asked = first_asked(wait_for_turn(txn, head))
    assert isinstance(asked, Put)
    written = decode(asked.key, asked.body, TxnRecord)
    assert written.edges == (Edge(txn.id, RESERVATION, NO_TXN, RESERVATION, "t"),)


def test_a_transaction_that_nobody_waits_for_writes_nothing_while_it_waits(
    context: Context,
) -> None:
    txn = by_hand.begun(context, features=Feature.I)
    by_hand.did(txn, Append("t", ()), Change())
    empty = by_hand.empty_head("lake", "root", "0", 1)
    head = msgspec.structs.replace(empty, reserved=(Reservation(NO_TXN, ("t",)),))
    assert first_asked(wait_for_turn(txn, head)) == Get(record_key(NO_TXN))
