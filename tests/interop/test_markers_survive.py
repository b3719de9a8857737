"""Keep live markers through the maintenance of other clients; no reader sees them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.markers.marker import Marker, marker_key
from lakevilla.markers.repo import free, list_markers, load_markers, place
from lakevilla.sublogs.record import Access
from tests.interop.delta.readers import duckdb_rows
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import in_order

TABLE = "sales/orders"
ROWS = [{"id": number, "day": f"2024-01-0{number % 3 + 1}"} for number in range(12)]
ACCESSES: tuple[Access, ...] = ("read", "append", "write")

Maintenance = Callable[[DeltaTable], object]


def vacuum(table: DeltaTable, **options: Any) -> list[str]:
    return table.vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, **options
    )


def clean_up(table: DeltaTable) -> None:
    table.create_checkpoint()
    table.cleanup_metadata()


MAINTENANCE: dict[str, Maintenance] = {
    "vacuum": vacuum,
    "full vacuum": lambda table: vacuum(table, full=True),
    "checkpoint": lambda table: table.create_checkpoint(),
    "log clean-up": clean_up,
    "log compaction": lambda table: table.compact_logs(0, table.version()),
    "optimize": lambda table: (table.optimize.compact(), vacuum(table)),
    "z-order": lambda table: (table.optimize.z_order(["id"]), vacuum(table, full=True)),
    "delete": lambda table: (table.delete("id > 100"), vacuum(table)),
    "restore": lambda table: (table.restore(table.version() - 1), table.delete("id >= 12")),
    "repair": lambda table: table.repair(),
}


@pytest.fixture(params=["local", "remote"])
def location(request: pytest.FixtureRequest) -> Place:
    """Return a partitioned table of several versions, with files that VACUUM may delete."""
    found = make_place(request.param, request)
    options: dict[str, Any] = {"partition_by": ["day"]}
    first = {"configuration": {"delta.logRetentionDuration": "interval 0 seconds"}}
    found.write(TABLE, ROWS[:3], **options, **first)
    for start in range(3, 12, 3):
        found.write(TABLE, ROWS[start : start + 3], **options)
    found.write(TABLE, [{"id": 50, "day": "2024-01-01"}])
    found.delta(TABLE).delete("id = 50")
    return found


def place_markers(lake: lv.Lake) -> dict[str, bytes]:
    """Place one marker by each kind of access, each of its own transaction; return their bodies by
    key.
    """
    ids = inside(lake).context.ids
    for access in ACCESSES:
        listed = inside(lake).run(list_markers(TABLE))
        inside(lake).run(place(TABLE, ids.txn_id(), access, ids, listed))
    bodies = marker_bodies(lake)
    assert list(bodies) == [marker_key(TABLE, number) for number in (1, 2, 3)]
    return bodies


def marker_bodies(lake: lv.Lake) -> dict[str, bytes]:
    run = inside(lake).run
    found = run(load_markers(TABLE, run(list_markers(TABLE)), {}))
    assert [m.access for _, m in found if isinstance(m, Marker)] == list(ACCESSES)
    keys = [marker_key(TABLE, listed.number) for listed, _ in found]
    return {key: inside(lake).store.get(key).body for key in keys}


def make_old(place: Place) -> None:
    """Set modification times back, by which clean-up goes; a local disk allows that."""
    if place.root.startswith("/"):
        for path in Path(place.root).rglob("*"):
            os.utime(path, (time.time() - 90 * 86_400,) * 2)


@pytest.mark.parametrize("name", MAINTENANCE)
def test_markers_survive_the_maintenance_of_deltalake(location: Place, name: str) -> None:
    with location.connect() as lake:
        markers = place_markers(lake)
        make_old(location)
        MAINTENANCE[name](location.delta(TABLE))
        assert marker_bodies(lake) == markers
        assert location.seen(TABLE) == in_order(pa.Table.from_pylist(ROWS))


def test_vacuum_and_clean_up_delete_files_of_the_table(location: Place) -> None:
    """Otherwise the survival of markers would show nothing."""
    old = "_delta_log/00000000000000000000.json"
    with location.connect() as lake:
        store = inside(lake).store
        place_markers(lake)
        make_old(location)
        before = [info.key for info in store.list(TABLE)]  # type: ignore[union-attr]
        table = location.delta(TABLE)
        assert vacuum(table, full=True) != []
        clean_up(table)
        after = [info.key for info in store.list(TABLE)]  # type: ignore[union-attr]
        gone = {key.removeprefix(f"{TABLE}/") for key in set(before) - set(after)}
        assert any(key.endswith(".parquet") for key in gone)
        assert old in gone or not location.root.startswith("/")
        assert not any("_lakevilla" in key for key in gone)


def test_no_reader_sees_a_marker(location: Place) -> None:
    before = seen(location)
    with location.connect() as lake:
        place_markers(lake)
        assert seen(location) == before
        location.delta(TABLE).create_checkpoint()
        assert seen(location) == before
        assert in_order(lake.snapshot().read(TABLE)) == before["rows"]
        inside(lake).run(free((TABLE, number) for number in (1, 2, 3)))
        assert inside(lake).run(list_markers(TABLE)) == []


def seen(location: Place) -> dict[str, Any]:
    """Return the rows, on which the readers agree, and the files that each lists."""
    table = location.delta(TABLE)
    rows = in_order(table.to_pyarrow_table())
    dataset = table.to_pyarrow_dataset()
    assert in_order(dataset.to_table()) == rows == in_order(pa.Table.from_pylist(ROWS))
    found: dict[str, Any] = {
        "rows": rows,
        "version": table.version(),
        "files": sorted(table.file_uris()),
        "dataset": sorted(dataset.files),
    }
    if location.root.startswith("/"):
        uri = location.uri(TABLE)
        assert in_order(pa.Table.from_pylist(duckdb_rows(uri))) == rows
        # A reader of a plain directory of Parquet files, without a log, skips names with `_`, too.
        bare = pyarrow.dataset.dataset(uri, format="parquet", partitioning="hive")
        found["bare"] = sorted(bare.files)
        assert not any("_lakevilla" in path for path in found["bare"])
    return found
