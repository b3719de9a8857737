"""Drivers of their own: a session that is not the one all tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.spark.import_path import import_path

HERE = Path(__file__).parent


def drive(script: str, *arguments: str, timeout: float = 280, **environment: str) -> Any:
    """Run a driver to its end; what it prints after ``RESULT``, and all its output."""
    told = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, "PYTHONPATH": import_path(), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    output = told.stdout + told.stderr
    found = [line for line in told.stdout.splitlines() if "RESULT " in line]
    assert found, output[-5000:]
    return json.loads(found[-1].partition("RESULT ")[2]), output


@pytest.fixture
def driven() -> Any:
    return drive
