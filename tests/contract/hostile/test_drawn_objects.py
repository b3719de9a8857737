"""Whatever one object of a store says, no verb leaves the lake, and none runs code."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lakevilla.store.backends.reach import Reach
from tests.support.hostile.search import attack
from tests.support.hostile.watch import watched
from tests.support.search import first_seed, how_many

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's events are Linux's")


@pytest.mark.parametrize("number", range(how_many(6, whole=60, soak=5_000)))
def test_no_verb_leaves_a_lake_in_which_one_object_is_hostile(number: int, tmp_path: Path) -> None:
    seed = first_seed() * 10_000 + number
    outcome = attack(seed, tmp_path)
    assert outcome.events > 0
    assert not outcome.problems, f"seed {seed}, {outcome.what}"


def test_the_search_finds_a_library_that_reads_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reach, "holds", lambda reach, key: True)
    found = [one for seed in (8, 9) for one in attack(seed, tmp_path / str(seed)).problems]
    assert any("shows rows beyond the lake" in one for one in found)
    assert any("opened beyond the lake" in one for one in found)


class Command:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("true",)


def test_the_watch_tells_of_code_that_is_unpickled_and_of_files_that_are_opened(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("a")
    body = pickle.dumps(Command())
    with watched(str(tmp_path)) as watch:
        os.stat(tmp_path / "a")
        assert pickle.loads(body) == 0
        (tmp_path / "a").read_text()
    assert any(one.startswith("pickle.find_class") for one in watch.ran)
    assert any(one.startswith("os.system") for one in watch.ran)
    assert watch.opened[0].startswith("a ")
