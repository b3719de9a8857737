"""Real processes in queues: killed in mid-commit and in mid-wait, and sixteen at once."""

from __future__ import annotations

import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from tests.integration.processes.queue_client import LEASE_SECONDS, SETTINGS, transfer
from tests.support.places import Place
from tests.support.queues import CT, I, R, Told, beside, left_over, tickets
from tests.support.search import how_many
from tests.support.tables import accounts

ROOT = Path(__file__).parents[3]
KILLS = how_many(3, whole=9, soak=500)
TABLES = ("north", "south", "north_log", "south_log")
#: Far more than a lease and some requests on a busy machine, far less than a wait's patience.
SOON_SECONDS = 30.0


class Client:
    """A process with ``queue_client serve`` in it."""

    def __init__(self, root: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.processes.queue_client", "serve", root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def order(self, **what: object) -> str:
        """Have it transfer; the id of its transaction."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        began: str = self.told("began")["began"]
        return began

    def told(self, *names: str) -> dict[str, Any]:
        """The next line with one of ``names``."""
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            assert line, "the client ended by itself"
            told: dict[str, Any] = json.loads(line)
            if told.keys() & set(names):
                return told

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def client(root: str) -> Iterator[Client]:
    made = Client(root)
    try:
        assert made.told("ready")
        yield made
    finally:
        made.kill()


def transfers(place: Place) -> set[int]:
    """The numbers of those that are committed; all that they did is there, once."""
    done: list[int] = []
    for name in ("north_log", "south_log"):
        done += [row["number"] for row in place.seen(name)]
    assert len(done) == len(set(done)), "a transfer is there twice"
    expected = {"north": dict.fromkeys(range(5), 100), "south": dict.fromkeys(range(5), 100)}
    for number in done:
        first, second = ("north", "south") if number % 2 else ("south", "north")
        expected[first][number % 5] -= 1
        expected[second][number % 5] += 1
    for name, balances in expected.items():
        assert {row["id"]: row["balance"] for row in place.seen(name)} == balances
    return set(done)


@pytest.mark.timeout(0 if KILLS > 100 else 300)
@pytest.mark.night
def test_processes_killed_in_their_queues_delay_no_other_and_leave_nothing_half(
    tmp_path: Path,
) -> None:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        for name in ("north", "south"):
            lake.create_table(name, accounts(5))
        for name in ("north_log", "south_log"):
            lake.create_table(name, {"number": [-1]})
            lake.run(lambda txn, name=name: txn.delete(name, "true"))
    choice = random.Random(20240229)
    number, stops, slowest = 0, set(), 0.0
    acknowledged, unknown = set(), {}
    with client(place.root) as first:
        first.order(number=number, features="R|CT|I")
        requests = first.told("committed")["requests"]
        acknowledged.add(number)
    assert requests >= 20
    # From the first place to the last delete, each before and after the request.
    points = [(at, after) for after in (False, True) for at in range(1, requests + 1)]
    choice.shuffle(points)
    told = Told()
    with place.connect(settings=SETTINGS, on_event=told) as lake:
        for kill in range(KILLS):
            waits = kill % 3 == 2
            features = ("R|CT", "R|CT|I")[kill % 2]
            number += 1
            held = None
            with client(place.root) as victim:
                if waits:
                    held = lake.transaction(R | CT | I)
                    transfer(held, number)
                    number += 1
                    txn_id = victim.order(number=number, features=features)
                    assert victim.told("waiting")["waiting"] == [held.id]
                    unknown[txn_id] = number
                else:
                    at, after = points[kill % len(points)]
                    txn_id = victim.order(number=number, features=features, stop_at=at, after=after)
                    unknown[txn_id] = number
                    # It may take fewer requests than the first one did.
                    ended = victim.told("stopped", "committed")
                    stops.add(ended.get("stopped", "").split(" ")[0])
                    if "committed" in ended:
                        acknowledged.add(number)
            started = time.monotonic()
            number += 1
            behind = lake.transaction(R | CT | I)
            transfer(behind, number)
            if held is None:
                behind.commit()
            else:
                with beside(behind.commit):
                    held.commit()
                acknowledged.add(number - 2)
            acknowledged.add(number)
            slowest = max(slowest, time.monotonic() - started)
            assert tickets(lake, "north") == tickets(lake, "south") == []
    assert slowest < SOON_SECONDS
    assert told.of("stale"), "nobody had to be given up"
    with place.connect() as lake:
        assert lake.recover().ok
        done = transfers(place)
        assert acknowledged <= done
        for txn_id, transferred in unknown.items():
            committed = lake.outcome(txn_id).state == "committed"
            assert committed == (transferred in done), txn_id
    assert len(stops) >= min(3, KILLS // 4), "the kills were not spread"
    # The dead never come back: gc takes what they have left.
    with place.connect(settings=lv.Settings(max_age_seconds=0, lease_seconds=0.2)) as lake:
        lake.gc()
        assert left_over(lake, *TABLES) == []
    assert transfers(place) == done
    print(f"slowest behind a dead one: {slowest:.1f} s of a lease of {LEASE_SECONDS} s")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("tables", [2, 4, 8])
def test_sixteen_processes_that_cross_over_tables_all_get_their_share(
    tmp_path: Path, tables: int
) -> None:
    clients = 16
    seconds = 60.0
    place = Place(str(tmp_path / "lake"))
    names = [f"t{number}" for number in range(tables)]
    with place.connect() as lake:
        for name in names:
            lake.create_table(name, accounts(1, 1000))
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.processes.queue_client",
                "storm",
                place.root,
                str(seed),
                str(seconds),
                str(tables),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for seed in range(clients)
    ]
    for process in started:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"ready": True}
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.communicate()[0]) for process in started]
    assert all(process.returncode == 0 for process in started)
    commits = sorted(one["commits"] for one in told)
    longest = max(one["longest"] for one in told)
    shifts = sum(one["shifts"] for one in told)
    print(
        f"{tables} tables: {sum(commits)} commits in {seconds:.0f} s, of each client {commits}; "
        f"{shifts:.0f} shifts, the longest transaction took {longest:.1f} s"
    )
    assert shifts > 0
    assert longest < lv.Settings().wait_timeout_seconds / 2, "a deadlock outlived a wait"
    assert commits[0] >= statistics.median(commits) / 2
    with place.connect() as lake:
        assert left_over(lake, *names) == []
        total = sum(lake.snapshot().read(name)["balance"].to_pylist()[0] for name in names)
        assert total == 1000 * tables
