"""The benchmark of Spark where there is no Spark; tests/interop/spark has it where there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.parameters import WrongParameter
from bench.harness.running import execute
from bench.registry import benchmark


def test_spark_without_java_says_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    result = execute(benchmark("spark"), tmp_path / "out", given={}, seed=1, quick=True)
    assert not result.ok
    assert result.notes == ["spark needs Java 17: `make java` installs it, or says how"]
    assert (tmp_path / "out" / "result.json").exists()


def test_spark_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="--profile local"):
        execute(benchmark("spark"), tmp_path, given={}, seed=1, profile="zero", quick=True)
