"""Run the smallest LST-Bench, and its checks with a broken library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.lst_bench.workload import QUERIES, WORKLOADS, queries, refresh
from bench.registry import benchmark
from lakevilla.transaction.verbs import optimize

MAINTAINED = "data maintenance leaves the rows that DuckDB has after the same deletes and inserts"
OPTIMIZED = "OPTIMIZE changes no row"
ANSWERED = "before the first refresh, each query answers as DuckDB does from the generator's rows"


def run(directory: Path, **given: str) -> Result:
    small = {"workloads": "W3", "queries": "1", "phases": "2", "days": "60", **given}
    return execute(
        benchmark("lst_bench"), directory, given=small, seed=5, profile="local", quick=True
    )


@pytest.mark.night
def test_the_phases_run_in_order_and_are_drawn(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.checks == {ANSWERED: True, MAINTAINED: True, OPTIMIZED: True}
    assert [(one.params["phase"], one.system, one.n) for one in result.series] == [
        ("1: 1 SU + 1 DM", "SU", 1),
        ("1: 1 SU + 1 DM", "DM", 11),
        ("2: 1 SU + O", "SU", 1),
        ("2: 1 SU + O", "O", 24),
    ]
    maintenance = result.find("DM")
    assert maintenance is not None
    assert len(maintenance.phases_ms) == 11
    for plot in benchmark("lst_bench").plots:
        assert (tmp_path / f"lst_bench-{plot}.svg").stat().st_size > 1000


def test_the_workloads_are_those_of_lst_bench() -> None:
    names = {name: [phase.name for phase in phases] for name, phases in WORKLOADS.items()}
    assert names == {
        "W0": ["1 SU", "4 SU", "2 DM", "4 SU", "2 DM"],
        "W3": ["1 SU + 2 DM", "1 SU + O", "1 SU + 4 DM", "1 SU + O", "1 SU + 6 DM", "1 SU + O"],
    }


def test_the_seed_decides_the_queries_of_a_session_and_the_dates_of_a_refresh() -> None:
    assert queries(50, "a") == queries(50, "a") != queries(50, "b")
    assert set(queries(500, "a")) == set(QUERIES)
    assert refresh(1, 3, 7, "a") == refresh(1, 3, 7, "a") != refresh(2, 3, 7, "a")
    assert all(last - first == 6 for first, last in refresh(1, 3, 7, "a").ranges)


@pytest.mark.night
def test_the_check_finds_a_query_that_returns_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = lv.Transaction.sql

    def nothing(txn: Any, query: str, **options: Any) -> Any:
        return sql(txn, query, **options).slice(0, 0)

    monkeypatch.setattr(lv.Transaction, "sql", nothing)
    result = run(tmp_path, workloads="W0", phases="1")
    assert result.checks == {ANSWERED: False}
    assert not result.ok


@pytest.mark.night
def test_the_check_finds_a_delete_that_leaves_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = lv.Transaction.delete

    def lax(txn: Any, table: str, where: str, **options: Any) -> Any:
        if table == "store_sales":
            where = f"({where}) AND ss_item_sk > 9"
        return delete(txn, table, where, **options)

    monkeypatch.setattr(lv.Transaction, "delete", lax)
    assert run(tmp_path, phases="1").checks == {ANSWERED: True, MAINTAINED: False}


@pytest.mark.night
def test_the_check_finds_an_optimize_that_skips_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = optimize._moved

    def careless(txn: Any, layout: Any, parts: Any, *args: Any) -> Any:
        return moved(txn, layout, [files.slice(1) for files in parts], *args)

    monkeypatch.setattr(optimize, "_moved", careless)
    assert run(tmp_path).checks == {ANSWERED: True, MAINTAINED: True, OPTIMIZED: False}


def test_an_unknown_workload_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="'W7' is none of W0, W3"):
        run(tmp_path, workloads="W7")
