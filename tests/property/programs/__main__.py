"""Repeat seeds, and make their programs shorter: ``python -m tests.property.programs SEED ...``.

``--count N``: N seeds from each. ``--keep``: don't make failures shorter. ``--spark``: with a Spark
session. ``--refused``: print what was refused. ``--trace``: print the failures' tracebacks.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import traceback
from collections import Counter

from tests.property.programs.drawing import EMBEDDED, SPARK, draw
from tests.property.programs.running import Failure, reported, run, shrunk


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--steps", type=int, default=14)
    for option in ("--spark", "--keep", "--refused", "--trace"):
        parser.add_argument(option, action="store_true")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    session, actors = None, EMBEDDED
    if chosen.spark:
        from tests.fixtures.spark import start

        session, actors = start(tempfile.mkdtemp()), SPARK
    tally: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    started = time.process_time()
    for first in chosen.seeds:
        for seed in range(first, first + chosen.count):
            if chosen.refused:  # which is the last one, if a client ends the process
                print(f"seed {seed}:", flush=True)
            program = draw(seed, actors, chosen.steps)
            try:
                log = run(program, tally, session)
            except Failure as failure:
                failures[failure.kind] += 1
                least = failure if chosen.keep else shrunk(failure, session)
                print(reported(least), "\n", flush=True)
                if chosen.trace:
                    traceback.print_exception(least.cause)
                continue
            if chosen.refused:
                print(*log, sep="\n", flush=True)
    print(dict(sorted(tally.items())), "failures:", dict(failures), end=" ")
    print(f"{time.process_time() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
