"""Run the smallest benchmarks of commits, and each of their checks with a broken library."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from bench.harness.benchmark import NotInstalled
from bench.harness.parameters import WrongParameter
from bench.harness.results import Result
from bench.harness.running import execute
from bench.registry import benchmark

SMALL = {
    "smoke": {"parts": "directory", "repeats": "1"},
    "writers": {
        "writers": "2",
        "tables": "1",
        "work": "append,update",
        "formats": "delta",
        "systems": "threads",
        "seconds": "0",
    },
    "crowd": {"clients": "3", "tables": "one,own", "formats": "delta,iceberg", "seconds": "1"},
    "limited": {
        "clients": "2",
        "seconds": "0.5",
        "work": "update",
        "seconds_between_writes": "0.1",
    },
    "cpu_phases": {"transactions": "3", "warm_up": "1", "traced": "1", "repeats": "1"},
    "queues": {"parts": "one row,long", "seconds": "1", "thinks_seconds": "0.05"},
    "visible": {"tables": "2", "repeats": "1"},
    "window": {"tables": "1", "repeats": "1", "seconds": "0.7"},
    "iceberg": {"parts": "commits", "repeats": "1", "commits": "20"},
    "many_tables": {"tables": "12", "commits": "1", "repeats": "1"},
}
Patch = Callable[[pytest.MonkeyPatch], None]


def run(name: str, directory: Path, **given: str) -> Result:
    return execute(
        benchmark(name), directory, given=SMALL[name] | given, seed=5, profile="local", quick=True
    )


#: It waits seconds for the probe of its store.
SLOW = ("limited",)
NAMES = [pytest.param(name, marks=pytest.mark.night) if name in SLOW else name for name in SMALL]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path)
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert result.checks
    assert all(one.n and one.p50_ms > 0 for one in result.series)
    for plot in benchmark(name).plots:
        assert (tmp_path / f"{name}-{plot}.svg").stat().st_size > 1000


def appends_that_lose_rows(patch: pytest.MonkeyPatch) -> None:
    append = lv.Transaction.append

    def loses(txn: Any, table: str, data: Any, *args: Any, **options: Any) -> Any:
        return append(txn, table, data.slice(1), *args, **options)

    patch.setattr(lv.Transaction, "append", loses)


def updates_that_change_nothing(patch: pytest.MonkeyPatch) -> None:
    update = lv.Transaction.update

    def keeps(txn: Any, table: str, change: Any, *args: Any, **options: Any) -> Any:
        return update(txn, table, dict.fromkeys(change, "n"), *args, **options)

    patch.setattr(lv.Transaction, "update", keeps)


def guards_that_guard_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lv.Lake, "guard", lambda lake, table: None)


BROKEN: dict[str, tuple[str, Patch, str]] = {
    "smoke": ("smoke", appends_that_lose_rows, "the log of each table has every row"),
    "writers, appends": ("writers", appends_that_lose_rows, "the table has each commit"),
    "writers, updates": ("writers", updates_that_change_nothing, "the table has each commit"),
    "limited": ("limited", updates_that_change_nothing, "the table has each commit"),
    "cpu_phases": ("cpu_phases", appends_that_lose_rows, "the log of each table has every row"),
    "queues": ("queues", updates_that_change_nothing, "no change of the row is lost"),
    "visible": ("visible", updates_that_change_nothing, "deltalake reads every commit"),
    "window, updates": ("window", updates_that_change_nothing, "each commit of ours is in"),
    "window, guards": ("window", guards_that_guard_nothing, "nobody commits past a guard"),
    "iceberg": ("iceberg", appends_that_lose_rows, "a table has every row"),
    "many_tables": ("many_tables", appends_that_lose_rows, "the logs of the real tables"),
}


@pytest.mark.night
@pytest.mark.parametrize("broken", BROKEN)
def test_each_check_finds_the_bug_that_is_planted_for_it(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, plant, check = BROKEN[broken]
    plant(monkeypatch)
    result = run(name, tmp_path)
    (held,) = [holds for what, holds in result.checks.items() if what.startswith(check)]
    assert not held
    assert not result.ok


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("smoke", {"parts": "cloud"}, "parts: 'cloud' is none of directory, store"),
        ("writers", {"systems": "thread"}, "systems: 'thread' is none of threads, processes"),
        ("writers", {"formats": "hudi"}, "formats: 'hudi' is none of delta, iceberg"),
        ("writers", {"work": "merge"}, "work: 'merge' is none of append, update"),
        ("queues", {"parts": "hand"}, "parts: 'hand' is none of cost, hand-over, one row, long"),
        ("iceberg", {"parts": "all"}, "parts: 'all' is none of append, commits"),
    ],
)
def test_an_unknown_part_of_a_benchmark_is_refused(
    name: str, given: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(WrongParameter) as caught:
        run(name, tmp_path, **given)
    assert message in str(caught.value)


@pytest.mark.parametrize("part", ["append", "commits"])
def test_iceberg_without_pyiceberg_is_refused_with_the_command_that_installs_it(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *package: None if name == "pyiceberg" else find(name, *package),
    )
    with pytest.raises(NotInstalled, match=r"need pyiceberg: pip install 'lakevilla\[bench\]'"):
        run("iceberg", tmp_path, parts=part)


@pytest.mark.night
def test_ducklake_is_left_out_if_it_is_not_installed_and_the_other_systems_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: object) -> None:
        raise RuntimeError("pip install duckdb-extension-ducklake")

    monkeypatch.setattr("bench.commits.smoke.DuckLake", missing)
    result = run("smoke", tmp_path)
    assert result.ok
    assert result.notes == ["DuckLake was left out: pip install duckdb-extension-ducklake"]
    assert "DuckLake" not in {one.system for one in result.series}
    assert not [one for one in result.targets if "DuckLake" in one.target]
