"""The feed beside eight writers: each version comes once, in order, as a whole transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

import lakevilla as lv
from tests.contract.feed.mirror import Mirror, check
from tests.support.places import Place

WRITERS, COMMITS = 8, 5
TABLES = ("north", "south", "east")


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect() as lake:
        for name in TABLES:
            lake.create_table(name, [{"id": -1, "n": 0}])
        yield lake


def write(lake: lv.Lake, writer: int) -> None:
    """Commit transactions over two or three tables; each writes its own number to all of them."""
    source = random.Random(writer)
    for commit in range(COMMITS):
        number = writer * 100 + commit

        def transfer(txn: lv.Transaction, number: int = number) -> None:
            for name in source.sample(TABLES, source.choice([2, 3])):
                txn.append(name, [{"id": number, "n": 0}])

        lake.run(transfer, attempts=50, metadata={"number": str(number)})


def in_full(version: lv.Version) -> None:
    """Assert that a version has, in each table, all rows of the transactions in its metadata."""
    numbers = [set(rows["id"].to_pylist()) for rows in version.tables.values()]
    if version.kind == "transaction" and version.metadata:
        assert len(numbers) >= 2
        assert numbers == [{int(version.metadata["number"])}] * len(numbers)


@pytest.mark.cases(1)
@pytest.mark.night
def test_a_follower_concurrently_with_eight_writers_that_starts_again_and_again(
    lake: lv.Lake, shared_place: Place
) -> None:
    """Four writers share a client; four have a client each."""
    others = [shared_place.connect() for _ in range(WRITERS // 2)]
    clients = [lake] * (WRITERS // 2) + others
    writers = [
        threading.Thread(target=write, args=(client, number))
        for number, client in enumerate(clients)
    ]
    mirror, source, stop = Mirror(), random.Random(8), threading.Event()

    def follow() -> None:
        while not stop.is_set():
            with shared_place.connect() as follower:  # knows only the version number
                feed = follower.follow(mirror.version, poll_seconds=0.01, stop=stop)
                for version in islice(feed, source.randint(1, 9)):
                    in_full(version)
                    mirror.apply(version)

    reader = threading.Thread(target=follow)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join(600)
    last = lake.history(1)[0].version
    while reader.is_alive() and mirror.version < last:
        reader.join(0.1)
    stop.set()
    reader.join(600)
    assert mirror.version == last
    kinds = {entry.version: entry.kind for entry in lake.history()}
    if set(kinds.values()) == {"transaction"}:
        assert mirror.versions == sorted(kinds)
    assert sum(mirror.tables[lake.table("north").uri].values()) <= WRITERS * COMMITS + 1
    check(lake, mirror)
    numbers = {
        int(entry.metadata["number"]) for entry in lake.history() if "number" in entry.metadata
    }
    assert numbers == {w * 100 + c for w in range(WRITERS) for c in range(COMMITS)}
    for other in others:
        other.close()
