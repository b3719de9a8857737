"""Run the Spark example, and kill it in the middle of a batch: it loses and repeats no row."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(400)
def test_a_killed_pipeline_continues_and_its_totals_agree() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "pyspark_pipeline.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    story = done.stdout.splitlines()
    killed = story.index("pipeline: killed, with two of four tables written")
    # Two batches are committed before the kill; the third one's gold tables take Spark seconds.
    assert "nothing of half a batch is seen: there are 4000 orders" in story[killed:]
    looks = re.search(r"the four tables agreed each of (\d+) times", done.stdout)
    assert looks is not None
    assert int(looks[1]) > 6
    assert story[-1].startswith("totals agree: 12000 orders, ")
