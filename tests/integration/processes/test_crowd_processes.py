"""Real processes that write to one table at once, and take each other's commits along.

One is killed each second. Nothing acknowledged is lost, nothing is there twice, and once HEAD has
moved on gc leaves no proposal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from tests.fixtures import gcs
from tests.fixtures.servers import SERVERS, Server, Servers
from tests.integration.processes.crowds import TABLE, Crowd, Work, revision
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import SOAK, how_many

#: For how long they are at work, once all are there.
SECONDS = how_many(3, whole=5, soak=60)
#: The same on a store that takes one write of an object a second.
LIMITED_SECONDS = how_many(12, whole=60, soak=600)
WRITERS = (8, 16) if SOAK else (8,)
PLACES = SERVERS if SOAK else SERVERS[:1]
#: The last revision whose clients know nothing of the inbox.
BEFORE_THE_INBOX = "2d5993b"
APPEND: tuple[Work, ...] = ("append",)
BOTH: tuple[Work, ...] = ("append", "update")
HOUR = 3600.0

pytestmark = [
    pytest.mark.timeout(0 if SOAK else 240),
]


@pytest.fixture(params=PLACES)
def server(request: pytest.FixtureRequest, servers: Servers) -> Server:
    return servers[request.param]


def place_for(server: Server, format_: Literal["delta", "iceberg"]) -> Place:
    place = Place(server.new_root(), server.storage_options, format_)
    with place.connect() as lake:
        lake.create_table(TABLE, {"id": [0], "n": [0]}, format=format_)
    return place


@pytest.mark.night
@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("works", [APPEND, BOTH], ids=["append", "both"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_writers_of_whom_one_is_killed_each_second(
    format_: Literal["delta", "iceberg"],
    works: tuple[Work, ...],
    writers: int,
    server: Server,
    tmp_path: Path,
) -> None:
    crowd = Crowd(place_for(server, format_), tmp_path)
    work_together(crowd, lambda: crowd.run([None] * writers, SECONDS, works=works))
    with crowd.place.connect() as lake:
        crowd.check(lake)


@pytest.mark.night
@pytest.mark.parametrize("works", [APPEND, BOTH], ids=["append", "both"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_writers_on_a_store_that_takes_one_write_of_an_object_a_second(
    format_: Literal["delta", "iceberg"], works: tuple[Work, ...], tmp_path: Path
) -> None:
    """One of them is killed each second."""
    with gcs.serving(tmp_path, seconds_between_writes=1.0) as limited:
        crowd = Crowd(place_for(limited, format_), tmp_path)
        work_together(crowd, lambda: crowd.run([None] * 8, LIMITED_SECONDS, works=works))
        with crowd.place.connect() as lake:
            crowd.check(lake)


@pytest.mark.night
@pytest.mark.parametrize("writers", WRITERS)
def test_writers_whose_clocks_are_an_hour_apart(
    writers: int, server: Server, tmp_path: Path
) -> None:
    """Nobody judges another by a clock, but for whether its files may have been cleaned up."""
    crowd = Crowd(place_for(server, "delta"), tmp_path)
    clocks = (0.0, 0.0, -HOUR, -HOUR, HOUR, HOUR)  # two each: what they do goes round as well
    work_together(crowd, lambda: crowd.run([None] * writers, SECONDS, works=BOTH, clocks=clocks))
    with crowd.place.connect() as lake:
        crowd.check(lake)
    for off in set(clocks):
        some = [one for one in crowd.everyone if one.off == off]
        assert any(one.numbers("committed") for one in some), f"who is off by {off} s is starved"


def test_clients_of_before_the_inbox_are_refused_by_name(server: Server, tmp_path: Path) -> None:
    """HEAD has the sizes of tables, which they would drop: so they can't be in a crowd."""
    old = revision(BEFORE_THE_INBOX, tmp_path)
    assert not (old / "lakevilla" / "inbox").exists()
    crowd = Crowd(place_for(server, "delta"), tmp_path)
    where = f"{crowd.place.root!r}, storage_options={crowd.place.storage_options!r}"
    append = f"""
import lakevilla
with lakevilla.connect({where}) as lake:
    lake.run(lambda txn: txn.append({TABLE!r}, [{{"id": 1, "n": 1}}]))
"""
    found = subprocess.run(
        [sys.executable, "-c", append],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(old)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    assert "UnsupportedFormat" in found.stderr, found.stderr
    assert "HEAD.json" in found.stderr
    with crowd.place.connect() as lake:
        assert lake.read(TABLE).num_rows == 1


def work_together(crowd: Crowd, run: Callable[[], None]) -> None:
    """Have the crowd work until one of its HEADs includes commits of other processes.

    On a busy machine the processes may be so slow that they rarely want HEAD at the same time.
    """
    for _ in range(10):
        run()
        with crowd.place.connect() as lake:
            lake.recover()
            held = inside(lake).held
            assert held is not None
            if held.head.listed > 0:
                return
    raise AssertionError("no HEAD includes commits of other processes")
