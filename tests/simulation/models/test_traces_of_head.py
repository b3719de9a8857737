"""Lead real clients through runs of the model of HEAD: the two do the same, step by step."""

import pytest

from lakevilla_testing.histories.exhaustive import one_search
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.world.following import Diverged
from lakevilla_testing.world.scheduler import ClientFailed
from tests.support.search import how_many
from tests.support.simulated.traced_head import TRACED, Traced

RUNS = how_many(20, whole=300, soak=20_000)


@one_search
def follow(scenario, runs, flaw=""):
    return sum(Traced(scenario, seed, flaw).follow() for seed in range(runs))


@one_search
def differs(scenario, bug, runs):
    """Return whether clients with a planted bug do something else than the model."""
    Traced(scenario, 0).simulation.dispose()  # the tables are made without the bug
    with PLANTED[bug].plant():
        for seed in range(runs):
            try:
                Traced(scenario, seed).follow()
            except (Diverged, ClientFailed):
                return True
    return False


@pytest.mark.cases(None)
@pytest.mark.parametrize("scenario", TRACED)
def test_clients_do_what_the_model_does_in_every_order_of_steps(scenario):
    assert follow(scenario, RUNS) > 5 * RUNS


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("scenario", "bug"),
    [
        ("two appends", "match_dropped"),
        ("two updates", "not_validated"),
        ("two updates", "no_probe_before_validation"),
        ("two updates", "publish_before_commit_point"),
        ("two updates", "published_again"),
        ("two appends", "own_entry_first"),
        ("a foreign update, no helper", "unfit_is_published"),
        ("a foreign update, no helper", "unfit_is_dropped"),
    ],
)
def test_a_mistake_in_the_code_shows_as_a_difference_from_the_model(scenario, bug):
    assert differs(scenario, bug, 40)


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("scenario", "flaw"),
    [
        ("two updates", "match_dropped"),
        ("write skew", "not_validated"),
        ("a foreign update, no helper", "unfit_is_published"),
    ],
)
def test_a_mistake_in_the_model_shows_as_a_difference_from_the_code(scenario, flaw):
    with pytest.raises(Diverged):
        follow(scenario, 40, flaw)
