"""Run Spark as a peer of the benchmarks: in a session of its own, which ends with the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.harness.results import Result, load

ROOT = Path(__file__).parents[3]

#: Each run starts Spark, and takes a minute or more.
pytestmark = pytest.mark.night


def bench(directory: Path, name: str, **given: str) -> Result:
    """Run a benchmark in a process of its own: this process may have a Spark session already."""
    parameters = [word for key, value in given.items() for word in ("-p", f"{key}={value}")]
    command = [sys.executable, "-m", "bench.command", "run", name, "--quick", *parameters]
    done = subprocess.run(
        [*command, "--output", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return load(directory / name / "result.json")


def test_the_benchmark_finds_an_update_that_spark_s_statements_lose(tmp_path: Path) -> None:
    systems = "Spark+Delta,Spark+Delta Serializable,Spark+Iceberg,R"
    result = bench(tmp_path, "hermitage", systems=systems, anomalies="P4")
    seen = {one.system: one.params["seen"] for one in result.series}
    assert seen == {
        "Spark+Delta": "yes",
        "Spark+Delta Serializable": "yes",
        "Spark+Iceberg": "yes",
        "R": "no",
    }


def test_requests_of_spark_to_the_store_are_counted(tmp_path: Path) -> None:
    systems, kinds = "Spark+Delta,Spark+Iceberg", "read,append"
    result = bench(tmp_path, "requests", systems=systems, kinds=kinds, transactions="1")
    assert not result.notes, result.notes
    for system in systems.split(","):
        read, append = (result.find(system, kind=kind) for kind in ("read", "append"))
        assert read is not None
        assert append is not None
        assert read.requests["put"] == 0
        assert read.requests["get"] >= 1
        # at least one file of rows, and one log entry
        assert append.requests["put"] - append.metadata["put"] == 1
        assert append.metadata["put"] >= 1


def test_spark_reads_the_lake_s_own_tables_with_the_same_results_as_duckdb(tmp_path: Path) -> None:
    result = bench(tmp_path, "tpcds", systems="DuckDB,R|I,Spark+Delta")
    assert not result.notes, result.notes
    assert list(result.checks.values()) == [True]
    for query in ("Q67", "Q68", "Q90"):
        cold = result.find("Spark+Delta", query=query, run="cold")
        assert cold is not None
        assert cold.requests["put"] == 0
        assert cold.requests["get"] + cold.requests["list"] > 1, "it knew the logs before"


def test_spark_s_commits_end_beside_a_client_of_lakevilla_that_appends(tmp_path: Path) -> None:
    result = bench(tmp_path, "guests", commits="5", clients="1")
    assert list(result.checks.values()) == [True]
    guest, busy = result.series
    assert (guest.n, guest.figures["commits that ended, %"]) == (5, 100)
    assert busy.n > 1
