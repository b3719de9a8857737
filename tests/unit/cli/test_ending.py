"""A command that goes on hears that it is to end, at whatever moment it is told."""

import subprocess
import sys

import pytest

from lakevilla.cli.upkeep import Ending

#: With a ``threading.Event`` the handler waits, within a second, for a lock of its own thread.
TOLD_IN_ANY_MOMENT = """
import signal
from lakevilla.cli.upkeep import Ending

for number in range(2000):
    end = Ending()
    signal.signal(signal.SIGALRM, lambda *_: end.tell())
    signal.setitimer(signal.ITIMER_REAL, 5e-5 + number % 97 * 1e-6)
    while not end.wait(2e-5):
        pass
    assert end.is_set() and end.wait(0)
"""


def test_a_handler_may_tell_it_at_any_moment_of_a_wait() -> None:
    command = [sys.executable, "-c", TOLD_IN_ANY_MOMENT]
    assert subprocess.run(command, timeout=120).returncode == 0


@pytest.mark.parametrize("seconds", [0, 0.001])
def test_who_waits_for_what_is_not_told_waits_in_vain(seconds: float) -> None:
    end = Ending()
    assert not end.wait(seconds)
    assert not end.is_set()
