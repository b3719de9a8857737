"""Programs of verbs by LakeVilla, deltalake and pyiceberg, against an oracle and other readers."""

from __future__ import annotations

import warnings
from collections import Counter

from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    from tests.property.programs.drawing import draw
    from tests.property.programs.running import Failure, reported, run, shrunk

    warnings.simplefilter("ignore")
    while turn.goes_on():
        seed = turn.next_seed()
        tally: Counter[str] = Counter()
        try:
            run(draw(seed), tally)
        except Failure as failure:
            again = f"python -m tests.property.programs {seed}"
            turn.failed(seed, again, reported(shrunk(failure, tries=40)))
        turn.count("programs")
        for name in ("steps", "transactions", "rows compared", "refused"):
            turn.count(name, sum(many for what, many in tally.items() if what.startswith(name)))
        for name in ("conflicts", "beside others", "branches merged", "by deltalake",
                     "by pyiceberg"):  # fmt: skip
            turn.fired(name, tally[name])


if __name__ == "__main__":
    main(run)
