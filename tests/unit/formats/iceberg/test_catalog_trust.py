"""A table's properties run no code, and send no request elsewhere, through a catalog."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from lakevilla.formats.iceberg.catalog.object_store_catalog import Catalogs, CommitRequest
from lakevilla.formats.iceberg.catalog.store import CatalogStore
from lakevilla.formats.iceberg.metadata.file import decode_pointer
from lakevilla.store.base import ABSENT, Failure, Found
from lakevilla.store.codec import encode

KEY = "catalog://prod/sales/orders"
IO, PROVIDER, METADATA = "py-io-impl", "write.py-location-provider.impl", "write.metadata.path"
SET_A = {"action": "set-properties", "updates": {"a": "b"}}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    made.create_namespace("sales")
    made.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]))
    yield made
    made.engine.dispose()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put a module on the path, as a package that the victim has installed; return a class of it.

    A process that has run it has the module.
    """
    (tmp_path / "mods").mkdir()
    (tmp_path / "mods" / "named_by_a_table.py").write_text("class Any:\n  __init__ = print\n")
    monkeypatch.syspath_prepend(str(tmp_path / "mods"))
    yield "named_by_a_table.Any"
    sys.modules.pop("named_by_a_table", None)


def set_behind(catalog: SqlCatalog, **properties: str) -> None:
    """Set properties in the metadata file itself, as whoever may write it can."""
    path = Path(catalog.load_table("sales.orders").metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"] |= properties
    path.write_text(json.dumps(metadata))


def refusal_of(store: CatalogStore) -> str:
    found = store.get(KEY)
    assert isinstance(found, Found)
    return decode_pointer(found.body).refuses


def commit(store: CatalogStore) -> object:
    return store.put(KEY, encode(CommitRequest(1, None, [], [SET_A])), ABSENT)


def ran(code: str) -> bool:
    return code.partition(".")[0] in sys.modules


def test_a_commit_loads_no_code_that_a_tables_properties_name_for_its_files(
    catalog: SqlCatalog, code: str
) -> None:
    set_behind(catalog, **{IO: code})
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    assert refusal_of(store) == ""
    assert not isinstance(commit(store), Failure)
    assert not ran(code)


def test_a_table_whose_properties_name_code_for_its_locations_is_refused_and_the_code_not_loaded(
    catalog: SqlCatalog, code: str
) -> None:
    fresh, knowing = (CatalogStore({"prod": catalog}, timeout_seconds=5) for _ in range(2))
    assert refusal_of(knowing) == ""
    set_behind(catalog, **{PROVIDER: code})
    assert PROVIDER in refusal_of(fresh)
    # This client has read the table before the property was set.
    answer = commit(knowing)
    assert isinstance(answer, Failure)
    assert answer.rejected
    assert PROVIDER in answer.reason
    assert not ran(code)


@pytest.mark.parametrize("path", ["file://{}/out", "{}/wh/sales/orders/../out", "s3://other/out"])
def test_no_metadata_is_written_outside_of_a_tables_directory(
    catalog: SqlCatalog, tmp_path: Path, path: str
) -> None:
    set_behind(catalog, **{METADATA: path.format(tmp_path)})
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    assert METADATA in refusal_of(store)
    assert isinstance(commit(store), Failure)
    assert not list(tmp_path.rglob("out/*"))


def test_metadata_in_a_directory_below_the_tables_is_written(catalog: SqlCatalog) -> None:
    inside = f"{catalog.load_table('sales.orders').location()}/other"
    set_behind(catalog, **{METADATA: inside})
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    assert refusal_of(store) == ""
    assert not isinstance(commit(store), Failure)
    assert list(Path(inside.removeprefix("file://")).glob("*.metadata.json"))


def test_requests_go_where_the_catalogs_properties_say_and_not_where_the_tables_do(
    catalog: SqlCatalog,
) -> None:
    set_behind(catalog, **{"s3.endpoint": "https://of.the.table", "gcs.service.host": "x"})
    found = Catalogs({"prod": catalog}, 5)["prod"].load_table("sales.orders")
    assert isinstance(found.io, FileIO)
    assert "of.the.table" not in repr(found.io.properties)
    assert "gcs.service.host" not in found.io.properties


def test_a_callers_own_catalog_is_left_as_it_was(catalog: SqlCatalog) -> None:
    set_behind(catalog, **{"s3.endpoint": "https://of.the.table"})
    within = Catalogs({"prod": catalog}, 5)["prod"]
    assert within is not catalog
    assert isinstance(within, SqlCatalog)
    table: Table = catalog.load_table("sales.orders")
    assert table.io.properties["s3.endpoint"] == "https://of.the.table"
