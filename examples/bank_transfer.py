"""Four threads move money between two tables; the total never changes."""

from __future__ import annotations

import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import lakevilla as lv

ACCOUNTS = 10


def transfer(txn: lv.Transaction, source: str, target: str, payer: int, payee: int) -> None:
    """Move one unit. `lake.run` calls this again if another transfer got in between."""
    paid = txn.update(
        source,
        {"balance": "balance - 1"},
        where="id = :id AND balance >= 1",
        params={"id": payer},
    )
    if paid.rows_updated:
        txn.update(target, {"balance": "balance + 1"}, where="id = :id", params={"id": payee})


def main(root: str, transfers: int = 12) -> None:
    """Make two banks, let threads transfer between them, and add up."""
    with lv.connect(root) as lake:
        for bank in ("bank_x", "bank_y"):
            lake.create_table(bank, [{"id": number, "balance": 100} for number in range(ACCOUNTS)])

        def one(seed: int) -> None:
            choice = random.Random(seed)
            source, target = choice.sample(["bank_x", "bank_y"], 2)
            payer, payee = choice.randrange(ACCOUNTS), choice.randrange(ACCOUNTS)
            lake.run(transfer, source, target, payer, payee)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, range(transfers)))

        with lake.snapshot() as state:
            banks = "FROM bank_x UNION ALL FROM bank_y"
            print(state.sql(f"SELECT sum(balance)::BIGINT AS total FROM ({banks})").to_pylist())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
