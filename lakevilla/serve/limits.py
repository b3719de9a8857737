"""The limits of a gateway: requests at once, and seconds for each of them.

A request that has not begun is refused with 503 and ``Retry-After``: it may be sent again. The work
of one that takes too long goes on, as no thread can be ended. So nobody knows what a change comes
to, and its answer is 504; what only reads may be asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from lakevilla.serve.refusal import Refusal

_LOG = logging.getLogger("lakevilla.serve")
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a gateway.

    Attributes
    ----------
    requests : int
        So many are worked on at once.
    waiting : int
        So many more wait for their turn.
    wait_seconds : float
        A request waits so long for its turn.
    seconds : float
        A client waits so long for the answer, once it is its turn.
    retry_seconds : int
        After so long a client may ask again.
    """

    requests: int = 32
    waiting: int = 256
    wait_seconds: float = 10.0
    seconds: float = 60.0
    retry_seconds: int = 1


class Turns:
    """The turns of requests: each has one from the first byte of its body to the end of its work.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._threads = ThreadPoolExecutor(limits.requests, "lakevilla-serve")
        self._free, self._waiting = asyncio.Semaphore(limits.requests), 0

    async def answered(
        self, read: Callable[[], Awaitable[T]], work: Callable[[T], U], *, writes: bool
    ) -> U:
        """Read a request in its turn, and return what a thread makes of it.

        Raises
        ------
        Refusal
            The turn did not come; the request or its answer took too long.
        """
        await self._take_turn()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.limits.seconds
        try:
            body = await asyncio.wait_for(read(), self.limits.seconds)
            working = self._threads.submit(work, body)
        except TimeoutError:
            self._free.release()
            message = f"the body did not come within {self.limits.seconds:g} seconds"
            raise Refusal(408, "BadRequestException", message) from None
        except BaseException:
            self._free.release()
            raise
        working.add_done_callback(lambda _: self._release_by(loop))
        return await self._within(end - loop.time(), working, writes=writes)

    def _release_by(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the server has ended, with the loop
            loop.call_soon_threadsafe(self._free.release)

    async def _within(self, seconds: float, working: Future[U], *, writes: bool) -> U:
        answer = asyncio.wrap_future(working)
        done, _ = await asyncio.wait({answer}, timeout=seconds)
        if done:
            return answer.result()
        answer.add_done_callback(_log_failure)
        took = f"the request takes more than {self.limits.seconds:g} seconds"
        if writes:
            message = f"{took}, and goes on: load the tables to see whether it took effect"
            raise Refusal(504, "CommitStateUnknownException", message)
        raise self._busy(f"{took}: try again")

    async def _take_turn(self) -> None:
        if self._free.locked() and self._waiting >= self.limits.waiting:
            raise self._busy("the gateway has too many requests: try again")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), self.limits.wait_seconds)
        except TimeoutError:
            raise self._busy("the gateway has too many requests: try again") from None
        finally:
            self._waiting -= 1

    def _busy(self, message: str) -> Refusal:
        after = self.limits.retry_seconds
        return Refusal(503, "ServiceUnavailableException", message, after)


def _log_failure(answer: asyncio.Future[U]) -> None:
    """Log the error of a request to which nobody listens any more."""
    if not answer.cancelled() and (error := answer.exception()) is not None:
        _LOG.warning("a request that took too long ended with an error", exc_info=error)
