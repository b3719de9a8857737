"""Pointers to the metadata of a catalog's tables, read as objects of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakevilla.errors import CorruptObject
from lakevilla.formats.iceberg.catalog.object_store_catalog import CommitRequest
from lakevilla.formats.iceberg.catalog.store import CatalogStore
from lakevilla.store.base import ABSENT, Failure, Found, Stored
from lakevilla.store.codec import encode

KEY = "catalog://prod/sales/orders"


class Answering(SqlCatalog):
    """A catalog that first raises errors for some missing files, and then answers."""

    missing: Iterator[str] = iter(())

    def load_table(self, identifier: Any) -> Table:
        for name in self.missing:
            raise FileNotFoundError(name)
        return super().load_table(identifier)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Answering]:
    made = Answering("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    made.create_namespace("sales")
    made.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]))
    yield made
    made.engine.dispose()


def test_a_missing_metadata_file_is_reported_at_once(catalog: Answering) -> None:
    catalog.missing = iter(["1.metadata.json"] * 2)
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    with pytest.raises(
        CorruptObject, match=r"at a metadata file that is missing \(.*1\.meta"
    ) as hit:
        store.get(KEY)
    assert hit.value.table == "prod.sales.orders"


def test_a_metadata_file_replaced_by_a_concurrent_commit_is_no_error(
    catalog: Answering,
) -> None:
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    catalog.missing = iter(["1.metadata.json"])
    assert isinstance(store.get(KEY), Found)
    catalog.missing = iter(["1.metadata.json", "2.metadata.json"])
    assert isinstance(store.get(KEY), Failure)
    assert isinstance(store.get(KEY), Found)


def test_a_commit_by_a_client_that_has_not_read_the_table_asks_the_catalog_for_it(
    catalog: Answering,
) -> None:
    def refused(store: CatalogStore) -> object:
        return store.put(KEY, encode(CommitRequest(1, None, [], [])), ABSENT)

    fresh, knowing = (CatalogStore({"prod": catalog}, timeout_seconds=5) for _ in range(2))
    assert isinstance(knowing.get(KEY), Found)
    assert type(refused(fresh)) is type(refused(knowing)) is Stored
