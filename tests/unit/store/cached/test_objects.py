"""The one cache of a process: its contents, its users, and its size in bytes."""

from __future__ import annotations

import os
import random
import threading

import pytest

from lakevilla.store.cached import Budget, CachedObjects, is_content


def test_the_most_recently_used_objects_are_kept_within_the_budget() -> None:
    budget = Budget()
    lake = CachedObjects("one", 100_000, budget)
    for number in range(100):
        lake.keep(f"k{number}", number, 5_000)
        assert budget.bytes <= 100_000
        assert lake.get("k0") == 0, "used again and again"
    kept = [number for number in range(100) if lake.get(f"k{number}") is not None]
    assert kept == [0, *range(100 - len(kept) + 1, 100)]
    assert len(kept) == 18


def test_an_object_larger_than_the_budget_is_not_kept() -> None:
    budget = Budget()
    lake = CachedObjects("one", 1_000, budget)
    lake.keep("large", b"", 2_000)
    assert lake.get("large") is None
    assert budget.bytes == 0


def test_the_budget_of_the_cache_is_the_largest_of_the_open_lakes() -> None:
    budget = Budget()
    small, large = CachedObjects("s", 10_000, budget), CachedObjects("l", 50_000, budget)
    for number in range(10):
        small.keep(str(number), number, 4_000)
    assert 40_000 < budget.bytes <= 50_000, "the large one's, used by both"
    large.leave()
    assert budget.bytes <= 10_000
    small.leave()
    assert budget.bytes == 0
    small.keep("again", 1, 4_000)  # used after the lake was closed
    assert small.get("again") == 1


def test_the_cached_objects_of_a_freed_lake_do_not_count() -> None:
    budget = Budget()
    small, large = CachedObjects("s", 10_000, budget), CachedObjects("l", 50_000, budget)
    large.keep("k", 1, 40_000)
    del large
    small.keep("k", 2, 1)
    assert budget.bytes <= 10_000


def test_a_cache_with_a_budget_of_zero_keeps_nothing() -> None:
    lake = CachedObjects("one", 0, Budget())
    lake.keep("k", 1, 0)
    assert lake.get("k") is None


def test_lakes_have_separate_cached_objects_and_clients_of_one_lake_share_them() -> None:
    budget = Budget()
    one, again, other = (CachedObjects(place, 10_000, budget) for place in ("a", "a", "b"))
    one.keep("k", "of a", 10)
    assert again.get("k") == "of a"
    assert other.get("k") is None
    other.keep("k", "of b", 10)
    assert one.get("k") == "of a"


def test_a_value_that_is_cached_twice_counts_once() -> None:
    budget = Budget()
    lake = CachedObjects("one", 10_000, budget)
    lake.keep("k", 1, 1_000)
    before = budget.bytes
    lake.keep("k", 2, 1_000)
    assert (lake.get("k"), budget.bytes) == (2, before)


def test_a_body_that_does_not_match_the_hash_in_its_name_is_not_cached() -> None:
    name = "_lakevilla/pages/00000000000000000001-44bfaf63ef1ab4d2a6db08b6f1ee9b11.json"
    assert not is_content(name, b"damaged")
    assert not is_content("_lakevilla/HEAD.json", b"")
    hashed = "af1349b9f5f9a1a6a0404dea36dcc949"  # blake3 of an empty body, its first 16 bytes
    assert is_content(f"_lakevilla/pages/1-{hashed}.json", b"")


def test_concurrent_threads_keep_the_cache_within_its_budget() -> None:
    budget = Budget()
    lakes = [CachedObjects(place, 20_000, budget) for place in range(4)]

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(2_000):
            lake, key = draw.choice(lakes), str(draw.randrange(50))
            found = lake.get(key)
            assert found is None or found == (lake._place, key)
            lake.keep(key, (lake._place, key), draw.randrange(1_000))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < budget.bytes <= 20_000
    assert budget.bytes == sum(size for _, size in budget._entries.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_begins_with_an_empty_cache() -> None:
    budget = Budget()
    lake = CachedObjects("one", 10_000, budget)
    lake.keep("k", 1, 10)
    budget._lock.acquire()  # as if another thread were using it
    child = os.fork()
    if not child:
        empty = lake.get("k") is None
        lake.keep("k", 2, 10)
        os._exit(0 if empty and lake.get("k") == 2 else 1)
    budget._lock.release()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lake.get("k") == 1
