"""Eight writers over eight tables, and deltalake among them: no reader sees half a transaction."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event as Stop
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

import lakevilla as lv
from tests.support.places import Place, make_place
from tests.support.search import how_many

SECONDS = how_many(3, whole=10, soak=60)
TABLES = [f"t{number}" for number in range(8)]
THREADS, PROCESSES = 4, 4
ROWS = 4
TOTAL = len(TABLES) * ROWS * 100


def transfer(txn: lv.Transaction, token: str, pair: list[str]) -> None:
    """Move money between two tables, and leave the same token in both."""
    for table, amount in zip(pair, (-1, 1), strict=True):
        txn.update(table, {"balance": f"balance + ({amount})"}, where=f"id = {len(token) % ROWS}")
        txn.append(table, [{"id": 1000, "balance": 0, "token": token}])


def write(place: Place, writer: int, stop: Stop | threading.Event) -> list[str]:
    """Transfer until the stop event is set, at least once; return the tokens of acknowledged
    transfers.
    """
    source = random.Random(writer)
    done = []
    with place.connect() as lake:
        number = 0
        while not (done and stop.is_set()):
            pair = source.sample(TABLES, 2)
            token = f"{writer}.{number}:{pair[0]}:{pair[1]}"
            number += 1
            with contextlib.suppress(lv.ForeignConflict):  # it is committed, and reconciled
                lake.run(transfer, token, pair, attempts=1000)
            done.append(token)
    return done


def write_in_process(place: Place, writer: int, stop: Stop, told: Any) -> None:
    told.put(write(place, writer, stop))


def interfere(place: Place, stop: threading.Event) -> int:
    """Do what a deltalake user does: append, change the user's own rows, OPTIMIZE."""
    source = random.Random(99)
    done = 0
    while not stop.is_set():
        table = source.choice(TABLES)
        # He loses races to others, as he would to anybody.
        with contextlib.suppress(DeltaError):
            match done % 4:
                case 2:
                    place.delta(table).update(updates={"token": "'seen'"}, predicate="id = 2000")
                case 3:
                    place.delta(table).optimize.compact()
                case _:
                    place.write(table, [{"id": 2000, "balance": 0, "token": "theirs"}])
            done += 1
    return done


def whole(rows: list[dict[str, Any]]) -> Counter[str]:
    """Each transaction is in both of its tables or in none. The tokens."""
    assert sum(row["balance"] for row in rows) == TOTAL, "money was made or lost"
    found = Counter(row["token"] for row in rows if ":" in row["token"])
    places = {(row["token"], row["t"]) for row in rows if ":" in row["token"]}
    for token, count in found.items():
        assert count == 2, f"{token} is there {count} times"
        assert all((token, table) in places for table in token.split(":")[1:]), token
    return found


def read(place: Place, stop: threading.Event, kind: str) -> None:
    looks, seen = 0, set[str]()
    query = " UNION ALL ".join(f"SELECT '{table}' AS t, * FROM {table}" for table in TABLES)
    with place.connect() as lake:
        # However slow the machine: a look that comes late is held against the one before.
        while not stop.is_set() or looks < 3:
            if kind == "snapshot":
                rows = lake.snapshot().sql(query).to_pylist()
            else:
                with lake.transaction(read_only=True) as txn:
                    # One table after the other: the state is bound at the first.
                    rows = [
                        {**row, "t": table}
                        for table in TABLES
                        for row in txn.read(table).to_pylist()
                    ]
            found = set(whole(rows))
            assert seen <= found, "what was seen is gone"
            seen = found
            looks += 1


@pytest.mark.timeout(180)
@pytest.mark.night
def test_eight_writers_over_eight_tables_and_deltalake_tear_no_snapshot(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("local", request)
    start = [{"id": number, "balance": 100, "token": ""} for number in range(ROWS)]
    for table in TABLES:
        place.write(table, pa.Table.from_pylist(start))
    with place.connect() as lake:
        lake.register({table: table for table in TABLES})

    spawn = multiprocessing.get_context("spawn")
    ended, halt, told = spawn.Event(), threading.Event(), spawn.Queue()
    processes = [
        spawn.Process(target=write_in_process, args=(place, THREADS + n, ended, told))
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    with ThreadPoolExecutor(THREADS + 3) as pool:
        writers = [pool.submit(write, place, number, halt) for number in range(THREADS)]
        foreign = pool.submit(interfere, place, halt)
        readers = [pool.submit(read, place, halt, kind) for kind in ("snapshot", "transaction")]
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and not any(r.done() for r in (*readers, *writers)):
            halt.wait(0.1)
        halt.set()
        ended.set()
        acknowledged = [token for writer in writers for token in writer.result()]
        for _ in processes:
            acknowledged += told.get(timeout=60)
        for reader in readers:
            reader.result()
        theirs = foreign.result()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert theirs > 2
    assert len({token.split(".")[0] for token in acknowledged}) == THREADS + PROCESSES

    with place.connect() as lake:
        lake.recover()
        assert all(finding.severity != "error" for finding in lake.doctor().findings)
    # What any reader of the format sees at the end is all of it, each once.
    rows = [{**row, "t": table} for table in TABLES for row in place.seen(table)]
    assert set(whole(rows)) == set(acknowledged)
