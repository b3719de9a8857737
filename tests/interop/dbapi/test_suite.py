"""Run SQLAlchemy's own test suite for dialects over lakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "suite"
PARTS = 24


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.night
def test_sqlalchemys_own_suite_passes(part: int) -> None:
    """suite/requirements.py lists the features that a lake lacks, whose tests are left out."""
    command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "setup.cfg"), "-q", "--tb=short"]
    command += [f"--part={part}/{PARTS}", str(SUITE / "compliance.py")]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 5), done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"passed|skipped|deselected", done.stdout)
