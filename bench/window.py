"""How wide the window is that `guard` closes, and how often another client is in it.

``python -m bench.window``: a foreign commit that comes after a transaction has validated and
before its log entry is created was seen by nobody. First how long that is; then a client that
changes a row of a table every half second, and a deltalake client that appends to it, or changes
another row of the same file, as fast as it can.

passed: a foreign commit was in the window and took the entry's number. reconciled: it had also
rewritten the transaction's files, so the operations were replayed and the caller was told by
``ForeignConflict``. lost: deltalake's commits that it gave up. On a guarded table all are refused.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError

import lakevilla as lv
from bench.visible import ROWS, arguments, measure, place, show, spread, timed

PAUSE_SECONDS = 0.5


def transact(root: str, options: dict[str, str], stop: threading.Event) -> Counter[str]:
    """A client that changes its row again and again; what befell it."""
    told: Counter[str] = Counter()
    with lv.connect(root, storage_options=options) as lake:
        store = timed(lake)
        while not stop.is_set():
            try:
                lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id = 1"), attempts=1000)
            except lv.ForeignConflict:
                told["reconciled"] += 1
            told["commits"] += 1
            told["passed"] += store.refused > 0
            store.refused = 0
            stop.wait(PAUSE_SECONDS)
    return told


def interfere(root: str, options: dict[str, str], how: str, stop: threading.Event) -> Counter[str]:
    """A deltalake client that appends or updates again and again."""
    told: Counter[str] = Counter()
    row = pa.table({"id": [1000], "n": [0]})
    while not stop.is_set():
        try:
            table = deltalake.DeltaTable(f"{root}/t", storage_options=options or None)
            if how == "append":
                deltalake.write_deltalake(table, row, mode="append")
            else:
                table.update(updates={"n": "n + 1"}, predicate="id = 50")
            told["commits"] += 1
        except DeltaError:
            told["lost"] += 1
            stop.wait(0.01)
    return told


def load(profile: str, how: str, guarded: bool, seconds: float) -> list[str]:
    """A row of the table: what happened in ``seconds`` of it."""
    with place(profile) as (root, options), ThreadPoolExecutor(2) as pool:
        with lv.connect(root, storage_options=options) as lake:
            lake.create_table("t", ROWS)
            if guarded:
                lake.guard("t")
        stop = threading.Event()
        ours = pool.submit(transact, root, options, stop)
        theirs = pool.submit(interfere, root, options, how, stop)
        time.sleep(seconds)
        stop.set()
        told, foreign = ours.result(), theirs.result()
    count = told["commits"]
    shares = [
        f"{told[name]} ({100 * told[name] / count:.0f}%)" for name in ("passed", "reconciled")
    ]
    numbers = [str(count), str(foreign["commits"]), str(foreign["lost"])]
    return [profile, how, "yes" if guarded else "no", *numbers, *shares]


def main() -> None:
    """Measure all that was asked for."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, default=20.0)

    options = arguments(__doc__, more)
    assert isinstance(options, argparse.Namespace)
    rows = []
    for profile in options.profiles:
        for count in (1, 8):
            found = measure(profile, count, options.repeats)
            after = spread(found["decided-published"])
            rows.append([profile, str(count), spread(found["window"]), after])
    show(rows, "profile", "tables", "validated to entry sent", "decided to published")
    rows = []
    for profile in options.profiles:
        for how in ("append", "update"):
            for guarded in (False, True):
                rows.append(load(profile, how, guarded, options.seconds))
    columns = ("profile", "deltalake", "guarded", "commits", "its commits", "lost")
    show(rows, *columns, "passed", "reconciled")


if __name__ == "__main__":
    main()
