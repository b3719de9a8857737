"""The pending commits that the log lacks, and those of them that can't be added any more."""

from __future__ import annotations

import dataclasses

import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import removal
from lakevilla.formats.layout import TableAlteration
from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import Head, PendingRef, TableState, Touch
from lakevilla.lake.applicability import first_unfit, is_lost, lost_for_good, unpublished
from lakevilla.lake.context import Context
from lakevilla.store.base import Missing, ObjectInfo, Token
from lakevilla.store.effects import Stat
from tests.support import by_hand
from tests.support.by_hand import data_file, first_asked, outcome, rewritten

OLD, NEW = data_file("old", 0, 9), data_file("new", 0, 9)
THEIRS = data_file("theirs", 0, 9)
THERE = ObjectInfo("key", 1, Token("one"), 0.0)


@pytest.fixture
def clock() -> by_hand.StoppedClock:
    return by_hand.StoppedClock()


@pytest.fixture
def context(clock: by_hand.StoppedClock) -> Context:
    context = by_hand.make_context(clock)
    by_hand.make_tail(context, (OLD,))
    return context


def pending(context: Context, count: int = 2) -> Head:
    refs = [PendingRef(number, context.ids.txn_id(), "", 0) for number in range(2, 2 + count)]
    head = by_hand.make_head(context.tails["t"])
    state = TableState("one", 0, tuple(refs))
    return by_hand.with_commit(head, *[Touch(0) for _ in refs], state=state)


def unfit(context: Context, head: Head, *changes: Change) -> int | None:
    refs = head.tables["t"].pending
    parts = [TablePart("one", change) for change in changes]
    return outcome(first_unfit(context, head, "t", context.tails["t"], refs, parts))


def test_a_commit_that_the_log_has_counts_as_published(context: Context) -> None:
    head = pending(context)
    tail = context.tails["t"]
    assert [ref.sequence for ref in unpublished(head, "t", tail)] == [2, 3]
    tail = by_hand.with_entry(context, tail, Change(adds=(NEW,)), head=head, sequence=2)
    assert [ref.sequence for ref in unpublished(head, "t", tail)] == [3]
    assert unpublished(head, "another", tail) == ()


def test_the_first_commit_whose_file_was_removed_is_unfit_even_if_the_file_was_added_again(
    context: Context,
) -> None:
    head = pending(context)
    commits = Change(adds=(NEW,)), rewritten(OLD, NEW)
    assert unfit(context, head, *commits) is None
    by_hand.with_entry(context, context.tails["t"], Change(removes=(removal(OLD),)))
    assert unfit(context, head, *commits) == 1
    by_hand.with_entry(context, context.tails["t"], Change(adds=(OLD,)))
    assert unfit(context, head, *commits) == 1


def test_commits_of_the_lake_itself_make_no_pending_commit_unfit(context: Context) -> None:
    head = pending(context)
    change = rewritten(OLD, NEW)
    by_hand.with_entry(context, context.tails["t"], change, head=head, sequence=2)
    assert unfit(context, head, change, change) is None


def test_data_files_are_checked_once_they_are_old_enough_to_be_vacuumed_by_other_clients(
    context: Context, clock: by_hand.StoppedClock
) -> None:
    head = pending(context, 1)
    assert unfit(context, head, Change(adds=(NEW,))) is None
    clock.seconds += context.settings.checked_tip_seconds + 1
    refs, parts = head.tables["t"].pending, [TablePart("one", Change(adds=(NEW,)))]
    tail = context.tails["t"]
    asked = first_asked(first_unfit(context, head, "t", tail, refs, parts))
    assert asked == Stat("t/new")
    for answer, index in ((THERE, None), (Missing(), 0)):
        assert outcome(first_unfit(context, head, "t", tail, refs, parts), answer) == index


def test_a_new_property_does_not_matter_to_readers_bound_before_it(
    context: Context,
) -> None:
    """Another client may clean that state up at any time; then the verdicts of two readers would
    differ.
    """
    head = pending(context, 1)
    before = context.tails["t"]
    changes = {
        "same": TableAlteration(set_properties={"x": "y"}),
        "other": TableAlteration(set_properties={"delta.appendOnly": "true"}),
    }
    part = TablePart("one", Change(adds=(NEW,)), contract=before.snapshot.contract)
    for name, index in (("same", None), ("other", 0)):
        change = by_hand.DELTA.alter(before.snapshot, changes[name])
        after = by_hand.with_entry(context, before, change)
        without = dataclasses.replace(after, snapshots={after.tip: after.snapshot})
        for tail in (after, without):
            refs = head.tables["t"].pending
            assert outcome(first_unfit(context, head, "t", tail, refs, [part])) == index, name


@pytest.mark.parametrize("asks", [False, True])
def test_applicability_is_judged_by_the_state_if_log_entries_were_cleaned_up(
    context: Context, asks: bool
) -> None:
    """An entry that can't be read any more may have changed the columns."""
    head = pending(context)
    before = context.tails["t"]
    name = "delta.appendOnly" if asks else "x"
    change = by_hand.DELTA.alter(before.snapshot, TableAlteration(set_properties={name: "true"}))
    after = by_hand.with_entry(context, before, change)
    tail = dataclasses.replace(after, entries={}, snapshots={after.tip: after.snapshot})
    parts = [TablePart("one", Change(adds=(NEW,)), contract=before.snapshot.contract)] * 2
    refs = head.tables["t"].pending
    # Each judgement requests the first entry; the first unfit commit ends it.
    answers = [Missing()] if asks else [Missing(), Missing()]
    found = outcome(first_unfit(context, head, "t", tail, refs, parts), *answers)
    assert found == (0 if asks else None)


def test_a_state_can_not_show_whether_a_commit_after_a_pending_schema_change_fits(
    context: Context,
) -> None:
    head = pending(context)
    before = context.tails["t"]
    after = by_hand.with_entry(context, before, Change(adds=(THEIRS,)))
    tail = dataclasses.replace(after, entries={}, snapshots={after.tip: after.snapshot})
    change = Change(metadata=dict(before.snapshot.metadata))
    changing = TablePart("one", change, contract="after")
    behind = TablePart("one", Change(adds=(NEW,)), contract="after")
    refs = head.tables["t"].pending
    parts = [changing, behind]
    assert outcome(first_unfit(context, head, "t", tail, refs, parts), Missing(), Missing()) is None


def test_files_in_other_stores_never_count_as_lost() -> None:
    keys = ["t/a", "s3://bucket/b", "t/c"]
    assert outcome(lost_for_good(keys), THERE, Missing()) == ["t/c"]


@pytest.mark.parametrize(("table_id", "lost"), [("one", False), ("two", True)])
def test_a_log_that_was_created_again_counts_as_lost(
    context: Context, table_id: str, lost: bool
) -> None:
    head = pending(context)
    del context.tails["t"]
    tail = by_hand.make_tail(context, (OLD,), table_id=table_id)
    assert outcome(is_lost(context, head, "t", tail)) == lost


def test_a_commit_is_unfit_once_another_client_has_added_its_file(context: Context) -> None:
    """An entry that adds the file shows that, and so does the state after the entry."""
    head = pending(context)
    after = by_hand.with_entry(context, context.tails["t"], Change(adds=(NEW,)))
    refs, parts = head.tables["t"].pending[:1], [TablePart("one", Change(adds=(NEW,)))]
    unseen = dataclasses.replace(after, entries={}, snapshots={after.tip: after.snapshot})
    assert outcome(first_unfit(context, head, "t", after, refs, parts)) == 0
    assert outcome(first_unfit(context, head, "t", unseen, refs, parts), Missing()) == 0
