"""Optimize applied to a state: it moves the bins whose files are still there, and no others."""

from __future__ import annotations

import msgspec
import pytest

from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import DeletionVector, removal
from lakevilla.formats.layout import TableAlteration
from lakevilla.lake.operations.refresh import moved, moving_metrics, still_moved
from lakevilla.sublogs.operations import Bin, Optimize
from tests.support import by_hand
from tests.support.by_hand import DELTA, data_file, outcome

OLD = [data_file(name, 0, 9) for name in "abcd"]
NEW = [data_file(name, 0, 9, data_change=False) for name in ("ab", "cd")]


@pytest.fixture
def before() -> TableSnapshot:
    return by_hand.make_tail(by_hand.make_context(), OLD).snapshot


def optimize(before: TableSnapshot) -> Optimize:
    bins = (
        Bin((OLD[0].ref, OLD[1].ref), (NEW[0],)),
        Bin((OLD[2].ref, OLD[3].ref), (NEW[1],)),
    )
    return Optimize("t", bins, before.metadata, considered=4)


def test_an_optimize_replaces_all_files_of_its_bins_and_changes_no_row(
    before: TableSnapshot,
) -> None:
    change = outcome(moved(optimize(before), before))
    assert {file.path for file in change.removes} == set("abcd")
    assert {file.path for file in change.adds} == {"ab", "cd"}
    assert not change.changes_data


def test_a_bin_of_which_one_file_was_removed_is_not_moved(before: TableSnapshot) -> None:
    operation = optimize(before)
    after = before.apply(Change(removes=(removal(OLD[0]),), adds=(data_file("new", 0, 9),)))
    change = outcome(moved(operation, after))
    assert {file.path for file in change.removes} == {"c", "d"}
    assert {file.path for file in change.adds} == {"cd"}
    assert still_moved(operation, change).bins == operation.bins[1:]


def test_a_bin_whose_file_has_new_deletes_is_not_moved(before: TableSnapshot) -> None:
    vector = DeletionVector("u", "abc", 10, 1, offset=1)
    deleted = msgspec.structs.replace(OLD[2], deletion_vector=vector)
    after = before.apply(Change(removes=(removal(OLD[2]),), adds=(deleted,)))
    change = outcome(moved(optimize(before), after))
    assert {file.path for file in change.removes} == {"a", "b"}


def test_an_optimize_moves_no_file_of_a_table_with_new_requirements_for_files(
    before: TableSnapshot,
) -> None:
    alteration = TableAlteration(add_constraints={"small": "id < 100"})
    after = before.apply(DELTA.alter(before, alteration))
    assert outcome(moved(optimize(before), after)).is_empty


def test_files_that_an_optimize_does_not_move_are_counted_as_skipped(before: TableSnapshot) -> None:
    operation = optimize(before)
    after = before.apply(Change(removes=(removal(OLD[0]),)))
    metrics = moving_metrics(operation, outcome(moved(operation, after)))
    assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == ("1", "2")
    assert metrics["totalFilesSkipped"] == "2"
