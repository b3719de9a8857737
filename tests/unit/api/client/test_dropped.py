"""A lake that its caller has closed or dropped is freed, with its threads."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import lakevilla as lv
from lakevilla.api.client.client import LakeClient


def clients_of(root: Path) -> int:
    """Count the clients of a lake that this process has not freed."""
    gc.collect()
    return sum(isinstance(one, LakeClient) and one.root == str(root) for one in gc.get_objects())


def test_a_closed_lake_is_freed_with_its_threads(tmp_path: Path) -> None:
    before = threading.active_count()
    with lv.connect(tmp_path) as lake:
        lake.create_table("orders", [{"id": 1}])
        assert clients_of(tmp_path) == 1
    del lake
    assert clients_of(tmp_path) == 0
    assert threading.active_count() <= before


def test_a_lake_that_is_only_dropped_is_freed(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path)
    assert lake.tables() == []
    assert clients_of(tmp_path) == 1
    del lake
    assert clients_of(tmp_path) == 0
