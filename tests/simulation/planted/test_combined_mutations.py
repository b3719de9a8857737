"""Plant bugs in combined commits: the named tests find them."""

import pytest

from lakevilla_testing.planted.every import PLANTED
from tests.simulation.races import test_combined as combined
from tests.support.simulated.memory_lake import MemoryLake
from tests.unit.transaction.commit.together import test_combine as steps


def _peer(run):
    lake = MemoryLake()
    return run(lake, lake.peer())


#: For each planted bug the tests that must fail with it, as functions without arguments.
CATCHERS = {
    "count_of_the_proposal": lambda: _peer(
        steps.test_a_member_is_given_the_counts_of_the_state_on_which_it_commits
    ),
    "left_but_performed": lambda: _peer(
        steps.test_a_member_that_leaves_before_the_commit_is_sent_is_not_committed
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
    with PLANTED[name].plant(), pytest.raises(AssertionError):
        CATCHERS[name]()


def test_every_planted_bug_of_combined_commits_has_its_test():
    here = {
        name
        for name, mutation in PLANTED.items()
        if mutation.plant.__wrapped__.__module__ == "lakevilla_testing.planted.combined"
    }
    assert here == set(CATCHERS) | {n for n in here if PLANTED[n].for_histories}
