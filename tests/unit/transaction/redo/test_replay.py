"""A replay of operations: in order, each on the result of the earlier ones."""

from __future__ import annotations

import pytest

from lakevilla.formats.base import Change
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program
from lakevilla.transaction.redo.replay import lay_over, replay
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome

OLD, FIRST, SECOND = data_file("old", 0, 9), data_file("first", 10, 19), data_file("second", 20, 29)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context, (OLD,))
    return context


@pytest.fixture
def txn(context: Context) -> TransactionState:
    txn = by_hand.begun(context)
    by_hand.appended(txn, FIRST)
    by_hand.appended(txn, SECOND)
    return txn


def paths(txn: TransactionState) -> list[str]:
    return sorted(outcome(txn.work.tables["t"].snapshot.files())["path"].to_pylist())


def test_each_operation_in_a_replay_sees_only_earlier_ones(txn: TransactionState) -> None:
    seen = []

    def step(index: int, done: Done) -> Program[None]:
        yield from ()
        seen.append((index, done.operation, len(txn.work.done), paths(txn)))

    operations = [done.operation for done in txn.work.done]
    outcome(replay(txn, step))
    assert seen == [(0, operations[0], 0, ["old"]), (1, operations[1], 1, ["first", "old"])]
    assert [done.operation for done in txn.work.done] == operations
    assert paths(txn) == ["first", "old", "second"]


def test_files_made_by_one_step_of_a_replay_are_seen_by_the_next(
    txn: TransactionState,
) -> None:
    anew = data_file("anew", 10, 19)
    seen = []

    def step(index: int, done: Done) -> Program[None]:
        yield from ()
        seen.append(paths(txn))
        if index == 0:
            done.change = Change(adds=(anew,))

    outcome(replay(txn, step))
    assert seen == [["old"], ["anew", "old"]]
    assert paths(txn) == ["anew", "old", "second"]


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_all_operations_are_restored_if_a_step_of_a_replay_raises(
    txn: TransactionState, failing: int, error: type[BaseException]
) -> None:
    def step(index: int, done: Done) -> Program[None]:
        yield from ()
        if index == failing:
            raise error

    operations = [done.operation for done in txn.work.done]
    with pytest.raises(error):
        outcome(replay(txn, step))
    assert [done.operation for done in txn.work.done] == operations
    assert paths(txn) == ["first", "old", "second"]


def test_own_changes_of_a_transaction_are_laid_over_the_newer_state_of_a_table(
    context: Context, txn: TransactionState
) -> None:
    by_hand.with_entry(context, context.tails["t"], Change(adds=(data_file("theirs", 30, 39),)))
    txn.work.tables["t"].view = by_hand.begun(context).work.tables["t"].view
    lay_over(txn)
    assert paths(txn) == ["first", "old", "second", "theirs"]
