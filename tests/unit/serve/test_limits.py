"""A gateway works on so many requests at once, and a client waits so long for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from lakevilla.serve.limits import Limits, Turns
from lakevilla.serve.refusal import Refusal


async def body() -> str:
    return "body"


async def endless() -> str:
    return await asyncio.Future()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def refused(answer: Awaitable[object]) -> Refusal:
    with pytest.raises(Refusal) as found:
        await answer
    return found.value


def test_requests_beyond_the_limits_are_refused_before_they_begin() -> None:
    async def test() -> None:
        turns, gate, begun = Turns(Limits(2, waiting=1)), threading.Event(), []

        def work(body: str) -> int:
            begun.append(body)
            gate.wait(20)
            return len(begun)

        working = [asyncio.ensure_future(turns.answered(body, work, writes=True)) for _ in range(3)]
        while len(begun) < 2:
            await asyncio.sleep(0)
        refusal = await refused(turns.answered(body, work, writes=True))
        assert (refusal.status, refusal.retry_seconds) == (503, 1)
        assert len(begun) == 2  # the third one waits
        gate.set()
        await asyncio.gather(*working)
        assert len(begun) == 3

    run(test)


def test_a_request_waits_for_its_turn_for_a_while() -> None:
    async def test() -> None:
        turns, gate = Turns(Limits(1, wait_seconds=0.01)), threading.Event()
        first = asyncio.ensure_future(turns.answered(body, lambda _: gate.wait(20), writes=True))
        await asyncio.sleep(0)
        refusal = await refused(turns.answered(body, len, writes=True))
        assert (refusal.status, refusal.retry_seconds) == (503, 1)
        gate.set()
        assert await first
        assert await turns.answered(body, len, writes=True) == 4

    run(test)


@pytest.mark.parametrize(("writes", "status"), [(True, 504), (False, 503)])
def test_work_that_takes_too_long_goes_on_in_its_turn(writes: bool, status: int) -> None:
    async def test() -> None:
        limits = Limits(1, wait_seconds=0.01, seconds=0.05)
        turns, gate, done = Turns(limits), threading.Event(), threading.Event()

        def work(body: str) -> None:
            gate.wait(20)
            done.set()

        refusal = await refused(turns.answered(body, work, writes=writes))
        assert refusal.status == status
        assert (refusal.retry_seconds is None) == writes  # nobody knows what a change comes to
        assert (await refused(turns.answered(body, len, writes=False))).status == 503
        gate.set()
        assert done.wait(20)
        while turns._free.locked():
            await asyncio.sleep(0)
        assert await turns.answered(body, len, writes=False) == 4

    run(test)


def test_a_body_that_does_not_come_gives_back_its_turn() -> None:
    async def test() -> None:
        turns = Turns(Limits(1, seconds=0.01))
        assert (await refused(turns.answered(endless, len, writes=True))).status == 408
        assert not turns._free.locked()

    run(test)


def test_the_error_of_work_is_the_errors_own() -> None:
    async def test() -> None:
        turns = Turns(Limits(1))
        with pytest.raises(AttributeError):
            await turns.answered(body, lambda text: text.nix, writes=True)  # type: ignore[attr-defined]
        assert await turns.answered(body, len, writes=True) == 4

    run(test)
