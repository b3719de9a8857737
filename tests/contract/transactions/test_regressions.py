"""Bugs that a review of the protocol found, each by what a user would have seen."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import (
    ABSENT,
    Condition,
    Failure,
    Found,
    GetOutcome,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
)
from tests.builders import (
    Place,
    WrappedStore,
    accounts,
    fill,
    interrupted,
    is_entry,
    is_head,
    values,
)

QUICK = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.001)
#: Who creates where a table was dropped a moment ago, and knows that nobody writes there.
AT_ONCE = lv.Settings(reuse_after_seconds=0)


class _Closed(WrappedStore):
    """Turns down every PUT of a key for which ``closed`` is true."""

    def __init__(self, inner: Store, closed: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self.closed = closed

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self.closed(key):
            return Failure("turned down", ambiguous=False, permanent=True)
        return self.inner.put(key, body, condition)


@contextmanager
def unpublished(
    lake: lv.Lake, closed: Callable[[str], bool] = lambda key: "/_delta_log/" in key
) -> Iterator[None]:
    """Commits within the block are decided, and no log is written: as when their client dies."""
    inner = lake.runner.store
    store = _Closed(inner, closed)
    lake.runner.store = store
    try:
        yield
    finally:
        lake.runner.store = inner


class _Partition(WrappedStore):
    """Carries out the first PUT that ``last`` names, and is gone before it has answered."""

    def __init__(self, inner: Store, last: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self.last = last
        self.gone = False

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self.gone:
            return Failure("no route to the store", ambiguous=False)
        if self.last(key):
            self.inner.put(key, body, condition)
            self.gone = True
            return Failure("connection cut")
        return self.inner.put(key, body, condition)

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if self.gone:
            return Failure("no route to the store", ambiguous=False)
        return self.inner.get(key, known, byte_range)


def test_two_transactions_of_one_client_that_commit_by_log_entry_lose_no_update(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(3)})
    with quick_place.connect() as lake:
        first, second = lake.transaction(lv.Feature.R), lake.transaction(lv.Feature.R)
        first.update("bank", {"balance": "balance + 10"}, where="id = 1")
        second.update("bank", {"balance": "balance + 100"}, where="id = 1")
        second.commit()
        first.commit()
        rows = lake.snapshot().read("bank").to_pylist()
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 210), (2, 100)]


def test_a_foreign_commit_met_while_making_room_is_validated_against(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    settings = lv.Settings(max_pending=0)
    with local_place.connect() as first, local_place.connect(settings=settings) as lake:
        first.register("bank")
        with unpublished(first), first.transaction() as txn:
            txn.append("bank", [{"id": 50, "balance": 1}])
        second = lake.transaction()
        total = sum(second.read("bank")["balance"].to_pylist())
        second.update("bank", {"balance": total}, where="id = 1")
        # The commit publishes what is pending first, and there it loses a number.
        with (
            interrupted(lake, is_entry("bank"), lambda: local_place.delta("bank").delete("id = 2")),
            pytest.raises(lv.ConflictError),
        ):
            second.commit()
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 100), (50, 1)]


def _overwrites(txn: lv.Transaction) -> None:
    txn.overwrite("bank", [{"id": 1, "balance": -5}])


def _inserts(txn: lv.Transaction) -> None:
    txn.sql("insert into bank select * from debts")


def _updates_and_appends(txn: lv.Transaction) -> None:
    txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
    txn.append("bank", [{"id": 9, "balance": -9}])


@pytest.mark.parametrize("write", [_overwrites, _inserts, _updates_and_appends])
def test_rows_written_before_another_adds_a_constraint_must_satisfy_it(
    delta_place: Place, write: Callable[[lv.Transaction], None]
) -> None:
    fill(delta_place, {"bank": accounts(3), "debts": [{"id": 9, "balance": -9}]})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = lake.transaction()
        write(txn)
        with other.transaction() as rival:
            rival.alter("bank", add_constraints={"no_debts": "balance >= 0"})
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert min(other.snapshot().read("bank")["balance"].to_pylist()) == 100


def test_a_delete_is_not_redone_on_a_table_made_append_only(delta_place: Place) -> None:
    fill(delta_place, {"bank": accounts(3)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = lake.transaction()
        txn.delete("bank", where="id = 1")
        with other.transaction() as rival:
            rival.alter("bank", set_properties={"delta.appendOnly": "true"})
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert other.snapshot().read("bank").num_rows == 3


def test_values_of_a_new_mapped_column_survive_a_rival_that_adds_another(
    delta_place: Place,
) -> None:
    with delta_place.connect() as lake, delta_place.connect() as other:
        lake.create_table(
            "bank",
            pa.Table.from_pylist(accounts(1)),
            properties={"delta.columnMapping.mode": "name"},
        )

        def pay(txn: lv.Transaction) -> None:
            txn.alter("bank", add_columns=pa.schema([("paid", pa.int64())]))
            txn.append("bank", [{"id": 8, "balance": 8, "paid": 80}])

        first = lake.transaction()
        pay(first)
        with other.transaction() as rival:
            rival.alter("bank", add_columns=pa.schema([("noted", pa.int64())]))
        # The column gets another id now, and the file has it under the first one's name.
        with pytest.raises(lv.ConflictError):
            first.commit()
        lake.run(pay)
        rows = other.snapshot().read("bank", ["paid"], where="id = 8")
    assert rows.to_pylist() == [{"paid": 80}]


@pytest.mark.parametrize("operation", [0, 1])
def test_a_transaction_interrupted_in_its_redo_commits_nothing(
    quick_place: Place, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    fill(quick_place, {"bank": accounts(3), "shop": accounts(3)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        for table in ("bank", "shop"):
            txn.update(table, {"balance": "balance + 1"}, where="id = 1")
        with other.transaction() as rival:
            for table in ("bank", "shop"):
                rival.update(table, {"balance": "0"}, where="id = 2")

        engine = lake.context.engine
        update, calls = engine.update, itertools.count()

        def interrupted_update(*arguments: Any) -> Any:
            if next(calls) == operation:
                raise KeyboardInterrupt
            return update(*arguments)

        monkeypatch.setattr(engine, "update", interrupted_update)
        with pytest.raises(KeyboardInterrupt):
            txn.commit()
        with pytest.raises(lv.TransactionAborted):
            txn.commit()
        for table in ("bank", "shop"):
            assert other.snapshot().read(table, where="id = 1")["balance"].to_pylist() == [100]


def test_a_read_that_finds_new_metadata_after_an_append_ends_the_transaction(
    local_place: Place,
) -> None:
    local_place.write("bank", accounts(3))
    with local_place.connect() as lake:
        lake.register("bank")
        txn = lake.transaction()
        txn.append("bank", [{"id": 9, "balance": -9}])
        local_place.delta("bank").alter.add_constraint({"no_debts": "balance >= 0"})
        with pytest.raises(lv.ConflictError):
            txn.read("bank")
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert len(local_place.seen("bank")) == 3


def test_gc_keeps_the_source_of_a_merge_that_is_not_published_yet(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    source = pa.table({"id": list(range(10_000)), "balance": [7] * 10_000})
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.upsert("bank", source, "id")
        other.gc()
        local_place.delta("bank").delete("id = 2")
        assert other.recover().ok
    rows = local_place.seen("bank")
    assert len(rows) == 10_000
    assert {row["balance"] for row in rows} == {7}


def test_gc_leaves_the_files_of_a_table_that_was_let_go_to_its_new_lake(tmp_path: Path) -> None:
    old, new = Place(str(tmp_path / "old")), Place(str(tmp_path / "new"))
    old.write("bank", accounts(1))
    # No transaction is too young to be fenced.
    settings = lv.Settings(max_age_seconds=0)
    with old.connect(settings=settings) as loser, new.connect() as owner:
        loser.register("bank")
        loser.unregister("bank")
        owner.register("bank", old.uri("bank"))
        with unpublished(owner), owner.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
        loser.gc()
        assert owner.recover().ok
        assert sorted(owner.snapshot().read("bank")["id"].to_pylist()) == [0, 5]


def test_a_resumed_transaction_still_binds_its_idempotency_key(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction(idempotency_key="order 7")
        txn.append("bank", [{"id": 7, "balance": 7}])
        txn.save()
        resumed = other.resume(txn.id)
        resumed.commit()
        with (
            pytest.raises(lv.AlreadyCommitted) as raised,
            lake.transaction(idempotency_key="order 7") as again,
        ):
            again.append("bank", [{"id": 7, "balance": 7}])
        assert raised.value.txn_id == txn.id
        assert sorted(other.snapshot().read("bank")["id"].to_pylist()) == [0, 7]


def test_a_saved_transaction_whose_key_was_used_since_is_not_resumed(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction(idempotency_key="order 7")
        txn.append("bank", [{"id": 7, "balance": 7}])
        txn.save()
        with other.transaction(idempotency_key="order 7") as again:
            again.append("bank", [{"id": 7, "balance": 7}])
        with pytest.raises(lv.AlreadyCommitted):
            other.resume(txn.id)
        assert sorted(other.snapshot().read("bank")["id"].to_pylist()) == [0, 7]


def test_a_resumed_transaction_looks_for_its_files_before_it_commits(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    with local_place.connect() as lake, local_place.connect() as other:
        txn = lake.transaction()
        txn.append("bank", [{"id": 9, "balance": 9}])
        txn.save()
        # A week later VACUUM has run: no log entry names the files.
        for file in Path(local_place.uri("bank")).glob("lv-*.parquet"):
            file.unlink()
        with pytest.raises(lv.TransactionAborted):
            other.resume(txn.id).commit()
    assert len(local_place.seen("bank")) == 1


def test_a_revived_table_has_the_rows_decided_before_it_was_dropped(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
        other.drop_table("bank")
        other.register("bank")
        assert sorted(other.snapshot().read("bank")["id"].to_pylist()) == [0, 5]
    assert sorted(row["id"] for row in local_place.seen("bank")) == [0, 5]


def test_unregister_lets_a_table_go_after_reconciling_what_was_pending(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.update("bank", {"balance": "7"}, where="id = 1")
        local_place.delta("bank").delete("id = 2")
        other.unregister("bank")
        assert other.tables() == []
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]


def test_a_table_made_again_after_its_data_was_deleted_is_claimed_again(tmp_path: Path) -> None:
    place, elsewhere = Place(str(tmp_path / "lake")), Place(str(tmp_path / "other"))
    rows = pa.Table.from_pylist(accounts(2))
    with place.connect(settings=AT_ONCE) as lake, elsewhere.connect() as rival:
        lake.create_table("bank", rows)
        lake.drop_table("bank", delete_data=True)
        lake.create_table("bank", rows)
        with pytest.raises(lv.InvalidOperation, match="belongs to the lake at"):
            rival.register("bank", place.uri("bank"))


def test_adopting_a_moved_lake_waits_for_what_is_pending(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    place.write("bank", accounts(1))
    with place.connect() as lake:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
    moved = Place(str(tmp_path / "moved"))
    shutil.move(place.root, moved.root)
    settings = lv.Settings(publish_timeout_seconds=1e-6)
    with moved.connect(settings=settings) as lake:
        # One lost race, and the time that publishing may take is over.
        with (
            interrupted(lake, is_entry("bank"), lambda: moved.write("bank", accounts(1))),
            pytest.raises(lv.StoreError),
        ):
            lake.doctor(adopt=True)
        lake.doctor(adopt=True)
        assert sorted(lake.snapshot().read("bank")["id"].to_pylist()) == [0, 0, 9]


def test_a_head_that_was_set_back_is_refused(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    head = Path(local_place.root) / "_lakevilla" / "HEAD.json"
    with local_place.connect() as lake:
        lake.register("bank")
        copy = head.read_bytes()
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
    head.write_bytes(copy)
    with local_place.connect() as lake:
        with pytest.raises(lv.CorruptObject, match=r"HEAD\.json"):
            lake.snapshot().read("bank")
        # Its sequence would count as published already, and the rows be lost.
        with pytest.raises(lv.CorruptObject), lake.transaction() as txn:
            txn.append("bank", [{"id": 6, "balance": 6}])


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I])
def test_a_store_that_is_gone_at_the_commit_point_leaves_the_outcome_unknown(
    quick_place: Place, features: lv.Feature
) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect(settings=QUICK) as lake:
        txn = lake.transaction(features)
        txn.append("bank", [{"id": 5, "balance": 5}])
        inner = lake.runner.store
        entry = is_entry("bank")
        lake.runner.store = _Partition(inner, lambda key: is_head(key) or entry(key))
        with pytest.raises(lv.CommitOutcomeUnknown):
            txn.commit()
        lake.runner.store = inner
        assert sorted(lake.snapshot().read("bank")["id"].to_pylist()) == [0, 5]


def test_a_table_that_now_requires_an_unknown_feature_is_not_written(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    with local_place.connect() as lake:
        lake.register("bank")
        txn = lake.transaction()
        txn.append("bank", [{"id": 5, "balance": 5}])
        entry = Path(local_place.uri("bank")) / "_delta_log" / f"{1:020}.json"
        entry.write_text(
            '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["yonder"]}}\n'
        )
        with pytest.raises(lv.UnsupportedTableFeature, match="yonder"):
            txn.commit()


def test_a_merge_from_a_table_made_in_the_same_transaction_is_replayed(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.create_table("pay", pa.Table.from_pylist([{"id": 1, "balance": 5}]))
            txn.sql(
                "merge into bank using pay on bank.id = pay.id "
                "when matched then update set balance = pay.balance"
            )
        local_place.delta("bank").delete("id = 2")
        # The new table's log can't be written yet when the merge into the old one is replayed.
        with unpublished(other, is_entry("pay")):
            assert not other.recover().ok
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 5)]


def test_head_never_names_a_reconcile_commit_that_could_not_be_stored(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    with (
        local_place.connect() as lake,
        local_place.connect(settings=QUICK) as helper,
    ):
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.update("bank", {"balance": "7"}, where="id = 1")
        local_place.delta("bank").delete("id = 2")
        inner = helper.runner.store

        class Lossy(WrappedStore):
            def put(
                self, key: str, body: bytes, condition: Condition
            ) -> Stored | Refused | Failure:
                if key.startswith("_lakevilla/commits/"):
                    return Failure("no answer")
                return self.inner.put(key, body, condition)

        helper.runner.store = Lossy(inner)
        assert not helper.recover().ok
        helper.runner.store = inner
        assert helper.recover().ok
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]


def test_a_foreign_update_after_a_quiet_reconcile_is_still_reported(local_place: Place) -> None:
    local_place.write("bank", accounts(2))
    local_place.write("bank", [{"id": 2, "balance": 100}])
    with local_place.connect() as lake:
        lake.register("bank")
        txn = lake.transaction()
        txn.update("bank", {"balance": "7"}, where="id = 1")

        def compact() -> None:
            local_place.delta("bank").optimize.compact()

        def delete() -> None:
            local_place.delta("bank").delete("id = 2")

        entry = is_entry("bank")
        # First an OPTIMIZE, of which nobody need be told; then a DELETE of the same file.
        with (
            interrupted(lake, lambda key: entry(key) and key.endswith("3.json"), delete),
            interrupted(lake, lambda key: entry(key) and key.endswith("2.json"), compact),
            pytest.raises(lv.ForeignConflict) as raised,
        ):
            txn.commit()
        assert raised.value.result is not None
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]


def test_a_resumed_transaction_shows_no_table_newer_than_what_it_has_read(place: Place) -> None:
    fill(place, {"a": accounts(1), "b": accounts(1)})
    owner, rival = place.connect(), place.connect()
    owner.register({"a": "a", "b": "b"})
    txn = owner.transaction()
    txn.append("a", [{"id": 5, "balance": 5}])
    txn.read("a")
    txn.save()
    with rival.transaction() as other:
        other.update("a", {"balance": "0"}, where="id = 0")
        other.update("b", {"balance": "200"}, where="id = 0")
    resumed = place.connect().resume(txn.id)
    assert {"id": 0, "balance": 100} in resumed.read("a").to_pylist()
    with pytest.raises(lv.ConflictError, match="table b"):
        resumed.read("b")


def test_a_resumed_transaction_goes_on_when_nothing_it_has_read_was_changed(place: Place) -> None:
    fill(place, {"a": accounts(1), "b": accounts(1)})
    owner, rival = place.connect(), place.connect()
    owner.register({"a": "a", "b": "b"})
    txn = owner.transaction()
    txn.update("a", {"balance": "1"}, where="id = 0")
    txn.save()
    with rival.transaction() as other:
        other.update("b", {"balance": "200"}, where="id = 0")
    with place.connect().resume(txn.id) as resumed:
        assert resumed.read("b").to_pylist() == [{"id": 0, "balance": 200}]


def test_a_table_dropped_with_its_data_before_it_was_published_does_not_come_back(
    place: Place,
) -> None:
    creator, other = place.connect(), place.connect()
    with unpublished(creator):
        creator.create_table("t", pa.Table.from_pylist(accounts(2)))
    other.drop_table("t", delete_data=True)
    assert other.recover().findings == ()
    with pytest.raises(lv.TableNotFound):
        place.connect().table("t")
    place.connect(settings=AT_ONCE).create_table("t", pa.Table.from_pylist(accounts(1)))
    with other.snapshot() as state:
        assert state.read("t").num_rows == 1


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
def test_a_client_that_knows_the_log_of_a_dropped_table_does_not_take_it_for_its_successors(
    local_place: Place, write: str, known: int, length: int, features: lv.Feature
) -> None:
    maker, other = local_place.connect(settings=AT_ONCE), local_place.connect(settings=QUICK)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    for number in range(known):
        other.run(lambda txn, number=number: txn.append("t", [{"id": 10 + number, "balance": 0}]))
    assert other.snapshot().read("t").num_rows == 2 + known
    maker.drop_table("t", delete_data=True)
    maker.create_table("t", pa.Table.from_pylist(accounts(2)))
    for _ in range(length):  # till the new log is as long as the old one, and longer
        maker.run(lambda txn: txn.update("t", {"balance": "balance"}, "true"))
    other.run(WRITES[write], features=features)
    for client in (maker, other, local_place.connect()):
        assert sorted(client.snapshot().read("t")["id"].to_pylist()) == LEFT[write]
    assert sorted(row["id"] for row in local_place.seen("t")) == LEFT[write]
    assert local_place.connect().doctor().ok


def test_gc_deletes_a_page_that_no_head_names_and_none_that_one_does(place: Place) -> None:
    fill(place, {"bank": accounts(1)})
    lake = place.connect()
    for balance in range(130):
        with lake.transaction(wait="decided") as txn:
            txn.append("bank", [{"id": balance, "balance": balance}])
    lake.close()
    store = lake.runner.store
    pages = [info.key for info in listed(store, "_lakevilla/pages")]
    assert len(pages) == 1
    orphan = f"{pages[0].rsplit('-', 1)[0]}-00ff.json"
    body = store.get(pages[0])
    assert isinstance(body, Found)
    store.put(orphan, body.body, ABSENT)
    lake.gc()
    assert [info.key for info in listed(store, "_lakevilla/pages")] == pages
    assert lake.gc().findings == ()


def listed(store: Store, prefix: str) -> list[ObjectInfo]:
    found = store.list(prefix)
    assert isinstance(found, list)
    return found


def test_gc_leaves_a_table_alone_that_it_cannot_read_and_cleans_the_others(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    fill(place, {"sound": accounts(1), "torn": accounts(1)})
    lake = place.connect()
    lake.register({"sound": "sound", "torn": "torn"})
    (tmp_path / "torn" / "_delta_log" / f"{0:020}.json").write_text('{"add": {"path"')
    report = place.connect().gc()
    assert not report.ok
    assert [(finding.table, finding.kind) for finding in report.findings] == [
        ("torn", "corrupt_object")
    ]


def test_a_table_whose_log_is_cleaned_within_the_hour_is_listed_not_guessed(
    tmp_path: Path,
) -> None:
    place = Place(str(tmp_path))
    fill(place, {"bank": accounts(1)})
    lake = place.connect()
    lake.create_table(
        "short",
        pa.Table.from_pylist(accounts(1)),
        properties={"delta.logRetentionDuration": "interval 1 hours"},
    )
    for table, lists in (("bank", 0), ("short", 1)):
        lake.run(lambda txn, name=table: txn.read(name).num_rows, read_only=True)
        with lake.runner.requests.counting() as requests:
            lake.run(lambda txn, name=table: txn.read(name).num_rows, read_only=True)
        assert requests.list == lists, table


@pytest.mark.parametrize("published", [0, 2])
@pytest.mark.parametrize("write", WRITES)
def test_what_was_begun_on_a_table_is_not_committed_to_the_one_that_was_made_in_its_place(
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
    with pytest.raises(lv.ConflictError, match=r"t.* made anew"):
        txn.commit()
    for client in (maker, other, local_place.connect()):
        assert sorted(client.snapshot().read("t")["id"].to_pylist()) == [0, 1]
    assert local_place.connect().doctor().ok


def test_a_table_that_is_reached_by_a_link_is_one_table(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        os.symlink(f"{local_place.root}/t", f"{local_place.root}/link")
        with lake.transaction() as txn:
            txn.append("link", [{"id": 2}])
            txn.append("t", [{"id": 3}])
        assert txn.result is not None
        assert list(txn.result.versions or {}) == ["t"]
    assert values(local_place.delta("t").to_pyarrow_table()) == [1, 2, 3]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
def test_a_commit_by_a_table_s_own_entry_does_not_get_past_a_guard_that_came_meanwhile(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as slow, local_place.connect() as lake:
        lake.create_table("t", [{"id": 1, "balance": 100}])
        txn = slow.transaction(features)
        txn.update("t", {"balance": "balance - 10"}, where="id = 1")
        lake.guard("t")
        reader = lake.transaction()
        (row,) = reader.read("t").to_pylist()
        reader.update("t", {"balance": row["balance"] - 1}, where="id = 1")
        with pytest.raises(lv.ConflictError, match="guarded meanwhile"):
            txn.commit()
        reader.commit()
        # Run again, it goes through HEAD like all others.
        slow.run(
            lambda txn: txn.update("t", {"balance": "balance - 10"}, where="id = 1"),
            features=features,
        )
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1, "balance": 89}]
