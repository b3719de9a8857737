"""Eight processes write one key concurrently: one wins each round, with either condition."""

from __future__ import annotations

import json
import subprocess
import sys

from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import ABSENT, Found, Stored
from lakevilla.store.effects import get, put
from lakevilla.store.probe import probe
from lakevilla.store.runner import Runner
from tests.contract.store.conftest import Place

PROCESSES = 8
ROUNDS = 20

# Each process waits for the round's starting key, so that all write at once.
RACER = """
import json, sys, time
from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import ABSENT, Found, Match, Stored
from lakevilla.store.effects import get, put
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.runner import Runner

root, options, name = json.loads(sys.argv[1])
ids = Ids(SystemClock())
runner = Runner(open_store(root, options), ids, Settings())
print("ready", flush=True)
for line in sys.stdin:
    mode, key = line.split()
    body = f"{name} {ids.nonce()}".encode()
    if mode == "create":
        outcome = runner.run(put(key, body, ABSENT))
    else:
        found = runner.run(get(key))
        print("read", flush=True)
        sys.stdin.readline()
        outcome = runner.run(put(key, body, Match(found.token)))
    print(json.dumps([type(outcome).__name__, body.decode()]), flush=True)
"""


class Racers:
    def __init__(self, place: Place) -> None:
        self._processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    RACER,
                    json.dumps([place.root, place.storage_options, f"p{number}"]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]
        assert self._answers() == ["ready"] * PROCESSES

    def __enter__(self) -> Racers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
            process.wait(30)
            process.stdout.close()

    def _say(self, line: str) -> None:
        for process in self._processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def _answers(self) -> list[str]:
        return [process.stdout.readline().strip() for process in self._processes]

    def race(self, mode: str, key: str) -> list[tuple[str, str]]:
        self._say(f"{mode} {key}")
        if mode == "match":
            assert self._answers() == ["read"] * PROCESSES
            self._say("go")
        return [tuple(json.loads(answer)) for answer in self._answers()]


def test_exactly_one_of_several_concurrent_conditional_writes_succeeds_each_round(
    shared_place: Place,
) -> None:
    ids = Ids(SystemClock())
    runner = Runner(shared_place.open(), ids, Settings())
    runner.run(probe(ids))
    with Racers(shared_place) as racers:
        for number in range(ROUNDS):
            assert_one_winner(
                runner, f"log/{number:020}", racers.race("create", f"log/{number:020}")
            )
        assert isinstance(runner.run(put("HEAD.json", ids.nonce().encode(), ABSENT)), Stored)
        for _ in range(ROUNDS):
            assert_one_winner(runner, "HEAD.json", racers.race("match", "HEAD.json"))


def assert_one_winner(runner: Runner, key: str, outcomes: list[tuple[str, str]]) -> None:
    winners = [body for outcome, body in outcomes if outcome == "Stored"]
    assert len(winners) == 1, outcomes
    assert {outcome for outcome, _ in outcomes} == {"Stored", "Refused"}
    found = runner.run(get(key))
    assert isinstance(found, Found)
    assert found.body.decode() == winners[0]
