"""Reads with ``verify="on"``: a data file that differs from what was written gives no row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.formats.files import HASH_TAG
from lakevilla.ids import txn_in
from lakevilla.store import content
from lakevilla.store.base import Failure, Found, GetOutcome, Token, WrappedStore
from tests.contract.integrity.damage import DAMAGES, Objects, filled, flipped
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import bag

Read = Callable[[lv.Lake], pa.Table]

READS: list[Read] = [
    lambda lake: lake.read("t", verify="on"),
    lambda lake: lake.scan("t", ["id"], "id >= 0", verify="on").read_all(),
    lambda lake: lake.snapshot(verify="on").read("t"),
    lambda lake: lake.snapshot(verify="on").sql(
        "SELECT count(*) AS n FROM t JOIN u ON t.id >= u.id"
    ),
]


@pytest.fixture(autouse=True, params=["in parts", "whole"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have small files, too, read in several rounds of several requests."""
    if request.param == "in parts":
        monkeypatch.setattr(content, "_PART_BYTES", 100)
        monkeypatch.setattr(content, "ROUND_BYTES", 250)


def test_a_verified_read_finds_and_names_each_of_a_hundred_random_damages(
    quick_place: Place,
) -> None:
    lake = filled(quick_place)
    whole = [read(lake) for read in READS]
    objects, draw = Objects(quick_place), random.Random(23)
    keys = objects.keys("t")
    bodies = [objects.body(key) for key in keys]
    for trial in range(17):  # the test has six combinations of parameters
        damage, key = DAMAGES[trial % len(DAMAGES)], draw.choice(keys)
        with objects.holding(key, damage(draw, objects.body(key), bodies)):
            for read in READS:
                with pytest.raises(lv.CorruptObject) as caught:
                    read(lake)
                error = caught.value
                assert (error.key, error.table) == (key, "t"), f"trial {trial}"
                assert f"written by transaction {txn_in(key)}" in error.message
    assert [bag(read(lake)) for read in READS] == [bag(rows) for rows in whole]


def test_a_verified_read_takes_its_rows_from_the_bytes_that_it_hashed(
    request: pytest.FixtureRequest,
) -> None:
    """The store returns the right bytes of each file once, and wrong bytes from then on."""
    place = Place(f"memory://{request.node.nodeid.replace('/', '-')}")
    whole = bag(filled(place).read("t"))

    class Fading(WrappedStore):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner)
            self.given: Counter[str] = Counter()

        def get(
            self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
        ) -> GetOutcome | Failure:
            found = self.inner.get(key, known, byte_range)
            if not key.endswith(".parquet") or not isinstance(found, Found):
                return found
            if self.given[key] < found.size:
                self.given[key] += len(found.body)
                return found
            return Found(bytes(255 - byte for byte in found.body), found.token, found.size)

    reads: list[Callable[[lv.Snapshot], pa.Table]] = [
        lambda state: state.read("t"),
        lambda state: state.sql("SELECT id, text FROM t"),
    ]
    for read in reads:
        lake = place.connect()  # a new client: DuckDB has none of the files cached
        inside(lake).store = Fading(inside(lake).store)
        assert bag(read(lake.snapshot(verify="on"))) == whole


def test_a_verified_read_returns_the_rows_of_files_without_a_hash(delta_place: Place) -> None:
    lake = filled(delta_place, hash_files=False)
    objects = Objects(delta_place)
    assert HASH_TAG.encode() not in b"".join(
        objects.body(key) for key in objects.keys("t/_delta_log", ".json")
    )
    assert bag(lake.read("t", verify="on")) == bag(lake.read("t"))


def test_a_verified_read_returns_rows_of_files_with_and_without_hashes(
    local_place: Place,
) -> None:
    lake = filled(local_place)
    write_deltalake(local_place.uri("t"), pa.table({"id": [7], "text": ["z"]}), mode="append")
    assert lake.read("t", verify="on").num_rows == 31
    objects = Objects(local_place)
    ours = next(key for key in objects.keys("t") if txn_in(key) is not None)
    with (
        objects.holding(ours, flipped(random.Random(1), objects.body(ours), [])),
        pytest.raises(lv.CorruptObject, match="has the blake3"),
    ):
        lake.read("t", verify="on")


def test_a_verified_read_names_a_missing_file(quick_place: Place) -> None:
    lake = filled(quick_place)
    objects = Objects(quick_place)
    key = objects.keys("t")[2]
    objects.store.delete(key)
    for read in READS:
        with pytest.raises(
            lv.CorruptObject, match="is missing although the table names it"
        ) as caught:
            read(lake)
        assert (caught.value.key, caught.value.table) == (key, "t")


@pytest.mark.parametrize("by", ["lakevilla", "deltalake"])
def test_checkpoints_keep_the_hashes_of_files(local_place: Place, by: str) -> None:
    """Once the log entries before a checkpoint are deleted, only the checkpoint has the hashes."""
    lake = filled(local_place)
    if by == "deltalake":
        DeltaTable(local_place.uri("t")).create_checkpoint()
    for number in range(6 if by == "lakevilla" else 0):
        lake.run(lambda txn, n=number: txn.append("t", [{"id": n, "text": "z"}]))
    lake.close()
    objects = Objects(local_place)
    (checkpoint,) = objects.keys("t/_delta_log", ".checkpoint.parquet")
    for entry in objects.keys("t/_delta_log", ".json"):
        if entry < checkpoint:
            objects.store.delete(entry)
    for key in objects.keys("t"):
        if key == checkpoint:
            continue
        with (
            objects.holding(key, flipped(random.Random(1), objects.body(key), [])),
            pytest.raises(lv.CorruptObject, match="has the blake3"),
        ):
            local_place.connect().read("t", verify="on")


@pytest.mark.parametrize("verify", ["ON", True, None, "yes"])
def test_invalid_values_of_verify_are_refused_with_the_allowed_ones(
    local_place: Place, verify: Any
) -> None:
    lake = filled(local_place)
    with pytest.raises(lv.InvalidOperation, match="verify must be one of off, on"):
        lake.snapshot(verify=verify)
