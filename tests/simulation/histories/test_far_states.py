"""Histories in which transactions compare their state with the newest by lists of files (note 88).

The library does so only beyond many log entries, which a short history does not have.
"""

from __future__ import annotations

from collections import Counter

import pytest

from lakevilla.lake import row_changes
from lakevilla.lake.context import Tail
from lakevilla.lake.row_changes import NetChange, change_of_lists
from lakevilla.lake.view import View
from lakevilla.store.effects import Program
from lakevilla.transaction.validation import validate
from lakevilla_testing.histories import campaign, lists
from lakevilla_testing.histories.campaign import HistoryFailed
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import how_many


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Compare by lists however few entries are between, and count the differences."""
    monkeypatch.setattr(row_changes, "_MANY_ENTRIES", -1)
    found: Counter[str] = Counter()

    def counted(old: View, new: View, tail: Tail) -> Program[NetChange | None]:
        net = yield from change_of_lists(old, new, tail)
        found["by lists"] += net is not None and net.by_lists
        return net

    monkeypatch.setattr(validate, "change_of_lists", counted)
    return found


def test_every_invariant_holds_where_states_are_compared_by_lists(used: Counter[str]) -> None:
    for seed in range(how_many(2, whole=300)):
        campaign.run(seed)
    assert used["by lists"]


def test_some_order_explains_histories_where_states_are_compared_by_lists(
    used: Counter[str],
) -> None:
    for seed in range(how_many(10, whole=2_000)):
        lists.run(seed)
    assert used["by lists"]


def test_histories_find_a_difference_that_is_left_out() -> None:
    with PLANTED["far_states_look_equal"].plant():
        assert any(is_wrong(seed) for seed in range(60))


def is_wrong(seed: int) -> bool:
    try:
        lists.run(seed)
    except HistoryFailed:
        return True
    return False
