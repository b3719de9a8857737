"""Reads and operations of a transaction compared with later commits: by hand, on values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.base import Change
from lakevilla.formats.layout import TableAlteration
from lakevilla.global_log.head import TableState, Touch
from lakevilla.lake.context import Context
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sublogs.operations import Delete, Insert, QuerySource
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation.validate import examine
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome, rewritten

LOW, HIGH = data_file("low", 0, 9), data_file("high", 10, 19)


@pytest.fixture
def context() -> Context:
    # Rows are never read: the files decide.
    context = by_hand.make_context(row_check_limit_bytes=0)
    by_hand.make_tail(context, (LOW, HIGH))
    return context


def others(context: Context, *changes: Change) -> None:
    """Add entries of clients without LakeVilla."""
    for change in changes:
        by_hand.with_entry(context, context.tails["t"], change)


def examined(txn: TransactionState, **options: bool) -> Examination:
    return outcome(examine(txn, None, **options))


def test_no_view_is_built_if_nothing_was_committed_since(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.read(txn)
    found = examined(txn)
    assert (found.conflict, found.redo_from, found.views) == (None, None, {})


@pytest.mark.parametrize(
    ("where", "conflicts"), [("id = 25", True), ("id > 15", True), ("id < 5", False), (None, True)]
)
def test_a_read_conflicts_with_new_rows_that_match_its_predicate(
    context: Context, where: str | None, conflicts: bool
) -> None:
    txn = by_hand.begun(context)
    by_hand.read(txn, where)
    others(context, Change(adds=(data_file("new", 20, 29),)))
    found = examined(txn)
    assert list(found.views) == ["t"]
    assert (found.conflict is not None) == conflicts
    if found.conflict is not None:
        assert isinstance(found.conflict, lv.ConflictError)
        assert "rows that the transaction has read were changed" in found.conflict.message


def test_rows_that_were_only_moved_do_not_conflict_with_a_read(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.read(txn, "id = 3")
    others(context, rewritten(LOW, data_file("low2", 0, 9, data_change=False), data_change=False))
    assert examined(txn).conflict is None


def test_a_redo_begins_with_the_first_operation_whose_file_was_removed(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.updated(txn, "id = 3", LOW, data_file("low2", 0, 9))
    by_hand.updated(txn, "id = 13", HIGH, data_file("high2", 10, 19))
    others(context, rewritten(HIGH, data_file("high3", 10, 19)))
    found = examined(txn)
    assert (found.conflict, found.redo_from) == (None, 1)


def test_an_update_is_redone_if_another_client_has_moved_its_file(
    context: Context,
) -> None:
    txn = by_hand.begun(context)
    by_hand.updated(txn, "id = 3", LOW, data_file("low2", 0, 9))
    others(context, rewritten(LOW, data_file("low3", 0, 9, data_change=False), data_change=False))
    assert examined(txn).redo_from == 0


def test_a_read_of_rows_that_an_own_operation_must_redo_is_a_conflict(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.updated(txn, "id = 3", LOW, data_file("low2", 0, 9))
    by_hand.read(txn, "id = 13")
    others(context, rewritten(LOW, data_file("low3", 0, 9)))
    found = examined(txn)
    assert found.conflict is not None
    assert "has read rows of its own that must be redone" in found.conflict.message


def test_a_deferred_operation_conflicts_with_no_change_of_rows(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.did(txn, Delete("t", parse_predicate("id = 3")), Change(), deferred=True)
    others(context, rewritten(LOW, data_file("low2", 0, 9)))
    found = examined(txn)
    assert (found.conflict, found.redo_from) == (None, None)


def altered(context: Context, **request: object) -> Change:
    return by_hand.DELTA.alter(context.tails["t"].snapshot, TableAlteration(**request))  # type: ignore[arg-type]


def test_an_append_stays_valid_after_a_new_column_and_not_after_a_new_constraint(
    context: Context,
) -> None:
    txn = by_hand.begun(context)
    by_hand.appended(txn, data_file("mine", 50, 59))
    others(context, altered(context, add_columns=pa.schema([("note", pa.string())])))
    assert examined(txn).conflict is None
    others(context, altered(context, add_constraints={"small": "id < 100"}))
    found = examined(txn)
    assert found.conflict is not None
    assert "schema or constraints were changed meanwhile" in found.conflict.message


def test_a_read_conflicts_with_a_schema_change(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.read(txn, "id = 3")
    others(context, altered(context, add_columns=pa.schema([("note", pa.string())])))
    found = examined(txn)
    assert found.conflict is not None
    assert "its schema was changed meanwhile" in found.conflict.message


def test_a_table_that_was_created_again_is_a_conflict_whatever_it_has(context: Context) -> None:
    txn = by_hand.begun(context)
    by_hand.appended(txn, data_file("mine", 50, 59))
    del context.tails["t"]
    by_hand.make_tail(context, (LOW, HIGH), table_id="two")
    found = examined(txn)
    assert found.conflict is not None
    assert "created again" in found.conflict.message


def test_a_table_that_head_has_under_another_id_is_a_conflict_without_a_read_of_its_log(
    context: Context,
) -> None:
    head = by_hand.make_head(context.tails["t"])
    txn = by_hand.begun(context, head=head, features=Feature.I)
    by_hand.appended(txn, data_file("mine", 50, 59))
    newer = by_hand.with_commit(head, Touch(0), state=TableState("two", 0))
    del context.tails["t"]  # to read the log, it would have to send a request
    found = outcome(examine(txn, newer))
    assert found.conflict is not None
    assert "it was dropped or replaced, and created again" in found.conflict.message


def test_an_update_is_redone_for_new_rows_also_under_snapshot_isolation(
    context: Context,
) -> None:
    txn = by_hand.begun(context, isolation="snapshot", features=Feature.I)
    by_hand.updated(txn, "id < 100", LOW, data_file("low2", 0, 9))
    others(context, Change(adds=(data_file("new", 20, 29),)))
    found = examined(txn)
    assert (found.conflict, found.redo_from) == (None, 0), "the new rows are to be updated too"


def test_outdated_reads_under_snapshot_isolation_are_allowed_and_noted(
    context: Context,
) -> None:
    txn = by_hand.begun(context, isolation="snapshot", features=Feature.I)
    by_hand.read(txn, "id > 15")
    by_hand.updated(txn, "id = 3", LOW, data_file("low2", 0, 9))
    others(context, Change(adds=(data_file("new", 20, 29),)))
    found = examined(txn)
    assert (found.conflict, found.redo_from) == (None, None)
    # The table stays on the state that was read, so it does not count as behind.
    assert (found.lenient, found.behind) == ({"t": 0}, {})
    assert examined(txn, exact=True).behind == {"t": 0}


def test_rows_changed_by_both_under_snapshot_isolation_are_a_lost_update(context: Context) -> None:
    txn = by_hand.begun(context, isolation="snapshot", features=Feature.I)
    by_hand.read(txn, "id = 3")
    by_hand.updated(txn, "id = 3", LOW, data_file("low2", 0, 9))
    others(context, rewritten(LOW, data_file("low3", 0, 9)))
    found = examined(txn)
    assert isinstance(found.conflict, lv.ConflictError)


def test_an_insert_is_redone_if_its_source_table_has_changed() -> None:
    context = by_hand.make_context(row_check_limit_bytes=0)
    by_hand.make_tail(context, (LOW,), location="t")
    by_hand.make_tail(context, (HIGH,), location="source", table_id="two")
    txn = by_hand.begun(context, "t", "source", features=Feature.I)
    query = QuerySource("select * from s", {"s": "source"})
    by_hand.did(txn, Insert("t", ("id",), query), Change(adds=(data_file("mine", 10, 19),)))
    by_hand.with_entry(context, context.tails["t"], Change(adds=(data_file("theirs", 1, 1),)))
    assert outcome(examine(txn, None)).redo_from is None, "rows of its own table are not read"
    by_hand.with_entry(context, context.tails["source"], rewritten(HIGH, data_file("x", 10, 19)))
    assert outcome(examine(txn, None)).redo_from == 0
