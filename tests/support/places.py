"""Places for the lakes of tests: in memory, in a directory, on a server; of either format."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.fixtures.servers import Server
from tests.support.inside import inside
from tests.support.stores import Closed, is_entry
from tests.support.tables import Row, add, in_order


@dataclass(frozen=True)
class Place:
    """A lake's root and the options that reach it; picklable, for tests with processes."""

    root: str
    storage_options: dict[str, str] = field(default_factory=dict)
    format: Literal["delta", "iceberg"] = "delta"

    def connect(self, **options: Any) -> lv.Lake:
        """Connect a new client, which shares no cache with other clients."""
        return lv.connect(self.root, storage_options=self.storage_options or None, **options)

    @property
    def seen_by_others(self) -> bool:
        """Whether clients without LakeVilla can reach the place."""
        return not self.root.startswith("memory:")

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def write(self, table: str, rows: pa.Table | Sequence[Row], **options: Any) -> None:
        """Create a table or append to it as another client: deltalake, or pyiceberg."""
        data = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        if self.format == "iceberg":
            identifier = tuple(table.split("/"))
            self.catalog().create_table_if_not_exists(identifier, data.schema).append(data)
            return
        options = {"mode": "append", **options}
        write_deltalake(
            self.uri(table), data, storage_options=self.storage_options or None, **options
        )

    def delta(self, table: str, version: int | None = None) -> DeltaTable:
        """Return the table as deltalake opens it now."""
        return DeltaTable(
            self.uri(table), version=version, storage_options=self.storage_options or None
        )

    def catalog(self) -> ObjectStoreCatalog:
        """Return the place's Iceberg tables as a catalog of pyiceberg."""
        return ObjectStoreCatalog("tests", warehouse=self.root)

    def seen(self, table: str, version: int | None = None) -> list[dict[str, Any]]:
        """Return the rows that another client reads."""
        if self.format == "iceberg":
            assert version is None, "pyiceberg knows snapshots, not versions"
            opened = self.catalog().load_table(tuple(table.split("/")))
            return in_order(opened.scan().to_arrow())
        return in_order(self.delta(table, version).to_pyarrow_table())


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    """Make a new place for a lake: ``memory``, ``local``, ``remote``, or ``iceberg``.

    An ``iceberg`` place is local, and its tables are made as Iceberg tables unless a test says
    otherwise.
    """
    if kind == "iceberg":
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        for owner in (lv.Lake, lv.Transaction):
            verb = inspect.unwrap(owner.create_table)
            patch.setitem(verb.__kwdefaults__, "format", "iceberg")
        return Place(str(request.getfixturevalue("tmp_path") / "lake"), format="iceberg")
    if kind == "memory" and request.config.getoption("--server") is None:
        return Place(f"memory://{request.node.nodeid.replace('/', '-')}")
    if kind == "local":
        return Place(str(request.getfixturevalue("tmp_path") / "lake"))
    # The quickest server, if none is chosen: tests of the store itself run on each of them.
    server: Server = request.getfixturevalue("chosen_server")
    return Place(server.new_root(), server.storage_options)


def skip_iceberg(request: pytest.FixtureRequest) -> None:
    """Skip a test of features that only Delta tables have."""
    if "iceberg" in request.node.callspec.id:
        pytest.skip("of Delta tables alone")


def skip_constraints(request: pytest.FixtureRequest) -> None:
    """Skip a test that adds a constraint to an Iceberg table: Iceberg has no constraints."""
    case = request.node.callspec.id
    if "iceberg" in case and "constraint" in case:
        pytest.skip("Iceberg has no constraints")


def fill(place: Place, tables: Mapping[str, Sequence[Row]]) -> None:
    """Make tables: by another client if one can reach the place, else in one transaction."""
    if place.seen_by_others:
        for name, rows in tables.items():
            place.write(name, rows)
        return
    with place.connect() as lake, lake.transaction() as txn:
        for name, rows in tables.items():
            txn.create_table(name, pa.Table.from_pylist(list(rows)))


def decide_and_leave(place: Place) -> str:
    """Commit a change of both tables that its owner can't publish in ``bank``; return its id."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        with lake.transaction() as txn:
            add(txn, 1, 5)
            txn.append("other", [{"id": 8, "balance": 8}])
        assert txn.result is not None
        assert txn.result.versions == {"bank": None, "other": 1}
    return txn.id
