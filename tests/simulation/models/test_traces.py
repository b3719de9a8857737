"""Lead real clients through runs of the models: the two do the same, step by step."""

import pytest

from lakevilla_testing.world.following import Diverged
from tests.support.search import how_many
from tests.support.simulated.traced import differs, follow
from tests.support.simulated.traced_head import TRACED as OF_HEAD
from tests.support.simulated.traced_head import TracedHead
from tests.support.simulated.traced_refs import TRACED as OF_REFS
from tests.support.simulated.traced_refs import TracedRefs

RUNS = how_many(20, whole=300, soak=20_000)


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("traced", "scenario"),
    [
        *((TracedHead, scenario) for scenario in OF_HEAD),
        *((TracedRefs, scenario) for scenario in OF_REFS),
    ],
)
def test_clients_do_what_the_model_does_in_every_order_of_steps(traced, scenario):
    assert follow(traced, scenario, RUNS) > 5 * RUNS


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("traced", "scenario", "bug"),
    [
        (TracedHead, "two appends", "match_dropped"),
        (TracedHead, "two updates", "not_validated"),
        (TracedHead, "two updates", "no_probe_before_validation"),
        (TracedHead, "two updates", "publish_before_commit_point"),
        (TracedHead, "two updates", "published_again"),
        (TracedHead, "two appends", "own_entry_first"),
        (TracedHead, "a foreign update, no helper", "unfit_is_published"),
        (TracedHead, "a foreign update, no helper", "unfit_is_dropped"),
        (TracedRefs, "commit, end, gc", "gc_knows_no_refs"),
        (TracedRefs, "made twice", "samelife"),
        (TracedRefs, "made twice", "dereg_first"),
        (TracedRefs, "merge, end, gc", "closed_is_not_looked_at"),
        (TracedRefs, "commit, merge, merge", "nosync"),
        (TracedRefs, "commit, merge, merge", "blindmerge"),
        (TracedRefs, "commit, rebase, gc", "gc_knows_no_epochs"),
        (TracedRefs, "commit, rebase, gc", "noclose"),
    ],
)
def test_a_mistake_in_the_code_shows_as_a_difference_from_the_model(traced, scenario, bug):
    assert differs(traced, scenario, bug, 40)


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("traced", "scenario", "flaw"),
    [
        (TracedHead, "two updates", "match_dropped"),
        (TracedHead, "write skew", "not_validated"),
        (TracedHead, "a foreign update, no helper", "unfit_is_published"),
        (TracedRefs, "commit, rebase, gc", "droplives"),
        (TracedRefs, "merge, end, gc", "blindmerge"),
    ],
)
def test_a_mistake_in_the_model_shows_as_a_difference_from_the_code(traced, scenario, flaw):
    with pytest.raises(Diverged):
        follow(traced, scenario, 40, flaw)
