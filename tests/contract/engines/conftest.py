"""Fixtures: the lakes on which every engine test runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakevilla.settings import Settings
from tests.support.engine_lake import Lake

# Files written in memory; files written as large ones are; a store without local paths.
_WAYS = {
    "small": {},
    "large": {"settings": Settings(in_memory_file_limit_bytes=0)},
    "remote": {"remote": True},
    "remote-large": {"remote": True, "settings": Settings(in_memory_file_limit_bytes=0)},
}


@pytest.fixture(params=[*_WAYS, pytest.param("spark", marks=pytest.mark.xdist_group("spark"))])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    if request.param == "spark":
        return Lake(str(tmp_path), spark=request.getfixturevalue("spark"))
    return Lake(str(tmp_path), **_WAYS[request.param])
