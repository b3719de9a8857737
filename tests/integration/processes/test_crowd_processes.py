"""Real processes that write to one table at once, and take each other's commits along.

One is killed each second. Nothing acknowledged is lost, nothing is there twice, and once HEAD has
moved on gc leaves no proposal.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from tests.fixtures.s3 import SERVERS, S3Servers
from tests.integration.processes.crowds import TABLE, Crowd, Work, revision
from tests.support.places import Place

SOAK = bool(os.environ.get("LAKEVILLA_SOAK"))
#: For how long they are at work, once all are there.
SECONDS = float(os.environ.get("LAKEVILLA_CROWD_SECONDS", "120" if SOAK else "5"))
WRITERS = 16 if SOAK else 8
#: The last revision whose clients know nothing of the inbox.
BEFORE_THE_INBOX = "2d5993b"


def place_for(servers: S3Servers, format_: Literal["delta", "iceberg"]) -> Place:
    server = servers["minio" if SOAK and "minio" in SERVERS else SERVERS[0]]
    place = Place(server.new_root(), server.storage_options, format_)
    with place.connect() as lake:
        lake.create_table(TABLE, {"id": [0], "n": [0]}, format=format_)
    return place


@pytest.mark.daily(1)
@pytest.mark.timeout(0 if SOAK else 240)
@pytest.mark.parametrize("works", [("append",), ("append", "update")], ids=["append", "both"])
@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_writers_of_whom_one_is_killed_each_second(
    format_: Literal["delta", "iceberg"],
    works: tuple[Work, ...],
    s3_servers: S3Servers,
    tmp_path: Path,
) -> None:
    crowd = Crowd(place_for(s3_servers, format_), tmp_path)
    crowd.run([None] * WRITERS, SECONDS, works=works)
    with crowd.place.connect() as lake:
        lake.recover()
        head = lake._client.context.held
        assert head is not None
        assert head.head.listed > 0, "nobody took anybody along"
        crowd.check(lake)


@pytest.mark.daily(1)
@pytest.mark.timeout(0 if SOAK else 240)
@pytest.mark.parametrize("works", [("append",), ("append", "update")], ids=["append", "both"])
def test_clients_of_before_the_inbox_beside_new_ones(
    works: tuple[Work, ...], s3_servers: S3Servers, tmp_path: Path
) -> None:
    """They lose nothing and tear nothing; how they fare beside a crowd is printed."""
    old = revision(BEFORE_THE_INBOX, tmp_path)
    assert not (old / "lakevilla" / "inbox").exists()
    crowd = Crowd(place_for(s3_servers, "delta"), tmp_path)
    libraries = [None, old] * (WRITERS // 2) if len(works) == 1 else [None, None, old, old] * 2
    crowd.run(libraries, SECONDS, works=works, kills=SOAK)
    with crowd.place.connect() as lake:
        crowd.check(lake)
    for name, library in (("new", None), ("old", old)):
        done = crowd.numbers("committed", library) + crowd.numbers("changed", library)
        print(f"{name}: {len(done) / crowd.ended:.1f} commits/s of {libraries.count(library)}")
        assert done, f"none of the {name} clients has committed anything"
