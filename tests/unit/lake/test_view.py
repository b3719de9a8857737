"""The state of a table, derived from HEAD and the table's log."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.base import Change, Entry
from lakevilla.formats.files import removal
from lakevilla.formats.layout import TableAlteration
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import Head, PendingRef, TableState, Touch
from lakevilla.lake.context import Context
from lakevilla.lake.view import Placement, View, breaks, build_view, place
from lakevilla.store.base import Missing
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome, rewritten

OLD, OURS, THEIRS = data_file("old", 0, 9), data_file("ours", 10, 19), data_file("theirs", 20, 29)


@pytest.fixture
def context() -> Context:
    context = by_hand.make_context()
    by_hand.make_tail(context, (OLD,))
    return context


def decided(context: Context, *changes: Change) -> Head:
    """Return a HEAD with commits of the table that are not in its log yet."""
    tail = context.tails["t"]
    head = by_hand.make_head(tail)
    pending = []
    for number, change in enumerate(changes, 2):
        commit = CommitObject(1, "n", f"txn-{number}", {"t": TablePart("one", change)})
        context.keep_commit("", commit)
        pending.append(PendingRef(number, commit.txn, "", base=0))
    state = TableState("one", tail.tip, tuple(pending))
    return by_hand.with_commit(head, *[Touch(0) for _ in changes], state=state)


def numbers(placement: Placement) -> list[int]:
    return [ref.sequence for ref in placement.overlay]


def placed(context: Context, head: Head | None, **options: bool) -> Placement:
    return outcome(place(context, head, "t", context.tails["t"], **options))


def viewed(context: Context, head: Head | None) -> View:
    return outcome(build_view(context, head, "t", context.tails["t"]))


def paths(view: View) -> list[str]:
    return sorted(outcome(view.snapshot.files())["path"].to_pylist())


def theirs(context: Context, change: Change) -> None:
    by_hand.with_entry(context, context.tails["t"], change)


def test_a_view_without_head_is_the_log(context: Context) -> None:
    theirs(context, Change(adds=(THEIRS,)))
    assert placed(context, None) == Placement(logged=1, overlay=())
    assert paths(viewed(context, None)) == ["old", "theirs"]


def test_a_decided_commit_is_laid_over_the_log(context: Context) -> None:
    head = decided(context, Change(adds=(OURS,)))
    assert numbers(placed(context, head)) == [2]
    view = viewed(context, head)
    assert paths(view) == ["old", "ours"]
    assert view.log_version is None, "no version of the log shows that state"


def test_a_commit_that_is_in_the_log_is_not_laid_over_it_again(context: Context) -> None:
    head = decided(context, Change(adds=(OURS,)), Change(adds=(data_file("more", 30, 39),)))
    by_hand.with_entry(context, context.tails["t"], Change(adds=(OURS,)), head=head, sequence=2)
    placement = placed(context, head)
    assert (placement.logged, numbers(placement)) == (1, [3])
    assert paths(viewed(context, head)) == ["more", "old", "ours"]


def test_a_foreign_entry_that_fits_is_placed_below_the_pending_commits(context: Context) -> None:
    head = decided(context, Change(adds=(OURS,)))
    theirs(context, Change(adds=(THEIRS,)))
    placement = placed(context, head)
    assert (placement.logged, placement.hidden, numbers(placement)) == (1, (1,), [2])
    assert paths(viewed(context, head)) == ["old", "ours", "theirs"]
    bound = placed(context, head, accept_hidden=False)
    assert (bound.logged, bound.hidden) == (0, ())


def test_the_log_is_used_up_to_the_last_entry_on_which_the_pending_commits_fit(
    context: Context,
) -> None:
    head = decided(context, rewritten(OLD, OURS))
    theirs(context, Change(adds=(THEIRS,)))
    theirs(context, Change(removes=(removal(OLD),)))
    placement = placed(context, head)
    assert (placement.logged, placement.unfit_from) == (1, 2)
    assert paths(viewed(context, head)) == ["ours", "theirs"]


def test_a_log_entry_of_a_newer_head_makes_the_cached_head_stale(context: Context) -> None:
    head = by_hand.make_head(context.tails["t"])
    by_hand.with_entry(
        context, context.tails["t"], Change(adds=(OURS,)), head=head, sequence=head.sequence + 1
    )
    placement = placed(context, head)
    assert (placement.stale, placement.logged) == (True, 0)
    assert paths(viewed(context, head)) == ["old"]


def test_a_table_that_was_dropped_or_created_again_is_not_shown(context: Context) -> None:
    head = by_hand.make_head(context.tails["t"])
    dropped = by_hand.with_commit(head, Touch(0), state=TableState("one", 0, dropped=True))
    with pytest.raises(lv.TableNotFound, match="was dropped from this lake"):
        viewed(context, dropped)
    del context.tails["t"]
    by_hand.make_tail(context, (OLD,), table_id="two")
    with pytest.raises(lv.TableNotFound, match="created again, by another client"):
        viewed(context, head)


def test_a_pending_commit_is_not_laid_over_cleaned_up_entries_that_changed_its_files(
    context: Context,
) -> None:
    """Otherwise HEAD would show rows twice, and have foreign changes without a commit that names
    them.
    """
    head = decided(context, Change(adds=(OURS,)), rewritten(OLD, OURS))
    theirs(context, rewritten(OLD, THEIRS))
    tail = context.tails["t"]
    cleaned = replace(tail, entries={}, snapshots={tail.tip: tail.snapshot})
    placement = outcome(place(context, head, "t", cleaned), Missing())
    assert placement.logged == head.tables["t"].published
    assert placement.overlay == head.tables["t"].pending
    assert placement.hidden == ()
    assert placement.unfit_from == placement.logged + 1


def test_cleaned_up_entries_are_absorbed_as_foreign_if_all_pending_commits_fit(
    context: Context,
) -> None:
    head = decided(context, Change(adds=(OURS,)))
    theirs(context, rewritten(OLD, THEIRS))
    tail = context.tails["t"]
    cleaned = replace(tail, entries={}, snapshots={tail.tip: tail.snapshot})
    placement = outcome(place(context, head, "t", cleaned), Missing())
    assert (placement.logged, placement.hidden) == (tail.tip, (tail.tip,))
    assert placement.unfit_from is None


def entry(change: Change) -> Entry:
    return Entry(7, change, {}, (), None, "WRITE", False, 1, {})


@pytest.mark.parametrize(
    ("theirs", "contract", "part", "why"),
    [
        (Change(adds=(THEIRS,)), False, Change(adds=(OURS,)), None),
        (Change(removes=(removal(OLD),)), False, Change(adds=(OURS,)), None),
        (Change(removes=(removal(OLD),)), False, rewritten(OLD, OURS), "removed old"),
        (Change(metadata={}), True, Change(adds=(OURS,)), "changed the table's metadata"),
        (Change(metadata={}), False, Change(adds=(OURS,)), None),
        (Change(metadata={}), False, Change(metadata={}), "metadata, as the commit does"),
        (Change(protocol={}), False, Change(protocol={}), "protocol, as the commit does"),
    ],
)
def test_foreign_changes_make_a_decided_commit_unfit_only_if_they_conflict(
    theirs: Change, contract: bool, part: Change, why: str | None
) -> None:
    found = breaks(entry(theirs), contract, TablePart("one", part))
    assert (found is None) == (why is None)
    if why is not None:
        assert found is not None
        assert found.startswith("version 7 ")
        assert why in found


def test_a_commit_that_creates_a_table_is_unfit_once_another_client_has_created_it() -> None:
    part = TablePart("one", Change(), created=True)
    assert breaks(entry(Change()), False, part) == "version 7 made the table first"


@pytest.mark.parametrize(
    ("request_", "unfit"),
    [
        ({"set_properties": {"note": "x"}}, None),
        ({"set_properties": {"delta.enableChangeDataFeed": "true"}}, 1),
        ({"add_columns": pa.schema([("note", pa.string())])}, 1),
        ({"add_constraints": {"small": "id < 100"}}, 1),
    ],
)
def test_alterations_make_a_decided_rewrite_unfit_only_if_they_require_other_files(
    context: Context, request_: dict[str, object], unfit: int | None
) -> None:
    head = decided(context, rewritten(OLD, OURS))
    snapshot = context.tails["t"].snapshot
    theirs(context, by_hand.DELTA.alter(snapshot, TableAlteration(**request_)))  # type: ignore[arg-type]
    assert placed(context, head).unfit_from == unfit
