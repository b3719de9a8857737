"""Dead and ended transactions, for which no transaction waits: known by records, tokens and a
clock.
"""

from __future__ import annotations

import pytest

from lakevilla.errors import CorruptObject
from lakevilla.lake.context import Event
from lakevilla.markers.ahead import Ahead
from lakevilla.markers.marker import Unreadable
from lakevilla.markers.stale import Wait, dead, have_moved, left_behind, sweep, without_records
from lakevilla.store.base import Token
from lakevilla.store.effects import DeleteObject
from lakevilla.sublogs.record import RESERVATION
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand
from tests.support.by_hand import first_asked, outcome
from tests.support.wait_graphs import edge, record

OTHER = Ahead("t", 1, 2, "a", key="t/1")
BROKEN = CorruptObject("torn", key="t/1")


@pytest.fixture
def clock() -> by_hand.StoppedClock:
    return by_hand.StoppedClock()


@pytest.fixture
def txn(clock: by_hand.StoppedClock) -> TransactionState:
    context = by_hand.make_context(clock, lease_seconds=30)
    by_hand.make_tail(context)
    return by_hand.begun(context)


@pytest.fixture
def wait() -> Wait:
    return Wait(deadline=0, pause=0, began=0, tell_again=0)


def seen(wait: Wait, token: str, *tickets: int, waits: bool = False) -> None:
    """Note the record of the transaction ahead, as it was read last."""
    edges = [edge("a", "b")] if waits else []
    held = [("t", number) for number in tickets]
    wait.records["a"] = (record("a", held, edges), Token(token))


def test_a_transaction_without_a_record_at_two_checks_has_ended(
    txn: TransactionState, wait: Wait
) -> None:
    assert dead(txn, wait, [OTHER]) == [], "it may be on its way"
    assert dead(txn, wait, [OTHER]) == [OTHER]
    seen(wait, "one", 1)
    assert dead(txn, wait, [OTHER]) == []


def test_a_marker_without_a_record_is_listed_once_more_before_it_counts_as_left_behind(
    wait: Wait,
) -> None:
    torn = Unreadable(2, newer=False, error=BROKEN)
    broken = Ahead("t", 2, 3, "", key="t/2", unreadable=torn, token=Token("torn"))
    assert left_behind(wait, [OTHER, broken]) == [broken]
    assert left_behind(wait, [OTHER]) == [OTHER]


def test_a_marker_of_a_silent_transaction_is_left_behind(wait: Wait) -> None:
    seen(wait, "one", 1)
    assert left_behind(wait, [OTHER]) == [OTHER]


def test_a_transaction_whose_record_is_unchanged_for_a_lease_is_dead_until_it_changes(
    txn: TransactionState, wait: Wait, clock: by_hand.StoppedClock
) -> None:
    seen(wait, "one", 1)
    leases = txn.context.leases
    for seconds, token, gone in (
        (0, "1", False),
        (29, "1", False),
        (2, "1", True),
        (0, "2", False),
    ):
        clock.seconds += seconds
        leases.observe("a", Token(token), 30.0, clock.elapsed())
        assert bool(dead(txn, wait, [OTHER])) == gone


def test_an_unreadable_marker_counts_as_dead_after_the_readers_own_lease(
    txn: TransactionState, wait: Wait, clock: by_hand.StoppedClock
) -> None:
    torn = Unreadable(1, newer=False, error=BROKEN)
    marker = Ahead("t", 1, 2, "", key="t/1", unreadable=torn, token=Token("one"))
    assert dead(txn, wait, [marker]) == []
    clock.seconds += 31
    assert dead(txn, wait, [marker]) == [marker]


def test_a_marker_missing_in_its_owners_record_counts_as_unrecorded_at_the_second_later_record(
    wait: Wait,
) -> None:
    # The first two records may have been on their way when the marker was placed.
    for token, gone in (("1", []), ("1", []), ("2", []), ("3", [OTHER])):
        seen(wait, token)
        assert without_records(wait, [OTHER]) == gone
    seen(wait, "4", 1)
    assert without_records(wait, [OTHER]) == [], "it names the place: it knows of it"
    seen(wait, "5")
    assert without_records(wait, [OTHER]) == [], "and is looked at anew from there on"


def test_a_waiter_whose_record_lacks_its_ticket_has_shifted_and_is_checked_once(
    wait: Wait,
) -> None:
    seen(wait, "1", 1, waits=True)
    assert not have_moved(wait, [OTHER])
    seen(wait, "2", 7, waits=True)
    assert have_moved(wait, [OTHER])
    assert not have_moved(wait, [OTHER]), "of one state of a record it is told once"
    seen(wait, "3", 7)
    assert not have_moved(wait, [OTHER]), "who waits for nobody may lag behind"


def test_places_of_dead_transactions_are_freed_except_markers_of_a_newer_format(
    txn: TransactionState, wait: Wait
) -> None:
    seen(wait, "one", 1)
    newer = Unreadable(3, newer=True, error=BROKEN)
    gone = [
        OTHER,
        Ahead("t", RESERVATION, 2, "b"),
        Ahead("t", 3, 4, "", key="t/3", unreadable=newer, token=Token("three")),
    ]
    told: list[Event] = []
    txn.context.notify = told.append
    assert first_asked(sweep(txn, wait, gone)) == DeleteObject("t/1")
    outcome(sweep(txn, wait, gone), None)
    assert wait.swept == {"a"}
    assert txn.context.given_up.holders == {"b"}
    assert txn.context.given_up.markers == {Token("three")}
    assert {event.kind for event in told} == {"stale"}
