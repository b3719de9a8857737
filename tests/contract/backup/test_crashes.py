"""A client that dies at any write of a backup or a restore: the same call again goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.api.backup import restore_from
from tests.support.backups import beside, fill, shown
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.stores import Dying

#: A first write at which a client dies, and the distance of the next ones.
STRIDE = how_many(9, whole=4, soak=1)


def dies(lake: lv.Lake, writes: int, work: Callable[[], object]) -> bool:
    """Do work in a process that dies after some writes; return whether it has died."""
    store = Dying(inside(lake).store, writes)
    inside(lake).store = store
    with suppress(Dying.Death):
        work()
    return store.died


@pytest.fixture
def filled(shared_place: Place) -> Place:
    with shared_place.connect() as lake:
        fill(lake)
    return shared_place


def test_a_backup_that_died_is_none_and_the_next_one_goes_on(filled: Place) -> None:
    with filled.connect() as lake:
        before = shown(lake)
    writes, died = 0, True
    while died:
        target, root = (beside(filled.root, f"{name}{writes}") for name in ("copy", "restored"))
        with filled.connect() as lake:
            died = dies(lake, writes, lambda target=target, lake=lake: lake.backup(target))
        if died:
            with pytest.raises(lv.InvalidOperation, match="has no backup"):
                lv.restore(target, root)
        with filled.connect() as lake:
            lake.backup(target)
        lv.restore(target, root)
        with lv.connect(root) as restored:
            assert shown(restored) == before, writes
        writes += STRIDE
    assert writes > STRIDE


@pytest.mark.parametrize("in_place", [False, True], ids=["beside", "in place"])
def test_a_restore_that_died_goes_on(filled: Place, in_place: bool) -> None:
    with filled.connect() as lake:
        before = shown(lake)
        target = lake.backup(beside(lake.root, "copy")).target
        lake.run(lambda txn: txn.delete("stock", where="sku = 'tea'"))
        lake.run(lambda txn: txn.append("sales/orders", [{"sku": "egg", "qty": 9}]))
    writes, died = 1, True
    while died:
        root = filled.root
        kept = beside(root, f"kept{writes}")
        if in_place:
            shutil.copytree(root, kept)
        else:
            root = beside(root, f"restored{writes}")
        lake = lv.connect(root)
        work = lambda lake=lake: restore_from(  # noqa: E731
            lake._client, target, None, in_place=in_place, verify="sizes"
        )
        died = dies(lake, writes, work)
        with lv.connect(root) as again:
            restore_from(again._client, target, None, in_place=in_place, verify="sizes")
        with lv.connect(root) as restored:
            assert shown(restored) == before, writes
            restored.recover(confirm_head=True)
            assert restored.verify().ok
        if in_place:
            shutil.rmtree(root)
            Path(kept).rename(root)
        writes += STRIDE
    assert writes > STRIDE


def test_a_head_is_not_confirmed_before_its_restore_is_done(filled: Place) -> None:
    with filled.connect() as lake:
        target = lake.backup(beside(lake.root, "copy")).target
    root = beside(filled.root, "restored")
    lake = lv.connect(root)
    assert dies(
        lake, 12, lambda: restore_from(lake._client, target, None, in_place=False, verify="sizes")
    )
    with lv.connect(root) as half:
        with pytest.raises(lv.InvalidOperation, match="is not restored yet"):
            half.recover(confirm_head=True)
    with pytest.raises(lv.InvalidOperation, match="restore that one again first"):
        with filled.connect() as lake:
            other = lake.backup(beside(lake.root, "other")).target
        lv.restore(other, root)
    lv.restore(target, root)
    with lv.connect(root) as restored:
        assert restored.recover(confirm_head=True).ok
