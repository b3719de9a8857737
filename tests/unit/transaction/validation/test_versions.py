"""A table's versions as the paper counts them, and the rules that fire."""

from __future__ import annotations

import pytest

from lakevilla.formats.base import Change
from lakevilla.global_log.head import Head, TableState, Touch
from lakevilla.global_log.rules import Rule, Versions
from lakevilla.lake.context import Context
from lakevilla.lake.view import build_view
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation.versions import firing
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome

FILE = data_file("old", 0, 9)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context, (FILE,))
    return context


def told(txn: TransactionState, head: Head | None) -> tuple[Versions, Rule | None]:
    tail = txn.context.tails["t"]
    new = outcome(build_view(txn.context, head, "t", tail))
    return outcome(firing(txn, head, new, tail))


def test_each_foreign_entry_is_a_version_without_head(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.read(txn)
    assert told(txn, None) == (Versions(read=0, hidden=0, log=None, write=1, written=1), None)
    for path in "ab":
        change = Change(adds=(data_file(path, 20, 29),))
        by_hand.with_entry(context, context.tails["t"], change)
    assert told(txn, None) == (Versions(0, 2, None, 1, 1), Rule.R1)


def test_slack_lets_a_read_be_that_many_versions_behind(context: Context) -> None:
    for slack, rule in ((1, Rule.R1), (2, None)):
        context.tails.clear()
        by_hand.make_tail(context, (FILE,))
        txn = by_hand.begun(context, slack=slack)
        by_hand.read(txn)
        for path in "ab":
            change = Change(adds=(data_file(path, 20, 29),))
            by_hand.with_entry(context, context.tails["t"], change)
        assert told(txn, None)[1] is rule


def test_a_decided_commit_is_a_version_before_it_is_published(context: Context) -> None:
    head = by_hand.make_head(context.tails["t"])
    txn = by_hand.begun(context, head=head, features=Feature.I)
    by_hand.read(txn)
    newer = by_hand.with_commit(
        head, Touch(0, adds=True), state=TableState("one", 0, guarded=False)
    )
    assert told(txn, newer) == (Versions(read=0, hidden=1, log=1, write=1, written=1), Rule.R1)


def test_a_commit_that_did_not_change_the_table_is_no_version(context: Context) -> None:
    head = by_hand.make_head(context.tails["t"])
    txn = by_hand.begun(context, head=head, features=Feature.I)
    by_hand.read(txn)
    assert told(txn, by_hand.with_commit(head, Touch(published=0)))[1] is None


def test_a_blind_append_is_neither_in_the_read_set_nor_in_the_write_set(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.appended(txn, data_file("mine", 50, 59))
    change = Change(adds=(data_file("theirs", 20, 29),))
    by_hand.with_entry(context, context.tails["t"], change)
    assert told(txn, None)[1] is None


def test_an_update_whose_version_number_another_client_has_taken_breaks_rule_r2(
    context: Context,
) -> None:
    txn = by_hand.begun(context, isolation="snapshot")
    by_hand.updated(txn, "id = 3", FILE, data_file("mine", 0, 9))
    change = Change(adds=(data_file("theirs", 20, 29),))
    by_hand.with_entry(context, context.tails["t"], change)
    assert told(txn, None)[1] is Rule.R2
