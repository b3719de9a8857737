"""Measure times in benchmarks' reports: by kind of operation and phase, as the library reports
them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench.harness.clients import Counts, Measured
from bench.harness.results import Result, Series
from bench.harness.running import execute
from bench.registry import benchmark
from bench.ycsb_lh.phases import by_phase, phases, visible
from lakevilla.formats.registry import Formats
from lakevilla.store.effects import Program
from lakevilla.transaction.commit import publish

SMALL = {"records": "10", "operations": "8", "warm_up": "1"}


def run(directory: Path, **given: str) -> Result:
    given = {**SMALL, "systems": "single:R|I,deltalake", **given}
    bench = benchmark("ycsb_phases")
    return execute(bench, directory, given=given, seed=5, profile="local", quick=True)


def series(**kinds: float) -> Series:
    found = Series("single:R", {"workload": "A", "clients": 1})
    found.kinds = {kind: {"n": n, "mean": 10.0} for kind, n in kinds.items()}
    return found


def test_phases_of_several_kinds_are_weighted_and_the_rest_completes_the_latency() -> None:
    one = series(update=3, insert=1, read=7)
    one.phases_ms = {"update/data": 4.0, "insert/data": 8.0, "insert/decide": 1.0, "read/data": 9.0}
    found = by_phase(one, ("update", "insert", "rmw"))
    assert (found["data"], found["decide"], found["the rest"]) == (5.0, 0.25, 4.75)
    assert sum(found.values()) == 10.0
    assert by_phase(one, ("scan",)) == {}
    assert visible([one]) == {"data", "decide", "the rest"}


def test_seconds_in_a_phase_become_means_per_operation_of_that_kind() -> None:
    measured = Measured()
    for _ in range(4):
        measured.record("read", 0.01)
    other = Measured(counts=Counts(phase_seconds={"read/data": 0.004, "scan/data": 1.0}))
    measured.counts.spend("read", "data", 0.016)
    measured.add(other)
    assert measured.phases_ms() == {"read/data": pytest.approx(5.0)}


@pytest.mark.night
def test_the_phases_of_a_run_are_within_its_latencies(tmp_path: Path) -> None:
    check_phases(run(tmp_path, clients_as="threads"))


def test_the_phases_of_clients_that_are_processes_are_within_its_latencies(tmp_path: Path) -> None:
    check_phases(run(tmp_path, clients_as="processes"))


def check_phases(result: Result) -> None:
    lakevilla, deltalake = result.series
    assert result.ok
    for one, wanted in (
        (lakevilla, {"update/version", "update/data", "update/decide", "update/publish"}),
        (deltalake, {"update/metadata", "update/data and log", "read/data"}),
    ):
        assert wanted <= set(one.phases_ms)
        for kind, summary in one.kinds.items():
            spent = sum(ms for name, ms in one.phases_ms.items() if name.startswith(f"{kind}/"))
            assert 0 < spent <= summary["mean"] * 1.01
    assert len(phases(result).axes) == 2


def test_a_cold_client_reads_metadata_for_each_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Formats.open

    def slow(*given: Any, **named: Any) -> Program[Any]:
        time.sleep(0.2)
        return (yield from opened(*given, **named))

    monkeypatch.setattr(Formats, "open", slow)
    warm, cold = run(tmp_path, systems="single:R|I,cold:R|I").series
    assert cold.phases_ms["read/metadata"] > 200 > warm.phases_ms["read/metadata"]
    assert by_phase(cold, ("read",))["the rest"] > 0, "to connect is in no phase"


def test_time_spent_publishing_is_counted_in_the_publish_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = publish.publish_once

    def slow(*given: Any) -> Program[Any]:
        time.sleep(0.2)
        return (yield from once(*given))

    monkeypatch.setattr(publish, "publish_once", slow)
    (found,) = run(tmp_path, systems="single:R|I").series
    means = by_phase(found, ("update",))
    assert means["publish"] >= 200
    assert max(means, key=means.__getitem__) == "publish"
    assert by_phase(found, ("read",))["publish"] == 0
