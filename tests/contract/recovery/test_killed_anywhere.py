"""A client dies between two of its writes, or is stopped, and others go on."""

from __future__ import annotations

from itertools import islice
from typing import get_args

import pytest

from lakevilla.maintenance import rebuild_head
from lakevilla_testing.damage.cell import Broken, rows_of_scene
from lakevilla_testing.damage.kills import Kill, kills, run_kill
from lakevilla_testing.damage.scene import Format, Scene, make_scene
from lakevilla_testing.damage.stops import draw_stop, run_stop
from lakevilla_testing.damage.verbs import VERBS
from tests.support.search import first_seed, how_many

#: The number of verbs, and of the ways in which each dies; the campaign tries all ways.
SEEDS, KILLS = how_many(1, whole=5, soak=2000), how_many(2, whole=6, soak=100)
STOPS = how_many(1, whole=3, soak=1000)


@pytest.fixture(scope="module", params=get_args(Format))
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("scene") / "lake", request.param)


@pytest.mark.timeout(0 if SEEDS > 100 else 300)
def test_a_client_that_dies_between_two_writes_leaves_all_or_nothing(scene: Scene) -> None:
    expected = rows_of_scene(scene)
    for seed in range(first_seed(), first_seed() + SEEDS):
        for kill in islice(kills(seed), KILLS):
            if not run_kill(scene, expected, kill):
                break


@pytest.mark.cases(1)
@pytest.mark.timeout(0 if STOPS > 100 else 300)
def test_a_process_that_is_stopped_past_its_lease_does_no_harm(scene: Scene) -> None:
    expected = rows_of_scene(scene)
    for seed in range(first_seed(), first_seed() + STOPS):
        run_stop(scene, expected, draw_stop(seed))


@pytest.mark.cases(1)
def test_the_search_finds_a_rebuild_that_forgets_the_refs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_head, "refs_left", no_refs)
    expected = rows_of_scene(scene)
    force = VERBS["force head"]
    with pytest.raises(Broken, match="clients read"):
        for writes in range(20):
            if not run_kill(scene, expected, Kill(force, force, writes, True, (0.0, 0.0))):
                break


def no_refs(*_: object) -> object:
    """Find no refs: the planted fault."""
    return {}, []
    yield
