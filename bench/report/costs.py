"""Requests and dollars for a million transactions, from the requests that a run has counted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.results import VERBS, Result, Series

MILLION = 1_000_000
#: As `prices.json` has it: providers bill gigabytes of 2^30 bytes.
_GIGABYTE = 2**30


@dataclass(frozen=True, slots=True)
class Store:
    """The public prices of one kind of store, in dollars."""

    name: str
    source: str
    per_1000_requests: Mapping[str, float]
    per_gigabyte: Mapping[str, float]

    def dollars(self, requests: Mapping[str, float], moved: Mapping[str, float]) -> float:
        """What so many requests, and so many bytes read and written, are billed with."""
        return sum(n / 1000 * self.per_1000_requests[verb] for verb, n in requests.items()) + sum(
            n / _GIGABYTE * self.per_gigabyte[way] for way, n in moved.items()
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """A million transactions of one series."""

    series: Series
    requests: Mapping[str, float]
    moved: Mapping[str, float]

    def cells(self, stores: Sequence[Store]) -> list[str]:
        """Its row under ``columns``."""
        counts = (
            f"{self.requests[verb] / MILLION:.4g} {verb}"
            for verb in VERBS
            if self.requests.get(verb)
        )
        kilobytes = (f"{self.moved.get(way, 0) / MILLION / 1000:.3g}" for way in _WAYS)
        return [
            self.series.system,
            self.series.described,
            " ".join(counts),
            *kilobytes,
            *(f"${store.dollars(self.requests, self.moved):,.2f}" for store in stores),
        ]


_WAYS = ("written", "read")


def stores() -> tuple[list[Store], str]:
    """The prices of today's file, and what a reader must know of them."""
    found = json.loads((Path(__file__).parent / "prices.json").read_text())
    made = [Store(**one) for one in found["stores"]]
    sources = ", ".join(dict.fromkeys(one.source for one in made))
    return made, f"{found['note']}, as of {found['date']}: {sources}"


def columns(stores: Sequence[Store]) -> list[str]:
    """The head of a table of costs."""
    return [
        "system",
        "parameters",
        "requests a transaction",
        "kB written",
        "kB read",
        *(f"a million on {store.name}" for store in stores),
    ]


def costs(result: Result) -> list[Cost]:
    """What a million operations of each series cost; those of which nothing was counted have none.

    Requests are those of the last repeat, and so are the operations that they are shared among.
    """
    found = []
    for one in result.series:
        count = one.repeats[-1]["n"] if one.repeats else 0
        if not count or not any(one.requests.values()):
            continue
        share = MILLION / count
        found.append(
            Cost(
                one,
                {verb: n * share for verb, n in one.requests.items()},
                {way: n * share for way, n in one.bytes_moved.items()},
            )
        )
    return found
