"""A table that is dropped with its data and recreated, beside clients that knew the old one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from bench.size.many_tables import newest
from lakevilla.global_log import leaves
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.table_log import known_tail
from tests.support.inside import executor, inside
from tests.support.places import Place
from tests.support.tables import accounts, values

QUICK = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.001)
#: For a client that recreates a dropped table at once, as it knows that nobody writes to it.
AT_ONCE = lv.Settings(reuse_after_seconds=0)

#: Size limits of HEAD's table map and of a leaf: all tables in HEAD, or many leaves.
SIZES = {"whole": (64 * 1024, 64 * 1024), "leaves": (200, 700)}


@pytest.fixture(params=SIZES)
def place(
    request: pytest.FixtureRequest, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> Place:
    inline, leaf = SIZES[request.param]
    monkeypatch.setattr(leaves, "INLINE_BYTES", inline)
    monkeypatch.setattr(leaves, "LEAF_BYTES", leaf)
    with local_place.connect() as lake:
        for number in range(8):
            lake.create_table(f"a{number}", accounts(1))
        for table in ("s9", "t", "u"):
            lake.create_table(table, accounts(2))
    return local_place


def make_anew(place: Place, *, length: int = 0, wait: str = "published") -> None:
    """Drop ``t`` with its data and recreate it with rows 100, 101 and ``length`` more."""
    lake = place.connect(settings=AT_ONCE)
    lake.drop_table("t", delete_data=True)
    if wait == "decided":
        inside(lake).client._soon = lambda program: None
    with lake.transaction(wait=wait) as txn:  # type: ignore[arg-type]
        txn.create_table("t", rows_of(100, 101))
    for number in range(length):
        lake.run(lambda txn, number=number: txn.append("t", rows_of(102 + number)))


def rows_of(*ids: int) -> list[dict[str, int]]:
    return [{"id": number, "balance": 0} for number in ids]


def stands(place: Place, *ids: int) -> None:
    """Assert that all clients read these rows, and that HEAD has the id of the table in the log."""
    with place.connect() as lake:
        assert sorted(lake.snapshot().read("t")["id"].to_pylist()) == list(ids)
        assert lake.recover().ok
        assert lake.doctor().ok
        assert lake.snapshot().read("t").num_rows == len(ids)
        head = newest(lake)
        inside(lake).run(load_tables(head, ["t"]))
        metadata = place.delta("t").metadata()
        assert head.tables["t"].table_id == str(metadata.id)
    assert sorted(row["id"] for row in place.seen("t")) == list(ids)


@pytest.mark.parametrize("wait", ["published", "decided"])
@pytest.mark.parametrize("known", [0, 2])
def test_a_client_with_a_cached_old_log_resumes_a_transaction_saved_on_the_new_table(
    place: Place, known: int, wait: str
) -> None:
    maker, other = place.connect(), place.connect()
    for number in range(known):
        maker.run(lambda txn, number=number: txn.append("t", rows_of(10 + number)))
    other.snapshot().read("t")
    make_anew(place, wait=wait)
    txn = maker.transaction()
    assert sorted(txn.read("t")["id"].to_pylist()) == [100, 101]
    txn.update("u", {"balance": "5"}, "true")
    txn.save()
    result = other.resume(txn.id).commit()
    assert list(result.versions or {}) == ["u"]
    stands(place, 100, 101)


@pytest.mark.parametrize("length", [0, 4])
def test_resuming_a_transaction_whose_table_was_recreated_conflicts(
    place: Place, length: int
) -> None:
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("t", rows_of(10)))
        txn = lake.transaction()
        txn.update("t", {"balance": "balance + 1"}, "true")
        txn.save()
    make_anew(place, length=length)
    with place.connect() as other:
        with pytest.raises(lv.ConflictError, match=r"table t, .* created again.*abort") as caught:
            other.resume(txn.id)
        assert caught.value.table == "t"
        other.abort(txn.id)
        assert other.transactions() == []
    stands(place, 100, 101, *range(102, 102 + length))


def test_head_never_gets_the_id_of_another_table(place: Place) -> None:
    """The write of HEAD checks a table's id again, though validation found no change."""
    with place.connect() as lake:
        old = lake.transaction()
        old.read("t")
        before = executor(old).state.work.tables["t"].snapshot
        make_anew(place)
        txn = lake.transaction()
        txn.read("t")
        txn.update("u", {"balance": "5"}, "true")
        executor(txn).state.work.tables["t"].snapshot = before
        with pytest.raises(lv.ConflictError, match=r"table t: .* created again"):
            txn.commit()
        old.abort()
    stands(place, 100, 101)


FIRST_USES: dict[str, Callable[[lv.Transaction], object]] = {
    "read": lambda txn: txn.read("t", where="id > 50"),
    "sql": lambda txn: txn.sql("SELECT * FROM t"),
    "update": lambda txn: txn.update("t", {"balance": "0"}, "id > 50"),
    "append": lambda txn: txn.append("t", rows_of(200)),
}


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize("use", FIRST_USES)
def test_a_transaction_can_use_a_recreated_table_whose_leaf_its_client_lacks_in_a_newer_head(
    place: Place, use: str, length: int
) -> None:
    maker, other = place.connect(), place.connect()
    other.snapshot().read("t")
    make_anew(place, length=length)
    txn = other.transaction()
    txn.read("a0")
    maker.run(lambda txn: txn.update("s9", {"balance": "7"}, "true"))
    other.snapshot().read("a5")
    assert known_tail(inside(other).context, "t") is None, "without its leaf nobody can tell"
    FIRST_USES[use](txn)
    txn.commit()
    stands(place, 100, 101, *range(102, 102 + length), *([200] if use == "append" else []))


@pytest.mark.parametrize("use", FIRST_USES)
@pytest.mark.parametrize(("before", "length"), [("another", 0), ("another", 3), ("both", 1)])
@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.R | lv.Feature.CT])
def test_a_transaction_whose_table_is_recreated_under_it_runs_again_at_most_once(
    place: Place, features: lv.Feature, before: str, use: str, length: int
) -> None:
    attempts: list[int] = []
    with place.connect(settings=QUICK) as lake:
        lake.run(lambda txn: txn.append("t", rows_of(10)))

        def work(txn: lv.Transaction) -> None:
            attempts.append(1)
            txn.read("u")
            if before == "both":
                txn.read("t", where="id = 1")
            if len(attempts) == 1:
                make_anew(place, length=length)
            FIRST_USES[use](txn)
            txn.append("u", rows_of(7))

        lake.run(work, features=features)
    assert len(attempts) <= 2
    stands(place, 100, 101, *range(102, 102 + length), *([200] if use == "append" else []))
    with place.connect() as lake:
        assert lake.snapshot().read("u").num_rows == 3


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
def test_an_update_without_isolation_of_a_recreated_table_is_run_again(
    place: Place, features: lv.Feature
) -> None:
    with place.connect(settings=QUICK) as lake:
        lake.run(lambda txn: txn.append("t", rows_of(10)))
        make_anew(place)
        lake.run(lambda txn: txn.update("t", {"balance": "3"}, "true"), features=features)
        assert lake.snapshot().read("t")["balance"].to_pylist() == [3, 3]


def test_a_snapshot_reads_a_recreated_table_only_if_it_fits_the_tables_read_before(
    place: Place,
) -> None:
    with place.connect() as lake:
        snapshot = lake.snapshot()
        assert snapshot.read("u").num_rows == 2
        torn = lake.snapshot()
        assert torn.read("u").num_rows == 2
        with lake.snapshot() as seen:
            assert seen.read("t").num_rows == 2
            make_anew(place)
            assert sorted(snapshot.read("t")["id"].to_pylist()) == [100, 101]
            with pytest.raises(lv.ConflictError, match="take a new snapshot"):
                seen.read("t", where="id = 1")
        lake.run(lambda txn: txn.append("u", rows_of(9)))
        with pytest.raises(lv.ConflictError, match="take a new snapshot"):
            torn.read("t")
        assert sorted(lake.snapshot().read("t")["id"].to_pylist()) == [100, 101]


def test_a_scan_of_a_table_that_is_recreated_meanwhile_conflicts(local_place: Place) -> None:
    many = pa.table({"id": pa.array(range(200_000), pa.int64())})
    with local_place.connect() as lake:
        lake.create_table("t", many)
        for _ in range(11):  # more files than a scan reads ahead
            lake.run(lambda txn: txn.append("t", many))
        txn = lake.transaction()
        rows = txn.scan("t")
        assert rows.read_next_batch().num_rows > 0
        make_anew(local_place)
        with pytest.raises(lv.ConflictError, match="created again"):
            rows.read_all()
        assert txn.state == "failed"


def test_a_read_of_a_vacuumed_file_names_the_file_and_is_no_conflict(place: Place) -> None:
    with place.connect() as lake:
        snapshot = lake.snapshot()
        snapshot.read("t", where="id = 0")
        for file in Path(place.root, "t").glob("*.parquet"):
            file.unlink()
        with pytest.raises(lv.StoreError, match="vacuumed"):
            snapshot.read("t")
        with pytest.raises(lv.StoreError, match=r"data file .*parquet is missing; .* vacuumed"):
            snapshot.sql("SELECT id FROM t")


def test_a_table_that_another_client_replaces_stays_the_table_in_head(
    local_place: Place,
) -> None:
    """REPLACE writes a new id in a further entry; an append begun before is published after it."""
    with local_place.connect() as lake:
        lake.create_table("t", rows_of(1))
        txn = lake.transaction()
        txn.append("t", rows_of(2))
        log = Path(local_place.root, "t", "_delta_log")
        actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
        (metadata,) = [one["metaData"] for one in actions if "metaData" in one]
        replaced = {"metaData": {**metadata, "id": str(uuid.uuid4())}}
        info = {"commitInfo": {"timestamp": 1, "operation": "CREATE OR REPLACE TABLE"}}
        body = "".join(json.dumps(one) + "\n" for one in (info, replaced))
        (log / f"{1:020}.json").write_text(body)
        txn.commit()
    stands(local_place, 1, 2)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
def test_no_checkpoint_of_a_dropped_table_is_written_into_the_log_of_its_successor(
    local_place: Place, features: lv.Feature
) -> None:
    properties = {"delta.checkpointInterval": "5"}
    maker, other = local_place.connect(settings=AT_ONCE), local_place.connect()
    maker.create_table("t", rows_of(1), properties=properties)
    for number in range(4):
        other.run(lambda txn, number=number: txn.append("t", rows_of(number)))
    maker.drop_table("t", delete_data=True)
    maker.create_table("t", rows_of(100, 101))
    other.run(lambda txn: txn.append("t", rows_of(7)), features=features)
    other.close()
    there = os.listdir(Path(local_place.root, "t", "_delta_log"))
    assert not [name for name in there if "checkpoint" in name]
    # The append found the old log gone, and was run again on the new one.
    assert values(maker.snapshot().read("t")) == [7, 100, 101]


def test_a_checkpoint_of_a_table_that_still_exists_is_written(local_place: Place) -> None:
    for features in (lv.Feature.R, lv.Feature.R | lv.Feature.I):
        name = f"t{features.value}"
        with local_place.connect() as lake:
            properties = {"delta.checkpointInterval": "5"}
            lake.create_table(name, rows_of(1), properties=properties)
            for number in range(5):
                lake.run(
                    lambda txn, name=name, number=number: txn.append(name, rows_of(number)),
                    features=features,
                )
        assert Path(local_place.root, name, "_delta_log", "_last_checkpoint").exists()


WRITES: dict[str, Callable[[lv.Transaction], object]] = {
    "append": lambda txn: txn.append("t", [{"id": 99, "balance": 0}]),
    "overwrite": lambda txn: txn.overwrite("t", [{"id": 99, "balance": 0}]),
    "delete": lambda txn: txn.delete("t", "true"),
    "alter": lambda txn: txn.alter("t", add_columns=pa.schema([("z", pa.int64())])),
}


LEFT = {"append": [0, 1, 99], "overwrite": [99], "delete": [], "alter": [0, 1]}


@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.R | lv.Feature.CT])
@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("known", [0, 1, 3])
@pytest.mark.parametrize("write", WRITES)
def test_a_client_does_not_take_its_cached_log_of_a_dropped_table_for_its_successors(
    local_place: Place, write: str, known: int, length: int, features: lv.Feature
) -> None:
    maker, other = local_place.connect(settings=AT_ONCE), local_place.connect(settings=QUICK)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    for number in range(known):
        other.run(lambda txn, number=number: txn.append("t", [{"id": 10 + number, "balance": 0}]))
    assert other.snapshot().read("t").num_rows == 2 + known
    maker.drop_table("t", delete_data=True)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    for _ in range(length):  # up to the length of the old log, and beyond
        maker.run(lambda txn: txn.update("t", {"balance": "balance"}, "true"))
    other.run(WRITES[write], features=features)
    for client in (maker, other, local_place.connect()):
        assert sorted(client.snapshot().read("t")["id"].to_pylist()) == LEFT[write]
    assert sorted(row["id"] for row in local_place.seen("t")) == LEFT[write]
    assert local_place.connect().doctor().ok


@pytest.mark.parametrize("published", [0, 2])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_dropped_table_is_not_committed_to_its_recreated_successor(
    local_place: Place, write: str, published: int
) -> None:
    maker, other = local_place.connect(settings=AT_ONCE), local_place.connect(settings=QUICK)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    for number in range(published):
        other.run(lambda txn, number=number: txn.append("t", [{"id": 10 + number, "balance": 0}]))
    txn = other.transaction()
    WRITES[write](txn)
    maker.drop_table("t", delete_data=True)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    with pytest.raises(lv.ConflictError, match=r"t.* created again"):
        txn.commit()
    for client in (maker, other, local_place.connect()):
        assert sorted(client.snapshot().read("t")["id"].to_pylist()) == [0, 1]
    assert local_place.connect().doctor().ok
