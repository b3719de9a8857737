"""SQL transactions of several clients at once, against DuckDB in their serial order."""

from __future__ import annotations

from collections import Counter

from tests.prove.layer_main import main
from tests.prove.turn import Turn

#: Of so many seeds one is of real threads.
_EACH = 4


def run(turn: Turn) -> None:
    from tests.property.sql import serial

    while turn.goes_on():
        seed = turn.next_seed()
        tally: Counter[str] = Counter()
        threads = seed % _EACH == 0
        try:
            (serial.run_threads if threads else serial.run)(seed, tally)
        except Exception as error:
            option = " --threads" if threads else ""
            told = "\n".join((str(error), *getattr(error, "__notes__", ())))
            turn.failed(seed, f"python -m tests.property.sql.serial{option} {seed}", told)
        for name in ("scripts", "crowds", "statements", "queries", "transactions",
                     "rows compared"):  # fmt: skip
            turn.count(name, tally[name])
        for name in ("conflicts", "combined", "by deltalake"):
            turn.fired(name, tally[name])


if __name__ == "__main__":
    main(run)
