"""The states of a transaction: their transitions, their diagram, and what is allowed in each."""

from __future__ import annotations

import itertools

import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.transaction.state.parts import Ending, EntryTried, Options
from lakevilla.transaction.state.status import (
    TERMINAL,
    TRANSITIONS,
    InvalidTransition,
    Status,
    StatusEvent,
    advance,
)
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from tests.support import by_hand
from tests.support.drawing import arrows_of, shown_in

#: Written a second time, by hand, from the design (design, section 12).
EXPECTED = {
    ("open", "FAILS", "failed"),
    ("open", "COMMITS", "committed"),
    ("open", "ABORTS", "aborted"),
    ("failed", "FAILS", "failed"),
    ("failed", "ABORTS", "aborted"),
    ("committed", "IS_PUBLISHED", "committed"),
}


@pytest.mark.parametrize(("status", "event"), list(itertools.product(Status, StatusEvent)))
def test_each_event_leads_to_the_state_in_the_design_or_raises(
    status: Status, event: StatusEvent
) -> None:
    after = [target for source, name, target in EXPECTED if (source, name) == (status, event.name)]
    if after:
        assert [advance(status, event)] == after
    else:
        with pytest.raises(
            InvalidTransition, match=f"a transaction that is {status} .* not {event.name}"
        ):
            advance(status, event)


def test_a_committed_or_aborted_transaction_never_changes_its_state() -> None:
    for status in TERMINAL:
        assert set(TRANSITIONS[status].values()) <= {status}


def test_the_picture_on_the_page_on_guarantees_shows_all_transitions() -> None:
    assert shown_in("transaction-states.svg") == arrows_of(TRANSITIONS, Status.OPEN, TERMINAL)


@pytest.mark.parametrize(
    ("ending", "its_own", "in_doubt"),
    [
        (Ending(), True, False),
        (Ending(status=Status.FAILED), True, False),
        (Ending(tried=True), False, False),
        (Ending(shared=True), False, False),
        (Ending(tried=True, head_tried=3), False, True),
        (Ending(tried=True, entry_tried=EntryTried(3, 0.0)), False, True),
        (Ending(status=Status.FAILED, tried=True, head_tried=0), False, True),
    ],
)
def test_a_transaction_may_delete_its_files_until_its_commit_point_was_tried(
    ending: Ending, its_own: bool, in_doubt: bool
) -> None:
    assert ending.may_delete_its_files is its_own
    assert ending.is_in_doubt is in_doubt


def test_only_a_transaction_that_lost_a_conflict_may_run_again() -> None:
    assert Ending(status=Status.FAILED, failure=ConflictError("others came first")).may_run_again
    assert not Ending(status=Status.FAILED, failure=TransactionAborted("by another")).may_run_again
    assert not Ending().may_run_again


def begun_by_hand() -> TransactionState:
    context = by_hand.make_context()
    return TransactionState(context, context.ids.txn_id(), Options(Feature.R))


def test_a_transaction_that_was_committed_can_not_fail_or_be_aborted() -> None:
    txn = begun_by_hand()
    txn.note_committed({"t": 3}, None)
    with pytest.raises(InvalidTransition):
        txn.fail(ConflictError("too late"))
    with pytest.raises(InvalidTransition):
        txn.note_aborted()
    assert txn.state is Status.COMMITTED
    assert txn.note_committed({"t": 3}, 7) is txn.ending.result
