"""LakeVilla stores a hash for each data file that it writes, and keeps it in every copy or ref."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from blake3 import blake3
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.formats.files import HASH_TAG
from tests.contract.integrity.damage import Objects, flipped
from tests.support.places import Place

#: So low that DuckDB writes files of only some hundred rows.
BY_COPY = 2000


def live(place: Place, table: str = "t") -> set[str]:
    """Return the keys of a table's files, as deltalake or pyiceberg list them."""
    if place.format == "iceberg":
        tasks = place.catalog().load_table(table).scan().plan_files()
        found = {task.file.file_path for task in tasks}
    else:
        found = set(place.delta(table).file_uris())
    return {Path(unquote(uri)).relative_to(place.root).as_posix() for uri in found}


def compared(place: Place, table: str = "t") -> set[str]:
    """Return the keys of the files whose damage a read with ``verify="on"`` finds."""
    objects, found = Objects(place), set[str]()
    for key in objects.keys(table):
        body = objects.body(key)
        with objects.holding(key, flipped(random.Random(1), body, [])):
            error = failure(place, table)
            if error is not None and "has the blake3" in error.message:
                assert (error.kind, error.key) == ("corrupt_object", key)
                found.add(key)
    return found


def failure(place: Place, table: str) -> lv.LakeVillaError | None:
    try:
        place.connect().read(table, verify="on")
    except lv.LakeVillaError as error:
        return error
    return None


def rows(count: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {"id": numbers, "part": [n % 2 for n in numbers], "x": [n * 7 for n in numbers]}
    )


CHANGES: dict[str, Callable[[lv.Lake], object]] = {
    "append": lambda lake: lake.run(lambda txn: txn.append("t", rows(3, 1000))),
    "append by COPY": lambda lake: lake.run(lambda txn: txn.append("t", rows(900, 1000))),
    "update": lambda lake: lake.run(lambda txn: txn.update("t", {"x": 0}, where="id = 3")),
    "delete": lambda lake: lake.run(lambda txn: txn.delete("t", where="id < 5")),
    "upsert": lambda lake: lake.run(lambda txn: txn.upsert("t", rows(4, 598), keys="id")),
    "overwrite": lambda lake: lake.run(lambda txn: txn.overwrite("t", rows(700))),
    "optimize": lambda lake: lake["t"].optimize(),
    "z-order": lambda lake: lake["t"].optimize(z_order_by=["x"]),
}


@pytest.fixture(params=["whole", "by day"])
def lake(request: pytest.FixtureRequest, shared_place: Place) -> lv.Lake:
    lake = shared_place.connect(settings=lv.Settings(in_memory_file_limit_bytes=BY_COPY))
    parts = ["part"] if request.param == "by day" else []
    lake.create_table("t", rows(600), partition_by=parts)
    return lake


@pytest.mark.parametrize("change", CHANGES)
def test_a_verified_read_finds_damage_in_every_file_that_a_verb_has_written(
    shared_place: Place, lake: lv.Lake, change: str
) -> None:
    lake.run(lambda txn: txn.append("t", rows(2, 5000)))
    CHANGES[change](lake)
    assert compared(shared_place) == live(shared_place)


def test_the_hash_stored_with_a_file_is_the_one_that_b3sum_prints(local_place: Place) -> None:
    lake = local_place.connect()
    lake.create_table("t", rows(5))
    entry = Path(local_place.root, "t/_delta_log", f"{1:020}.json")
    entry = entry if entry.exists() else entry.with_name(f"{0:020}.json")
    (add,) = [json.loads(line)["add"] for line in entry.read_text().splitlines() if '"add"' in line]
    body = Path(local_place.root, "t", unquote(add["path"])).read_bytes()
    assert add["tags"] == {HASH_TAG: blake3(body).hexdigest()[:32]}


def test_files_keep_their_hashes_through_branches_merges_and_rollbacks(shared_place: Place) -> None:
    lake = shared_place.connect()
    lake.create_table("t", rows(600))
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(lambda txn: txn.append("t", rows(3, 700)))
    etl.run(lambda txn: txn.append("t", rows(4, 800)))
    before = lake.history()[0].version
    lake.merge("etl")
    assert compared(shared_place) == live(shared_place)
    assert len(live(shared_place)) == 3
    merged = lake.history()[0].version
    lake.rollback(before)
    lake.rollback(merged)
    assert compared(shared_place) == live(shared_place)
    assert len(live(shared_place)) == 3


def test_reads_of_a_tag_and_a_branch_are_verified_by_the_hashes(quick_place: Place) -> None:
    lake = quick_place.connect()
    lake.create_table("t", rows(600))
    lake.tag("closing")
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(lambda txn: txn.append("t", rows(3, 700)))
    objects = Objects(quick_place)
    base, new = sorted(objects.keys("t"), key=lambda key: "/b/" in key)
    for key, states in ((base, [lake.on("closing"), lake]), (new, [etl])):
        with objects.holding(key, flipped(random.Random(1), objects.body(key), [])):
            for state in states:
                with pytest.raises(lv.CorruptObject, match="has the blake3"):
                    state.read("t", verify="on")
            (finding,) = lake.verify(at="etl").findings[:-1]
            assert finding.key == key, "also what the branch has of the lake"
    assert etl.read("t", verify="on").num_rows == 603


def test_commits_of_deltalake_keep_the_hashes_of_files_that_lakevilla_wrote(
    local_place: Place,
) -> None:
    """deltalake's delete, clean-up and restore name our files again; its own files have no hash."""
    lake = local_place.connect()
    lake.create_table("t", rows(5))
    lake.run(lambda txn: txn.append("t", rows(5, 100)))
    table = DeltaTable(local_place.uri("t"))
    version = table.version()
    table.delete("id = 100")
    table.create_checkpoint()
    table.cleanup_metadata()
    ours = {key for key in live(local_place) if "/lv-" in f"/{key}"}
    assert len(ours) == 1
    assert compared(local_place) == ours
    table.restore(version)
    assert compared(local_place) == live(local_place)
    assert DeltaTable(local_place.uri("t")).to_pyarrow_table().num_rows == 10


def test_no_hash_is_stored_if_the_setting_is_off(local_place: Place) -> None:
    lake = local_place.connect(settings=lv.Settings(hash_files=False))
    lake.create_table("t", rows(5))
    log = Path(local_place.root, "t/_delta_log").glob("*.json")
    assert not any(HASH_TAG in entry.read_text() for entry in log)
    assert compared(local_place) == set()
