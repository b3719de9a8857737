"""A table that was decided and dropped before anybody published it."""

from __future__ import annotations

from pathlib import Path

from tests.support.places import Place
from tests.support.stores import Closed, is_entry


def test_it_is_published_in_its_own_format(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as lake:
        lake.create_table("other", [{"id": 1}])
        lake._client.runner.store = Closed(lake._client.runner.store, is_entry("t"))
        with lake.transaction() as txn:
            txn.create_table("t", [{"id": 1}], format="iceberg")
            txn.append("other", [{"id": 2}])
        assert txn.result is not None
        assert txn.result.versions["t"] is None
    with place.connect() as lake:
        lake._client.runner.store = Closed(lake._client.runner.store, is_entry("t"))
        with lake.transaction() as txn:
            txn.drop_table("t")
    with place.connect() as lake:
        assert lake.recover().ok
        assert not (tmp_path / "lake" / "t" / "_delta_log").exists()
        assert place.seen("t") == [{"id": 1}]
        lake.register("t")
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1}]
