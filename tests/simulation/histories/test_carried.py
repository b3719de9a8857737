"""Play histories in which another process resumes transactions from saved bytes (note 42)."""

from collections import Counter
from dataclasses import replace

from lakevilla.settings import Settings
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw
from tests.support.search import WHOLE, how_many

HISTORIES = how_many(1, whole=30)


def plan_of(seed):
    plan = replace(
        draw(seed),
        features=(Feature.R | Feature.I,),
        kinds=("carried", "carried", "lists", "add"),
        collects=seed % 2 == 0,
    )
    # Some are older than gc's retention when they are resumed.
    return replace(plan, settings=Settings(max_age_seconds=60.0)) if seed % 4 == 0 else plan


def test_every_invariant_holds_where_other_processes_resume_transactions_from_bytes():
    ends = Counter()
    for seed in range(HISTORIES):
        outcome, _, error = campaign.replay(seed, plan=plan_of(seed))
        assert error is None, f"seed {seed} as this test draws it: {error} ({plan_of(seed)})"
        ends.update(outcome.ended)
    if WHOLE:
        assert ends["carried committed"] > HISTORIES, ends
        assert ends["carried aborted"] > 10, ends
