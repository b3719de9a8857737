"""Replay a seed and make its failure smaller: ``python -m tests.property SEED [SEED ...]``.

``--spark``: with a Spark session. ``--count N``: N seeds from each. ``--keep``: don't make failures
smaller. ``--first``: stop at the first failure, and print the number of cases before it.
``--trace``: print the failures' tracebacks.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections import Counter

from tests.property.running import Failure, reported, run, shrunk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--each", type=int, default=20)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    options = {}
    if chosen.spark:
        from tests.fixtures.spark import start

        options["spark"] = start(tempfile.mkdtemp())
    tally: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    started = time.monotonic()
    for first in chosen.seeds:
        for seed in range(first, first + chosen.count):
            try:
                run(seed, tally, each=chosen.each, **options)
            except Failure as failure:
                if chosen.first:
                    print(failure, f"after {tally['tables']} tables, {tally['cases']} cases")
                    return 1
                failures[failure.kind] += 1
                print(
                    reported(failure if chosen.keep else shrunk(failure, **options)),
                    "\n",
                    flush=True,
                )
    print(dict(tally), "failures:", dict(failures), f"{time.monotonic() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
