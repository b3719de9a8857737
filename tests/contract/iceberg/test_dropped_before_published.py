"""A table whose creation was decided, and that was dropped before a client published it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Closed, is_entry


def test_an_unpublished_dropped_table_is_published_in_its_own_format(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as lake:
        lake.create_table("other", [{"id": 1}])
        inside(lake).store = Closed(inside(lake).store, is_entry("t"))
        with lake.transaction() as txn:
            txn.create_table("t", [{"id": 1}], format="iceberg")
            txn.append("other", [{"id": 2}])
        assert txn.result is not None
        assert txn.result.versions["t"] is None
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("t"))
        with lake.transaction() as txn:
            txn.drop_table("t")
    with place.connect() as lake:
        assert lake.recover().ok
        assert not (tmp_path / "lake" / "t" / "_delta_log").exists()
        assert place.seen("t") == [{"id": 1}]
        lake.register("t")
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_an_unpublished_dropped_table_occupies_its_name_and_keeps_its_first_version(
    tmp_path: Path, format: lv.FormatName
) -> None:
    place = Place(str(tmp_path / "lake"), format=format)
    with place.connect() as lake:
        lake.create_table("other", [{"id": 1}], format=format)
        inside(lake).store = Closed(inside(lake).store, is_entry("t"))
        with lake.transaction() as txn:
            txn.create_table("t", [{"id": 1}], format=format)
        with lake.transaction() as txn:
            txn.drop_table("t")
    with place.connect() as lake:
        with pytest.raises(lv.TableExists, match="`register"):
            lake.create_table("t", [{"id": 2}], format=format)
        lake.create_table("t", [{"n": 3}], or_replace=True)
        assert lake.read("t").to_pylist() == place.seen("t") == [{"n": 3}]
        assert lake.table("t").read(version=0).to_pylist() == [{"id": 1}]
        assert lake.doctor().ok
