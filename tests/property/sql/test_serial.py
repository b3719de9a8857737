"""Run SQL transactions of several clients at once: they are serial in HEAD's order."""

from __future__ import annotations

from collections import Counter

import pytest

from lakevilla_testing.planted.every import PLANTED
from tests.property.sql.serial import run, run_threads
from tests.support.search import first_seed, how_many

SCRIPTS, CROWDS = how_many(2, whole=60, soak=20_000), how_many(1, whole=20, soak=10_000)
FIRST = first_seed() * 1000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(0, SCRIPTS, 20))
def test_sessions_whose_statements_alternate_are_serial(block: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(FIRST + block, FIRST + min(block + 20, SCRIPTS)):
        run(seed, tally)
    assert tally["transactions"] > 3 * tally["scripts"], tally


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(0, CROWDS, 10))
def test_threads_that_commit_at_once_are_serial_in_the_order_of_head(block: int) -> None:
    for seed in range(FIRST + block, FIRST + min(block + 10, CROWDS)):
        run_threads(seed, Counter())


@pytest.mark.parametrize(("bug", "first"), [("reads_not_validated", 1)])
def test_sessions_find_a_planted_bug(bug: str, first: int) -> None:
    with PLANTED[bug].plant():
        assert any(_is_wrong(seed) for seed in range(first, first + 3))


def _is_wrong(seed: int) -> bool:
    try:
        run(seed, Counter())
    except AssertionError:
        return True
    return False
