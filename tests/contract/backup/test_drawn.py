"""Drawn lakes that are backed up beside other clients, damaged, and restored."""

from __future__ import annotations

from pathlib import Path

from tests.support.drawn_backups import DrawnBackup
from tests.support.search import first_seed, how_many


def test_a_drawn_lake_is_restored_as_it_was(tmp_path: Path) -> None:
    first = 6 if how_many(0, whole=1) == 0 else first_seed()
    for seed in range(first, first + how_many(1, whole=8, soak=5000)):
        DrawnBackup(seed, tmp_path / str(seed)).run()
