"""The parts of the test suite that a campaign runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
