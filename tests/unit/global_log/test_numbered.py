"""The search for the newest of a log of numbered objects, and its costs."""

from collections import Counter

import pytest

from lakevilla.errors import CorruptObject
from lakevilla.global_log import numbered_log
from lakevilla.global_log.head_log import MOST_RECENT, RECENT_PREFIX, too_old
from lakevilla.global_log.numbered_log import entry_key, newest
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Parallel
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.programs import as_program
from lakevilla_testing.world.store import SimulatedStore

PREFIX = "_lakevilla/heads"


def log_of(count):
    """A store that has the numbers 1 to ``count``."""
    store = SimulatedStore(replaces=False)
    for number in range(1, count + 1):
        store.put(entry_key(PREFIX, number), str(number).encode(), ABSENT)
    return store


def counted(store, program, seen):
    """Run a program, and count its requests and rounds."""
    answer = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration as stop:
            return stop.value
        seen["rounds"] += 1
        if isinstance(effect, Parallel):
            seen["requests"] += len(effect.parts)
            answer = [run_now(store, as_program(part)) for part in effect.parts]
        else:
            seen["requests"] += 1
            answer = run_now(store, as_program(effect))


def found(store, known, **options):
    seen = Counter()
    entry = counted(store, newest(PREFIX, known, **options), seen)
    if entry is not None:
        assert entry[1].body == str(entry[0]).encode()
    return None if entry is None else entry[0], dict(seen)


def test_a_search_for_newer_entries_that_finds_none_costs_one_request():
    store = log_of(7)
    assert found(store, 7) == (None, {"rounds": 1, "requests": 1})
    assert found(log_of(0), 0)[0] is None


def test_a_search_from_one_entry_behind_costs_two_gets():
    assert found(log_of(7), 6) == (7, {"rounds": 2, "requests": 2})


@pytest.mark.parametrize("known", [0, 1, 5, 900, 8_999, 9_998])
def test_a_search_from_far_behind_costs_at_most_nine_rounds(known):
    number, cost = found(log_of(10_000), known)
    assert number == 10_000
    assert cost["rounds"] <= 9
    assert cost["requests"] <= 26


def test_a_new_process_finds_the_last_of_10_000_entries_in_eight_rounds():
    number, cost = found(log_of(10_000), 0, is_far=True)
    assert number == 10_000
    assert cost == {"rounds": 8, "requests": 24}


@pytest.mark.parametrize(
    ("count", "heads", "rounds"), [(10, 1, 4), (999, 1, 4), (1_000, 11, 6), (5_000, 11, 6)]
)
def test_a_new_process_lists_less_than_one_page_however_long_the_log(count, heads, rounds):
    store, kinds = log_of(count), Counter()

    class Counting:
        def apply(self, effect):
            kinds[type(effect).__name__] += 1
            return store.apply(effect)

        def list(self, prefix, *bounds):
            listed = store.list(prefix, *bounds)
            kinds["List"] += 1
            kinds["listed"] += len(listed)
            return listed

    number, cost = found(Counting(), 0, is_far=True)
    assert number == count
    assert cost["rounds"] == rounds
    assert kinds.pop("listed") < 1_000
    assert kinds == {"Get": 2, "Stat": heads, "List": 1}


@pytest.mark.parametrize("is_far", [True, False])
def test_a_search_finds_the_newest_entry_of_a_log_of_any_length(monkeypatch, is_far):
    monkeypatch.setattr(numbered_log, "_PAGE", 3)
    store = log_of(0)
    for count in range(1, 700):
        store.put(entry_key(PREFIX, count), str(count).encode(), ABSENT)
        for known in {0, count // 2, count - 1}:
            assert found(store, known, is_far=is_far)[0] == count
        assert found(store, count, is_far=is_far)[0] in (None, count)


def test_an_outdated_list_does_not_hide_newer_entries(monkeypatch):
    """The list only gives the start of the search: a GET of the next number decides."""
    store = log_of(40)
    listed = store.list
    monkeypatch.setattr(store, "list", lambda *given: listed(*given)[30:])  # newest first
    assert found(store, 0, is_far=True)[0] == 40
    monkeypatch.setattr(store, "list", lambda *given: [])
    assert found(store, 5)[0] == 40


def test_objects_with_other_names_in_a_numbered_log_are_ignored():
    store = log_of(4)
    for name in ("notes.txt", "00000000000000000009.json.bak", f"{9:020}.json/x.json"):
        store.put(f"{PREFIX}/{name}", b"", ABSENT)
    assert found(store, 0, is_far=True)[0] == 4


@pytest.mark.parametrize("known", [0, 1])
def test_an_entry_deleted_by_hand_is_reported_with_its_key(known):
    store = log_of(40)
    store.delete(entry_key(PREFIX, 20))
    with pytest.raises(CorruptObject, match=f"{20:020}.json is missing") as caught:
        found(store, known)
    assert caught.value.key == entry_key(PREFIX, 20)


def test_the_newest_copies_of_head_are_not_too_old():
    keys = [entry_key(RECENT_PREFIX, number) for number in range(MOST_RECENT + 3)]
    assert too_old(keys) == keys[:3]
    assert too_old(keys[:MOST_RECENT]) == []
