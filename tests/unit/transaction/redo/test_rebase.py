"""A transaction is moved to a newer state as a whole, or it can never commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.base import Change
from lakevilla.formats.layout import TableAlteration
from lakevilla.global_log.head import Touch
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context, Event
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Append, Create, Delete, Operation
from lakevilla.transaction.redo import rebase as module
from lakevilla.transaction.redo.rebase import Examination, keeps_its_side, rebase
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation.validate import examine
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome, rewritten

OLD, MINE = data_file("old", 0, 9), data_file("mine", 10, 19)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context(row_check_limit_bytes=0, max_redos=2)
    by_hand.make_tail(context, (OLD,))
    return context


def theirs(context: Context, change: Change) -> None:
    by_hand.with_entry(context, context.tails["t"], change)


def paths(txn: TransactionState) -> list[str]:
    return sorted(outcome(txn.work.tables["t"].snapshot.files())["path"].to_pylist())


def test_a_rebased_transaction_has_its_own_changes_on_the_newer_state(context: Context) -> None:
    head = by_hand.make_head(context.tails["t"])
    txn = by_hand.begun(context, head=head, features=Feature.I)
    by_hand.appended(txn, MINE)
    theirs(context, Change(adds=(data_file("theirs", 20, 29),)))
    newer = by_hand.with_commit(head, Touch(0), name="another")
    outcome(rebase(txn, HeldHead(newer, Token("newer")), outcome(examine(txn, newer, exact=True))))
    assert paths(txn) == ["mine", "old", "theirs"]
    assert (txn.head, txn.bound.sequence, txn.work.redos) == (newer, newer.sequence, 0)
    assert outcome(examine(txn, newer, exact=True)).views == {}, "nothing has come since"


def conflicting(context: Context) -> tuple[TransactionState, Examination]:
    """A transaction whose one update must be redone."""
    txn = by_hand.begun(context)
    by_hand.updated(txn, "id = 3", OLD, MINE)
    theirs(context, rewritten(OLD, data_file("theirs", 0, 9)))
    found = outcome(examine(txn, None))
    assert found.redo_from == 0
    return txn, found


def test_a_transaction_that_was_redone_too_often_raises_a_conflict(context: Context) -> None:
    txn, found = conflicting(context)
    txn.work.redos = 2
    with pytest.raises(lv.ConflictError, match="redone 2 times already"):
        outcome(rebase(txn, None, found))
    assert txn.state == "failed"


def test_operations_before_the_first_that_conflicts_are_not_redone(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand.make_tail(context, (OLD,), location="u")
    txn = by_hand.begun(context, "u", "t")
    by_hand.did(txn, Delete("u", parse_predicate("id = 3")), rewritten(OLD, MINE))
    by_hand.updated(txn, "id = 3", OLD, MINE)
    theirs(context, rewritten(OLD, data_file("theirs", 0, 9)))
    found = outcome(examine(txn, None))
    assert found.redo_from == 1
    redone: list[str] = []

    def noted(txn: TransactionState, done: Done, name: object) -> Program[None]:
        redone.append(done.table)
        done.change = Change()
        yield from ()

    monkeypatch.setattr(module, "redo", noted)
    outcome(rebase(txn, None, found))
    assert redone == ["t"]


@pytest.mark.parametrize(
    ("error", "failure"),
    [(KeyboardInterrupt(), lv.TransactionAborted), (lv.StoreError("no"), lv.StoreError)],
)
def test_a_transaction_interrupted_during_a_rebase_can_never_commit(
    context: Context, error: BaseException, failure: type[lv.LakeVillaError]
) -> None:
    txn, found = conflicting(context)

    def interrupted(event: Event) -> None:
        raise error

    context.notify = interrupted
    with pytest.raises(type(error)):
        outcome(rebase(txn, None, found))
    assert txn.state == "failed"
    with pytest.raises(failure):
        txn.check_open("commit")


def test_files_that_no_longer_fit_the_table_raise_a_conflict_in_a_redo(
    context: Context,
) -> None:
    txn = by_hand.begun(context)
    by_hand.appended(txn, MINE)
    change = by_hand.DELTA.alter(
        context.tails["t"].snapshot, TableAlteration(add_constraints={"small": "id < 5"})
    )
    theirs(context, change)
    found = outcome(examine(txn, None))
    assert found.conflict is not None
    found.conflict, found.redo_from = None, 0  # even if validation had not found it
    with pytest.raises(lv.ConflictError, match="schema or constraints were changed"):
        outcome(rebase(txn, None, found))


def test_a_deferred_operation_counts_as_fitted_after_a_schema_change_of_its_table(
    context: Context,
) -> None:
    txn = by_hand.begun(context)
    done = by_hand.did(txn, Delete("t", parse_predicate("id = 3")), Change(), deferred=True)
    theirs(context, Change(adds=(data_file("theirs", 20, 29),)))
    outcome(rebase(txn, None, outcome(examine(txn, None))))
    assert not done.fitted, "rows alone have come: if it does not fit, that is the caller's mistake"
    columns = pa.schema([("note", pa.string())])
    theirs(
        context,
        by_hand.DELTA.alter(context.tails["t"].snapshot, TableAlteration(add_columns=columns)),
    )
    outcome(rebase(txn, None, outcome(examine(txn, None))))
    assert done.fitted


@pytest.mark.parametrize(
    ("operation", "deferred", "kept"),
    [
        (Append("t", (MINE,)), False, True),
        (Append("t", (MINE,), columns=b"more"), False, False),
        (Create("t", Change()), False, True),
        (Delete("t", parse_predicate("id = 3")), False, False),
        (Delete("t", parse_predicate("id = 3")), True, True),
    ],
)
def test_a_redo_keeps_plain_appends_creates_and_deferred_operations_and_no_rewrites(
    operation: Operation, deferred: bool, kept: bool
) -> None:
    done = Done(operation, Change(), lv.results.Counts(), {}, deferred=deferred)
    assert keeps_its_side(done) == kept
