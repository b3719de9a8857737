"""Plant bugs in combined commits: the named tests find them."""

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.every import PLANTED
from tests.simulation.races import test_combined as combined
from tests.support.simulated.memory_lake import MemoryLake
from tests.unit.transaction.commit.together import test_combine as steps
from tests.unit.transaction.commit.together import test_intents as intents


def _peer(run):
    lake = MemoryLake()
    return run(lake, lake.peer())


def _hot(run, *more):
    with small_limits(False, crowded=True, hot=True):
        return run(MemoryLake(), *more)


#: For each planted bug the tests that must fail with it, as functions without arguments.
CATCHERS = {
    "count_of_the_proposal": lambda: _peer(
        steps.test_a_member_is_given_the_counts_of_the_state_on_which_it_commits
    ),
    "left_but_performed": lambda: _peer(
        steps.test_a_member_that_leaves_before_the_commit_is_sent_is_not_committed
    ),
    "performed_after_the_window": lambda: _hot(
        intents.test_nothing_is_performed_in_a_replacement_after_the_proposals_last
    ),
    "performed_for_the_fenced": lambda: _hot(intents.test_a_fenced_transaction_is_not_performed),
    "performed_on_a_redefined_table": lambda: _hot(
        intents.test_a_table_is_dropped_guarded_or_redefined_meanwhile, "altered"
    ),
    "performed_twice": lambda: _hot(
        intents.test_an_intent_that_two_leaders_have_performed_commits_once
    ),
    "refused_while_it_lives": lambda: _hot(
        intents.test_an_owner_does_not_refuse_what_a_leader_may_yet_perform
    ),
    "rolled_back_in_part": lambda: [
        combined.test_a_combined_commit_does_the_same_as_its_members_one_after_the_other(seed)
        for seed in range(20)
    ],
    "void_takes_all": lambda: (
        steps.test_a_foreign_change_cancels_only_the_member_that_does_not_fit_it(MemoryLake())
    ),
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", sorted(CATCHERS))
def test_the_named_tests_find_a_planted_bug(name):
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        CATCHERS[name]()


def test_every_planted_bug_of_combined_commits_has_its_test():
    here = {
        name
        for name, mutation in PLANTED.items()
        if mutation.plant.__wrapped__.__module__ == "lakevilla_testing.planted.combined"
    }
    assert here == set(CATCHERS) | {n for n in here if PLANTED[n].for_histories}
