"""One client of three, until its input ends: ``python three_engines.py KIND ROOT``.

``spark`` and ``embedded`` move pieces from ``a`` to ``b`` by LakeVilla, and look at both all
along; ``deltalake`` has never heard of it and writes rows of its own to ``a``. Each begins with
the first line of its input, tells of each commit, and after ``RESULT`` of all.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PIECES = 3000
#: Rows of pieces, each in a file of its own: one that both take from, and one for each.
SHARED, OWN = 0, {"spark": 1, "embedded": 2}


def main() -> None:
    kind, root = sys.argv[1:]
    clients = {"spark": by_spark, "embedded": embedded, "deltalake": by_deltalake}
    work = clients[kind](root)
    print("READY", flush=True)
    sys.stdin.readline()  # all begin together
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    acknowledged: list[str] = []
    number = 0
    while not ended.is_set():
        done = work(f"{kind}.{number}", number)
        print(f"DONE {number} {len(done)}", flush=True)
        acknowledged += done
        number += 1
        if kind != "spark":
            time.sleep(0.2)  # or they would have the cores to themselves
    print("RESULT " + json.dumps(acknowledged), flush=True)


def by_spark(root: str) -> Callable[[str, int], list[str]]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    import lakevilla as lv
    from tests.fixtures.spark import start

    session = start(f"{root}-warehouse")
    lake = lv.connect(root, spark=session)

    def rows(token: str) -> Any:
        return session.createDataFrame([(-1, 0, token)], "id LONG, pieces LONG, token STRING")

    def work(token: str, number: int) -> list[str]:
        with contextlib.suppress(lv.ForeignConflict):  # it is committed, and reconciled
            lake.run(move, token, rows, SHARED if number % 2 else OWN["spark"], attempts=1000)
        with lake.snapshot() as state:
            told = [[row.asDict() for row in state.read(table).collect()] for table in ("a", "b")]
        check(*told)
        return [token]

    work("spark.first", 0)  # Spark is warm when the others begin
    return work


def embedded(root: str) -> Callable[[str, int], list[str]]:
    import lakevilla as lv

    lake = lv.connect(root)

    def rows(token: str) -> Any:
        return [{"id": -1, "pieces": 0, "token": token}]

    def work(token: str, number: int) -> list[str]:
        with contextlib.suppress(lv.ForeignConflict):
            lake.run(move, token, rows, OWN["embedded"] if number % 8 else SHARED, attempts=1000)
        with lake.snapshot() as state:
            check(*(state.read(table).to_pylist() for table in ("a", "b")))
        return [token]

    return work


def move(txn: Any, token: str, rows: Callable[[str], Any], place: int) -> None:
    """Move one piece, and leave the same token in both tables."""
    for table, pieces in (("a", -1), ("b", 1)):
        txn.update(table, {"pieces": f"pieces + ({pieces})"}, where=f"id = {place}")
        txn.append(table, rows(token))


def check(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    """Both are of one state between transactions, and nothing of one is in one table alone."""
    assert sum(row["pieces"] for row in a + b) == PIECES, "pieces were made or lost"
    tokens = [sorted(row["token"] for row in rows if row["id"] == -1) for rows in (a, b)]
    assert tokens[0] == tokens[1], "half a transaction is seen"
    assert len(tokens[1]) == len(set(tokens[1])), "a transaction took effect twice"
    assert sum(row["pieces"] for row in b) == len(tokens[1]), "tokens and pieces disagree"


def by_deltalake(root: str) -> Callable[[str, int], list[str]]:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    def work(token: str, number: int) -> list[str]:
        # It loses races, as it would to anybody; only what it is not refused is there.
        with contextlib.suppress(DeltaError):
            rows = pa.table({"id": [100 + number], "pieces": [0], "token": [token]})
            if number % 3 == 2:
                merge = DeltaTable(f"{root}/a").merge(
                    rows, "t.id = s.id", source_alias="s", target_alias="t"
                )
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            else:
                write_deltalake(f"{root}/a", rows, mode="append")
            return [token]
        return []

    return work


if __name__ == "__main__":
    main()
