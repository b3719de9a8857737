"""A lease too short for the store's latency is refused; the error names a lease that is long
enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import lakevilla as lv
from lakevilla.api.client.heartbeat import check_lease
from lakevilla.settings import Settings
from lakevilla.store.base import Missing


class Watch:
    """A clock that only a test moves."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    elapsed = now


def checked(lease_seconds: float, latencies: Sequence[float]) -> int:
    """Check a lease on a store with these latencies; return the number of requests."""
    watch = Watch()
    program = check_lease(Settings(lease_seconds=lease_seconds), watch)
    asked = 0
    answer = None
    try:
        while True:
            program.send(answer)
            watch.seconds += latencies[asked]
            asked += 1
            answer = Missing()
    except StopIteration:
        return asked


def test_checking_the_default_lease_sends_no_request() -> None:
    assert checked(Settings().lease_seconds, ()) == 0


def test_a_lease_that_is_long_enough_for_the_store_is_accepted() -> None:
    assert checked(1.0, [0.03] * 5) == 5


def test_one_slow_response_of_five_is_ignored_in_the_check_of_a_lease() -> None:
    assert checked(1.0, [9.0, *[0.03] * 4]) == 5


def test_a_too_short_lease_is_refused_and_the_error_names_a_long_enough_one() -> None:
    with pytest.raises(lv.InvalidOperation) as caught:
        checked(1.0, [0.05] * 5)
    assert "lease_seconds=1 is too short for this store" in caught.value.message
    assert "set it to 3 or more" in caught.value.message
    assert checked(3.0, [0.05] * 5) == 5


def test_a_lease_below_the_minimum_is_refused_without_a_request() -> None:
    with pytest.raises(lv.InvalidOperation, match=r"set it to 0\.05 or more"):
        checked(0.01, ())
