"""A lake that its caller has closed or no longer references is freed, with its threads."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import lakevilla as lv
from lakevilla.api.client import background
from lakevilla.api.client.client import LakeClient
from tests.support.inside import inside


def client_of(lake: lv.Lake) -> weakref.ref[LakeClient]:
    return weakref.ref(inside(lake).client)


def is_freed(client: weakref.ref[LakeClient]) -> bool:
    gc.collect()
    return client() is None


def test_a_closed_lake_is_freed_with_its_threads(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with lv.connect(tmp_path) as lake:
        lake.create_table("orders", [{"id": 1}])
        client = client_of(lake)
        assert not is_freed(client)
    del lake
    assert is_freed(client)
    # They end at once, unless lakes that are open elsewhere have work for them.
    if not background._crew.left(is_finished_at_exit=False):
        for thread in set(threading.enumerate()) - before:
            thread.join(30)
            assert not thread.is_alive()


def test_a_lake_that_is_only_dereferenced_is_freed(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path)
    assert lake.tables() == []
    client = client_of(lake)
    assert not is_freed(client)
    del lake
    assert is_freed(client)
