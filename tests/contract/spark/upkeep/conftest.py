"""Fixtures: a lake with Spark, a client of it without Spark, and a list of the Spark jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.engines.spark import tasks as bins
from lakevilla.engines.spark.jobs import Jobs
from lakevilla.engines.spark.upkeep import changes, meeting


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[lv.Lake]:
    """Return a client of the same lake without Spark."""
    with lv.connect(str(tmp_path)) as made:
        yield made


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of the tasks that have run; each task gets only a few rows."""
    monkeypatch.setattr(bins, "_LEAST_BYTES", 1)
    monkeypatch.setattr(bins, "_MOST_BYTES", 2_000)
    for one in (changes, meeting):
        monkeypatch.setattr(one, "_MEETING_BYTES", 20_000)
    kinds: list[str] = []
    run = Jobs.run

    def noting(self: Jobs, frame: Any, task: Any, about: str) -> Any:
        kinds.append(type(task).__name__)
        return run(self, frame, task, about)

    monkeypatch.setattr(Jobs, "run", noting)
    return kinds
