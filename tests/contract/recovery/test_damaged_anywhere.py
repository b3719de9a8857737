"""Any object of a lake is lost, truncated or set back, under clients and their commands."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import get_args

import pytest

from lakevilla.maintenance import rebuild_head
from lakevilla_testing.damage.cell import Broken, Cell, draw, rows_of_scene, run_cell
from lakevilla_testing.damage.damages import Damage, damages_of, newest_heads
from lakevilla_testing.damage.scene import Format, HeadForm, Scene, make_scene
from lakevilla_testing.damage.verbs import VERBS
from tests.support.search import first_seed, how_many

#: The number of damages that are drawn for each format.
DAMAGES = how_many(1, whole=15, soak=20_000)


SCENES = [*product(get_args(Format), get_args(HeadForm))]
REPLACED = [one for one in SCENES if one[1] == "replaced"]


@pytest.fixture(scope="module", params=SCENES, ids=" ".join)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("scene") / "lake", *request.param)


def one_of(scene: Scene, name: str) -> Damage:
    return next(damage for damage in damages_of(scene) if damage.name == name)


@pytest.mark.timeout(0 if DAMAGES > 100 else 300)
def test_a_damaged_lake_is_refused_by_name_and_whole_once_its_objects_are_back(
    scene: Scene,
) -> None:
    expected = rows_of_scene(scene)
    for seed in range(first_seed(), first_seed() + DAMAGES):
        run_cell(draw(scene, expected, seed))


def test_a_scene_has_an_object_of_each_kind(scene: Scene) -> None:
    damages = list(damages_of(scene))
    what = {damage.what for damage in damages}
    own = ["HEAD.json", "bases", "branches", "commits", "keys", "leaves", "pages"]
    own += ["heads"] if scene.head == "log" else ["recent", "maintenance", "txns"]
    for name in own:
        assert any(one.startswith(f"_lakevilla/{name}") for one in what), name
    for name in ("lake.json", "*.parquet"):
        assert any(one.endswith(name) for one in what), name
    fired = Counter(damage.how for damage in damages)
    if scene.head == "log":
        assert len(newest_heads(scene.files)) == 2, "of the lake, and of its branch"
        assert min(fired[how] for how in ("lost", "truncated", "emptied", "restored")) > 10
    else:
        assert any(one.endswith("markers/*.json") for one in what)
        assert len(scene.older("_lakevilla/HEAD.json")) > 10
        assert min(fired.values()) > 10
    expected = rows_of_scene(scene)
    assert all(rows for rows in expected.values()), expected


@pytest.mark.parametrize("scene", REPLACED, ids=" ".join, indirect=True)
def test_the_search_finds_a_rebuild_that_shows_older_rows(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def covers_nothing(*_: object) -> object:
        return
        yield

    monkeypatch.setattr(rebuild_head, "_cover_mounts", covers_nothing)
    expected = rows_of_scene(scene)
    damage = one_of(scene, "lost copies/a/_lakevilla/lake.json")
    with pytest.raises(Broken, match=r":copies/a reads \[1, 2, 3, 4\], not \[1, 2, 3, 4, 300\]"):
        run_cell(Cell(scene, damage, [VERBS["force head"]], warm=False, expected=expected))
