"""Places in queues: each transaction with Feature.CT takes them once, and gives all of them
back.
"""

from __future__ import annotations

import pytest

from lakevilla.lake.context import Context
from lakevilla.markers.marker import marker_key
from lakevilla.markers.places import leave
from lakevilla.markers.queue import State
from lakevilla.store.base import Found, ObjectInfo, Refused, Stored, Token
from lakevilla.store.effects import DeleteObject, Get, List, Parallel, Put
from lakevilla.sublogs.record import Access, Ticket, record_key
from lakevilla.transaction.queue.places import enter
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.by_hand import outcome

QUEUED = Feature.CT | Feature.I


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context)
    return context


def answered(program: object, *, listed: tuple[ObjectInfo, ...] = ()) -> list[object]:
    """Run a program to its end against an empty store; return its requests, in order."""
    asked: list[object] = []

    def run(part: object, answer: object = None) -> object:
        if isinstance(part, Get | Put | List | DeleteObject):
            asked.append(part)
            if isinstance(part, Put):
                if part.key in {info.key for info in listed}:
                    return Refused()
                return Stored(Token(f"token-{len(asked)}"))
            if isinstance(part, Get):
                return Found(b"{}", Token("one"), 2)
            return list(listed) if isinstance(part, List) else None
        while True:
            try:
                effect = part.send(answer)  # type: ignore[attr-defined]
            except StopIteration as stop:
                return stop.value
            parts = effect.parts if isinstance(effect, Parallel) else None
            answer = run(effect) if parts is None else [run(each) for each in parts]

    run(program)
    return asked


@pytest.mark.parametrize("features", [Feature.NONE, Feature.R, Feature.R | Feature.I])
def test_a_transaction_without_feature_ct_takes_no_place(
    context: Context, features: Feature
) -> None:
    txn = by_hand.begun(context, features=features)
    outcome(enter(txn, {"t": "write"}))
    assert txn.claims.queue is None


def test_an_append_takes_no_place_before_it_commits(context: Context) -> None:
    txn = by_hand.begun(context, features=QUEUED)
    outcome(enter(txn, {"t": "append"}))
    assert txn.claims.queue is None


def test_a_read_only_transaction_takes_no_place(context: Context) -> None:
    txn = by_hand.begun(context, features=QUEUED, read_only=True)
    outcome(enter(txn, {"t": "read"}))
    assert txn.claims.queue is None


def entered(context: Context, access: Access) -> TransactionState:
    txn = by_hand.begun(context, features=QUEUED)
    answered(enter(txn, {"t": access}))
    return txn


def test_taking_a_place_in_an_empty_queue_costs_a_list_a_marker_and_a_record(
    context: Context,
) -> None:
    txn = by_hand.begun(context, features=QUEUED)
    asked = answered(enter(txn, {"t": "write"}))
    keys = {effect.key for effect in asked if isinstance(effect, Put)}
    assert keys == {record_key(txn.id), marker_key("t", 1)}
    assert [type(effect) for effect in asked].count(List) == len(asked) - len(keys) == 1
    assert txn.claims.queue is not None
    assert [(place.ticket, place.state) for place in txn.claims.queue.places] == [
        (Ticket("t", 1, "write"), State.FIRST)
    ]


@pytest.mark.parametrize(
    ("held", "wanted", "asks"),
    [
        ("write", "write", False),
        ("write", "append", False),
        ("write", "read", False),
        ("read", "read", False),
        ("read", "write", True),
    ],
)
def test_a_place_also_serves_for_weaker_accesses_of_its_transaction(
    context: Context, held: Access, wanted: Access, asks: bool
) -> None:
    txn = entered(context, held)
    asked = answered(enter(txn, {"t": wanted}))
    assert bool(asked) == asks
    assert record_key(txn.id) not in [effect.key for effect in asked if isinstance(effect, Put)]


def test_all_markers_of_a_transaction_are_deleted_with_its_record(context: Context) -> None:
    txn = entered(context, "read")
    answered(enter(txn, {"t": "write"}), listed=(ObjectInfo(marker_key("t", 1), 1, Token("a"), 0),))
    assert txn.claims.queue is not None
    places = list(txn.claims.queue.places)
    assert [place.ticket.number for place in places] == [1, 2]
    txn.note_committed({}, None)
    asked = answered(leave(txn))
    keys = {effect.key for effect in asked if isinstance(effect, DeleteObject)}
    assert {marker_key("t", 1), marker_key("t", 2), record_key(txn.id)} <= keys
    assert {place.state for place in places} == {State.FREED}
    assert (txn.claims.queue, txn.claims.record) == (None, None)
