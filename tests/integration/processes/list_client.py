"""A client that reads and appends to lists in transactions; it runs as a process of its own.

It prints a line before a transaction, with all that it is to append, and one when it knows how it
has ended, with what it has read. The times are of the one monotonic clock of the machine.
"""

from __future__ import annotations

import random
import sys
import time

import lakevilla as lv
from tests.integration.processes.client import tell
from tests.support.queues import QUEUED

TABLES, LISTS = ("a", "b"), 2
_FEATURES = (lv.Feature.R | lv.Feature.I, lv.Feature.R | lv.Feature.I, QUEUED["R|CT|I"])
_SETTINGS = lv.Settings(wait_poll_seconds=0.02, wait_poll_cap_seconds=0.1)


def transact(
    lake: lv.Lake, features: lv.Feature, plan: list[tuple[str, int, int | None]]
) -> tuple[str, list[list[object]]]:
    """Run one transaction; return its outcome, and its operations with what they have read."""
    did: list[list[object]] = []
    try:
        with lake.transaction(features) as txn:
            for table, number, value in plan:
                where, key = f"id = {number}", f"{table}{number}"
                if value is None:
                    items = txn.read(table, where=where).to_pylist()[0]["items"]
                    did.append(["read", key, [int(one) for one in items.split(",") if one]])
                else:
                    change = {"items": f"items || ',{value}'"}
                    txn.update(table, change, where)
                    did.append(["append", key, value])
    except lv.CommitOutcomeUnknown:
        return "unknown", did
    except (lv.ConflictError, lv.TransactionAborted):
        return "aborted", did
    return "committed", did


def main(root: str, number: int, transactions: int) -> None:
    choice = random.Random(number)
    value = number * 1_000_000
    with lv.connect(root, settings=_SETTINGS) as lake:
        lake.snapshot().versions  # noqa: B018 - warm
        tell(ready=True)
        sys.stdin.readline()
        for _ in range(transactions):
            plan: list[tuple[str, int, int | None]] = []
            for _ in range(choice.randint(1, 3)):
                value += 1
                is_read = choice.random() < 0.5
                place = choice.choice(TABLES), choice.randrange(LISTS)
                plan.append((*place, None if is_read else value))
            appends = [["append", f"{t}{n}", v] for t, n, v in plan if v is not None]
            tell(begins=value, at=time.monotonic(), operations=appends)
            status, did = transact(lake, choice.choice(_FEATURES), plan)
            tell(ends=value, at=time.monotonic(), status=status, operations=did)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
