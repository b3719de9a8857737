"""Pages of older commits: any of them is found in few rounds, and describes its commits."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakevilla.clock import SystemClock
from lakevilla.errors import CorruptObject, VersionNotFound
from lakevilla.global_log import head as head_module
from lakevilla.global_log import repo
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    TableState,
    Touch,
    empty_head,
    successor,
)
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.inbox.fold import MOST_TOGETHER
from lakevilla.global_log.repo import commits_since, commits_until, make_room, pages_before
from lakevilla.ids import Ids
from lakevilla.maintenance.gc.listing import named_pages
from lakevilla.store.effects import Parallel, Program
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import SimulatedStore
from tests.support.search import how_many

T = TypeVar("T")
IDS = Ids(SystemClock(), random.Random(0))
LENGTHS = head_module.PAGE_LENGTH, head_module.COMMITS_IN_HEAD


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "PAGE_LENGTH", 2)
    monkeypatch.setattr(head_module, "COMMITS_IN_HEAD", 4)
    monkeypatch.setattr(head_module, "PAGES_IN_BLOCK", 3)


def with_commits(store: SimulatedStore, number: int, head: Head | None = None) -> Head:
    """Return a HEAD with so many commits more, each 10 ms after the one before."""
    head = empty_head("lake", "root", "0", 1) if head is None else head
    for _ in range(number):
        page = run_now(store, make_room(head, IDS, is_stored=False))
        sequence = head.sequence + 1
        touched = {"t": Touch(published=sequence, adds=True)}
        commit = CommitSummary(sequence, 0, "transaction", f"txn{sequence}", "00", touched)
        head = successor(
            head,
            nonce=str(sequence),
            now_ms=10 * sequence,
            commits=[commit],
            tables={"t": TableState("id", sequence)},
            page=page,
        )
    return head


def counted(store: SimulatedStore, program: Program[T]) -> tuple[T, int, int]:
    """Return the result of a program that only reads pages, with its requests and rounds."""
    requests = rounds = 0
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration as end:
            return end.value, requests, rounds
        parts = effect.parts if isinstance(effect, Parallel) else (effect,)
        requests += len(parts)
        rounds += 1
        answer = run_now(store, _single(effect))


def _single(effect: Any) -> Generator[Any, Any, Any]:
    return (yield effect)


def numbers(commits: Any) -> list[int]:
    return [commit.sequence for commit in commits]


@pytest.mark.parametrize("commits", [1, 4, 11, 60, 230])
def test_each_commit_is_found_whatever_blocks_its_page_is_in(commits: int) -> None:
    store = SimulatedStore()
    head = with_commits(store, commits)
    assert len(head.pages) <= 2 * 5, "two of each level"
    for sequence in range(1, commits + 1):
        found = run_now(store, Timeline.of(head).at(sequence))
        assert found is not None
        assert found.sequence == sequence
        known = run_now(store, Timeline.of(head).known_after(sequence))
        assert known.tables["t"].published == known.commits[-1].sequence >= sequence
        assert numbers(known.after(sequence))[:1] == [sequence + 1][: commits - sequence]
    every = list(range(1, commits + 1))
    assert numbers(run_now(store, commits_since(head, 0)) or ()) == every
    assert numbers(run_now(store, Timeline.of(head).after(0))) == every
    assert run_now(store, named_pages(head)) == {key for key in store.objects if "/pages/" in key}


@given(st.integers(0, 120), st.integers(0, 130), st.integers(0, 20))
@settings(max_examples=how_many(60))
def test_a_range_of_commits_is_exact(commits: int, first: int, length: int) -> None:
    store = SimulatedStore()
    head = with_commits(store, commits)
    first, last = min(first, commits), min(first + length, commits)
    timeline = Timeline.of(head)
    assert numbers(run_now(store, timeline.between(first, last))) == [*range(first + 1, last + 1)]
    newest = [*range(last, max(0, last - length), -1)]
    assert numbers(run_now(store, timeline.newest(length, last))) == newest


def test_a_commit_costs_one_request_for_each_level_of_blocks() -> None:
    store = SimulatedStore()
    head = with_commits(store, 3**4 * 2)
    for sequence in (1, 5, 50, 100):
        _, requests, rounds = counted(store, Timeline.of(head).described(sequence))
        assert requests == rounds <= 5, sequence
    commits, requests, rounds = counted(store, Timeline.of(head).after(0))
    assert len(commits) == 162
    assert (requests, rounds) == (80, 4), "all pages, in a round for each level"


def test_the_commit_of_a_transaction_is_found_from_the_version_at_which_it_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repo, "_FIRST_REACH", 2)
    store = SimulatedStore()
    head = with_commits(store, 162)
    for after in (0, 7, 80, 161):
        for sequence in (after + 1, min(162, after + 20), 162):
            txn = f"txn{sequence}"
            commits, requests, _ = counted(store, commits_until(head, after, txn))
            assert txn in {commit.txn for commit in commits or ()}
            assert requests <= 90, "each page once, and ends of blocks again"
    commits, requests, _ = counted(store, commits_until(head, 4, "txn5"))
    assert numbers(commits) == [5, 6]
    assert requests <= 5, "those of one page"
    assert numbers(run_now(store, commits_until(head, 4, "lost"))) == [*range(5, 163)]
    begun = successor(head, nonce="n", now_ms=2000, history_start=20)
    assert run_now(store, commits_until(begun, 19, "txn21")) is None
    assert numbers(run_now(store, commits_until(begun, 20, "lost"))) == [*range(21, 163)]


def test_the_version_at_a_time_is_the_last_one_up_to_it() -> None:
    store = SimulatedStore()
    head = with_commits(store, 90)
    for time in range(10, 930, 5):
        version, requests, _ = counted(store, Timeline.of(head).by(time))
        assert version == min(time // 10, 90)
        assert requests <= 4
    with pytest.raises(VersionNotFound):
        run_now(store, Timeline.of(head).by(9))


@pytest.mark.parametrize("start", [0, 1, 2, 17, 18, 36, 53])
def test_pages_that_are_not_kept_are_not_read(start: int) -> None:
    store = SimulatedStore()
    head = with_commits(store, 60)
    head = successor(head, nonce="n", now_ms=700, history_start=start)
    named = run_now(store, named_pages(head))
    for key in [key for key in store.objects if "/pages/" in key and key not in named]:
        store.delete(key)
    every = [*range(start + 1, 61)]
    assert numbers(run_now(store, commits_since(head, start)) or ()) == every
    pages = run_now(store, pages_before(head))
    assert numbers(c for page in reversed(pages) for c in page.commits if c.sequence > start) == [
        one for one in every if one < head.commits[0].sequence
    ]
    timeline = Timeline.of(head)
    known = run_now(store, timeline.known_after(start))
    assert numbers(known.after(start))[0] == start + 1
    for version in range(max(1, start), 61):
        assert run_now(store, Timeline.of(head).by(10 * version + 3)) == version
    with pytest.raises(VersionNotFound):
        run_now(store, Timeline.of(head).by(10 * start - 1))
    with pytest.raises(VersionNotFound):
        run_now(store, Timeline.of(head).known_after(start - 1))


def test_a_page_of_another_history_is_never_read() -> None:
    store = SimulatedStore()
    head = with_commits(store, 40)
    with_commits(store, 9, head)  # a future that was abandoned
    head = with_commits(store, 30, head)
    assert numbers(run_now(store, commits_since(head, 0)) or ()) == [*range(1, 71)]
    named = run_now(store, named_pages(head))
    for key in [key for key in store.objects if "/pages/" in key and key not in named]:
        store.delete(key)
    for sequence in range(1, 71):
        assert run_now(store, Timeline.of(head).at(sequence)) is not None


def test_the_end_of_a_block_that_is_lost_is_an_error_for_its_block_alone() -> None:
    store = SimulatedStore()
    head = with_commits(store, 60)
    ends = [ref for ref in head.pages if ref.level]
    lost = ends[0]
    store.delete(lost.key)
    with pytest.raises((CorruptObject, VersionNotFound)):
        run_now(store, Timeline.of(head).at(1))
    assert run_now(store, Timeline.of(head).at(lost.last_sequence + 1)) is not None


def test_head_lists_all_commits_of_the_newest_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader searches HEAD's list for its own batch, and a crowd for proposals."""
    for name, value in zip(("PAGE_LENGTH", "COMMITS_IN_HEAD"), LENGTHS, strict=True):
        monkeypatch.setattr(head_module, name, value)
    store = SimulatedStore()
    base = with_commits(store, LENGTHS[1])
    for _ in range(LENGTHS[0]):
        base = with_commits(store, 1, base)
        replacement = with_commits(store, MOST_TOGETHER, base)
        assert replacement.commits[0].sequence <= base.sequence + 1
