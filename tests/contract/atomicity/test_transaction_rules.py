"""The rules of a transaction (design, section 12)."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.stores import interrupted, is_entry, is_head
from tests.support.tables import contents, kinds, values


def data_files(objects: Iterable[str]) -> set[str]:
    return {key for key in objects if key.endswith(".parquet")}


def test_a_transaction_reads_its_own_writes(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.append("orders", {"id": [5], "sku": ["fig"], "qty": [1]})
        assert values(txn.read("orders")) == [1, 2, 3, 4, 5]
        txn.update("orders", {"qty": "qty + 100"}, "id >= 4")
        assert values(txn.read("orders", where="qty > 100"), "qty") == [101, 140]
        txn.delete("orders", "id < 3")
        assert values(txn.read("orders")) == [3, 4, 5]
        txn.upsert("orders", {"id": [3, 6], "sku": ["kiwi", "kiwi"], "qty": [3, 6]}, "id")
        assert values(txn.sql("select qty from orders where sku = 'kiwi'"), "qty") == [3, 6]
        txn.merge("orders", {"n": [6]}, "source.n = target.id").when_matched_delete().execute()
        txn.overwrite("orders", {"id": [4], "qty": [1]}, where="id = 4")
        assert values(txn.read("orders")) == [3, 4, 5]
        txn.alter("orders", add_columns=pa.schema([("note", pa.string())]))
        txn.update("orders", {"note": "'seen'"}, "id = 3")
        assert txn.read("orders", ["note"], "id = 3")["note"].to_pylist() == ["seen"]
        txn.create_table("fresh", {"id": [1]})
        txn.append("fresh", {"id": [2]})
        assert values(txn.scan("fresh").read_all()) == [1, 2]
        txn.drop_table("stock")
        with pytest.raises(lv.LakeVillaError, match="stock"):
            txn.read("stock")
        # No other client sees the changes yet.
        assert values(lake.snapshot().read("orders")) == [1, 2, 3, 4]
    assert values(lake.snapshot().read("orders")) == [3, 4, 5]


def broken_off(schema: pa.Schema) -> pa.RecordBatchReader:
    def batches() -> Any:
        yield pa.record_batch({"id": pa.array([1], pa.int64())}, schema=schema)
        raise ValueError("the source broke off")

    return pa.RecordBatchReader.from_batches(schema, batches())


NOTE = pa.schema([("note", pa.string())])
IDS = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "features",
    [lv.Feature.R | lv.Feature.I, lv.Feature.R | lv.Feature.CT | lv.Feature.I],
    ids=["optimistic", "queued"],
)
def test_a_table_whose_rows_are_refused_is_not_created(
    lake: lv.Lake, format: Any, features: lv.Feature
) -> None:
    refused = (ValueError, lv.LakeVillaError, pa.ArrowException)
    with lake.transaction(features) as txn:
        txn.append("orders", {"id": [5], "qty": [1]})
        with pytest.raises(refused, match="broke off"):
            txn.create_table("fresh", broken_off(IDS), format=format)
        assert [type(operation).__name__ for operation in txn.operations] == ["Append"]
        with pytest.raises(lv.TableNotFound, match="fresh"):
            txn.read("fresh")
        # The name is still free, also for a different table.
        txn.create_table("fresh", {"name": ["x"]}, format=format)
        with pytest.raises(refused, match="broke off"):
            txn.create_table("other", broken_off(IDS), format=format)
    assert lake.snapshot().read("fresh").to_pylist() == [{"name": "x"}]
    assert values(lake.snapshot().read("orders")) == [1, 2, 3, 4, 5]
    assert "other" not in {table.name for table in lake.tables()}
    assert lake.doctor().ok


def test_creating_a_table_with_rows_needs_two_operations_and_is_refused_without_feature_r(
    lake: lv.Lake,
) -> None:
    with lake.transaction(lv.Feature.NONE) as txn:
        with pytest.raises(lv.InvalidOperation, match=r"Feature\.R"):
            txn.create_table("fresh", {"id": [1]})
        assert txn.operations == ()
    assert "fresh" not in {table.name for table in lake.tables()}


def test_a_transaction_is_bound_at_its_first_use_and_not_before(lake: lv.Lake) -> None:
    early, late = lake.transaction(), lake.transaction()
    early.read("orders")
    lake.run(lambda txn: txn.append("orders", {"id": [5], "qty": [1]}))
    assert early.read("orders").num_rows == 4
    assert late.read("orders").num_rows == 5
    early.abort()
    late.abort()


def test_a_verb_that_raises_has_no_effect_and_the_transaction_can_go_on(
    lake: lv.Lake, root: Path
) -> None:
    twice = pa.table({"id": [1, 1], "qty": [5, 6]})
    wider = {"id": [7], "qty": [-1], "note": ["x"]}
    bad = [
        lambda txn: txn.append("orders", {"id": [7, 8], "qty": [1, -1]}),
        lambda txn: txn.overwrite("orders", {"id": [7], "qty": [-1]}),
        lambda txn: txn.overwrite("orders", {"id": [7], "qty": [1]}, where="id = 8"),
        lambda txn: txn.update("orders", {"qty": "qty - 20"}, "true"),
        lambda txn: txn.update("orders", {"qty": "cast(sku as bigint)"}, "true"),
        lambda txn: txn.update("orders", {"qty": "qty % (id - 2)"}, "true"),
        lambda txn: txn.update("orders", {"qty": "9223372036854775807 + qty"}, "true"),
        lambda txn: txn.delete("orders", "nope = 1"),
        lambda txn: txn.upsert("orders", twice, "id"),
        lambda txn: (
            txn.merge("orders", twice, "source.id = target.id").when_matched_update_all().execute()
        ),
        lambda txn: txn.merge("orders", twice, "source.id = target.id").execute(),
        lambda txn: txn.merge("orders", twice, "source.id = target.id").when_matched_update(
            {"qty": "nope("}
        ),
        lambda txn: txn.sql("insert into orders select * from orders, orders"),
        lambda txn: txn.sql(
            "merge into orders using (select 1 as x) as s on x = nope when matched then delete"
        ),
        lambda txn: txn.alter("orders", add_constraints={"few": "qty < 20"}),
        # Verbs of several parts, of which the last is refused.
        lambda txn: txn.append("orders", wider, schema_mode="merge"),
        lambda txn: txn.overwrite("orders", wider, schema_mode="merge"),
        lambda txn: txn.overwrite("orders", wider, where="id = 7", schema_mode="merge"),
        lambda txn: txn.upsert("orders", {"id": [1, 9], "qty": [1, -1]}, "id"),
        lambda txn: (
            txn.merge("orders", {"n": [1, 9]}, "source.n = target.id")
            .when_matched_delete()
            .when_not_matched_insert({"id": "n", "qty": "-1"})
            .execute()
        ),
        lambda txn: txn.sql("insert into orders (id, qty) select id, qty - 10 from orders"),
        lambda txn: txn.alter("orders", add_columns=NOTE, add_constraints={"few": "qty < 20"}),
        lambda txn: txn.alter("orders", set_properties={"owner": "x"}, drop_constraints=["nope"]),
        lambda txn: txn.alter("orders", add_columns=NOTE, rename_columns={"qty": "count"}),
        lambda txn: txn.create_table("orders", {"id": [1]}),
        lambda txn: txn.create_table("new", {"id": [[]]}, partition_by="id"),
        lambda txn: txn.append("nowhere", {"id": [1]}),
    ]
    before = lake.snapshot().read("orders").sort_by("id")
    with lake.transaction() as txn:
        txn.append("stock", {"sku": ["fig"], "left": [5]})
        for verb in bad:
            with pytest.raises(lv.LakeVillaError):
                verb(txn)
            assert txn.read("orders").sort_by("id") == before
        assert [type(operation).__name__ for operation in txn.operations] == ["Append"]
    assert txn.result is not None
    assert set(txn.result.versions or {}) == {"stock"}
    assert lake.snapshot().read("orders").sort_by("id") == before
    assert lake.snapshot().read("stock").num_rows == 4


def test_after_a_conflict_nothing_can_commit_and_leaving_the_block_raises_again(
    shop: Place, lake: lv.Lake
) -> None:
    with shop.connect() as other:
        with pytest.raises(lv.ConflictError) as caught, lake.transaction() as txn:
            txn.read("orders", where="id = 1")
            txn.update("orders", {"qty": "1"}, "id = 1")
            other.run(lambda theirs: theirs.update("orders", {"qty": "77"}, "id = 1"))
            with pytest.raises(lv.ConflictError):
                txn.commit()
            for verb in (
                lambda: txn.read("stock"),
                lambda: txn.append("stock", {"sku": ["fig"]}),
                txn.commit,
                txn.save,
            ):
                with pytest.raises(lv.ConflictError):
                    verb()
    assert caught.value.txn_id == txn.id
    assert lake.snapshot().read("orders", where="id = 1")["qty"].to_pylist() == [77]


class Oops(BaseException):
    """An error that is no Exception, such as KeyboardInterrupt and SystemExit."""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, Oops])
def test_any_exception_undoes_the_transaction(
    lake: lv.Lake, root: Path, error: type[BaseException]
) -> None:
    before = contents(root)
    with pytest.raises(error), lake.transaction() as txn:
        txn.append("orders", {"id": [5], "qty": [1]})
        txn.update("orders", {"qty": "qty + 1"}, "true")
        txn.read("orders")  # the transaction's files are stored, so that the engine can read them
        assert data_files(contents(root)) > data_files(before)
        txn.append("stock", {"sku": ["fig"], "left": [5]})
        raise error
    assert txn.state == "aborted"
    assert txn.result is None
    assert contents(root) == before


def test_ctrl_c_between_two_requests_of_a_commit_deletes_stored_files(
    lake: lv.Lake, root: Path
) -> None:
    before = contents(root)

    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), interrupted(lake, is_commit, press):
        with lake.transaction() as txn:
            txn.append("orders", {"id": [5], "qty": [1]})
            txn.append("stock", {"sku": ["fig"], "left": [5]})
    assert txn.state == "aborted"
    left = {key for key in contents(root) if not key.startswith("_lakevilla/")}
    assert left == {key for key in before if not key.startswith("_lakevilla/")}


def is_commit(key: str) -> bool:
    return key.startswith("_lakevilla/commits/")


def test_a_commit_that_raises_at_the_end_of_a_block_leaves_no_file(
    lake: lv.Lake, root: Path
) -> None:
    before = contents(root)
    with pytest.raises(lv.InvalidOperation, match="execute"), lake.transaction() as txn:
        txn.update("orders", {"qty": "qty + 1"}, "true")
        txn.read("orders")
        txn.merge("orders", {"n": [1]}, "source.n = target.id").when_matched_delete()
    assert txn.state == "aborted"
    assert contents(root) == before


def test_verbs_raise_after_the_end_and_leaving_the_block_does_nothing(lake: lv.Lake) -> None:
    with lake.transaction() as committed:
        committed.append("orders", {"id": [5], "qty": [1]})
        committed.commit()
        again = lake.snapshot().version
    assert lake.snapshot().version == again
    with lake.transaction() as aborted:
        aborted.append("orders", {"id": [6], "qty": [1]})
        aborted.abort()
        aborted.abort()
    assert lake.snapshot().version == again
    for txn, state in ((committed, "committed"), (aborted, "aborted")):
        for verb in (
            lambda txn=txn: txn.read("orders"),
            lambda txn=txn: txn.scan("orders"),
            lambda txn=txn: txn.sql("select 1"),
            lambda txn=txn: txn.append("orders", {"id": [7], "qty": [1]}),
            lambda txn=txn: txn.overwrite("orders", {"id": [7], "qty": [1]}),
            lambda txn=txn: txn.update("orders", {"qty": "1"}, "true"),
            lambda txn=txn: txn.delete("orders", "true"),
            lambda txn=txn: txn.upsert("orders", {"id": [7], "qty": [1]}, "id"),
            lambda txn=txn: txn.merge("orders", {"id": [7]}, "source.id = target.id"),
            lambda txn=txn: txn.create_table("new", {"id": [1]}),
            lambda txn=txn: txn.drop_table("orders"),
            lambda txn=txn: txn.alter("orders", drop_constraints=["qty_positive"]),
            txn.save,
            txn.commit,
        ):
            with pytest.raises(lv.InvalidOperation, match=f"has {state}.*"):
                verb()
    assert values(lake.snapshot().read("orders")) == [1, 2, 3, 4, 5]


def test_a_merge_that_is_never_executed_makes_the_commit_raise(lake: lv.Lake) -> None:
    txn = lake.transaction()
    builder = txn.merge("orders", {"n": [1]}, "source.n = target.id").when_matched_delete()
    with pytest.raises(lv.InvalidOperation, match=r"execute\(\)"):
        txn.commit()
    assert builder.execute().rows_deleted == 1
    with pytest.raises(lv.InvalidOperation, match="executed already"):
        builder.execute()
    txn.commit()
    assert values(lake.snapshot().read("orders")) == [2, 3, 4]


def test_a_transaction_is_used_by_one_thread_at_a_time(lake: lv.Lake) -> None:
    txn = lake.transaction()
    inside, go_on = threading.Event(), threading.Event()

    def slowly() -> Any:
        inside.set()
        assert go_on.wait(30)
        yield pa.record_batch({"id": [5], "qty": [1]})

    schema = pa.schema([("id", pa.int64()), ("qty", pa.int64())])
    with ThreadPoolExecutor(1) as pool:
        stream = pa.RecordBatchReader.from_batches(schema, slowly())
        under_way = pool.submit(txn.append, "orders", stream)
        assert inside.wait(30)
        for verb in (lambda: txn.read("orders"), txn.commit, txn.abort, txn.save):
            with pytest.raises(lv.InvalidOperation, match="another thread"):
                verb()
        go_on.set()
        assert under_way.result().rows_inserted == 1
    # Threads may use the transaction one after the other.
    txn.commit()
    assert lake.snapshot().read("orders").num_rows == 5


def test_threads_can_share_a_lake(lake: lv.Lake) -> None:
    def work(number: int) -> None:
        lake.run(lambda txn: txn.append("orders", {"id": [100 + number], "qty": [1]}))
        one_less = {"left": '"left" - 1'}
        lake.run(lambda txn: txn.update("stock", one_less, "sku = 'apple'"), attempts=50)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))
    assert lake.snapshot().read("orders").num_rows == 12
    assert lake.snapshot().read("stock", where="sku = 'apple'")["left"].to_pylist() == [42]


def test_a_pickled_lake_has_the_same_arguments(lake: lv.Lake, shop: Place) -> None:
    copy = pickle.loads(pickle.dumps(lake))
    with copy:
        assert copy.root == lake.root
        copy.run(lambda txn: txn.append("orders", {"id": [5], "qty": [1]}))
    assert lake.snapshot().read("orders").num_rows == 5
    with shop.connect(settings=lv.Settings(max_redos=3)) as other:
        assert pickle.loads(pickle.dumps(other)).settings.max_redos == 3


def test_a_transaction_is_not_pickled(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="resume"):
        pickle.dumps(lake.transaction())


def test_a_forked_child_that_leaves_the_block_does_not_undo_its_parents_transaction(
    lake: lv.Lake, shop: Place
) -> None:
    staged = pa.table({"sku": ["fig"] * 10, "left": [1] * 10}).to_reader(max_chunksize=1)
    child = 0
    try:
        with lake.transaction() as txn:
            txn.append("stock", staged)  # a stream is stored before the verb returns
            child = os.fork()
            if child == 0:
                raise KeyboardInterrupt
            assert os.waitpid(child, 0)[1] == 0
    finally:
        if child == 0:
            os._exit(0)
    assert shop.delta("stock").to_pyarrow_table().num_rows == 13


def test_a_forked_child_can_neither_use_nor_commit_its_parents_transaction(
    lake: lv.Lake, shop: Place
) -> None:
    txn = lake.transaction()
    txn.append("stock", {"sku": ["fig"], "left": [1]})
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for verb in (txn.commit, txn.abort, lambda: txn.read("stock")):
                try:
                    verb()
                except lv.InvalidOperation:
                    refused += 1
        finally:
            os._exit(0 if refused == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    txn.commit()
    assert shop.delta("stock").to_pyarrow_table().num_rows == 4


def test_metadata_reaches_each_tables_history(lake: lv.Lake, shop: Place) -> None:
    with lake.transaction(metadata={"job": "nightly", "why": "naïve ✓"}) as txn:
        txn.append("orders", {"id": [5], "qty": [1]})
        txn.append("stock", {"sku": ["fig"], "left": [5]})
    for table in ("orders", "stock"):
        entry = shop.delta(table).history(1)[0]
        assert json.loads(entry["userMetadata"]) == {"job": "nightly", "why": "naïve ✓"}
        assert entry["txnId"] == txn.id


def test_events_and_the_logger_have_the_same_texts_with_the_transactions_id(
    shop: Place, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[lv.Event] = []

    def listen(event: lv.Event) -> None:
        events.append(event)
        raise RuntimeError("a listener's own trouble is not the transaction's")

    with shop.connect(on_event=listen) as lake, shop.connect() as other:
        with caplog.at_level(logging.INFO, "lakevilla"):
            with lake.transaction() as txn:
                txn.update("orders", {"qty": "qty + 1"}, "id = 1")
                other.run(lambda theirs: theirs.update("orders", {"qty": "qty + 1"}, "id = 2"))
    assert "redo" in kinds(events)
    told = {record.getMessage() for record in caplog.records if hasattr(record, "txn_id")}
    measured = ("phase", "transaction")  # only listeners get these
    assert {event.message for event in events if event.kind not in measured} <= told
    assert txn.id in {getattr(record, "txn_id", None) for record in caplog.records}
    assert shop.seen("orders")[0]["qty"] == 11


def test_a_decided_commit_is_published_in_the_background_and_close_waits_for_it(
    shop: Place,
) -> None:
    lake = shop.connect()
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go_on.wait(30)

    with interrupted(lake, is_entry("orders"), hold):
        with lake.transaction(wait="decided") as txn:
            txn.append("orders", {"id": [5], "qty": [1]})
            txn.append("stock", {"sku": ["fig"], "left": [5]})
        assert txn.result is not None
        assert txn.result.versions is None
        assert txn.result.global_version == lake.snapshot().version
        assert reached.wait(30)
        # Readers with LakeVilla see the decided commit; the log does not have it yet.
        assert lake.snapshot().read("orders").num_rows == 4
        assert len(shop.seen("orders")) == 3
        go_on.set()
        lake.close()
    assert len(shop.seen("orders")) == 4
    assert len(shop.seen("stock")) == 3


def test_the_result_of_a_commit_has_the_number_of_lost_races(lake: lv.Lake, shop: Place) -> None:
    with shop.connect() as other:

        def race() -> None:
            other.run(lambda txn: txn.append("stock", {"sku": ["fig"], "left": [5]}))

        with interrupted(lake, is_head, race), lake.transaction() as txn:
            txn.append("orders", {"id": [5], "qty": [1]})
    assert txn.result is not None
    assert txn.result.retries == 1
    assert txn.result.operations == 1


def test_a_read_only_transaction_writes_nothing(shop: Place) -> None:
    before = contents(shop.root)
    with shop.connect() as lake:
        with lake.transaction(read_only=True) as txn:
            assert txn.read("orders").num_rows == 3
        with lake.snapshot() as snapshot:
            assert snapshot.read("orders").num_rows == 3
            with pytest.raises(lv.InvalidOperation):
                snapshot.sql("delete from orders")
    assert contents(shop.root) == before


def test_run_returns_what_its_function_returns_and_does_not_repeat_other_errors(
    lake: lv.Lake,
) -> None:
    assert lake.run(lambda txn, a, b: txn.read("orders").num_rows + a + b, 10, 20) == 34
    calls = []

    def fails(txn: lv.Transaction) -> None:
        calls.append(txn.id)
        txn.append("orders", {"id": [5], "qty": [1]})
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        lake.run(fails)
    assert len(calls) == 1
    assert lake.snapshot().read("orders").num_rows == 4


def test_run_gives_up_after_its_attempts_with_the_conflict(lake: lv.Lake, shop: Place) -> None:
    calls = []
    with shop.connect(settings=lv.Settings(retry_base_seconds=0)) as other:

        def loses(txn: lv.Transaction) -> None:
            calls.append(txn.id)
            txn.read("orders", where="id = 1")
            txn.append("stock", {"sku": ["fig"], "left": [5]})
            other.run(lambda theirs: theirs.update("orders", {"qty": "qty + 1"}, "id = 1"))

        with shop.connect(settings=lv.Settings(retry_base_seconds=0)) as quick:
            with pytest.raises(lv.ConflictError):
                quick.run(loses, attempts=3)
    assert len(calls) == 3
    assert len(set(calls)) == 1  # a rerun keeps its id
    assert lake.snapshot().read("stock").num_rows == 3


def test_the_decorator_transactional_runs_its_function_in_a_transaction(lake: lv.Lake) -> None:
    @lake.transactional(metadata={"job": "transfer"})
    def transfer(txn: lv.Transaction, sku: str, *, count: int) -> int:
        """Take from stock."""
        params = {"sku": sku, "n": count}
        txn.update("stock", {"left": '"left" - :n'}, "sku = :sku", params=params)
        return txn.read("stock", where="sku = :sku", params={"sku": sku})["left"].to_pylist()[0]

    assert transfer("apple", count=8) == 42
    assert transfer.__name__ == "transfer"
    assert lake.snapshot().read("stock", where="sku = 'apple'")["left"].to_pylist() == [42]


def test_row_counts_that_were_read_and_change_in_a_redo_are_a_conflict(
    lake: lv.Lake, shop: Place
) -> None:
    with shop.connect() as other:

        def another_apple() -> None:
            other.run(lambda txn: txn.append("orders", {"id": [9], "sku": ["apple"], "qty": [1]}))

        with pytest.raises(lv.ConflictError), lake.transaction() as txn:
            assert txn.update("orders", {"qty": "qty + 1"}, "sku = 'apple'").rows_updated == 2
            another_apple()
        with lake.transaction() as txn:
            unseen = txn.update("orders", {"qty": "qty + 1"}, "sku = 'apple'")
            another_apple()
        assert unseen.rows_updated == 4


def test_an_aborted_transaction_leaves_no_file_that_was_stored_early(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path), settings=lv.Settings(in_memory_file_limit_bytes=0))
    lake.create_table("t", {"id": list(range(5)), "v": [0] * 5})
    before = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(ZeroDivisionError):
        with lake.transaction() as txn:
            txn.append("t", {"id": [9], "v": [9]})
            txn.update("t", {"v": "1"}, where="id = 2")
            txn.upsert("t", {"id": [3, 30], "v": [3, 3]}, "id")
            txn.delete("t", where="id = 4")
            assert len(list(tmp_path.rglob("*.parquet"))) > len(before)
            raise ZeroDivisionError
    assert sorted(tmp_path.rglob("*.parquet")) == before


@pytest.mark.parametrize(
    "error",
    [
        lv.ConflictError("another job was first"),
        lv.TransactionAborted("another job was ended"),
        lv.CommitOutcomeUnknown("another job's commit got no answer"),
        lv.RefNotFound("another job's branch is gone"),
    ],
)
def test_run_does_not_repeat_a_function_that_has_committed_the_transaction_itself(
    lake: lv.Lake, shop: Place, error: lv.LakeVillaError
) -> None:
    def commits_and_fails(txn: lv.Transaction) -> None:
        txn.append("orders", {"id": [5], "qty": [1]})
        txn.commit()
        raise error

    with pytest.raises(type(error), match="another job"):
        lake.run(commits_and_fails)
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5]
