"""When a stream is busy: CAB's five patterns, each a weight for 100 slots of time.

After ``benchmark-gen/benchmark.cpp`` of github.com/alexandervanrenen/cab, by the authors of
"Cloud Analytics Benchmark" (van Renen and Leis, PVLDB 16(6), 2023). Draws are made in its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.cab_lh.mersenne import Mersenne

SLOTS = 100
#: Its value of pi.
_PI = 3.1415
Slots = list[float]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One of the five: how often a stream has it (of 80), and what it adds to empty slots."""

    number: int
    name: str
    weight: float
    fill: Callable[[Slots, Mersenne], None]


def pattern_of(random: Mersenne) -> Pattern:
    """One of them, by weight."""
    pick = random.real(0.0, sum(one.weight for one in PATTERNS))
    for one in PATTERNS:
        if pick <= one.weight:
            return one
        pick -= one.weight
    raise AssertionError("the weights were summed wrongly")


def slots_of(pattern: Pattern, random: Mersenne) -> Slots:
    """The weight of each slot; all may be zero."""
    slots = [0.0] * SLOTS
    pattern.fill(slots, random)
    return slots


def constant_with_breaks(slots: Slots, random: Mersenne, rises: int) -> None:
    """With up to so many rises: CAB's program has three, that of its published streams had one."""
    _level(slots, 4.0, 0.0, 1.0)
    for intensity in (*[6.0] * rises, -100.0):
        if random.real() < 0.5:
            _level(slots, intensity, random.real(), 0.05 + 0.15 * random.real())


def _random_with_sines(slots: Slots, random: Mersenne) -> None:
    _level(slots, 0.2, 0.0, 1.0)
    for i in range(SLOTS):
        slots[i] += random.real()
    for _ in range(8):
        _hump(slots, 0.5, 0.6 * random.real() - 0.3, 0.05 + random.real() * 0.05)
    likelihood = 0.1 * random.real()
    for i in range(SLOTS):
        if random.real() <= likelihood:
            slots[i] += random.real()


def _spikes(slots: Slots, random: Mersenne) -> None:
    for _ in range(math.floor(random.exponential(0.5) * 2 + 1 + 0.5)):
        _walk(slots, random, 0.1 + random.real() * 0.8, 0.1 * random.real())


def _burst(slots: Slots, random: Mersenne) -> None:
    _walk(slots, random, 0.1 + random.real() * 0.8, 0.15 + 0.1 * random.real())


def _constant_with_breaks(slots: Slots, random: Mersenne) -> None:
    constant_with_breaks(slots, random, rises=3)


def _hourly(slots: Slots, random: Mersenne) -> None:
    level = int(random.real() * 2)
    _level(slots, 2.0 * level, 0.0, 1.0)
    noisy = random.real() < 0.5 and level > 0
    intensity = (2.0 if noisy else 1.0) + 5.0 * random.real()
    length = 0.4 + random.real() * 0.2
    width = SLOTS / 24
    for spike in range(24):
        start = int(spike * width)
        height = random.real() if noisy else 1.0
        for position in range(start, int(start + width * length)):
            _add(slots, position, intensity * height)


PATTERNS = (
    Pattern(1, "random with a few sines", 10.0, _random_with_sines),
    Pattern(3, "a few random spikes", 17.0, _spikes),
    Pattern(4, "one short burst", 21.0, _burst),
    Pattern(5, "constant with sudden breaks", 12.0, _constant_with_breaks),
    Pattern(6, "spikes every hour", 20.0, _hourly),
)


def _add(slots: Slots, position: int, weight: float) -> None:
    i = position % SLOTS
    slots[i] = max(slots[i] + weight, 0.0)


def _level(slots: Slots, weight: float, start: float, length: float) -> None:
    first = int(start * SLOTS)
    for position in range(first, first + int(length * SLOTS)):
        _add(slots, position, weight)


def _hump(slots: Slots, weight: float, start: float, width: float) -> None:
    """The positive half of one sine."""
    slope = _PI / (SLOTS * width)
    offset = _PI * ((start + 0.5 * (1 - width)) / width)
    for i in range(SLOTS):
        x = i * slope - offset
        if 0 < x < _PI and (height := math.sin(x) * weight) > 0:
            slots[i] += height


def _walk(slots: Slots, random: Mersenne, start: float, length: float) -> None:
    """Steps of 0.1 up and down, within 0 and 1."""
    first = int(start * SLOTS)
    state = random.real()
    for position in range(first, first + int(length * SLOTS)):
        state += 0.1 if random.real() >= 0.5 else -0.1
        i = position % SLOTS
        slots[i] = min(max(slots[i] + state, 0.0), 1.0)
