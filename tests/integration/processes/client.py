"""A client that moves money between two tables and stops in the middle of its commit.

It runs as a process of its own, so that it can be killed.
"""

from __future__ import annotations

import json
import sys
import threading

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from tests.support.inside import inside


class StoppingStore(WrappedStore):
    """Stands still for ever before, or right after, its so manieth request.

    With no number it counts them, and notes which they are. ``after``: the request is
    carried out, and its answer lost.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.count = 0
        self.names: list[str] = []
        self.stop_at: int | None = None
        self.after = False
        self._lock = threading.Lock()

    def _step(self, name: str) -> bool:
        with self._lock:
            self.count += 1
            self.names.append(name)
            if self.stop_at is None or self.count < self.stop_at:
                return False
            if self.count == self.stop_at and self.after:
                return True
        self.stand_still(name)
        raise AssertionError("unreachable")

    def stand_still(self, name: str) -> None:
        tell(stopped=name)
        threading.Event().wait()

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        last = self._step(f"put {key}")
        answer = self.inner.put(key, body, condition)
        if last:
            self.stand_still(f"put {key}, done")
        return answer

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._step(f"get {key}")
        return self.inner.get(key, known, byte_range)

    def delete(self, key: str) -> Failure | None:
        self._step(f"delete {key}")
        return self.inner.delete(key)


_told = threading.Lock()


def tell(**what: object) -> None:
    with _told:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def transfer(txn: lv.Transaction, number: int, amount: int) -> None:
    """One transfer: both balances, and a line in each table's list of transfers."""
    params = {"n": amount}
    txn.update("north", {"balance": "balance - :n"}, f"id = {number % 5}", params=params)
    txn.update("south", {"balance": "balance + :n"}, f"id = {number % 7}", params=params)
    for bank, sign in (("north", -1), ("south", 1)):
        txn.append(f"{bank}_log", {"number": [number], "amount": [sign * amount]})


def main(root: str) -> None:
    """Serve orders from stdin: ``{"number", "amount", "stop_at", "after"}``, one a line."""
    store = StoppingStore(LocalStore(root))
    lake = Lake(LakeClient(root, store, settings=lv.Settings(retry_base_seconds=0.01)))
    inside(lake).client.ensure_safe_store()
    lake.snapshot().versions  # noqa: B018 - warm, so that the requests are the commit's
    tell(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        txn = lake.transaction()
        transfer(txn, order["number"], order["amount"])
        store.count = 0
        store.names.clear()
        store.after = order["after"]
        store.stop_at = order["stop_at"]
        tell(began=txn.id)
        result = txn.commit()
        tell(committed=txn.id, version=result.global_version, requests=store.names)


if __name__ == "__main__":
    main(sys.argv[1])
