"""A process that runs transactions for long holds no more than one that has run a few."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.support.leaks import Held, lake_in, leaks, sampled
from tests.support.search import how_many


def test_threads_files_and_descriptors_stay_as_they_are(tmp_path: Path) -> None:
    """Objects and memory need more transactions: the campaign's layer ``leaks`` looks at them."""
    rounds = itertools.count(1)
    with lake_in(tmp_path) as lake:
        samples = sampled(lake, lambda: next(rounds) < how_many(3, whole=30))
    kept = {(one.descriptors, one.temporary_files) for _, one in samples[1:]}
    assert len(kept) == 1, samples
    # The first round has started the lake's own threads.
    assert max(one.threads for _, one in samples) <= samples[0][1].threads + 4, samples


def test_a_fit_finds_what_grows_with_each_transaction() -> None:
    samples = [(number, Held(3, 7 + number // 50, 0, 1000, 5000)) for number in range(0, 800, 10)]
    assert list(leaks(samples)) == ["descriptors"]


def test_a_fit_over_clean_ups_takes_what_they_remove_for_no_leak() -> None:
    teeth = [(number, Held(3, 7, 0, 5000 + 30 * (number % 100), 0)) for number in range(0, 400, 10)]
    assert leaks(teeth)
    assert leaks([one for one in teeth if one[0] % 100 == 0]) == {}


def test_a_cache_that_fills_once_is_no_leak() -> None:
    samples = [(number, Held(3, 7, 0, min(number, 150), 5000)) for number in range(0, 800, 10)]
    assert leaks(samples) == {}
