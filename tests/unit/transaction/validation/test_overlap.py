"""Commits that validation clears without reading the table's new state, and others."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import Head, TableState, Touch
from lakevilla.global_log.repo import HeldHead
from lakevilla.global_log.summaries import summarize
from lakevilla.lake.context import Context
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.effects import Get
from lakevilla.sublogs.operations import (
    Append,
    Bin,
    Delete,
    Insert,
    Operation,
    Optimize,
    QuerySource,
)
from lakevilla.transaction.commit.together.join import add_candidate
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation import overlap
from lakevilla.transaction.validation.overlap import is_cleared, only_appends
from tests.support import by_hand
from tests.support.by_hand import data_file, first_asked, outcome, rewritten
from tests.support.simulated.memory_lake import MemoryLake

LOW, HIGH = data_file("low", 0, 9), data_file("high", 10, 19)
STATE = TableState("one", 0)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context, (LOW, HIGH))
    return context


@pytest.fixture
def head(context: Context) -> Head:
    return by_hand.make_head(context.tails["t"])


@pytest.fixture
def txn(context: Context, head: Head) -> TransactionState:
    return by_hand.begun(context, head=head, features=Feature.I)


def after(head: Head, change: Change, *, told: bool = True) -> Head:
    """Return HEAD after a commit by another client, with a summary of the commit if ``told``."""
    summary = summarize([change], ["id"], 400) if told else None
    touch = Touch(0, adds=bool(change.adds), removes=bool(change.removes), summary=summary)
    return by_hand.with_commit(head, touch, state=STATE)


def cleared(txn: TransactionState, head: Head) -> bool:
    """Return whether the commits in HEAD are cleared without a request."""
    return outcome(is_cleared(txn, head, "t", txn.context.tails["t"]))


def looks_at(txn: TransactionState, head: Head, change: Change) -> bool:
    """Return whether the newest commit is cleared after its object was read, which must be
    requested.
    """
    program = is_cleared(txn, head, "t", txn.context.tails["t"])
    asked = first_asked(program)
    newest = head.commits[-1].txn
    assert isinstance(asked, Get)
    assert newest in asked.key
    commit = CommitObject(1, "n", newest, {"t": TablePart("one", change)})
    txn.context.keep_commit("", commit)
    return cleared(txn, head)


@pytest.mark.parametrize(
    ("operation", "alone"),
    [
        (Append("t", ()), True),
        (Append("t", (), columns=b"schema"), False),
        (Delete("t", parse_predicate("id = 1")), False),
        (Insert("other", ("id",), QuerySource("select * from t", {"t": "t"})), False),
        (Insert("other", ("id",), QuerySource("select 1 as id", {})), True),
    ],
)
def test_a_blind_append_or_insert_relies_only_on_metadata(
    txn: TransactionState, operation: Operation, alone: bool
) -> None:
    txn.work.tables["other"] = txn.work.tables["t"]
    by_hand.did(txn, operation, Change())
    assert only_appends(txn, "t") == alone


def test_a_read_makes_an_append_rely_on_rows(txn: TransactionState) -> None:
    by_hand.appended(txn, data_file("mine", 50, 59))
    assert only_appends(txn, "t")
    by_hand.read(txn, "id = 1")
    assert not only_appends(txn, "t")


@pytest.mark.parametrize(
    ("came", "passed"),
    [(data_file("far", 100, 109), True), (data_file("near", 0, 5), False)],
)
def test_added_rows_are_cleared_if_they_can_not_match_the_predicate_of_a_read(
    txn: TransactionState, head: Head, came: DataFile, passed: bool
) -> None:
    by_hand.read(txn, "id < 10")
    change = Change(adds=(came,))
    newer = after(head, change)
    assert cleared(txn, newer) if passed else not looks_at(txn, newer, change)


@pytest.mark.parametrize(("gone", "passed"), [(HIGH, True), (LOW, False)])
def test_removed_files_are_cleared_if_no_file_that_could_match_was_removed(
    txn: TransactionState, head: Head, gone: DataFile, passed: bool
) -> None:
    by_hand.read(txn, "id < 10")
    change = Change(removes=rewritten(gone).removes)
    newer = after(head, change)
    assert cleared(txn, newer) if passed else not looks_at(txn, newer, change)


def test_a_commit_that_removes_a_file_removed_by_the_transaction_is_never_cleared(
    txn: TransactionState, head: Head
) -> None:
    by_hand.updated(txn, "id = 3", LOW, data_file("mine", 0, 9))
    change = rewritten(LOW, data_file("theirs", 0, 9, data_change=False))
    assert not looks_at(txn, after(head, change), change)


def test_a_commit_that_moves_a_file_moved_by_the_transaction_is_never_cleared(
    txn: TransactionState, head: Head
) -> None:
    moved = data_file("mine", 0, 9, data_change=False)
    bins = (Bin((LOW.ref,), (moved,)),)
    change = rewritten(LOW, moved, data_change=False)
    by_hand.did(txn, Optimize("t", bins, txn.work.tables["t"].snapshot.metadata), change)
    theirs = rewritten(LOW, data_file("theirs", 0, 9, data_change=False), data_change=False)
    assert not looks_at(txn, after(head, theirs), theirs)


def test_added_rows_are_cleared_for_an_append(txn: TransactionState, head: Head) -> None:
    by_hand.appended(txn, data_file("mine", 0, 9))
    assert cleared(txn, after(head, Change(adds=(data_file("theirs", 0, 9),)), told=False))


@pytest.mark.parametrize(
    "touch", [Touch(0, metadata=True), Touch(0, adds=True, metadata=True)], ids=["alone", "rows"]
)
def test_a_change_of_metadata_is_not_cleared_even_for_an_append(
    txn: TransactionState, head: Head, touch: Touch
) -> None:
    by_hand.appended(txn, data_file("mine", 0, 9))
    assert not cleared(txn, by_hand.with_commit(head, touch, state=STATE))


@pytest.mark.parametrize(("low", "passed"), [(100, True), (0, False)])
def test_the_commit_object_is_read_if_a_commit_has_no_summary(
    txn: TransactionState, head: Head, low: int, passed: bool
) -> None:
    by_hand.read(txn, "id < 10")
    change = Change(adds=(data_file("theirs", low, low + 9),))
    assert looks_at(txn, after(head, change, told=False), change) == passed


@pytest.mark.parametrize("how", ["reconcile", "dropped", "left", "paged"])
def test_reads_are_not_cleared_if_head_does_not_show_the_change(
    txn: TransactionState, head: Head, how: str
) -> None:
    by_hand.read(txn, "id < 10")
    newer = after(head, Change(adds=(data_file("far", 100, 109),)))
    assert cleared(txn, newer)
    match how:
        case "reconcile":
            newer = by_hand.with_commit(head, Touch(0), state=STATE, kind="reconcile")
        case "dropped":
            gone = TableState("one", 0, dropped=True)
            newer = by_hand.with_commit(head, Touch(0, removes=True), state=gone)
        case "left":
            newer = by_hand.make_head(txn.context.tails["t"], name="another")
        case "paged":
            txn.bound.sequence = -5
    assert not cleared(txn, newer)


def test_a_foreign_entry_that_only_the_log_has_is_compared(
    context: Context, txn: TransactionState, head: Head
) -> None:
    by_hand.read(txn, "id < 10")
    by_hand.with_entry(context, context.tails["t"], Change(adds=(data_file("far", 100, 109),)))
    assert cleared(txn, head)
    by_hand.with_entry(context, context.tails["t"], Change(adds=(data_file("near", 3, 3),)))
    assert not cleared(txn, head)


def test_a_deferred_operation_is_not_cleared_even_by_changes_of_other_rows(
    txn: TransactionState, head: Head
) -> None:
    where = parse_predicate("id < 10")
    by_hand.did(txn, Delete("t", where), Change(), deferred=True)
    assert not cleared(txn, after(head, Change(adds=(data_file("far", 100, 109),))))


@pytest.mark.parametrize("count", [1, 20])
def test_summaries_of_all_commits_are_compared_in_one_pass(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = MemoryLake()
    peer = lake.peer()
    txn = peer.begin()
    peer.add(txn, "a", 1)
    candidate = peer.candidate(txn)
    other = lake.peer()
    for number in range(count):
        other.commit(other.appending("a", 100 + number))
    looked: list[int] = []

    def may_hold(layout: Any, asked: Any, added: Any) -> bool:
        files = list(added)
        looked.append(len(files))
        return original(layout, asked, files)

    original = overlap.may_hold
    monkeypatch.setattr(overlap, "may_hold", may_hold)
    head = lake.head
    step = peer.run(add_candidate(HeldHead(head, candidate.held.token), head, candidate))
    assert isinstance(step, Head)
    assert looked == [count]
