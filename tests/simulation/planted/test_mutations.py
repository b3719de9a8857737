"""The simulation finds planted bugs; else it would prove nothing."""

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import WHOLE

LIMIT = 5000


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", sorted(n for n, m in PLANTED.items() if m.for_histories))
def test_histories_find_each_planted_bug(name):
    bug = PLANTED[name]
    error = None
    with bug.plant():
        for seed in range(bug.first_seed, bug.first_seed + LIMIT):
            error = campaign.replay(seed, plan=bug.plan(seed))[2]
            if error is not None:
                break
    assert error is not None, f"{name} was not caught in {LIMIT} histories"
    # A planted bug that no longer fits the library raises an error, and finds nothing.
    assert not isinstance(error.__cause__, AttributeError | NameError | TypeError), error
    if WHOLE:  # The planted bug is the cause: without it the same history passes.
        assert campaign.replay(seed, plan=bug.plan(seed))[2] is None
