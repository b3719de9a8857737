"""A client whose transactions stand in queues; it runs as a process of its own.

``serve``: one transfer an order from stdin, which may stop in the middle so that
it can be killed. ``storm``: transfers over tables in crossing orders until the
time is over.
"""

from __future__ import annotations

import json
import random
import sys
import time

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.base import Failure, ObjectInfo
from tests.integration.processes.client import StoppingStore, tell
from tests.support.inside import inside
from tests.support.queues import QUEUED

#: Short, so that the dead are given up quickly; the living renew it in time.
LEASE_SECONDS = 0.6
SETTINGS = lv.Settings(
    lease_seconds=LEASE_SECONDS,
    wait_poll_seconds=0.02,
    wait_poll_cap_seconds=0.1,
    retry_base_seconds=0.005,
)


class StoppingInQueues(StoppingStore):
    """One that may stop at a list of markers too."""

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        self._step(f"list {prefix}")
        return self.inner.list(prefix, start_after, until)


def transfer(txn: lv.Transaction, number: int) -> None:
    """Odd ones go the other way, so that they cross."""
    first, second = ("north", "south") if number % 2 else ("south", "north")
    txn.update(first, {"balance": "balance - 1"}, f"id = {number % 5}")
    txn.update(second, {"balance": "balance + 1"}, f"id = {number % 5}")
    txn.append(f"{first}_log", [{"number": number}])


def serve(root: str) -> None:
    """Orders are ``{"number", "features", "stop_at", "after"}``, one a line."""

    def on_event(event: lv.Event) -> None:
        if event.kind == "waiting":
            tell(waiting=event.detail.get("holders"))

    store = StoppingInQueues(LocalStore(root))
    lake = Lake(LakeClient(root, store, settings=SETTINGS, on_event=on_event))
    inside(lake).client.ensure_safe_store()
    lake.snapshot().versions  # noqa: B018 - warm, so that the requests are the transaction's
    tell(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        txn = lake.transaction(QUEUED[order["features"]])
        store.count = 0
        store.after = order.get("after", False)
        store.stop_at = order.get("stop_at")
        tell(began=txn.id)
        transfer(txn, order["number"])
        txn.commit()
        tell(committed=txn.id, requests=store.count)


def storm(root: str, seed: int, seconds: float, tables: int) -> None:
    """Money goes round between two and ``tables`` tables, in any order, from a line of stdin on."""
    choice = random.Random(seed)
    settings = lv.Settings(wait_poll_seconds=0.02, wait_poll_cap_seconds=0.1)
    features = QUEUED[choice.choice(["R|CT", "R|CT|I"])]
    shifts = longest = 0.0

    def on_event(event: lv.Event) -> None:
        nonlocal shifts
        shifts += event.kind == "shift"

    def work(txn: lv.Transaction, names: list[str]) -> None:
        for name in names[1:]:
            txn.update(name, {"balance": "balance + 1"}, "id = 0")
        txn.update(names[0], {"balance": f"balance - {len(names) - 1}"}, "id = 0")

    commits = 0
    with lv.connect(root, settings=settings, on_event=on_event) as lake:
        lake.snapshot().versions  # noqa: B018 - warm
        tell(ready=True)
        sys.stdin.readline()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            count = choice.randint(2, tables)
            names = choice.sample([f"t{number}" for number in range(tables)], count)
            started = time.monotonic()
            lake.run(work, names, features=features, attempts=100)
            longest = max(longest, time.monotonic() - started)
            commits += time.monotonic() < end
    tell(commits=commits, shifts=shifts, longest=longest)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        root, *numbers = sys.argv[2:]
        storm(root, int(numbers[0]), float(numbers[1]), int(numbers[2]))
