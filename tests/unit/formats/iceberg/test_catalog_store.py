"""Pointers to the metadata of a catalog's tables, read as objects of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import Capability, RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitStateUnknownException,
    ForbiddenError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    ValidationException,
)
from pyiceberg.table import Table

from lakevilla.errors import CorruptObject
from lakevilla.formats.iceberg.catalog.object_store_catalog import CommitRequest
from lakevilla.formats.iceberg.catalog.store import CatalogStore, _refusal
from lakevilla.store.base import ABSENT, Failure, Found, Match, Stored
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


class Answer:
    """An answer of a server, as ``requests`` has it."""

    def __init__(self, status: int) -> None:
        self.status_code = status


def answered(kind: type[Exception], status: int) -> Exception:
    error, cause = kind("why"), OSError()
    cause.response = Answer(status)  # type: ignore[attr-defined]
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "rejected"),
    [
        (NotImplementedError("Writing V3"), True),
        (ValidationException("no"), True),
        (answered(BadRequestError, 400), True),
        (answered(RESTError, 422), True),
        (answered(NotImplementedError, 501), True),
        (answered(RESTError, 404), False),
        (answered(ForbiddenError, 403), False),
        (answered(ServerError, 507), False),
        (answered(ServiceUnavailableError, 503), False),
        (CommitStateUnknownException("lost"), False),
        (ConnectionError("lost"), False),
    ],
)
def test_a_rejection_of_a_commit_is_told_from_other_failures(
    catalog: Answering, monkeypatch: pytest.MonkeyPatch, error: Exception, rejected: bool
) -> None:
    def refuse(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(catalog, "commit_table", refuse)
    store = CatalogStore({"prod": catalog}, timeout_seconds=5)
    found = store.get(KEY)
    assert isinstance(found, Found)
    answer = store.put(KEY, encode(CommitRequest(1, None, [], [])), Match(found.token))
    assert isinstance(answer, Failure)
    assert answer.rejected == rejected
    assert not (rejected and (answer.ambiguous or not answer.permanent))


def test_a_server_without_the_endpoint_for_commits_is_told_with_the_pointer(
    catalog: Answering,
) -> None:
    server = RestCatalog.__new__(RestCatalog)
    loaded = catalog.load_table("sales.orders")
    loaded.catalog = server
    server._supported_endpoints = {Capability.V1_LOAD_TABLE}
    assert "no endpoint for commits" in _refusal(loaded)
    server._supported_endpoints.add(Capability.V1_UPDATE_TABLE)
    assert _refusal(loaded) == ""
