"""The parts of the test suite that a campaign runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.prove.suite import options_of
from tests.support.selection import SLICES

ROOT = Path(__file__).parents[3]


def test_tests_that_pytest_can_not_run_are_a_failure(tmp_path):
    program = (
        "from pathlib import Path; from tests.prove.suite import run_tests; "
        "from tests.prove.turn import Turn; "
        f"turn = Turn(0, 60.0, Path({str(tmp_path / 'report.json')!r})); "
        "run_tests(turn, ['tests/nothing_of_that_name']); print(turn.report.failures)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "USAGE_ERROR" in ended.stdout


def test_turns_of_a_suite_search_little_and_much_by_turns_and_begin_everywhere():
    options = [options_of(seed) for seed in range(2 * SLICES)]
    for searches_much in (False, True):
        turns = options[searches_much::2]
        assert all(
            ("whole" in one, "few" in one) == (searches_much, not searches_much) for one in turns
        )
        first = [int(one[one.index("--slice") + 1]) % SLICES for one in turns]
        assert sorted(first) == list(range(SLICES))
        assert sorted(first[:3]) == [0, 17, 34]
