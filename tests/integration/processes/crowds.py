"""Real processes that write to one table at once, and print each row.

A process of another revision of the library is one more client: it runs the same script, with that
revision's modules before these.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from lakevilla.api.lake import Lake
from lakevilla.global_log.inbox.proposal import WINDOW, list_proposals, number_of
from tests.support.inside import inside
from tests.support.places import Place

ROOT = Path(__file__).parents[3]
_SCRIPT = Path(__file__).with_name("crowd_client.py")
TABLE, OTHER = "rows", "others"

#: What a client does over and over: it appends rows, or adds one and changes it, or appends to two
#: tables at once.
Work = Literal["append", "update", "pair"]


def revision(name: str, directory: Path) -> Path:
    """The library as it was at a revision, unpacked into a directory.

    Skips the test where the clone has no such revision.
    """
    archive = directory / f"{name}.tar"
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), name, "lakevilla"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(
            f"revision {name} is not in this clone ({made.stderr.strip()}): "
            "fetch the whole history with `git fetch --unshallow`"
        )
    place = directory / name
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    return place


class CrowdClient:
    """A process that runs ``crowd_client``, and what it has printed.

    ``library`` is where it has the library from; None: from where the test has it. ``off`` is by
    how many seconds its clock is.
    """

    def __init__(
        self,
        place: Place,
        number: int,
        directory: Path,
        work: Work = "append",
        library: Path | None = None,
        off: float = 0.0,
    ) -> None:
        self.library = library
        self.work = work
        self.off = off
        self._log, self._errors = directory / f"{number}.log", directory / f"{number}.errors"
        path = {} if library is None else {"PYTHONPATH": str(library)}
        self._process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-X",
                    "faulthandler",
                    str(_SCRIPT),
                    place.root,
                    json.dumps(place.storage_options),
                ),
                *(str(number * 1_000_000), work, str(off)),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log.open("w"),
            stderr=self._errors.open("w"),
            text=True,
            cwd=directory if library is not None else ROOT,
            env={**os.environ, **path},
        )

    def numbers(self, what: str) -> list[int]:
        """The numbers of its lines of this kind; the last line may have been cut off by a kill."""
        *lines, _ = self._log.read_text().split("\n")
        words = [line.split() for line in lines]
        return [int(number) for word, number in words if word == what]

    @property
    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._errors.read_text()
        return bool(self.numbers("ready"))

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Have it end once its commit is over."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        with suppress(subprocess.TimeoutExpired):
            assert self._process.wait(120) == 0, self._errors.read_text()
            return
        self._process.send_signal(signal.SIGABRT)  # its stacks say what it waits for
        self._process.wait()
        pytest.fail(f"client {self._log.stem} did not end:\n{self._errors.read_text()}")


@dataclass(slots=True)
class Crowd:
    """Processes at one table, of whom one may be killed each second.

    Attributes
    ----------
    everyone : list of CrowdClient
        All that were ever there.
    ended : float
        How long they were at work, from when the first of them were ready.
    """

    place: Place
    directory: Path
    everyone: list[CrowdClient] = field(default_factory=list)
    ended: float = 0.0

    def run(
        self,
        libraries: Sequence[Path | None],
        seconds: float,
        *,
        works: Sequence[Work] = ("append",),
        clocks: Sequence[float] = (0.0,),
        kills: bool = True,
    ) -> None:
        """A client for each of ``libraries``; one that is killed is replaced by another of the same
        library.

        What they do, and by how much their clocks are off, goes round.
        """
        alive = [
            self._start(library, works[number % len(works)], clocks[number % len(clocks)])
            for number, library in enumerate(libraries)
        ]
        while not all(one.is_ready for one in alive):
            time.sleep(0.1)
        began = time.monotonic()
        choice = random.Random(8)
        while time.monotonic() - began < seconds:
            time.sleep(1.0)
            if kills:
                victim = alive.pop(choice.randrange(len(alive)))
                victim.kill()
                alive.append(self._start(victim.library, victim.work, victim.off))
        self.ended = time.monotonic() - began
        for one in alive:
            one.stop()

    def _start(self, library: Path | None, work: Work, off: float) -> CrowdClient:
        number = len(self.everyone) + 1
        client = CrowdClient(self.place, number, self.directory, work, library, off)
        self.everyone.append(client)
        return client

    def numbers(self, what: str, *libraries: Path | None) -> list[int]:
        """The lines of the clients with one of these libraries; of all, where none is given."""
        some = [one for one in self.everyone if not libraries or one.library in libraries]
        return [number for one in some for number in one.numbers(what)]

    def check(self, lake: Lake) -> None:
        """Nothing acknowledged is lost, nothing is there twice, and gc leaves no proposal."""
        assert lake.recover().ok
        held = inside(lake).run(inside(lake).context.head())
        assert held is not None
        for _ in range(WINDOW):
            lake.run(lambda txn: txn.update(TABLE, {"id": "id"}, where="id = 0"))
        rows = lake.snapshot().read(TABLE)
        found = Counter(rows["id"].to_pylist())
        lake.gc()
        left = {number_of(key) for key in inside(lake).run(list_proposals(0))}
        # Where HEAD takes one write a second, this lake may have proposed its own updates.
        assert not {one for one in left if one is None or one < held.head.replacement}, left
        assert lake.doctor().ok
        asked = {0, *self.numbers("asked")}
        committed = {0, *self.numbers("committed")}
        assert set(found.values()) == {1}, "a row is there twice"
        assert committed <= set(found), "a row that was acknowledged is lost"
        assert set(found) <= asked
        assert not set(found) & set(self.numbers("aborted"))
        self._check_balances(dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True)))
        if self.place.format == "delta":
            assert Counter(row["id"] for row in self.place.seen(TABLE)) == found

    def _check_balances(self, balances: dict[int, int]) -> None:
        """Each change that was acknowledged is there, and none that was not asked for."""
        changed, maybe = Counter(self.numbers("changed")), Counter(self.numbers("changing"))
        for row, count in balances.items():
            assert changed[row] <= count <= maybe[row], f"row {row} was changed {count} times"
