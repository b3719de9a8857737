"""Lives of drawn lakes: branches, tags, clones, keys, upkeep, and what is lost, beside a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lives.life import STEPS, Life
from tests.support.search import first_seed, how_many

#: The number of lives that are drawn, and their steps.
LIVES = how_many(1, whole=20, soak=5_000)
LENGTH = how_many(6, whole=STEPS)


@pytest.mark.timeout(0 if LIVES > 100 else 600)
def test_a_lake_is_as_its_model_says_whatever_happens_to_it_and_its_refs(tmp_path: Path) -> None:
    for seed in range(first_seed(), first_seed() + LIVES):
        Life(seed, tmp_path / str(seed)).run(LENGTH)
