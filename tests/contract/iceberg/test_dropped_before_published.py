"""A table that was decided and dropped before anybody published it."""

from __future__ import annotations

from pathlib import Path

from lakevilla.store.base import Condition, Failure, Refused, Stored
from tests.builders import Place, WrappedStore


class NoVersions(WrappedStore):
    """Refuses metadata files of one table: what is decided there is left to others."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.startswith("t/metadata/v"):
            return Failure("not now", ambiguous=False, permanent=True)
        return super().put(key, body, condition)


def test_it_is_published_in_its_own_format(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"), format="iceberg")
    with place.connect() as lake:
        lake.create_table("other", [{"id": 1}])
        lake.runner.store = NoVersions(lake.runner.store)
        with lake.transaction() as txn:
            txn.create_table("t", [{"id": 1}], format="iceberg")
            txn.append("other", [{"id": 2}])
        assert txn.result is not None
        assert txn.result.versions["t"] is None
    with place.connect() as lake:
        lake.runner.store = NoVersions(lake.runner.store)
        with lake.transaction() as txn:
            txn.drop_table("t")
    with place.connect() as lake:
        assert lake.recover().ok
        assert not (tmp_path / "lake" / "t" / "_delta_log").exists()
        assert place.seen("t") == [{"id": 1}]
        lake.register("t")
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1}]
