"""Two restores at one root at the same time, and copies that are not whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakevilla as lv
from lakevilla.api.backup import restore_from
from lakevilla.maintenance.backup.restore import RESTORING_KEY
from lakevilla.store.base import (
    ANY,
    Condition,
    Failure,
    Found,
    Missing,
    Refused,
    Store,
    Stored,
    WrappedStore,
)
from tests.support.backups import beside, fill, rows_of, sell, shown
from tests.support.inside import inside
from tests.support.places import Place


class Preceded(WrappedStore):
    """A store on which another client works just before this one notes its restore."""

    def __init__(self, inner: Store, work: Callable[[], object]) -> None:
        super().__init__(inner)
        self._work: list[Callable[[], object]] = [work]

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key == RESTORING_KEY and self._work:
            self._work.pop()()
        return self.inner.put(key, body, condition)


class Cutting(WrappedStore):
    """A store whose copies of data files are cut, and which answers that they are whole."""

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        found = self.inner.get(source)
        if not key.endswith(".parquet") or not isinstance(found, Found):
            return self.inner.copy_object(source, key)
        stored = self.inner.put(key, found.body[:-1], ANY)
        assert isinstance(stored, Stored)
        return stored


def restored_on(
    lake: lv.Lake, wrap: Callable[[Store], Store], source: str, name: str | None = None
) -> None:
    """Restore in place, by a client of whose store a part is replaced."""
    inside(lake).store = wrap(inside(lake).store)
    restore_from(lake._client, source, name, in_place=True, verify="sizes")


def test_of_two_restores_that_begin_at_once_one_is_refused(shared_place: Place) -> None:
    source = beside(shared_place.root, "copy")
    with shared_place.connect() as lake:
        fill(lake)
        first = lake.backup(source).name
        sell(lake, "jam")
        lake.backup(source)
        expected = shown(lake)

    def other() -> None:
        lv.restore(source, shared_place.root, in_place=True)

    with shared_place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="another client has begun to restore"):
            restored_on(lake, lambda store: Preceded(store, other), source, first)
    with shared_place.connect() as lake:
        assert shown(lake) == expected
        assert lake.recover(confirm_head=True).ok


def test_a_restore_whose_copies_are_cut_is_refused_and_goes_on_later(shared_place: Place) -> None:
    source, root = (beside(shared_place.root, name) for name in ("copy", "restored"))
    with shared_place.connect() as lake:
        fill(lake)
        lake.backup(source)
        expected = shown(lake)
    with lv.connect(root) as lake:
        with pytest.raises(lv.CorruptObject, match=r"the copy of .* restore again"):
            restored_on(lake, Cutting, source)
        with pytest.raises(lv.InvalidOperation, match="is not restored yet"):
            lake.recover(confirm_head=True)
    lv.restore(source, root)
    with lv.connect(root) as lake:
        assert shown(lake) == expected
        assert rows_of(lake, "stock")
