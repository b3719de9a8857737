"""Errors at the commit point: their meaning depends on the writes that may still be stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

import lakevilla as lv
from lakevilla.transaction.commit.commit import doubtful, entry_errors, head_errors
from lakevilla.transaction.state.parts import EntryTried
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand

Errors = Callable[[TransactionState], AbstractContextManager[None]]


@pytest.fixture
def txn() -> TransactionState:
    context = by_hand.make_context()
    by_hand.make_tail(context)
    txn = by_hand.begun(context)
    by_hand.appended(txn, by_hand.data_file("f", 0, 1))
    return txn


def raised(errors: Errors, txn: TransactionState, error: Exception) -> Exception:
    with (
        pytest.raises(
            type(error) if isinstance(error, ValueError) else lv.LakeVillaError
        ) as caught,
        errors(txn),
    ):
        raise error
    return caught.value


@pytest.mark.parametrize("errors", [entry_errors, head_errors])
def test_a_store_error_before_the_commit_point_fails_the_transaction_for_certain(
    txn: TransactionState, errors: Errors
) -> None:
    found = raised(errors, txn, lv.StoreError("no connection"))
    assert isinstance(found, lv.StoreError)
    assert txn.state is Status.FAILED


@pytest.mark.parametrize("errors", [entry_errors, head_errors])
def test_other_errors_are_raised_unchanged(txn: TransactionState, errors: Errors) -> None:
    for error in (lv.ConflictError("c"), lv.CorruptObject("d"), ValueError("e")):
        assert raised(errors, txn, error) is error


@pytest.mark.parametrize("errors", [entry_errors, head_errors])
@pytest.mark.parametrize(
    "error", [lv.StoreError("x"), lv.ConflictError("x"), lv.CorruptObject("x")]
)
def test_an_error_while_an_earlier_write_may_still_be_stored_is_raised_as_unknown(
    txn: TransactionState, errors: Errors, error: lv.LakeVillaError
) -> None:
    txn.ending.entry_tried, txn.ending.head_tried = EntryTried(1, 0.0), 4
    found = raised(errors, txn, error)
    assert isinstance(found, lv.CommitOutcomeUnknown)
    assert found.__cause__ is error
    assert found.txn_id == txn.id


def test_an_error_is_raised_as_unknown_if_another_process_may_have_committed_the_transaction(
    txn: TransactionState,
) -> None:
    txn.ending.tried = txn.ending.shared = True
    found = raised(head_errors, txn, lv.StoreError("no connection"))
    assert isinstance(found, lv.CommitOutcomeUnknown)
    assert f"lake.outcome({txn.id!r})" in str(found)
    assert txn.state is Status.OPEN


def test_a_failed_transaction_keeps_the_error_that_it_may_have_committed(
    txn: TransactionState,
) -> None:
    first = txn.fail(lv.ConflictError("lost"))
    found = doubtful(txn, first)
    assert txn.ending.failure is found
    assert not txn.ending.may_run_again, "it may have committed"


def test_an_unknown_outcome_is_raised_unwrapped(txn: TransactionState) -> None:
    error = lv.CommitOutcomeUnknown("who knows")
    assert doubtful(txn, error) is error
    assert txn.state is Status.OPEN
