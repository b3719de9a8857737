"""The streams of CAB-LH compared with the original: its published streams, and its
distributions.

Published are ``benchmark-query-streams/patterns`` of github.com/alexandervanrenen/cab: one stream
of each pattern, at scale factor 10 with five hours of processor time on a day, without four
queries. They were made when pattern 5 had one rise; the program that is published has three.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from functools import partial

import pytest

from bench.cab_lh.mersenne import Mersenne
from bench.cab_lh.patterns import PATTERNS, constant_with_breaks, pattern_of, slots_of
from bench.cab_lh.streams import Plan, Query, Stream, average_time, processor_time, streams

AS_PUBLISHED = [
    dataclasses.replace(one, fill=partial(constant_with_breaks, rises=1))
    if one.number == 5
    else one
    for one in PATTERNS
]
PUBLISHED = Plan(
    scale_factor=10,
    budget=5 * 3600 * 10**6,
    duration_ms=24 * 3600 * 1000,
    read_only=False,
    patterns=AS_PUBLISHED,
    without={5, 7, 13, 21},
)
#: For each stream: the number of its queries, and the first ones.
FIRST = {
    1: (
        3182,
        (
            Query(1, 37198, (82,)),
            Query(17, 49207, ("Brand#35", "LG PACK")),
            Query(12, 55872, ("FOB", "SHIP", "1995-01-01")),
            Query(12, 137787, ("MAIL", "TRUCK", "1993-01-01")),
            Query(18, 142581, (314,)),
            Query(4, 217169, ("1997-08-01",)),
            Query(19, 225779, ("Brand#53", "Brand#11", "Brand#33", 8, 13, 29)),
            Query(2, 256416, (19, "STEEL", "AFRICA")),
        ),
    ),
    3: (
        3033,
        (
            Query(2, 57026351, (32, "STEEL", "EUROPE")),
            Query(1, 57026370, (119,)),
            Query(9, 57027404, ("chiffon",)),
            Query(3, 57028462, ("HOUSEHOLD", "1995-03-17")),
            Query(18, 57028496, (315,)),
            Query(8, 57028934, ("RUSSIA", "EUROPE", "PROMO POLISHED STEEL")),
            Query(20, 57029057, ("orange", "1996-01-01", "INDONESIA")),
        ),
    ),
    4: (
        3040,
        (
            Query(3, 69992866, ("BUILDING", "1995-03-12")),
            Query(4, 69995890, ("1994-10-01",)),
            Query(22, 70005446, (29, 11, 26, 33, 32, 21, 17)),
            Query(18, 70007684, (313,)),
            Query(9, 70024255, ("orchid",)),
            Query(4, 70028648, ("1997-02-01",)),
            Query(1, 70037490, (85,)),
            Query(18, 70039490, (315,)),
            Query(16, 70046943, ("Brand#44", "PROMO PLATED", 9, 10, 3, 29, 25, 6, 30, 41)),
        ),
    ),
    5: (
        3078,
        (
            Query(4, 6027, ("1994-12-01",)),
            Query(19, 8200, ("Brand#43", "Brand#31", "Brand#11", 2, 12, 28)),
            Query(22, 27367, (16, 25, 19, 14, 22, 23, 33)),
            Query(10, 47151, ("1994-11-01",)),
            Query(12, 117104, ("REG AIR", "FOB", "1994-01-01")),
            Query(4, 122332, ("1997-06-01",)),
            Query(6, 130991, ("1997-01-01", 2, 24)),
        ),
    ),
    6: (
        3067,
        (
            Query(10, 9125, ("1993-03-01",)),
            Query(16, 41672, ("Brand#15", "LARGE POLISHED", 26, 29, 19, 48, 1, 16, 17, 13)),
            Query(16, 45479, ("Brand#15", "LARGE BRUSHED", 4, 34, 45, 28, 32, 43, 16, 30)),
            Query(2, 55196, (42, "TIN", "EUROPE")),
            Query(3, 61081, ("MACHINERY", "1995-03-10")),
        ),
    ),
}
#: The first arguments of query 23, and the last queries of four streams.
MOVES = ((59940000, 60000032, 0, 7), (59880000, 59940000, 0, 7), (59820000, 59880000, 0, 7))
LAST = {
    1: (
        Query(11, 86364428, ("FRANCE", 10)),
        Query(19, 86366824, ("Brand#54", "Brand#22", "Brand#42", 1, 12, 26)),
    ),
    4: (
        Query(18, 85493590, (314,)),
        Query(22, 85502966, (34, 17, 15, 24, 26, 10, 32)),
        Query(11, 85508363, ("INDIA", 10)),
        Query(6, 85513010, ("1997-01-01", 8, 24)),
        Query(6, 85514657, ("1995-01-01", 4, 24)),
        Query(18, 85524390, (313,)),
        Query(16, 85528596, ("Brand#15", "MEDIUM BRUSHED", 43, 34, 1, 18, 39, 23, 11, 20)),
    ),
    5: (Query(15, 86371952, ("1993-03-01",)), Query(4, 86393309, ("1997-05-01",))),
    6: (Query(11, 83774211, ("INDONESIA", 10)), Query(1, 83782179, (70,))),
}


@pytest.fixture(scope="module")
def published() -> dict[int, Stream]:
    return {one.pattern.number: one for one in streams(5, PUBLISHED)}


@pytest.mark.parametrize("pattern", FIRST)
def test_the_published_seeds_generate_the_published_streams(
    pattern: int, published: dict[int, Stream]
) -> None:
    count, first = FIRST[pattern]
    found = published[pattern].queries
    assert found[: len(first)] == first
    assert len(found) == count
    moves = [query.arguments for query in found if query.number == 23]
    assert tuple(moves[:3]) == MOVES
    if pattern in LAST:
        assert found[-len(LAST[pattern]) :] == LAST[pattern]


def test_the_random_generator_is_the_mersenne_twister_of_the_cpp_standard() -> None:
    """The C++ standard states the 10,000th number of ``mt19937`` with its default seed."""
    engine = Mersenne(5489)
    assert [engine.bits() for _ in range(10_000)][-1] == 4123659995


def test_patterns_are_drawn_in_proportion_to_their_weights() -> None:
    random, drawn = Mersenne(1), 8000
    found = Counter(pattern_of(random).number for _ in range(drawn))
    expected = {one.number: one.weight / 80 * drawn for one in PATTERNS}
    # 99.9% of the chi-square distribution with four degrees of freedom.
    assert chi_square(found, expected) < 18.47


def test_all_queries_are_drawn_equally_often() -> None:
    plan = Plan(1, budget=3600 * 10**6, duration_ms=3600 * 1000)
    found = Counter(query.number for one in streams(4, plan) for query in one.queries)
    total = found.total()
    assert total > 10_000
    assert set(found) == set(range(1, 23)), "a read stream has no query 23"
    # 99.9% with 21 degrees of freedom.
    assert chi_square(found, dict.fromkeys(range(1, 23), total / 22)) < 46.80


@pytest.mark.parametrize("slots", [100, 20, 4, 1])
def test_each_slot_spends_its_budget_and_exceeds_it_by_less_than_one_query(slots: int) -> None:
    plan = Plan(1, budget=200 * 10**6, duration_ms=100_000, slots=slots)
    longest = max(processor_time(number, 1) for number in range(1, 23))
    for one in streams(6, plan):
        assert len(one.budget) == slots
        assert plan.budget - slots <= sum(one.budget) <= plan.budget
        width = plan.duration_ms // slots
        spent: Counter[int] = Counter()
        for query in one.queries:
            assert 0 <= query.start_ms < plan.duration_ms
            spent[query.start_ms // width] += processor_time(query.number, 1)
        for slot, share in enumerate(one.budget):
            assert share <= spent[slot] < share + longest if share else not spent[slot]


def test_gaps_between_queries_of_a_slot_are_exponential() -> None:
    """One slot of an hour has so many gaps that few reach beyond its end."""
    plan = Plan(1, budget=3600 * 10**6, duration_ms=3600 * 1000, slots=1)
    (one,) = streams(1, plan)
    starts = [query.start_ms for query in one.queries]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    mean = sum(gaps) / len(gaps)
    assert len(gaps) > 4000
    for least in (0.5, 1.0, 2.0):
        share = sum(gap > least * mean for gap in gaps) / len(gaps)
        assert share == pytest.approx(math.exp(-least), abs=0.03)


def test_a_slot_with_any_budget_has_at_least_one_query() -> None:
    plan = Plan(1, budget=average_time(1), duration_ms=100_000, patterns=PATTERNS[:1])
    (one,) = streams(1, plan)
    filled = sum(1 for share in one.budget if share)
    assert len(one.queries) == filled > 50


def test_equal_seeds_generate_equal_streams_and_different_seeds_different_ones() -> None:
    plan = Plan(1, budget=20 * 10**6, duration_ms=60_000)
    shifted = Plan(1, budget=20 * 10**6, duration_ms=60_000, shift=1)
    assert streams(3, plan) == streams(3, plan)
    assert streams(3, plan) != streams(3, shifted)


def test_slot_weights_are_never_negative() -> None:
    random = Mersenne(9)
    for pattern in PATTERNS * 40:
        weights = slots_of(pattern, random)
        assert len(weights) == 100
        assert min(weights) >= 0


def chi_square(found: Counter[int], expected: dict[int, float]) -> float:
    return sum((found[one] - due) ** 2 / due for one, due in expected.items())
