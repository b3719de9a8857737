"""Programs of verbs on LakeVilla's Spark engine, beside Spark, in one warm session."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections import Counter

from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    if shutil.which("java") is None:
        turn.leave_out("Java is missing")
        return
    from tests.fixtures.spark import start
    from tests.property.programs.drawing import SPARK, draw
    from tests.property.programs.running import Failure, reported, run, shrunk

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as warehouse:
        session = start(warehouse)
        while turn.goes_on():
            seed = turn.next_seed()
            tally: Counter[str] = Counter()
            try:
                run(draw(seed, SPARK, steps=8), tally, session)
            except Failure as failure:
                again = f"python -m tests.property.programs --spark --steps 8 {seed}"
                turn.failed(seed, again, reported(shrunk(failure, session, tries=20)))
            turn.count("programs")
            for name in ("steps", "transactions", "rows compared", "refused"):
                turn.count(name, sum(many for what, many in tally.items() if what.startswith(name)))
            for name in ("conflicts", "beside others", "by spark", "by deltalake", "by pyiceberg"):
                turn.fired(name, tally[name])
        session.stop()


if __name__ == "__main__":
    main(run)
