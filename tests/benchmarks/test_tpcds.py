"""Run the smallest TPC-DS benchmark; test the size of its data, and its check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bench.tpcds.systems
import lakevilla as lv
from bench.harness.answers import same_rows
from bench.harness.benchmark import NotInstalled
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.registry import benchmark

ANSWERED = "each system answers as DuckDB does from the generator's rows"


def run(directory: Path, **given: str) -> Result:
    small = {"systems": "DuckDB,R|I,DuckLake", "queries": "67", **given}
    return execute(benchmark("tpcds"), directory, given=small, seed=5, profile="local", quick=True)


@pytest.mark.night
def test_all_systems_answer_the_queries_and_the_chart_has_their_planning_time(
    tmp_path: Path,
) -> None:
    result = run(tmp_path)
    assert result.checks == {ANSWERED: True}, [one.deaths for one in result.series]
    assert [(one.system, one.params["run"], one.n) for one in result.series] == [
        (system, kind, 1) for system in ("DuckDB", "R|I", "DuckLake") for kind in ("cold", "hot")
    ]
    hot = result.find("R|I", run="hot")
    assert hot is not None
    assert hot.phases_ms["plan"] > 0
    assert [one.target for one in result.targets] == [
        "Q67, cold: R|I, times DuckDB on the same files",
        "Q67, hot: R|I, times DuckDB on the same files",
    ]
    for plot in benchmark("tpcds").plots:
        assert (tmp_path / f"tpcds-{plot}.svg").stat().st_size > 1000


@pytest.mark.usefixtures("pictures")
@pytest.mark.night
def test_warm_queries_alternate_between_systems_and_are_compared_with_duckdb(
    tmp_path: Path,
) -> None:
    result = execute(benchmark("tpcds_warm"), tmp_path, given={"queries": "90"}, seed=5, quick=True)
    assert result.checks == {ANSWERED: True}, [one.deaths for one in result.series]
    assert [(one.system, one.params["query"]) for one in result.series] == [
        (system, query) for query in ("Q90", "count") for system in ("DuckDB", "R|I", "snapshot")
    ]
    assert all(len(one.of_repeats("cpu_ms")) == 2 for one in result.series)
    assert [one.target for one in result.targets] == [
        "Q90, CPU: a snapshot, times DuckDB",
        "Q90, time: a snapshot, times DuckDB",
        "count(*), CPU beyond DuckDB's, ms",
    ]
    assert (tmp_path / "tpcds_warm-cpu.svg").stat().st_size > 1000


@pytest.mark.night
def test_a_result_with_too_few_rows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = lv.Transaction.sql

    def of_some_rows(txn: Any, query: str, *args: Any, **options: Any) -> Any:
        return sql(txn, query.replace("store_sales", "(FROM store_sales LIMIT 9000)"))

    monkeypatch.setattr(lv.Transaction, "sql", of_some_rows)
    result = run(tmp_path)
    assert not any(one.deaths for one in result.series)
    assert result.checks == {ANSWERED: False}


@pytest.mark.night
def test_a_system_that_is_not_installed_is_left_out_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(data: object) -> Any:
        raise NotInstalled("pip install it")

    monkeypatch.setitem(bench.tpcds.systems.SYSTEMS, "DuckLake", missing)
    result = run(tmp_path, systems="DuckDB,DuckLake", queries="90")
    assert result.ok
    assert {one.system for one in result.series} == {"DuckDB"}
    assert result.notes == ["DuckLake was left out: pip install it"]


def test_a_scale_that_is_too_large_for_the_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match=r"tpcds at scale factor 1e\+06 takes .* GiB"):
        run(tmp_path, scale="1000000")


def test_results_are_compared_by_rows_without_order_and_column_names() -> None:
    one = pa.table({"a": [1, 2, 2], "b": [0.1 + 0.2, None, 1.0]})
    same = pa.table({"x": [2, 1, 2], "y": [None, 0.3, 1.0]})
    assert same_rows(one, same)
    assert not same_rows(one, same.slice(1))
    assert not same_rows(one, pa.table({"x": [2, 1, 2], "y": [None, 0.31, 1.0]}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queries": "100"}, "tpcds has queries 1 to 99, and no 100"),
        ({"systems": "Presto"}, "'Presto' is none of DuckDB"),
        ({"scale": "0"}, "scale=0 is too small"),
    ],
)
def test_unknown_queries_systems_and_scales_are_refused_by_name(
    given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongParameter, match=message):
        run(tmp_path, **given)
