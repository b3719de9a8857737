"""Benchmark clients: threads, lakes or processes; closed or open loop; clients that die or are
cut off.
"""

from __future__ import annotations

import _thread
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Event

import pytest

from bench.harness.clients import COMMIT, Client, Manner, run_clients
from bench.harness.clients.pace import arrivals, carried_out
from bench.harness.needs import Needs, available_memory_bytes, check_needs
from bench.harness.parameters import WrongParameter
from tests.support.clients import Opens, Steps

AS = ("threads", "lakes", "processes")


@pytest.mark.parametrize(("as_", "opened"), [("threads", 1), ("lakes", 3), ("processes", 3)])
def test_clients_share_a_lake_or_open_their_own(as_: str, opened: int, tmp_path: Path) -> None:
    clients = [Client(Steps(4), warm_up=Steps(2)) for _ in range(3)]
    started: list[float] = []
    measured = run_clients(
        Opens(tmp_path), clients, Manner(as_), on_start=lambda: started.append(time.perf_counter())
    )
    assert measured.n == 12, "neither the warm-up nor the end of a transaction is an operation"
    assert measured.counts.redos == 12
    assert measured.histograms[COMMIT].get_total_count() == 3
    assert sorted(measured.counts.facts) == sorted(3 * [0, 1, 2, 3] + 3 * [0, 1])  # type: ignore[type-var]
    assert measured.without_commit_per_s > 0
    assert len(list(tmp_path.iterdir())) == opened
    processes = {path.name.split("-")[0] for path in tmp_path.iterdir()}
    assert (str(os.getpid()) in processes) == (as_ != "processes")
    assert len(started) == 1


@pytest.mark.parametrize("as_", AS)
def test_a_client_that_raises_is_reported_dead_and_the_other_clients_continue(
    as_: str, tmp_path: Path
) -> None:
    clients = [Client(Steps(10)), Client(Steps(10, fails_at=4)), Client(Steps(6))]
    measured = run_clients(Opens(tmp_path), clients, Manner(as_))
    assert measured.n == 10 + 4 + 6
    (death,) = measured.deaths
    assert death.startswith("client 1")
    assert "after 4 operations: OSError: the disk is full" in death


def test_a_killed_client_process_is_reported_dead_and_its_finished_operations_count(
    tmp_path: Path,
) -> None:
    clients = [Client(Steps(5)), Client(Steps(10, is_killed_at=7))]
    measured = run_clients(Opens(tmp_path), clients, Manner("processes"))
    assert measured.n == 5 + 7
    assert sorted(measured.counts.facts) == sorted([*range(5), *range(7)])  # type: ignore[type-var]
    (death,) = measured.deaths
    assert "after 7 operations: killed by SIGKILL" in death


def test_a_client_that_cannot_open_its_lake_is_reported_dead(tmp_path: Path) -> None:
    measured = run_clients(Opens(tmp_path / "is not there"), [Client(Steps(2))], Manner("lakes"))
    assert measured.n == 0
    assert "FileNotFoundError" in measured.deaths[0]


@pytest.mark.parametrize("as_", AS)
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_measurements_and_ends_all_processes(as_: str, tmp_path: Path) -> None:
    def interrupt() -> None:
        pause = Event()

        def later() -> None:
            pause.wait(0.5)
            _thread.interrupt_main()

        _thread.start_new_thread(later, ())

    clients = [Client(Steps(100_000, lasts=0.01)) for _ in range(2)]
    measured = run_clients(Opens(tmp_path), clients, Manner(as_), on_start=interrupt)
    assert measured.interrupted
    assert 2 <= measured.n < 1000
    assert not measured.deaths
    assert not multiprocessing.active_children()


def test_a_slow_operation_in_an_open_loop_delays_the_operations_behind_it() -> None:
    """Latency counts from the time at which an operation was due: no coordinated omission."""

    def work() -> Iterator[str]:
        for number in range(10):
            yield "read"
            time.sleep(0.2 if number == 0 else 0.0)

    due = (number * 0.01 for number in range(10))
    steps = list(carried_out(work(), Event(), due, time.perf_counter()))
    waited = [step.seconds for step in steps]
    assert all(later >= 0.2 - 0.01 * number - 0.001 for number, later in enumerate(waited))
    assert all(step.busy_seconds < 0.15 for step in steps[1:]), "they were fast by themselves"


def test_open_loop_operations_arrive_at_the_requested_rate(tmp_path: Path) -> None:
    found = arrivals(50.0, Random(1))
    assert 35 < [next(found) for _ in range(2000)][-1] < 45
    clients = [Client(Steps(20)) for _ in range(2)]
    measured = run_clients(Opens(tmp_path), clients, Manner("threads", rate=200.0, seed="s"))
    assert measured.n == 40
    assert 0.1 < measured.seconds < 1.0, "a closed loop would take no time"


@pytest.mark.parametrize("as_", ["threads", "processes"])
def test_a_client_with_given_start_times_begins_its_operations_then(
    as_: str, tmp_path: Path
) -> None:
    """A client that is early waits for the given time, whatever the requested rate is."""
    early = Client(Steps(2), arrives=[0.0, 0.4])
    late = Client(Steps(2, lasts=0.3), arrives=[0.0, 0.1])
    waited = run_clients(Opens(tmp_path), [early], Manner(as_, rate=1000.0))
    assert waited.seconds >= 0.4
    queued = run_clients(Opens(tmp_path), [late], Manner(as_, rate=1000.0))
    assert queued.whole().get_max_value() >= 450_000, "the second has waited for the first"


@pytest.mark.parametrize(
    ("needs", "in_memory", "message"),
    [
        (Needs(disk_bytes=2**60, why="scale 1000"), False, "free, and scale 1000 takes"),
        (Needs(data_bytes=2**60, why="scale 1000"), False, "free, and scale 1000 takes"),
        (Needs(data_bytes=2**60, why="scale 1000"), True, "memory are available, and scale 1000"),
        (Needs(memory_bytes=2**60, why="640 processes"), False, "are available, and 640 processes"),
    ],
)
def test_a_run_that_needs_too_much_disk_or_memory_is_refused(
    needs: Needs, in_memory: bool, message: str
) -> None:
    with pytest.raises(WrongParameter) as caught:
        check_needs(needs, in_memory=in_memory)
    assert message in str(caught.value)


def test_a_small_run_passes_the_check_of_disk_and_memory() -> None:
    assert available_memory_bytes() > 0
    check_needs(Needs(data_bytes=1000, why="a few rows"), in_memory=True)
