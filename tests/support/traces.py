"""Trace requests to the store: their number, their rounds, and the requests themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    WrappedStore,
)
from lakevilla.store.effects import Effect, Parallel, Program
from lakevilla.store.runner import Requests
from lakevilla_testing.world.programs import as_program
from tests.support.inside import inside


def cost(lake: lv.Lake, work: Callable[[], object]) -> Requests:
    with inside(lake).requests.counting() as requests:
        work()
    assert (requests.head, requests.delete) == (0, 0), requests
    return requests


def rounds(lake: lv.Lake, work: Callable[[], object]) -> int:
    """Return the number of rounds of ``work``: a round is one request, or several at
    the same time.
    """
    waited = 0
    perform = inside(lake).perform

    def counted(effect: Effect) -> object:
        nonlocal waited
        with inside(lake).requests.counting() as requests:
            outcome = perform(effect)
        waited += requests.total > 0
        return outcome

    inside(lake).perform = counted
    try:
        work()
    finally:
        inside(lake).perform = perform
    return waited


def critical_path(lake: lv.Lake, work: Callable[[], object]) -> int:
    """Return the number of requests that ``work`` sends one after another, with unlimited
    concurrency.

    Programs that run in parallel count as the longest of them.
    """
    perform = inside(lake).perform
    waited = 0

    def follow(effect: Effect) -> tuple[Any, int]:
        if not isinstance(effect, Parallel):
            with inside(lake).requests.counting() as requests:
                outcome = perform(effect)
            return outcome, int(requests.total > 0)
        results, longest, failure = [], 0, None
        for part in effect.parts:
            result, length, error = follow_program(as_program(part))
            results.append(result)
            longest, failure = max(longest, length), failure or error
        if failure is not None:
            raise _Failed(failure, longest)
        return results, longest

    def follow_program(program: Program[Any]) -> tuple[Any, int, Exception | None]:
        answer: Any = None
        failure: Exception | None = None
        length = 0
        while True:
            try:
                effect = program.send(answer) if failure is None else program.throw(failure)
            except StopIteration as stop:
                return stop.value, length, None
            except Exception as error:
                return None, length, error
            answer, failure = None, None
            try:
                answer, more = follow(effect)
                length += more
            except _Failed as failed:
                length += failed.length
                failure = failed.error
            except Exception as error:
                length, failure = length + 1, error

    def counted(effect: Effect) -> object:
        nonlocal waited
        try:
            outcome, length = follow(effect)
        except _Failed as failed:
            waited += failed.length
            raise failed.error from None
        waited += length
        return outcome

    inside(lake).perform = counted
    try:
        work()
    finally:
        inside(lake).perform = perform
    return waited


class _Failed(Exception):
    """The result of parallel programs of which one has raised, with their number of requests."""

    def __init__(self, error: Exception, length: int) -> None:
        super().__init__(error, length)
        self.error, self.length = error, length


class Trace(WrappedStore):
    """Record every request as (verb, key)."""

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

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        self.seen.append(("list", prefix))
        return super().list(prefix, start_after, until)

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        self.seen.append(("list", f"{prefix}/"))
        return super().list_names(prefix)

    def delete(self, key: str) -> Failure | None:
        self.seen.append(("delete", key))
        return super().delete(key)


def steps(lake: lv.Lake, work: Callable[[], object]) -> list[list[tuple[str, str]]]:
    """Return the requests of ``work``, a list for each round."""
    perform, inner = inside(lake).perform, inside(lake).store
    found: list[list[tuple[str, str]]] = []
    trace = Trace(inner)

    def traced(effect: Effect) -> object:
        before = len(trace.seen)
        outcome = perform(effect)
        if len(trace.seen) > before:
            found.append(sorted(trace.seen[before:]))
        return outcome

    inside(lake).store = trace
    inside(lake).perform = traced
    try:
        work()
    finally:
        inside(lake).store = inner
        inside(lake).perform = perform
    return found
