"""In a cycle of waits the youngest transaction gives way: the other ones send no request."""

from __future__ import annotations

from functools import partial

import pytest

from lakevilla.deadlock.give_way import OnShift, give_way
from lakevilla.formats.base import Change
from lakevilla.lake.context import Event
from lakevilla.markers.claims import HeldTicket, Queue
from lakevilla.markers.queue import State
from lakevilla.markers.stale import Wait
from lakevilla.store.base import Token
from lakevilla.store.effects import List, Program
from lakevilla.sublogs.operations import Append
from lakevilla.sublogs.own_record import HeldRecord
from lakevilla.sublogs.record import Edge, Ticket
from lakevilla.transaction.redo.deferred import defer
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.by_hand import data_file, first_asked, outcome
from tests.support.wait_graphs import record

OLDER, YOUNGER = "0", "z"


@pytest.fixture
def txn() -> TransactionState:
    """A transaction with ticket 1 in table ``t``, and ticket 2 in ``u`` behind another
    transaction.
    """
    context = by_hand.make_context()
    for table in "tu":
        by_hand.make_tail(context, location=table)
    txn = by_hand.begun(context, "t", "u", features=Feature.CT | Feature.I)
    tickets = [Ticket("t", 1, "write"), Ticket("u", 2, "write")]
    txn.claims.queue = Queue(
        [HeldTicket(tickets[0], State.FIRST), HeldTicket(tickets[1], State.WAITING)]
    )
    return txn


def giving_way(txn: TransactionState, wait: Wait) -> Program[bool]:
    """Give way as a transaction without a reservation, which has none to remove."""

    def unreserve() -> Program[None]:
        raise AssertionError("it has reserved nothing")

    return give_way(txn, wait, None, OnShift(unreserve, partial(defer, txn)))


def crossed(txn: TransactionState, other: str) -> Wait:
    """What ``txn`` knows if ``other`` has the first ticket in ``u`` and waits behind ``txn`` in
    ``t``.
    """
    mine = record(txn.id, [("t", 1), ("u", 2)], [Edge(txn.id, 2, other, 1, "u")])
    theirs = record(other, [("u", 1), ("t", 2)], [Edge(other, 2, txn.id, 1, "t")])
    txn.claims.record = HeldRecord(mine, Token("mine"), 0.0)
    wait = Wait(0, 0, 0, 0)
    wait.records[other] = (theirs, Token("theirs"))
    return wait


def test_the_elder_of_two_transactions_that_wait_for_each_other_does_not_give_way(
    txn: TransactionState,
) -> None:
    assert outcome(giving_way(txn, crossed(txn, YOUNGER))) is False


def test_the_younger_transaction_lists_the_queue_in_which_the_elder_waits_behind_it(
    txn: TransactionState,
) -> None:
    asked = first_asked(giving_way(txn, crossed(txn, OLDER)))
    assert asked == List("t/_lakevilla/markers")


def test_operations_performed_on_a_table_are_deferred_when_giving_way(
    txn: TransactionState,
) -> None:
    done = by_hand.updated(txn, "id = 3", data_file("a", 0, 9), data_file("b", 0, 9))
    append = by_hand.did(txn, Append("u", ()), Change())
    told: list[Event] = []
    txn.context.notify = told.append
    program = giving_way(txn, crossed(txn, OLDER))
    next(program)
    with pytest.raises(StopIteration) as stop:
        program.send([None])
    assert stop.value.value is True
    assert (done.deferred, done.change, append.deferred) == (True, Change(), False)
    assert [(event.kind, event.detail["tables"]) for event in told] == [("shift", ["t"])]


def test_a_cycle_through_a_released_ticket_makes_no_transaction_give_way(
    txn: TransactionState,
) -> None:
    wait = crossed(txn, OLDER)
    known, token = wait.records[OLDER]
    assert known is not None
    wait.records[OLDER] = (record(OLDER, [("t", 2)], known.edges), token)
    assert outcome(giving_way(txn, wait)) is False
