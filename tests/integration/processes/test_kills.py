"""Real processes killed by SIGKILL in mid-commit; another process finds the lake whole."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.search import WHOLE, how_many
from tests.support.tables import accounts, contents

ROOT = Path(__file__).parents[3]
KILLS = how_many(2, whole=21, soak=5000)
TOTAL = 5 * 1000 + 7 * 1000


class Client:
    """A process with ``tests/integration/processes/client.py`` in it."""

    def __init__(self, root: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.processes.client", root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def order(self, **what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the client ended by itself"
        told: dict[str, Any] = json.loads(line)
        return told

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


@contextmanager
def client(root: str) -> Iterator[Client]:
    made = Client(root)
    try:
        yield made
    finally:
        made.kill()


def balance(rows: list[dict[str, Any]]) -> int:
    return sum(row["balance"] for row in rows)


@dataclass(frozen=True)
class Bank:
    """A lake of four tables, of which those of the south may be Iceberg tables."""

    place: Place
    south: Literal["delta", "iceberg"]

    def of(self, table: str) -> Place:
        """Return the place with the table's format, so that deltalake or pyiceberg can open it."""
        format_ = self.south if table.startswith("south") else "delta"
        return replace(self.place, format=format_)

    def seen(self, table: str) -> list[dict[str, Any]]:
        return self.of(table).seen(table)

    def named_files(self, table: str) -> set[str]:
        """Names of the data files, manifests and manifest lists of all versions."""
        if self.of(table).format == "delta":
            uris = [
                uri
                for version in range(self.place.delta(table).version() + 1)
                for uri in self.place.delta(table, version).file_uris()
            ]
        else:
            opened = self.of(table).catalog().load_table(table)
            uris = opened.inspect.all_files()["file_path"].to_pylist()
            uris += opened.inspect.all_manifests()["path"].to_pylist()
            uris += [snapshot.manifest_list for snapshot in opened.snapshots()]
        return {uri.rsplit("/", 1)[1] for uri in uris}


def check_whole(place: Bank, ledger: dict[int, tuple[int, bool | None]]) -> set[int]:
    """All four tables have the same transfers; nothing acknowledged is missing.

    ``ledger``: amount of each transfer, and whether it is known to have (not) been committed.
    """
    lists = {
        bank: {row["number"]: row["amount"] for row in place.seen(f"{bank}_log")}
        for bank in ("north", "south")
    }
    for bank in lists:
        assert len(place.seen(f"{bank}_log")) == len(lists[bank]), "a transfer is there twice"
    assert lists["north"].keys() == lists["south"].keys(), "half a transfer"
    done = set(lists["north"])
    for number, (amount, committed) in ledger.items():
        assert committed is None or (number in done) == committed, (number, committed)
        if number in done:
            assert lists["south"][number] == amount == -lists["north"][number]
    north, south = place.seen("north"), place.seen("south")
    assert balance(north) + balance(south) == TOTAL
    moved = sum(ledger[number][0] for number in done)
    assert balance(south) == 7 * 1000 + moved
    for row in north:
        gone = sum(ledger[number][0] for number in done if number % 5 == row["id"])
        assert row["balance"] == 1000 - gone
    return done


@pytest.mark.timeout(0 if KILLS > 100 else 300)
@pytest.mark.parametrize(("south", "kills"), [("delta", KILLS), ("iceberg", KILLS * 3 // 5)])
def test_processes_killed_in_mid_commit_lose_nothing_and_leave_nothing_half(
    south: Literal["delta", "iceberg"], kills: int, tmp_path: Path
) -> None:
    place = Place(str(tmp_path / "lake"))
    bank = Bank(place, south)
    bank.of("north").write("north", accounts(5, 1000))
    bank.of("south").write("south", accounts(7, 1000))
    with place.connect() as lake:
        for name in ("north_log", "south_log"):
            lake.create_table(name, {"number": [-1], "amount": [0]}, format=bank.of(name).format)
        lake.run(lambda txn: txn.delete("north_log", "true"))
        lake.run(lambda txn: txn.delete("south_log", "true"))
        lake.register({"north": "north", "south": "south"})
    choice = random.Random(20240229)
    ledger: dict[int, tuple[int, bool | None]] = {}
    stops: set[str] = set()
    ids: dict[str, int] = {}
    number = 0
    with client(place.root) as first:
        # How many requests a commit makes: the points at which a client can die.
        assert first.told() == {"ready": True}
        first.order(number=number, amount=3, stop_at=None, after=False)
        ids[first.told()["began"]] = number
        acknowledged = first.told()
        requests = acknowledged["requests"]
        ledger[number] = (3, True)
    assert len(requests) >= 10
    # Every point at least once, in no order, each before and after its request.
    points = [(at, after) for after in (False, True) for at in range(1, len(requests) + 1)]
    choice.shuffle(points)
    if kills < len(points):
        # Not all have their turn: those around the commit point are the first.
        points.sort(key=lambda point: "_lakevilla/" not in requests[point[0] - 1])
    for kill in range(kills):
        with client(place.root) as victim:
            assert victim.told() == {"ready": True}
            for _ in range(choice.randrange(2)):
                number += 1
                amount = choice.randrange(1, 50)
                victim.order(number=number, amount=amount, stop_at=None, after=False)
                ids[victim.told()["began"]] = number
                assert "committed" in victim.told()
                ledger[number] = (amount, True)
            number += 1
            amount = choice.randrange(1, 50)
            at, after = points[kill % len(points)]
            victim.order(number=number, amount=amount, stop_at=at, after=after)
            txn_id = victim.told()["began"]
            ids[txn_id] = number
            told = victim.told()
            # A commit may take fewer requests than the first one did.
            ledger[number] = (amount, True if "committed" in told else None)
            stops.add(told.get("stopped", "").partition(" ")[2].split("/")[0])
        with place.connect() as survivor:
            report = survivor.recover()
            assert report.ok, report
            assert survivor.recover().findings == ()
            if kill % 4 == 0:
                # What outcome says once stays true.
                committed = survivor.outcome(txn_id).state == "committed"
                ledger[number] = (amount, committed)
        if kill % 8 == 7:
            check_whole(bank, ledger)
    done = check_whole(bank, ledger)
    unknown = [n for n, (_, committed) in ledger.items() if committed is None]
    if WHOLE:
        assert {"_lakevilla", "north", "south"} <= stops, "the kills were not spread"
        assert any(n in done for n in unknown), "no kill came after the commit point"
        assert any(n not in done for n in ledger), "no kill came before the commit point"
    with place.connect() as lake:
        for txn_id, transfer in ids.items():
            state = lake.outcome(txn_id).state
            assert (state == "committed") == (transfer in done), (txn_id, state)
        assert lake.doctor().ok
        for table in ("north", "south", "north_log", "south_log"):
            assert sorted(map(str, lake.snapshot().read(table).to_pylist())) == sorted(
                map(str, bank.seen(table))
            )
    # What the dead have left is found, and nothing that lives is touched.
    with place.connect(settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.gc()
        assert lake.gc().findings == ()
    assert check_whole(bank, ledger) == done
    tables = ("north", "south", "north_log", "south_log")
    named = set().union(*map(bank.named_files, tables))
    left = {key.rsplit("/", 1)[1] for key in contents(place.root) if "lv-h-" in key}
    assert left <= named
