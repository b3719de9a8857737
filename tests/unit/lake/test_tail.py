"""A tail, the part of a log read so far: an immutable value that drops its oldest entries."""

from __future__ import annotations

import pytest

from lakevilla.formats.base import Change
from lakevilla.lake import context as module
from tests.support import by_hand
from tests.support.by_hand import data_file, outcome


def test_a_tail_grows_by_one_entry_and_drops_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT", 3)
    context = by_hand.make_context()
    first = tail = by_hand.make_tail(context, (data_file("0", 0, 9),))
    for number in range(1, 6):
        tail = by_hand.with_entry(context, tail, Change(adds=(data_file(str(number), 0, 9),)))
        assert tail.snapshot.version == tail.tip == number
    assert sorted(tail.entries) == sorted(tail.snapshots) == [3, 4, 5]
    assert sorted(first.entries) == [0], "a value: nobody changes one that another holds"


def test_a_tail_refuses_an_entry_that_does_not_follow_it() -> None:
    context = by_hand.make_context()
    tail = by_hand.make_tail(context)
    newer = by_hand.with_entry(context, tail, Change())
    with pytest.raises(AssertionError):
        newer.extended(newer.entries[1], newer.snapshot, 0.0)


def test_only_the_newest_two_states_keep_their_lists_of_files() -> None:
    """Each list is as long as the table: a long-lived client would hold 160 of them."""
    context = by_hand.make_context()
    tail = by_hand.make_tail(context, (data_file("0", 0, 9),))
    lists = []
    for number in range(1, 5):
        tail = by_hand.with_entry(context, tail, Change(adds=(data_file(str(number), 0, 9),)))
        lists.append(outcome(tail.snapshot.files()))
    states = [tail.snapshots[version] for version in range(1, 5)]
    again = [outcome(state.files()) for state in states]
    assert [one is before for one, before in zip(again, lists, strict=True)] == [
        False,
        False,
        True,
        True,
    ]
    assert again == lists
