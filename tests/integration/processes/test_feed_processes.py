"""Eight processes write, two are killed, and a follower that starts again has all of it, once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.contract.feed.mirror import Mirror, check
from tests.fixtures.servers import Server
from tests.integration.processes.feed_client import TABLES
from tests.support.places import Place

ROOT = Path(__file__).parents[3]
WRITERS, COMMITS = 8, 6


def start(place: Place, number: int, directory: Path) -> subprocess.Popen[bytes]:
    arguments = [place.root, json.dumps(place.storage_options), str(number), str(COMMITS)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.processes.feed_client", *arguments],
        stdout=(directory / f"{number}.log").open("w"),
        cwd=ROOT,
    )


def acknowledged(directory: Path, number: int) -> set[int]:
    """Rows whose commit was acknowledged; the last line may have been cut off by a kill."""
    *lines, _ = (directory / f"{number}.log").read_text().split("\n")
    return set(map(int, lines))


def follow(place: Place, mirror: Mirror, source: random.Random) -> None:
    """A follower that knows nothing but a number, for a few versions."""
    with place.connect() as lake:
        newest = lake.snapshot().version
        feed = lake.follow(mirror.version, poll_seconds=0.05)
        for version in islice(feed, min(source.randint(1, 9), newest - mirror.version)):
            rows = [set(changed["id"].to_pylist()) for changed in version.tables.values()]
            if version.kind == "transaction" and version.metadata:
                assert rows == [{int(version.metadata["row"])}] * 2
            mirror.apply(version)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("where", ["local", "remote"])
@pytest.mark.night
def test_a_follower_concurrently_with_eight_processes(
    where: str, tmp_path: Path, chosen_server: Server
) -> None:
    place = (
        Place(str(tmp_path / "lake"))
        if where == "local"
        else Place(chosen_server.new_root(), chosen_server.storage_options)
    )
    with place.connect() as lake:
        for name in TABLES:
            lake.create_table(name, [{"id": -1, "n": 0}])
    writers = [start(place, number, tmp_path) for number in range(WRITERS)]
    mirror, source = Mirror(), random.Random(3)
    killed = False
    while any(writer.poll() is None for writer in writers):
        follow(place, mirror, source)
        if not killed and mirror.version > 3 + WRITERS:
            killed = True
            for writer in writers[:2]:
                writer.send_signal(signal.SIGKILL)
    assert [writer.wait() for writer in writers[2:]] == [0] * (WRITERS - 2)
    with place.connect() as lake:
        lake.recover()
        last = lake.snapshot().version
        while mirror.version < last:
            follow(place, mirror, source)
        check(lake, mirror)
        history = {entry.version: entry for entry in lake.history()}
        if {entry.kind for entry in history.values()} == {"transaction"}:
            assert mirror.versions == sorted(history)
        rows = [e.metadata["row"] for e in history.values() if "row" in e.metadata]
        assert len(rows) == len(set(rows))
        everything = set().union(*(acknowledged(tmp_path, number) for number in range(WRITERS)))
        assert everything <= set(map(int, rows))
