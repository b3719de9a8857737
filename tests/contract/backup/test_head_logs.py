"""Restores where HEAD is a log are refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.api.backup import restore_from
from lakevilla_testing.damage.scene import OnlyCreates, files_of
from tests.support.backups import beside, fill, shown
from tests.support.inside import inside
from tests.support.places import Place


def fill_log(place: Place) -> str:
    """Make a lake whose HEAD is a log, and a backup of it; return where the backup is."""
    with place.connect() as lake:
        inside(lake).store = OnlyCreates(inside(lake).store)
        fill(lake)
        return lake.backup(beside(place.root, "copy")).target


def test_a_backup_of_a_lake_whose_head_is_a_log_is_restored_beside(local_place: Place) -> None:
    target, root = fill_log(local_place), beside(local_place.root, "restored")
    lv.restore(target, root)
    with local_place.connect() as lake, lv.connect(root) as restored:
        assert shown(restored) == shown(lake)


@pytest.mark.parametrize("lost", [None, "_lakevilla/HEAD.json"])
def test_a_lake_whose_head_is_a_log_is_not_restored_in_place(
    local_place: Place, lost: str | None
) -> None:
    target = fill_log(local_place)
    if lost is not None:
        Path(local_place.root, lost).unlink()
    before = files_of(Path(local_place.root))
    with pytest.raises(lv.InvalidOperation, match=r"HEAD is a log \(_lakevilla/heads\) at .*"):
        lv.restore(target, local_place.root, in_place=True)
    assert files_of(Path(local_place.root)) == before


def test_a_store_that_does_not_replace_takes_no_restore(local_place: Place) -> None:
    target, root = fill_log(local_place), beside(local_place.root, "restored")
    with lv.connect(root) as lake:
        inside(lake).store = OnlyCreates(inside(lake).store)
        with pytest.raises(lv.InvalidOperation, match="the store does not replace objects at"):
            restore_from(lake._client, target, None, in_place=False, verify="sizes")
    assert files_of(Path(root)) == {}
