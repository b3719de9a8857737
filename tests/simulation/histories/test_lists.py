"""Play thousands of short list-append histories: an order explains each of them, in real time.

There are ten times as many as of the histories with all checks (``test_histories``). A failure
names the seed: ``lakevilla_testing.histories.lists.run(SEED)``.
"""

import gc
from collections import Counter

import pytest

from lakevilla_testing.histories import lists
from lakevilla_testing.histories.campaign import HistoryFailed
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import WHOLE, how_many

HISTORIES = how_many(20, whole=20_000, soak=2_000_000)
BLOCK = min(250, HISTORIES)


@pytest.fixture(autouse=True)
def _few_collections():
    """Collect garbage rarely: else a fourth of the time is spent on scanning imported modules."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_some_order_explains_what_transactions_read_in_real_time(first):
    ended, mixes, overlapping = Counter(), set(), 0
    for seed in range(first, min(first + BLOCK, HISTORIES)):
        history = lists.run(seed)
        ended += history.ended
        overlapping += history.overlapping
        mixes.add(history.plan.features)
    if WHOLE:
        # Histories without concurrent transactions on a table would show nothing.
        assert ended["committed"] > 2 * BLOCK
        assert ended["aborted"] > BLOCK / 5
        assert overlapping > BLOCK
        assert mixes == set(lists.MIXES)


@pytest.mark.parametrize("seed", [1, 7, 14])
def test_the_same_seed_gives_the_same_history(seed):
    assert lists.run(seed) == lists.run(seed)


#: Seeds within which each planted bug of isolation must show. Each range begins with the first seed
#: that shows the bug, unless a change of the library has moved that seed since.
FIRST_SEEDS = {
    "bound_to_what_was_seen_last": range(56, 256),
    "extended_without_a_look": range(11, 71),
    "pending_not_laid_over": range(8, 68),
    "reads_not_validated": range(2, 62),
    "redo_keeps_stale_files": range(60),
    "redone_past_the_reads": range(28, 88),
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", FIRST_SEEDS)
def test_the_cycle_checker_finds_each_planted_bug_of_isolation(name):
    with PLANTED[name].plant():
        caught = next((seed for seed in FIRST_SEEDS[name] if is_wrong(seed)), None)
    assert caught is not None
    if WHOLE:  # The planted bug is the cause: without it the same history passes.
        lists.run(caught)


def is_wrong(seed):
    try:
        lists.run(seed)
    except HistoryFailed:
        return True
    return False
