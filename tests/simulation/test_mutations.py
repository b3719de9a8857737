"""The simulation finds planted bugs; else it would prove nothing."""

import pytest

from lakevilla.testing.histories import campaign
from lakevilla.testing.planted import commit_again as again_mutations
from lakevilla.testing.planted import iceberg as iceberg_mutations
from lakevilla.testing.planted import leaves as leaf_mutations
from lakevilla.testing.planted import queues as queue_mutations
from lakevilla.testing.planted import reshaping as reshape_mutations

LIMIT = 5000
MUTATIONS = (
    leaf_mutations.MUTATIONS
    | queue_mutations.MUTATIONS
    | iceberg_mutations.MUTATIONS
    | reshape_mutations.MUTATIONS
    | again_mutations.MUTATIONS
)


@pytest.mark.parametrize("name", sorted(n for n, m in MUTATIONS.items() if m.for_histories))
def test_planted_bug_is_caught(name):
    mutation = MUTATIONS[name]
    with mutation.plant():
        caught = next(
            (
                seed
                for seed in range(mutation.first_seed, mutation.first_seed + LIMIT)
                if campaign.replay(seed, plan=mutation.plan(seed))[2] is not None
            ),
            None,
        )
        if caught is not None:
            error = campaign.replay(caught, plan=mutation.plan(caught))[2]
    assert caught is not None, f"{name} was not caught in {LIMIT} histories"
    # One that no longer fits the library fails by itself, and finds nothing.
    assert not isinstance(error.__cause__, AttributeError | NameError | TypeError), error
    # It is the planted bug that was caught: without it the same history is right.
    assert campaign.replay(caught, plan=mutation.plan(caught))[2] is None
