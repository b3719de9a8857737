"""Run random programs of verbs: the oracle and all readers see the same rows after each step."""

from __future__ import annotations

from collections import Counter

import pytest

from lakevilla_testing.planted.every import PLANTED
from tests.property.programs.drawing import draw
from tests.property.programs.running import Failure, reported, run, shrunk
from tests.support.search import first_seed, how_many

PROGRAMS = how_many(2, whole=40, soak=20_000)
FIRST = first_seed() * 1000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", range(0, PROGRAMS, 10))
@pytest.mark.filterwarnings("ignore:Delete operation did not match:UserWarning")
@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning")
def test_a_program_leaves_the_rows_that_the_oracle_and_other_readers_have(block: int) -> None:
    tally: Counter[str] = Counter()
    for seed in range(FIRST + block, FIRST + min(block + 10, PROGRAMS)):
        try:
            run(draw(seed), tally)
        except Failure as failure:
            again = f"python -m tests.property.programs {seed}"
            pytest.fail(f"{reported(shrunk(failure))}\nrepeat: {again}", pytrace=False)
    # The draw is useful: few verbs are refused, and others commit beside transactions.
    refused = sum(many for what, many in tally.items() if what.startswith("refused"))
    assert refused * 4 < tally["steps"], tally


@pytest.mark.parametrize(("bug", "seed"), [("not_validated", 0)])
def test_a_program_finds_a_planted_bug(bug: str, seed: int) -> None:
    with PLANTED[bug].plant(), pytest.raises(Failure):
        run(draw(seed), Counter())
