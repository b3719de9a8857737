"""Run the smallest benchmarks of large tables, and each of their checks with a broken library."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from bench.harness.clients import Measured
from bench.harness.results import Result
from bench.harness.running import execute
from bench.registry import benchmark
from bench.size import by_lakevilla, steady
from bench.size.own_process import Own, in_own_process
from lakevilla.arrow.row_digest import RowDigest
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.meter import Meter
from lakevilla.serve.page import history
from lakevilla.sql.expressions.parse import parse_predicate

SMALL = {
    "many_files": {"files": "2000", "repeats": "1"},
    "memory_of_many": {"tables": "10"},
    "month": {"tables": "2", "written": "1", "commits": "1"},
    "rewrite": {"gigabytes": "0.01", "repeats": "1", "systems": "LakeVilla"},
    "refresh": {"rows": "2000", "repeats": "1"},
    "shown": {"files": "2000", "repeats": "1"},
    "pages": {"tables": "2", "commits": "2", "repeats": "1"},
    "page_checksums": {"rows": "1000", "repeats": "1"},
    "file_hashes": {"rows": "1000", "repeats": "1"},
    "deleted_rows": {"repeats": "1"},
    "marked_rows": {"repeats": "1"},
    "row_ids": {"repeats": "1"},
    "upsert": {"repeats": "1"},
}

#: Four periods: the fewest of which any are compared.
SOAK = {"commits": "96", "periods": "4", "retention_seconds": "1", "maintain_seconds": "1"}


#: Upserts by two processes: each opens the lake, and marks rows.
CDC = {"work": "cdc", "rows": "600000", "writers": "2", "seconds": "0.2"}


def run(name: str, directory: Path, **given: str) -> Result:
    return execute(benchmark(name), directory, given=SMALL[name] | given, seed=5, quick=True)


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs_and_is_drawn(name: str, tmp_path: Path) -> None:
    result = run(name, tmp_path)
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert all(one.n and one.p50_ms > 0 for one in result.series)
    for plot in benchmark(name).plots:
        assert (tmp_path / f"{name}-{plot}.svg").stat().st_size > 1000


@pytest.mark.night
def test_the_check_finds_a_scrape_that_does_not_count_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Meter, "add", lambda meter, **counts: None)
    assert run("month", tmp_path).checks == {"a scrape takes as many requests as it says": False}


def test_processes_that_upsert_at_once_lose_no_row(tmp_path: Path) -> None:
    result = run("marked_rows", tmp_path, **CDC)
    assert result.ok, (result.checks, [one.deaths for one in result.series])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each part in this process, since another process would not have the planted bug."""

    def call(module: str, function: str, *arguments: Any) -> Own:
        returned = getattr(import_module(module), function)(*arguments)
        measured = Measured(seconds=1.0)
        measured.record(function, 1.0)
        return Own(measured, {"peak_mb": 1.0, "cpu_s": 1.0}, returned)

    for module in ("many_files", "rewrite", "refresh"):
        monkeypatch.setattr(f"bench.size.{module}.in_own_process", call)


@pytest.mark.usefixtures("here")
@pytest.mark.night
def test_the_check_finds_files_that_are_read_though_they_could_be_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DeltaSnapshot.files
    monkeypatch.setattr(DeltaSnapshot, "files", lambda snapshot, where=None: files(snapshot))
    result = run("many_files", tmp_path)
    assert result.checks["LakeVilla finds the partition's files"] is False


@pytest.mark.usefixtures("here")
def test_the_check_finds_a_row_that_is_changed_by_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = by_lakevilla.bind

    def one_more(expression: Any, schema: Any) -> Any:
        if expression == parse_predicate("id % 100 = 7"):
            expression = parse_predicate("id % 100 = 7 OR id = 0")
        return bind(expression, schema)

    monkeypatch.setattr(by_lakevilla, "bind", one_more)
    result = run("rewrite", tmp_path)
    assert result.checks["LakeVilla's update changes 1% of the rows, and no other"] is False
    assert result.checks["LakeVilla's merge changes 1% of the rows, and no other"] is True


@pytest.mark.usefixtures("here")
@pytest.mark.night
def test_the_check_finds_a_file_that_is_kept_though_its_rows_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowDigest, "hexdigest", lambda digest: "the same")
    result = run("refresh", tmp_path)
    assert result.checks["where nothing has changed, no file is written"] is True
    assert result.checks["the rows are those of a plain overwrite"] is False
    assert result.checks["changes() shows the changed rows alone"] is False


@pytest.mark.usefixtures("here")
@pytest.mark.night
def test_a_process_that_takes_too_much_memory_fails_the_run(tmp_path: Path) -> None:
    result = run("rewrite", tmp_path, limit_gb="0.0005")
    assert result.checks["LakeVilla's update holds at most 0.0005 GB"] is False
    assert not result.ok


def test_the_check_finds_a_page_that_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "refs_of", lambda main: {}[main])
    assert run("pages", tmp_path).checks == {"each page is shown": False}


def test_a_process_that_dies_is_reported() -> None:
    own = in_own_process("bench.size.million", "prune", "/nowhere", "none")
    (death,) = own.measured.deaths
    assert death.startswith("bench.size.million.prune: lakevilla.errors.")
    assert own.measured.n == 0


def test_the_memory_of_a_process_is_that_of_its_own_work() -> None:
    small = in_own_process("json", "loads", "[]")
    large = in_own_process("json", "loads", "[" + ",".join(["1234567"] * 10_000) + "]")
    assert 0 < small.figures["peak_mb"] <= large.figures["peak_mb"] < 100


@pytest.mark.night
def test_a_soak_leaves_nothing_that_grows(tmp_path: Path) -> None:
    result = execute(benchmark("steady"), tmp_path, given=SOAK, seed=5, quick=True)
    assert result.ok, (result.checks, [one.deaths for one in result.series])
    assert [one.n for one in result.series] == [24] * 4
    assert result.checks["flat: requests_per_commit"] is True


@pytest.mark.night
def test_a_soak_finds_commit_objects_that_are_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lv.Lake, "gc", lambda lake, dry_run=False: lv.Report(ok=True))
    result = execute(benchmark("steady"), tmp_path, given=SOAK, seed=5, quick=True)
    assert result.checks["flat: objects in _lakevilla/commits"] is False
    assert not result.ok


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        ([90, 100, 100, 101, 100, 101, 100, 100], True),
        ([10, 20, 100, 104, 100, 104, 100, 104], True),
        ([100, 100, 100, 103, 106, 109, 112, 115], False),
        ([10, 10, 10, 12, 10, 12, 10, 10], True),
        ([40, 60, 20, 95, 30, 110, 25, 100], True),
    ],
)
def test_a_soak_compares_the_last_three_quarters_alone(
    values: list[float], is_flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: dict[str, bool] = {}

    class Noting:
        check = staticmethod(checks.__setitem__)
        note = staticmethod(lambda text: None)

    monkeypatch.setattr(steady, "LIMITS", (steady.Limit("figure", 0.06, 2),))
    steady._check_flat(Noting(), "figure", values)  # type: ignore[arg-type]
    assert checks == {"flat: figure": is_flat}
