"""Query streams: which query starts when, and with which arguments; pure, from CAB's seeds.

A stream has a budget of processor time. Its pattern shares it out to the slots, and each slot has
queries at exponential gaps until its share is spent. After ``benchmark-gen/benchmark.cpp`` of
github.com/alexandervanrenen/cab.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bench.cab_lh.arguments import Argument, Refresh, arguments_of
from bench.cab_lh.mersenne import Mersenne
from bench.cab_lh.patterns import SLOTS, Pattern, pattern_of, slots_of

#: CAB's seeds, one for each thing that is drawn. Two more, 6 and 28, draw the sizes and the
#: budgets of many databases: here there is one, and both are given.
SEED_OF_PATTERNS, SEED_OF_QUERIES, SEED_OF_ARGUMENTS = 496, 8128, 33550336
#: The query that writes.
REFRESH = 23
#: What CAB takes for the microseconds of each query, of a machine with 8 cores, at scale factor 1.
_MICROSECONDS = (
    *(149_560, 55_150, 112_050, 58_190, 66_190, 17_490, 61_090, 67_480, 127_850, 95_110, 15_720),
    *(64_200, 146_020, 29_000, 46_390, 32_790, 42_430, 205_680, 51_580, 46_310, 113_140, 19_820),
    72_530 + 97_780,
)
_CORES = 8


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a stream: its number, when it starts, and its arguments."""

    number: int
    start_ms: int
    arguments: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: microseconds of processor time by slot, and the queries that spend them."""

    pattern: Pattern
    budget: tuple[int, ...]
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What streams are made for.

    Attributes
    ----------
    scale_factor : float
        Of TPC-H.
    budget : int
        Microseconds of processor time of each stream.
    duration_ms : int
        From the beginning of the first slot to the end of the last.
    read_only : bool
        Without the 23rd query.
    patterns : sequence of Pattern
        Of each stream; drawn by weight if there are none.
    without : collection of int
        Queries that are drawn again, as in the published streams.
    slots : int
        How many the 100 of a pattern are put together to; a divisor of 100. Each that is not empty
        has a query at least.
    shift : int
        Added to each of CAB's seeds.
    """

    scale_factor: float
    budget: int
    duration_ms: int
    read_only: bool = True
    patterns: Sequence[Pattern] = ()
    without: Collection[int] = field(default=frozenset())
    slots: int = SLOTS
    shift: int = 0


def processor_time(number: int, scale_factor: float) -> int:
    """What CAB takes for the microseconds of a query on one core."""
    return int(scale_factor * _MICROSECONDS[number - 1] * _CORES)


def average_time(scale_factor: float) -> int:
    """Of all 23 queries."""
    return sum(processor_time(number, scale_factor) for number in range(1, REFRESH + 1)) // REFRESH


def streams(count: int, plan: Plan) -> list[Stream]:
    """So many streams, always the same ones."""
    random = Mersenne(SEED_OF_PATTERNS + plan.shift)
    shares = [_share(random, plan.patterns[i] if plan.patterns else None) for i in range(count)]
    random = Mersenne(SEED_OF_QUERIES + plan.shift)
    budgets = [_budget(slots, plan) for _, slots in shares]
    arrivals = [_arrivals(budget, plan, random) for budget in budgets]
    random = Mersenne(SEED_OF_ARGUMENTS + plan.shift)
    made = []
    for (pattern, _), budget, queries in zip(shares, budgets, arrivals, strict=True):
        refresh = Refresh(plan.scale_factor)
        whole = tuple(
            Query(number, start, arguments_of(number, plan.scale_factor, random, refresh))
            for start, number in queries
        )
        made.append(Stream(pattern, budget, whole))
    return made


def _share(random: Mersenne, given: Pattern | None) -> tuple[Pattern, list[float]]:
    """A pattern with the weights of its slots, drawn again while all are zero."""
    while True:
        pattern = given or pattern_of(random)
        slots = slots_of(pattern, random)
        if sum(slots) > 0:
            return pattern, slots


def _budget(weights: Sequence[float], plan: Plan) -> tuple[int, ...]:
    total, width = sum(weights), SLOTS // plan.slots
    together = [sum(weights[i : i + width]) for i in range(0, SLOTS, width)]
    return tuple(int(plan.budget * weight / total) for weight in together)


def _arrivals(budget: Sequence[int], plan: Plan, random: Mersenne) -> list[tuple[int, int]]:
    """When queries start, in milliseconds, and their numbers."""
    found: list[tuple[int, int]] = []
    width = plan.duration_ms // plan.slots
    average = average_time(plan.scale_factor)
    now = 0
    for slot, microseconds in enumerate(budget):
        if not microseconds:
            continue
        rate = max(1, microseconds // average) / (width / 1000)
        start = width * slot
        now = max(now, start)
        spent = 0
        while spent < microseconds:
            gap = random.exponential(rate)
            now = int(now + gap * 1000)
            now = (now - start) % width + start  # a gap beyond the slot's end goes on at its start
            number = _number(plan, random)
            spent += processor_time(number, plan.scale_factor)
            found.append((now, number))
    return sorted(found, key=lambda one: one[0])


def _number(plan: Plan, random: Mersenne) -> int:
    while True:
        number = random.whole(1, REFRESH - 1 if plan.read_only else REFRESH)
        if number not in plan.without:
            return number
