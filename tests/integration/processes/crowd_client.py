"""A client that appends rows to one table as fast as it can, until it is killed or told to stop.

It tells of each row before it asks for the commit, and after it was committed.
"""

from __future__ import annotations

import json
import sys
import threading

import lakevilla as lv


def main(root: str, options: str, first: int) -> None:
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()
    with lv.connect(root, storage_options=json.loads(options) or None) as lake:
        _tell("ready", first)
        number = first
        while not stop.is_set():
            _tell("asked", number)
            try:
                with lake.transaction() as txn:
                    txn.append("rows", [{"id": number}])
            except lv.CommitOutcomeUnknown as error:
                state = lake.outcome(str(error.txn_id)).state
                _tell("committed" if state == "committed" else "aborted", number)
            else:
                _tell("committed", number)
            number += 1


def _listen(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


def _tell(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
