"""A read in a lake with a damaged object gives the right rows or an error, never other rows.

One more test runs `verify`, upkeep and queries of the catalog on each kind of store.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla_testing.histories.plan import small_limits
from tests.contract.integrity.damage import Objects, cut, filled, flipped
from tests.contract.integrity.test_verify import furnished, kinds_of_objects
from tests.support.places import Place
from tests.support.tables import bag

READS = [("t", None), ("u", None), ("t", "closing"), ("t", "etl"), ("u", "etl")]


@pytest.fixture(autouse=True)
def _many_objects() -> Iterator[None]:
    """Lower the limits, so that a lake of few commits has leaves and pages."""
    with small_limits(True):
        yield


def read(place: Place) -> list[object]:
    """Return, for each read by a new client, its rows or the kind of its error."""
    found: list[object] = []
    for table, ref in READS:
        try:
            with place.connect() as lake:
                at = lake if ref is None else lake.on(ref)
                found.append(bag(at.read(table, verify="on")))
        except lv.LakeVillaError as error:
            found.append(error.kind)
    return found


@pytest.mark.night
def test_a_verified_read_in_a_lake_with_a_damaged_object_gives_right_rows_or_an_error(
    quick_place: Place,
) -> None:
    lake = furnished(quick_place)
    lake.gc()
    whole = read(quick_place)
    assert not [one for one in whole if isinstance(one, str)]
    objects, draw = Objects(quick_place), random.Random(77)
    kinds = kinds_of_objects(objects)
    # These objects have no hash: a truncated one is found as its JSON is incomplete.
    unhashed = {
        "head": ["_lakevilla/HEAD.json"],
        "head of a branch": objects.keys("_lakevilla/branches", "/HEAD.json"),
        "log": [key for table in "tu" for key in objects.keys(table, ".json")],
    }
    damaged = 0
    for trial in range(24):
        kind = list({**kinds, **unhashed})[trial % (len(kinds) + len(unhashed))]
        key = draw.choice({**kinds, **unhashed}[kind])
        damage = cut if kind in unhashed or draw.random() < 0.3 else flipped
        with objects.holding(key, damage(draw, objects.body(key), [])):
            for (table, ref), found, right in zip(READS, read(quick_place), whole, strict=True):
                assert isinstance(found, str) or found == right, (trial, kind, key, table, ref)
                damaged += isinstance(found, str)
    assert damaged > 5
    assert read(quick_place) == whole


def test_a_verified_scan_concurrently_with_a_vacuum_gives_all_rows_or_an_error(
    quick_place: Place,
) -> None:
    lake = filled(quick_place)
    whole = bag(lake.read("t"))
    with lake.snapshot(verify="on") as state:
        reader = iter(state.scan("t"))
        batches = [next(reader)]
        with quick_place.connect() as other:
            other.run(lambda txn: txn.delete("t", where="true"))
            other["t"].vacuum(0, dry_run=False, enforce_retention_duration=False)
        try:
            batches += list(reader)
        except (lv.VersionNotFound, lv.CorruptObject):
            batches = []  # the scan raised an error instead of wrong rows
        assert not batches or bag(pa.Table.from_batches(batches)) == whole
    assert lake.read("t", verify="on").num_rows == 0


def test_verification_upkeep_and_the_catalog_work_on_each_store(place: Place) -> None:
    lake = filled(place)
    lake.tag("closing")
    lake.branch("etl")
    before = bag(lake.read("t"))
    lake.on("etl").run(lambda txn: txn.append("t", [{"id": 500, "text": "etl"}]))
    on_branch = bag(lake.on("etl").read("t"))
    lake.run(lambda txn: txn.delete("t", where="id < 100"))
    assert lake.keep("closing").ok
    assert lake.keep("etl").ok
    lake["t"].vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert bag(lake.on("closing").read("t", verify="on")) == before
    assert bag(lake.on("etl").read("t", verify="on")) == on_branch
    uri = lake.on("closing").export("t", "exports/t", copy=True)
    with place.connect() as other:
        other.register("exported", uri)
        assert bag(other.read("exported")) == before
        other.unregister("exported")
    assert lake.query("/t/files").num_rows >= 1
    assert lake.sql("SELECT count(*) AS n FROM lakevilla_refs").to_pylist() == [{"n": 2}]
    assert lake.verify().ok
    objects, draw = Objects(place), random.Random(3)
    live = set(lake.sql("SELECT path FROM lakevilla_files").to_pydict()["path"])
    key = next(key for key in objects.keys("t") if key.removeprefix("t/") in live)
    with objects.holding(key, flipped(draw, objects.body(key), [])):
        assert [one.key for one in lake.verify().findings if one.severity == "error"] == [key]
        with pytest.raises(lv.CorruptObject):
            lake.read("t", verify="on")
    assert lake.maintain().ok
    assert lake.verify().ok
