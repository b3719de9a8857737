"""Writes by the data source on a cluster that repeats tasks, and loses executors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from tests.support.places import Place

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]


@pytest.mark.skipif(sys.platform != "linux", reason="an executor is found by /proc")
@pytest.mark.timeout(600)
def test_copies_of_a_task_and_a_killed_executor_make_one_result_and_no_orphan(
    driven: Any, tmp_path: Path
) -> None:
    root, marks = tmp_path / "lake", tmp_path / "marks"
    marks.mkdir()
    work = str(tmp_path / "work")
    found, _ = driven("writers.py", str(root), str(marks), work, timeout=580)
    assert found["marks"] == ["copied", "killed"]  # both have come to pass
    assert (found["speculation"], found["executor"]) == (400, 800)
    with lv.connect(str(root), settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.gc()
        rows = lake.sql("SELECT count(*) n, count(DISTINCT (id, job)) d FROM written").to_pylist()
        assert rows == [{"n": 800, "d": 800}]
        named = {Path(uri).name for uri in Place(str(root)).delta("written").file_uris()}
        assert {path.name for path in root.rglob("*.parquet")} == named
