"""Run the smallest benchmark of hot rows, and its checks with a library that is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bench.hot.systems
import lakevilla as lv
from bench.harness.attempts import run_counted
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.hot.driver import ONCE, REST
from bench.hot.systems import SYSTEMS
from bench.registry import benchmark


def run(directory: Path, **given: str) -> Result:
    small = {"clients": "2", "records": "3", "seconds": "0", "work": "file", "systems": "LakeVilla"}
    return execute(
        benchmark("hot"), directory, given={**small, **given}, seed=5, profile="local", quick=True
    )


def test_all_systems_do_each_kind_of_work_and_are_drawn(tmp_path: Path) -> None:
    result = run(tmp_path, work="row,file,partition", systems=",".join(SYSTEMS))
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert result.checks == {ONCE: True, REST: True}
    assert {one.system for one in result.series} == set(SYSTEMS.values())
    assert len(result.series) == 3 * len(SYSTEMS)
    assert all(one.figures["processor_ms"] > 0 for one in result.series)
    assert (tmp_path / "hot-clients.svg").stat().st_size > 1000


def test_combining_is_on_unless_the_benchmark_switches_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    combines: list[bool] = []
    connect = lv.connect

    def noted(*given: Any, **options: Any) -> Any:
        if options.get("settings") is not None:
            combines.append(options["settings"].combine)
        return connect(*given, **options)

    monkeypatch.setattr(lv, "connect", noted)
    run(tmp_path, systems="LakeVilla,not combined")
    assert combines == [True, False]


@pytest.mark.night
@pytest.mark.parametrize("clients_as", ["lakes", "processes"])
def test_clients_of_hot_rows_are_lakes_or_processes_if_requested(
    clients_as: str, tmp_path: Path
) -> None:
    result = run(tmp_path, clients_as=clients_as, systems=",".join(SYSTEMS))
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert {one.system for one in result.series} == set(SYSTEMS.values()) - {"DuckLake"}
    assert all(one.figures["processor_ms"] > 0 for one in result.series)
    (note,) = [note for note in result.notes if "DuckLake" in note]
    assert note.startswith("DuckLake was left out")


def test_the_check_finds_an_update_that_was_acknowledged_and_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = lv.Transaction.update

    def keeps(txn: Any, table: str, change: Any, **options: Any) -> Any:
        return update(txn, table, dict.fromkeys(change, "n"), **options)

    monkeypatch.setattr(lv.Transaction, "update", keeps)
    result = run(tmp_path)
    assert result.checks == {ONCE: False, REST: True}
    assert not result.ok


@pytest.mark.night
def test_the_check_finds_an_update_that_is_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.hot.systems, "_SET", "n + 2")
    assert run(tmp_path).checks == {ONCE: False, REST: True}


@pytest.mark.night
def test_the_check_finds_a_change_of_another_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = lv.Transaction.update

    def more(txn: Any, table: str, change: Any, **options: Any) -> Any:
        return update(txn, table, {**change, "rest": "'lost'"}, **options)

    monkeypatch.setattr(lv.Transaction, "update", more)
    assert run(tmp_path).checks == {ONCE: True, REST: False}


def test_an_update_that_loses_each_time_is_given_up_and_counts_as_no_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def loses_first(*given: Any, **options: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise lv.ConflictError("it has lost, and is not committed")
        run_counted(*given, **options)

    monkeypatch.setattr("bench.hot.systems.run_counted", loses_first)
    result = run(tmp_path)
    (one,) = result.series
    assert (one.n, one.figures["given_up"]) == (1, 1)
    assert result.checks == {ONCE: True, REST: True}


@pytest.mark.night
def test_the_check_finds_an_update_that_was_given_up_and_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tells_of_none(*given: Any, **options: Any) -> None:
        run_counted(*given, **options)
        raise lv.ConflictError("it has committed, and its client hears that it has not")

    monkeypatch.setattr("bench.hot.systems.run_counted", tells_of_none)
    result = run(tmp_path)
    assert result.checks == {ONCE: False, REST: True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"work": "rows"}, "work: 'rows' is none of row, file, partition"),
        ({"systems": "Spark"}, "systems: 'Spark' is none of LakeVilla, not combined"),
        ({"clients": "1,4"}, "records: 4 clients can't have a row each of 3"),
    ],
)
def test_hot_rows_that_there_cannot_be_are_refused(
    given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongParameter) as caught:
        run(tmp_path, **given)
    assert message in str(caught.value)
