"""A client that writes to one table as fast as it can, until it is killed or stopped.

It prints each row, or change of its row, before it calls ``commit`` and after that has returned.
It is run as a script, by older revisions of the library too. Its last argument is by how many
seconds the library's wall clock is off there; requests are signed by the right time.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import lakevilla as lv
from lakevilla.clock import SystemClock


def main(root: str, options: str, first: int, work: str, off: float) -> None:
    SystemClock.now = lambda self: time.time() + off  # type: ignore[method-assign]
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()
    with lv.connect(root, storage_options=json.loads(options) or None) as lake:
        _tell("ready", first)
        number = first
        if work == "update":
            _tell("asked", number)
            with lake.transaction() as txn:
                txn.append("rows", [{"id": number, "n": 0}])
            _tell("committed", number)
        while not stop.is_set():
            if work == "update":
                _update(lake, number)
            else:
                _append(lake, number, ["rows", "others"] if work == "pair" else ["rows"])
                number += 1


def _append(lake: lv.Lake, number: int, tables: list[str]) -> None:
    _tell("asked", number)
    try:
        with lake.transaction() as txn:
            for table in tables:
                txn.append(table, [{"id": number, "n": 0}])
    except lv.CommitOutcomeUnknown as error:
        state = lake.outcome(str(error.txn_id)).state
        _tell("committed" if state == "committed" else "aborted", number)
    else:
        _tell("committed", number)


def _update(lake: lv.Lake, number: int) -> None:
    _tell("changing", number)
    try:
        with lake.transaction() as txn:
            txn.update("rows", {"n": "n + 1"}, where=f"id = {number}")
    except lv.ConflictError:
        return
    except lv.CommitOutcomeUnknown as error:
        if lake.outcome(str(error.txn_id)).state != "committed":
            return
    _tell("changed", number)


def _listen(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


def _tell(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
