"""One client of three, for a while: ``python three_engines.py KIND ROOT SECONDS``.

``spark`` and ``embedded`` move pieces from ``a`` to ``b`` by LakeVilla, and look at both all
along; ``deltalake`` has never heard of it and writes rows of its own to ``a``. Each tells, after
``RESULT``, what it was told is committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

PIECES = 1000


def main() -> None:
    kind, root, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    clients = {"spark": by_spark, "embedded": embedded, "deltalake": by_deltalake}
    work = clients[kind](root)
    print("READY", flush=True)
    sys.stdin.readline()  # all begin together
    end = time.monotonic() + seconds
    acknowledged: list[str] = []
    number = 0
    while time.monotonic() < end or not acknowledged:
        acknowledged += work(f"{kind}.{number}", number)
        number += 1
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
            lake.run(move, token, rows, attempts=1000)
        # At a transaction's bound versions, whichever reader Spark uses.
        with lake.snapshot() as state:
            both = state.read("a").unionByName(state.read("b")).collect()
        check([row.asDict() for row in both])
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
            lake.run(move, token, rows, attempts=1000)
        with lake.snapshot() as state:
            check(state.sql("FROM a UNION ALL FROM b").to_pylist())
        return [token]

    return work


def move(txn: Any, token: str, rows: Callable[[str], Any]) -> None:
    """Move one piece, and leave the same token in both tables."""
    txn.update("a", {"pieces": "pieces - 1"}, where="id = 0")
    txn.update("b", {"pieces": "pieces + 1"}, where="id = 0")
    for table in ("a", "b"):
        txn.append(table, rows(token))


def check(rows: list[dict[str, Any]]) -> None:
    """A state of both tables is one between transactions, never within one."""
    assert sum(row["pieces"] for row in rows) == PIECES, "pieces were made or lost"
    tokens = [row["token"] for row in rows if row["id"] == -1]
    assert all(tokens.count(token) == 2 for token in tokens), "half a transaction is seen"
    pieces = max(row["pieces"] for row in rows if row["id"] == 0)
    moved = min(row["pieces"] for row in rows if row["id"] == 0)
    assert PIECES in (pieces + moved, pieces)
    # Each transaction moves one piece: as many as there are tokens.
    assert len(set(tokens)) in (moved, pieces), "tokens and pieces disagree"


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
