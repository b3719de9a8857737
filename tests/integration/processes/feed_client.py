"""A process that writes to two tables in each transaction, until it is through or killed."""

from __future__ import annotations

import json
import random
import sys

import lakevilla as lv

TABLES = ("north", "south", "east")


def main() -> None:
    root, options, number, count = sys.argv[1:]
    source = random.Random(int(number))
    with lv.connect(root, storage_options=json.loads(options) or None) as lake:
        for commit in range(int(count)):
            row = int(number) * 1000 + commit
            names = source.sample(TABLES, 2)

            def transfer(txn: lv.Transaction, row: int = row, names: list[str] = names) -> None:
                for name in names:
                    txn.append(name, [{"id": row, "n": 0}])

            lake.run(transfer, attempts=100, metadata={"row": str(row)})
            print(row, flush=True)


if __name__ == "__main__":
    main()
