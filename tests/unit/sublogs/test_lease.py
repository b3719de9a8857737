"""Leases, tested with a number in place of a clock."""

from __future__ import annotations

import math
import threading

import pytest

from lakevilla.store.base import Token
from lakevilla.sublogs import lease
from lakevilla.sublogs.lease import Leases

LEASE = 30.0
DAY = 24 * 3600.0
ONE, TWO = Token('"one"'), Token('"two"')


@pytest.fixture
def leases() -> Leases:
    return Leases(own_seconds=LEASE, longest_seconds=DAY)


def test_a_record_unchanged_for_its_lease_is_stale(leases: Leases) -> None:
    looks = (100.0, 110.0, 129.9, 130.0, 131.0)
    stale = [leases.observe("a", ONE, LEASE, now) for now in looks]
    assert stale == [False, False, False, True, True]


def test_two_checks_one_lease_apart_make_a_record_stale(leases: Leases) -> None:
    assert not leases.observe("a", ONE, LEASE, 0.0)
    assert leases.observe("a", ONE, LEASE, 5_000.0)


def test_a_changed_token_begins_a_new_lease(leases: Leases) -> None:
    leases.observe("a", ONE, LEASE, 0.0)
    assert not leases.observe("a", TWO, LEASE, 29.0)
    assert not leases.observe("a", TWO, LEASE, 58.9)
    assert leases.observe("a", TWO, LEASE, 59.0)


def test_a_stale_record_that_changes_is_alive_again(leases: Leases) -> None:
    leases.observe("a", ONE, LEASE, 0.0)
    assert leases.observe("a", ONE, LEASE, 40.0)
    assert not leases.observe("a", TWO, LEASE, 41.0)
    assert not leases.is_stale("a", 41.0)


def test_records_are_compared_by_object_version_if_there_is_one(leases: Leases) -> None:
    leases.observe("a", Token("e", "7"), LEASE, 0.0)
    assert not leases.observe("a", Token("e", "8"), LEASE, 30.0), "equal bytes, written again"
    assert leases.observe("a", Token("other", "8"), LEASE, 60.0)


def test_a_record_with_an_empty_token_is_never_stale(leases: Leases) -> None:
    assert not any(leases.observe("a", Token(None), LEASE, now) for now in (0.0, 40.0, 80.0))


def test_a_record_is_never_stale_without_a_second_check(leases: Leases) -> None:
    leases.observe("a", ONE, LEASE, 0.0)
    assert not leases.is_stale("a", 1_000.0)
    assert not leases.is_stale("never seen", 1_000.0)


def test_a_stale_verdict_is_valid_for_one_lease(leases: Leases) -> None:
    leases.observe("a", ONE, LEASE, 0.0)
    leases.observe("a", ONE, LEASE, 30.0)
    assert leases.is_stale("a", 30.0)
    assert leases.is_stale("a", 60.0)
    assert not leases.is_stale("a", 60.1)


def test_a_forgotten_record_is_observed_from_the_start(leases: Leases) -> None:
    leases.observe("a", ONE, LEASE, 0.0)
    leases.forget("a")
    leases.forget("a")
    assert not leases.observe("a", ONE, LEASE, 30.0)
    assert leases.observe("a", ONE, LEASE, 60.0)


@pytest.mark.parametrize(
    ("claimed", "counts"),
    [
        (math.nan, LEASE),
        (math.inf, LEASE),
        (-math.inf, LEASE),
        (-5.0, LEASE),
        (0.0, LEASE),
        (10.0, 10.0),
        (DAY, DAY),
        (1e300, DAY),
        (10**400, DAY),
    ],
)
def test_a_lease_claimed_in_a_record_counts_only_within_limits(
    leases: Leases, claimed: float, counts: float
) -> None:
    leases.observe("a", ONE, claimed, 0.0)
    assert not leases.observe("a", ONE, claimed, counts - 0.1)
    assert leases.observe("a", ONE, claimed, counts)


def test_a_clients_own_lease_always_counts_in_full() -> None:
    # ``max_age_seconds`` may be 0: then gc fences at once, but waiters must not sweep at once.
    leases = Leases(own_seconds=LEASE, longest_seconds=0.0)
    leases.observe("a", ONE, LEASE, 0.0)
    assert not leases.observe("a", ONE, LEASE, 29.0)
    assert leases.observe("a", ONE, LEASE, 30.0)


def test_ten_thousand_stale_records_are_found_within_one_lease(leases: Leases) -> None:
    keys = [f"{number:020}" for number in range(10_000)]
    assert not any(leases.observe(key, ONE, LEASE, 0.0) for key in keys)
    assert all(leases.observe(key, ONE, LEASE, LEASE) for key in keys)


def test_records_that_are_not_checked_any_more_make_room_for_new_ones(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MOST_OBSERVED", 3)
    for key in ("a", "b", "c"):
        leases.observe(key, ONE, LEASE, 0.0)
    leases.observe("c", ONE, LEASE, 20.0)
    leases.observe("d", ONE, LEASE, 61.0)
    assert leases.observe("d", ONE, LEASE, 91.0), "d was remembered"
    assert leases.observe("c", ONE, LEASE, 92.0), "c was not put out: it was looked at"
    assert not leases.observe("a", ONE, LEASE, 93.0), "a was"


def test_observed_records_are_not_displaced_by_new_records(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MOST_OBSERVED", 100)
    present = [f"{number:03}" for number in range(250)]
    rounds = 0
    # All records are stale, and more than fit; the waiter deletes those found stale.
    while present and rounds < 50:
        swept = [key for key in present if leases.observe(key, ONE, LEASE, rounds * 10.0)]
        for key in swept:
            leases.forget(key)
        present = [key for key in present if key not in swept]
        rounds += 1
    assert not present
    assert rounds * 10.0 <= 4 * LEASE + 10.0, "three times as many as fit take three leases"


def test_the_number_of_observed_records_is_limited(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MOST_OBSERVED", 50)
    for number in range(5_000):
        leases.observe(f"{number}", ONE, LEASE, number * 0.5)
        assert len(leases._observed) <= 50


def test_threads_that_check_concurrently_find_no_live_record_stale(
    leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "MOST_OBSERVED", 40)
    wrong: list[object] = []
    barrier = threading.Barrier(4)

    def look(mine: int) -> None:
        barrier.wait()
        try:
            for turn in range(3_000):
                key = f"{turn % 60}"
                # Each live record gets a new token every 20 seconds, well within the lease.
                now = turn * 0.1
                if leases.observe(key, Token(f"{int(now // 20)}"), LEASE, now):
                    wrong.append((key, now))
                if turn % 7 == mine:
                    leases.forget(key)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=look, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
