"""A running command receives the signal to end, whenever during a wait that is sent."""

import subprocess
import sys

import pytest

from lakevilla.cli.upkeep import EndRequest

#: With a ``threading.Event``, the handler waits within a second for a lock that its own thread has.
ASKED_AT_ANY_MOMENT = """
import signal
from lakevilla.cli.upkeep import EndRequest

for number in range(2000):
    end = EndRequest()
    signal.signal(signal.SIGALRM, lambda *_: end.ask())
    signal.setitimer(signal.ITIMER_REAL, 5e-5 + number % 97 * 1e-6)
    while not end.wait(2e-5):
        pass
    assert end.is_set() and end.wait(0)
"""


def test_a_signal_handler_can_request_the_end_at_any_time_during_a_wait() -> None:
    command = [sys.executable, "-c", ASKED_AT_ANY_MOMENT]
    assert subprocess.run(command, timeout=120).returncode == 0


@pytest.mark.parametrize("seconds", [0, 0.001])
def test_a_wait_without_a_request_to_end_lasts_its_seconds(seconds: float) -> None:
    end = EndRequest()
    assert not end.wait(seconds)
    assert not end.is_set()
