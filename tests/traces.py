"""What a piece of work asks of the store: how much, in how many rounds, and what."""

from __future__ import annotations

from collections.abc import Callable

import lakevilla as lv
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
)
from lakevilla.store.effects import Effect
from lakevilla.store.runner import Counts
from tests.builders import WrappedStore


def cost(lake: lv.Lake, work: Callable[[], object]) -> Counts:
    with lake.runner.requests.counting() as requests:
        work()
    assert (requests.head, requests.delete) == (0, 0), requests
    return requests


def rounds(lake: lv.Lake, work: Callable[[], object]) -> int:
    """How many times ``work`` waited for the store: for one request, or several at once."""
    waited = 0
    perform = lake.runner._perform

    def counted(effect: Effect) -> object:
        nonlocal waited
        with lake.runner.requests.counting() as requests:
            outcome = perform(effect)
        waited += requests.total > 0
        return outcome

    lake.runner._perform = counted  # type: ignore[method-assign]
    try:
        work()
    finally:
        lake.runner._perform = perform  # type: ignore[method-assign]
    return waited


class Trace(WrappedStore):
    """Remembers every request as (verb, key)."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, str]] = []

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self.seen.append(("get" if known is None else "get if changed", key))
        return super().get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self.seen.append(("put", key))
        return super().put(key, body, condition)

    def list(self, prefix: str, start_after: str | None = None) -> list[ObjectInfo] | Failure:
        self.seen.append(("list", prefix))
        return super().list(prefix, start_after)

    def delete(self, key: str) -> Failure | None:
        self.seen.append(("delete", key))
        return super().delete(key)


def steps(lake: lv.Lake, work: Callable[[], object]) -> list[list[tuple[str, str]]]:
    """What ``work`` asks of the store, a list for each time that it waits for it."""
    perform, inner = lake.runner._perform, lake.runner.store
    found: list[list[tuple[str, str]]] = []
    trace = Trace(inner)

    def traced(effect: Effect) -> object:
        before = len(trace.seen)
        outcome = perform(effect)
        if len(trace.seen) > before:
            found.append(sorted(trace.seen[before:]))
        return outcome

    lake.runner.store = trace
    lake.runner._perform = traced  # type: ignore[method-assign]
    try:
        work()
    finally:
        lake.runner.store = inner
        lake.runner._perform = perform  # type: ignore[method-assign]
    return found
