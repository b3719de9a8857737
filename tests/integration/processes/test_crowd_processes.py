"""Real processes that append to one table at once, and take each other's commits along.

One is killed each second. Nothing acknowledged is lost, nothing is there twice, and once HEAD has
moved on gc leaves no proposal.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

from lakevilla.inbox.box import list_proposals
from lakevilla.inbox.proposal import WINDOW
from tests.fixtures.s3 import SERVERS, S3Servers
from tests.support.places import Place

ROOT = Path(__file__).parents[3]
SOAK = bool(os.environ.get("LAKEVILLA_SOAK"))
#: For how long they are at work, once all are there.
SECONDS = 120.0 if SOAK else 5.0


class Client:
    """A process with ``crowd_client`` in it, and what it has told."""

    def __init__(self, place: Place, number: int, directory: Path) -> None:
        self._log = directory / f"{number}.log"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.integration.processes.crowd_client"),
                *(place.root, json.dumps(place.storage_options), str(number * 1_000_000)),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log.open("w"),
            text=True,
            cwd=ROOT,
        )

    def numbers(self, what: str) -> set[int]:
        """The numbers of its lines of this kind; the last line may have been cut off by a kill."""
        *lines, _ = self._log.read_text().split("\n")
        words = [line.split() for line in lines]
        return {int(number) for word, number in words if word == what}

    @property
    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        return bool(self.numbers("ready"))

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Have it end once its commit is over."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        assert self._process.wait(120) == 0, self._log.read_text()


def crowd(place: Place, writers: int, directory: Path) -> list[Client]:
    """All processes that were there, when the last has ended."""
    everyone = [Client(place, number, directory) for number in range(1, writers + 1)]
    alive = list(everyone)
    while not all(one.is_ready for one in alive):
        time.sleep(0.1)
    began = time.monotonic()
    choice = random.Random(8)
    while time.monotonic() - began < SECONDS:
        time.sleep(1.0)
        victim = alive.pop(choice.randrange(len(alive)))
        victim.kill()
        alive.append(Client(place, len(everyone) + 1, directory))
        everyone.append(alive[-1])
    for one in alive:
        one.stop()
    return everyone


@pytest.mark.daily(1)
@pytest.mark.timeout(0 if SOAK else 240)
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_eight_writers_of_whom_one_is_killed_each_second(
    format_: Literal["delta", "iceberg"], s3_servers: S3Servers, tmp_path: Path
) -> None:
    server = s3_servers["minio" if SOAK and "minio" in SERVERS else "ministack"]
    place = Place(server.new_root(), server.storage_options, format_)
    with place.connect() as lake:
        lake.create_table("rows", {"id": [0]}, format=format_)
    everyone = crowd(place, 16 if SOAK else 8, tmp_path)
    with place.connect() as lake:
        assert lake.recover().ok
        head = lake._client.context.held
        assert head is not None
        assert head.head.listed > 0, "nobody took anybody along"
        for _ in range(WINDOW):
            lake.run(lambda txn: txn.update("rows", {"id": "id"}, where="id = 0"))
        found = Counter(lake.snapshot().read("rows")["id"].to_pylist())
        lake.gc()
        assert not lake._client.run(list_proposals(0)), "gc leaves no proposal"
        assert lake.doctor().ok
    asked = set().union({0}, *(one.numbers("asked") for one in everyone))
    committed = set().union({0}, *(one.numbers("committed") for one in everyone))
    aborted = set().union(*(one.numbers("aborted") for one in everyone))
    assert set(found.values()) == {1}, "a row is there twice"
    assert committed <= set(found), "a row that was acknowledged is lost"
    assert set(found) <= asked
    assert not set(found) & aborted
    if format_ == "delta":
        assert Counter(row["id"] for row in place.seen("rows")) == found
