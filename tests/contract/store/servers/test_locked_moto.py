"""moto checks a condition and stores the object in two steps: the lock makes them atomic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.fixtures.locked_moto import OneAtATime


def overlaps(wrap: Callable[[Any], Any]) -> bool:
    """Return whether the application handles two requests at once."""
    meeting = threading.Barrier(2)

    def application(environ: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        try:
            meeting.wait(0.5)
        except threading.BrokenBarrierError:
            return [b"alone"]
        return [b"together"]

    class Body:
        def read(self, size: int) -> bytes:
            return b"x" * size

    served = wrap(application)
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(
            lambda _: b"".join(served({"wsgi.input": Body()}, lambda *_: None)), range(2)
        )
        return b"together" in set(answers)


def test_requests_behind_the_lock_do_not_overlap() -> None:
    assert overlaps(lambda application: application)
    assert not overlaps(OneAtATime)
