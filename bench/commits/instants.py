"""When the requests of a commit were sent and answered, and when a reader of the format saw it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import cast

import deltalake
import pyarrow as pa

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, GetOutcome, Refused, Store, Stored, Token

ROWS = pa.table({"id": list(range(100)), "n": [0] * 100})


class TimedStore:
    """Notes when requests on HEAD and on log entries were sent and answered."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.decided = 0.0
        self.validated = 0.0
        self.sent: dict[str, float] = {}
        self.entered: dict[str, float] = {}
        self.refused = 0

    def reset(self) -> None:
        """Forget the last commit's times; ``refused`` goes on counting."""
        self.decided = self.validated = 0.0
        self.sent, self.entered = {}, {}

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        entry = "/_delta_log/" in key and key.endswith(".json")
        if entry:
            self.sent[key.split("/_delta_log/")[0]] = time.perf_counter()
        outcome = self._inner.put(key, body, condition)
        now = time.perf_counter()
        if entry and isinstance(outcome, Stored):
            self.entered[key.split("/_delta_log/")[0]] = now
        elif entry and isinstance(outcome, Refused):
            self.refused += 1
        elif key.endswith("_lakevilla/HEAD.json") and isinstance(outcome, Stored):
            self.decided = now
        return outcome

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if "/_delta_log/" in key and not self.decided:
            # The last look at a log before the decision: what comes after it is not validated.
            self.validated = time.perf_counter()
        return self._inner.get(key, known, byte_range)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def timed(lake: lv.Lake) -> TimedStore:
    """Time the lake's requests from here on."""
    store = TimedStore(lake._client.runner.store)
    lake._client.runner.store = cast(Store, store)
    return store


class Watcher:
    """A deltalake reader that does nothing but look for a table's next version."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._table = deltalake.DeltaTable(uri, storage_options=dict(options) or None)
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._death: Exception | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        try:
            while not self._stop.is_set():
                self._table.update_incremental()
                self._seen.setdefault(self._table.version(), time.perf_counter())
                self._stop.wait(0.001)  # lets others have the interpreter
        except Exception as error:
            self._death = error

    def saw(self, version: int) -> float:
        """When it had read that version; waits for it."""
        while True:
            found = [at for seen, at in list(self._seen.items()) if seen >= version]
            if found:
                return min(found)
            if self._death is not None:
                raise RuntimeError(f"the reader of the table is dead: {self._death!r}")
            time.sleep(0.001)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def update(txn: lv.Transaction, tables: Sequence[str]) -> None:
    """Change a row in each table."""
    for table in tables:
        txn.update(table, {"n": "n + 1"}, where="id = 1")


def counted(uri: str, options: Mapping[str, str]) -> int:
    """How often the row was changed, as deltalake reads it."""
    table = deltalake.DeltaTable(uri, storage_options=dict(options) or None)
    (row,) = table.to_pyarrow_table(filters=[("id", "=", 1)]).to_pylist()
    found: int = row["n"]
    return found


def instants(
    root: str, options: Mapping[str, str], tables: Sequence[str], repeats: int, *, watched: bool
) -> list[dict[str, float]]:
    """Seconds of each moment from the call of ``commit``, once for each of the repeats.

    decided: HEAD holds it, readers with LakeVilla see it. published: the last table's log has it.
    returned: the call is over. seen: deltalake has read the last of the versions. ahead: how long
    one table was ahead of another. window: from the last look at a log to the last entry sent.
    """
    found = []
    with lv.connect(root, storage_options=dict(options)) as lake:
        with lake.transaction() as txn:
            for table in tables:
                txn.create_table(table, ROWS)
        store = timed(lake)
        ends = dict.fromkeys((tables[0], tables[-1])) if watched else {}
        watchers = {table: Watcher(f"{root}/{table}", options) for table in ends}
        try:
            for turn in range(repeats + 1):
                txn = lake.transaction()
                update(txn, tables)
                store.reset()
                began = time.perf_counter()
                result = txn.commit()
                returned = time.perf_counter()
                assert result.versions is not None
                seen = [watchers[table].saw(result.versions[table] or 0) for table in watchers]
                if turn == 0:
                    continue  # the first one warms
                entered = list(store.entered.values())
                found.append(
                    {
                        "decided": store.decided - began,
                        "published": max(entered) - began,
                        "returned": returned - began,
                        "seen": max(seen, default=began) - began,
                        "ahead": max(entered) - min(entered),
                        "window": max(store.sent.values()) - store.validated,
                        "decided to published": max(entered) - store.decided,
                    }
                )
        finally:
            for watcher in watchers.values():
                watcher.close()
    return found
