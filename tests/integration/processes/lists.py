"""Histories of real processes that read and append to lists, of whom some are killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import lakevilla as lv
from lakevilla_testing.checks.history import Recorded, Txn
from tests.integration.processes.list_client import LISTS, TABLES

ROOT = Path(__file__).parents[3]


@dataclass
class _Client:
    """A process with ``list_client`` in it, whose lines go to a file."""

    number: int
    lines: Path
    process: subprocess.Popen[str]

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"client {self.number} has ended by itself"
        return self.count > 0

    @property
    def count(self) -> int:
        """The number of lines so far, of which a transaction has two."""
        return self.lines.read_text().count("\n")

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()


def record(directory: Path, seed: int, *, clients: int, transactions: int, kills: int) -> Recorded:
    """Let processes work on a new lake, of whom some are killed; return what they did and read.

    Each process runs so many transactions. A killed one leaves a transaction of unknown outcome.
    """
    root = str(directory / "lake")
    with lv.connect(root) as lake:
        for table in TABLES:
            lake.create_table(table, [{"id": number, "items": ""} for number in range(LISTS)])
    choice = random.Random(seed)
    everyone = [_start(root, directory, seed * 100 + one, transactions) for one in range(clients)]
    try:
        while not all(one.is_ready for one in everyone):
            time.sleep(0.05)
        for one in everyone:
            one.begin()
        for victim in choice.sample(everyone, kills):
            last = choice.randint(1, 2 * transactions)
            while victim.process.poll() is None and victim.count < last:
                time.sleep(0.002)
            victim.process.send_signal(signal.SIGKILL)
        ended = [one.process.wait(300) for one in everyone]
        assert set(ended) <= {0, -signal.SIGKILL}, ended
    finally:
        for one in everyone:
            one.process.kill()
            one.process.wait()
    with lv.connect(root) as lake:
        lake.recover()
        final = {
            f"{table}{row['id']}": [int(text) for text in row["items"].split(",") if text]
            for table in TABLES
            for row in lake.read(table).to_pylist()
        }
    return Recorded([txn for one in everyone for txn in _read(one)], final)


def _start(root: str, directory: Path, number: int, transactions: int) -> _Client:
    lines = directory / f"{number}.lines"
    with lines.open("w") as out:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.integration.processes.list_client"),
                *(root, str(number), str(transactions)),
            ],
            stdin=subprocess.PIPE,
            stdout=out,
            text=True,
            cwd=ROOT,
        )
    return _Client(number, lines, process)


def _read(client: _Client) -> list[Txn]:
    """Return a process's transactions; a line that a kill has cut off was not printed."""
    found: dict[int, Txn] = {}
    for line in client.lines.read_text().split("\n")[:-1]:
        told = json.loads(line)
        if "begins" in told:
            txn = Txn(f"T{told['begins']}", str(client.number), told["at"])
            found[told["begins"]] = txn
        elif "ends" in told:
            txn = found[told["ends"]]
            txn.status = told["status"]
            txn.completed = None if txn.status == "unknown" else told["at"]
            if txn.status == "unknown":
                continue  # its reads were not guaranteed, and it may have appended all of its plan
        else:
            continue
        txn.operations.clear()
        for kind, key, what in told["operations"]:
            txn.append(key, what) if kind == "append" else txn.read(key, what)
    return list(found.values())
