"""Test the benchmark of Spark on a machine without Spark; tests/interop/spark tests it
with Spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.parameters import WrongParameter
from bench.harness.running import execute
from bench.registry import benchmark


def test_spark_without_java_is_refused_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    result = execute(benchmark("spark"), tmp_path / "out", given={}, seed=1, quick=True)
    assert not result.ok
    assert result.notes == ["spark needs Java 17: `make java` installs it, or says how"]
    assert (tmp_path / "out" / "result.json").exists()


def test_spark_s_benchmark_requires_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="--profile local"):
        execute(benchmark("spark"), tmp_path, given={}, seed=1, profile="zero", quick=True)
