"""Saving, resuming and aborting transactions, recovery and gc across processes."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.turns import LazySave
from lakevilla.api.lake import Lake
from lakevilla.clock import SystemClock
from lakevilla.global_log.head import overfull
from lakevilla.store.backends.local import LocalStore
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Later, interrupted, is_entry, is_head
from tests.support.tables import contents, kinds, values

OLD = lv.Settings(max_age_seconds=0)
HEAD = "_lakevilla/HEAD.json"


class Gone(BaseException):
    """The client dies: none of its code runs any more."""


def die() -> None:
    raise Gone


def dies(place: Place, where: Callable[[str], bool], body: Callable[[lv.Transaction], Any]) -> str:
    """Run a transaction whose client dies before its first PUT of such a key; return its id."""
    client = place.connect()
    txn = client.transaction()
    body(txn)
    with pytest.raises(Gone), interrupted(client, where, die):
        txn.commit()
    return txn.id


def both(txn: lv.Transaction) -> None:
    txn.append("orders", {"id": [5], "qty": [5]})
    txn.update("stock", {"left": '"left" - 5'}, "sku = 'apple'")


def state(place: Place) -> tuple[bool, bool]:
    """Return which half of ``both`` the logs show."""
    ordered = any(row["id"] == 5 for row in place.seen("orders"))
    taken = any(row["left"] == 45 for row in place.seen("stock"))
    return ordered, taken


# ---------------------------------------------------------------- save and resume


def _save_and_die(root: str, pipe: Any) -> None:
    lake = lv.connect(root)
    txn = lake.transaction(metadata={"by": "the first"})
    seen = txn.read("orders", where="id = 1")
    txn.update("stock", {"left": '"left" - 5'}, f"sku = '{seen['sku'][0]}'")
    txn.append("orders", {"id": [5], "qty": [5]})
    txn.save()
    txn.append("orders", {"id": [6], "qty": [6]})  # this operation is not saved
    pipe.send(txn.id)


def test_a_saved_transaction_is_resumed_and_committed_by_another_process(
    lake: lv.Lake, shop: Place
) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_save_and_die, args=(shop.root, there))
    process.start()
    txn_id = here.recv()
    process.join()
    assert [f.txn_id for f in lake.doctor().findings if f.kind == "saved"] == [txn_id]
    with lake.resume(txn_id) as txn:
        assert txn.id == txn_id
        assert values(txn.read("orders")) == [1, 2, 3, 4, 5]
        txn.append("orders", {"id": [7], "qty": [7]})
    assert txn.result is not None
    assert txn.result.id == txn_id
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5, 7]
    assert state(shop) == (True, True)
    with pytest.raises(lv.AlreadyCommitted) as caught:
        lake.resume(txn_id)
    assert caught.value.result is not None
    assert caught.value.result.global_version == txn.result.global_version
    assert lake.outcome(txn_id).state == "committed"
    assert [f for f in lake.doctor().findings if f.kind == "saved"] == []


def test_a_resumed_transaction_conflicts_with_changes_to_rows_read_before_the_save(
    lake: lv.Lake, shop: Place
) -> None:
    txn = lake.transaction()
    txn.read("orders", where="id = 1")
    txn.append("stock", {"sku": ["fig"], "left": [5]})
    txn.save()
    lake.run(lambda other: other.update("orders", {"qty": "99"}, "id = 1"))
    with shop.connect() as second, pytest.raises(lv.ConflictError):
        second.resume(txn.id).commit()
    assert len(shop.seen("stock")) == 3


def test_a_resumed_transaction_redoes_operations_in_conflict(lake: lv.Lake, shop: Place) -> None:
    txn = lake.transaction()
    txn.update("orders", {"qty": "qty + 1"}, "true")
    txn.save()
    lake.run(lambda other: other.append("orders", {"id": [5], "qty": [5]}))
    with shop.connect() as second:
        second.resume(txn.id).commit()
    assert [row["qty"] for row in shop.seen("orders")] == [11, 21, 31, 41, 6]


def test_each_operation_is_saved_if_requested(lake: lv.Lake, shop: Place) -> None:
    txn = lake.transaction(durability="every_op")
    txn.append("orders", {"id": [5], "qty": [5]})
    txn.append("orders", {"id": [6], "qty": [6]})
    with shop.connect() as second, second.resume(txn.id) as resumed:
        assert len(resumed.operations) == 2
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5, 6]


def test_a_save_includes_created_and_dropped_tables(lake: lv.Lake, shop: Place) -> None:
    txn = lake.transaction(durability="every_op")
    txn.create_table("fresh", {"id": [1]})
    with shop.connect() as second, second.resume(txn.id) as resumed:
        assert resumed.read("fresh").num_rows == 1
        resumed.abort()
    txn = lake.transaction(durability="every_op")
    txn.drop_table("stock")
    with shop.connect() as second, second.resume(txn.id):
        pass
    assert {table.name for table in lake.tables()} == {"orders"}


@pytest.mark.parametrize(
    ("statement", "made"),
    [
        ("CREATE TABLE fresh AS SELECT id, CAST('a' AS INT) AS bad FROM orders", []),
        ("CREATE TABLE fresh (id INT, CHECK (nothing > 0))", []),
        ("CREATE TABLE fresh AS SELECT id FROM orders", ["Create", "Insert"]),
    ],
)
def test_a_statement_of_several_operations_is_saved_wholly_or_not_at_all(
    lake: lv.Lake, shop: Place, statement: str, made: list[str]
) -> None:
    session = lake.session(durability="every_op")
    session.sql("BEGIN")
    session.sql("INSERT INTO orders (id, qty) VALUES (5, 5)")
    txn = session._transaction
    assert txn is not None
    with nullcontext() if made else pytest.raises(lv.InvalidOperation):
        session.sql(statement)
    with shop.connect() as second, second.resume(txn.id) as resumed:
        assert [type(one).__name__ for one in resumed.operations] == ["Insert", *made]
        resumed.abort()


def test_the_saving_thread_saves_no_half_statement(shop: Place) -> None:
    lake = shop.connect(settings=lv.Settings(save_interval_seconds=1e-6))
    txn = lake.transaction()
    executor = txn._executor
    with executor.as_one():
        txn.append("orders", {"id": [5], "qty": [5]})
        executor.client.run(LazySave(executor).renew())
        assert executor.state.claims.saved is None
    assert executor.state.claims.saved is not None
    assert executor.state.claims.saved.operations == 1
    txn.abort()


def test_a_merge_from_data_in_memory_is_redone_by_the_process_that_resumes_it(
    lake: lv.Lake, shop: Place
) -> None:
    big = pa.table({"id": range(20_000), "qty": range(1, 20_001)})
    txn = lake.transaction()
    merge = txn.merge("orders", big, "source.id = target.id")
    merge.when_matched_update({"qty": "target.qty + source.qty"}).execute()
    txn.save()
    lake.run(lambda other: other.append("orders", {"id": [5], "qty": [5]}))
    with shop.connect() as second:
        second.resume(txn.id).commit()
    assert [row["qty"] for row in shop.seen("orders")] == [12, 23, 34, 45, 11]


@pytest.mark.parametrize("first", ["owner", "resumer"])
def test_only_one_of_owner_and_resumer_commits(lake: lv.Lake, shop: Place, first: str) -> None:
    owner = lake.transaction()
    both(owner)
    owner.save()
    with shop.connect() as other:
        resumer = other.resume(owner.id)
        winner, loser = (owner, resumer) if first == "owner" else (resumer, owner)
        winner.commit()
        with pytest.raises((lv.AlreadyCommitted, lv.TransactionAborted)):
            loser.commit()
    assert state(shop) == (True, True)
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5]
    assert lake.outcome(owner.id).state == "committed"


@pytest.mark.parametrize("moment", ["commit-object", "head"])
def test_only_the_resumer_commits_if_it_does_so_right_before_the_owners_commit_point(
    lake: lv.Lake, shop: Place, moment: str
) -> None:
    where = is_head if moment == "head" else lambda key: key.startswith("_lakevilla/commits/")
    owner = lake.transaction()
    both(owner)
    owner.save()
    owner.append("orders", {"id": [6], "qty": [6]})
    with shop.connect() as other:
        with interrupted(lake, where, lambda: other.resume(owner.id).commit()):
            with pytest.raises((lv.AlreadyCommitted, lv.TransactionAborted)):
                owner.commit()
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5]
    assert state(shop) == (True, True)


def test_only_one_of_two_resumers_commits(lake: lv.Lake, shop: Place) -> None:
    txn = lake.transaction()
    both(txn)
    txn.save()
    with shop.connect() as one, shop.connect() as two:
        first, second = one.resume(txn.id), two.resume(txn.id)
        with interrupted(one, is_head, second.commit):
            with pytest.raises((lv.AlreadyCommitted, lv.TransactionAborted)):
                first.commit()
        # The owner that saved the transaction can't commit any more either.
        with pytest.raises((lv.AlreadyCommitted, lv.TransactionAborted)):
            txn.save()
            txn.commit()
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5]
    assert state(shop) == (True, True)


def test_only_a_saved_transaction_can_be_resumed(lake: lv.Lake) -> None:
    txn = lake.transaction()
    txn.append("orders", {"id": [5], "qty": [5]})
    with pytest.raises(lv.TransactionNotFound, match=txn.id):
        lake.resume(txn.id)
    txn.save()
    txn.abort()
    with pytest.raises((lv.TransactionNotFound, lv.TransactionAborted)):
        lake.resume(txn.id)


# ----------------------------------------------------------- abort and outcome


def test_an_aborted_transaction_of_another_client_can_never_commit(
    lake: lv.Lake, shop: Place
) -> None:
    events: list[lv.Event] = []
    txn = lake.transaction()
    both(txn)
    txn.save()
    with shop.connect(on_event=events.append) as operator:
        operator.abort(txn.id)
        operator.abort(txn.id)
        assert operator.outcome(txn.id) == lv.Outcome("aborted")
        with pytest.raises(lv.TransactionAborted):
            operator.resume(txn.id)
    assert "abort" in kinds(events)
    with pytest.raises(lv.TransactionAborted):
        txn.commit()
    assert state(shop) == (False, False)
    assert lake.outcome(txn.id).state == "aborted"


def test_a_committed_transaction_cannot_be_aborted(lake: lv.Lake, shop: Place) -> None:
    with lake.transaction() as txn:
        both(txn)
    with shop.connect() as operator, pytest.raises(lv.InvalidOperation, match="has committed"):
        operator.abort(txn.id)
    assert lake.outcome(txn.id).result == txn.result or lake.outcome(txn.id).state == "committed"


def test_a_request_for_the_outcome_aborts_an_undecided_transaction(
    lake: lv.Lake, shop: Place
) -> None:
    txn = lake.transaction()
    both(txn)
    with shop.connect() as other:
        with interrupted(lake, is_head, lambda: other.outcome(txn.id)):
            with pytest.raises(lv.TransactionAborted):
                txn.commit()
        assert other.outcome(txn.id).state == "aborted"
    assert state(shop) == (False, False)


def test_the_outcome_of_an_unknown_transaction_is_aborted_and_stays_so(lake: lv.Lake) -> None:
    unknown = lake.transaction().id
    assert lake.outcome(unknown).state == "aborted"
    assert lake.outcome(unknown).state == "aborted"


# -------------------------------------------------------------------- recovery


def test_recover_publishes_a_decided_transaction_of_a_dead_client(
    lake: lv.Lake, shop: Place
) -> None:
    txn_id = dies(shop, is_entry("stock"), both)
    assert state(shop) != (True, True)
    report = lake.doctor()
    assert not report.ok
    assert {(f.kind, f.table) for f in report.findings} >= {("unpublished", "stock")}
    # Readers with LakeVilla see the whole transaction already.
    assert values(lake.snapshot().read("orders")) == [1, 2, 3, 4, 5]
    first = lake.recover()
    assert first.ok
    assert {f.txn_id for f in first.findings} == {txn_id}
    assert state(shop) == (True, True)
    before = contents(shop.root)
    assert lake.recover() == lv.Report(True)
    assert contents(shop.root) == before
    assert lake.doctor() == lv.Report(True)
    assert lake.outcome(txn_id).state == "committed"


def test_the_next_writer_publishes_decided_commits_of_a_dead_client(
    lake: lv.Lake, shop: Place
) -> None:
    dies(shop, is_entry("stock"), both)
    lake.run(lambda txn: txn.append("stock", {"sku": ["fig"], "left": [1]}))
    lake.run(lambda txn: txn.append("orders", {"id": [6], "qty": [1]}))
    assert state(shop) == (True, True)
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5, 6]


# -------------------------------------------------------------------------- gc


def without_notes(found: dict[str, bytes]) -> dict[str, bytes]:
    """Remove gc's own objects: copies of HEAD, and the object with the time."""
    notes = ("/recent/", "/time.json")
    return {key: body for key, body in found.items() if not any(note in key for note in notes)}


def test_gc_deletes_objects_of_dead_clients_and_no_object_in_use(
    lake: lv.Lake, shop: Place
) -> None:
    whole = contents(shop.root)
    dies(shop, is_head, both)
    saved = lake.transaction()
    saved.append("orders", {"id": [8], "qty": [1]})
    saved.save()
    orphans = {k for k in contents(shop.root) if k not in whole}
    assert {key.split("/")[0] for key in orphans} == {"_lakevilla", "orders", "stock"}
    # No object is old enough yet.
    assert lake.gc().findings == ()
    with shop.connect(settings=OLD) as late:
        # HEAD set back by one commit would look the same: the user confirms that it was not.
        late.recover(confirm_head=True)
        before = contents(shop.root)
        told = late.gc(dry_run=True)
        assert contents(shop.root) == before
        assert {f.key for f in told.findings} == orphans
        done = late.gc()
        assert {f.key for f in done.findings} == orphans
        left = without_notes(contents(shop.root))
        assert left.keys() == whole.keys()
        assert late.gc() == lv.Report(True)
        # Time has passed, so HEAD has a higher floor; no other object is different.
        assert {**without_notes(contents(shop.root)), HEAD: b""} == {**left, HEAD: b""}
    assert shop.seen("orders") == shop.seen("orders", 2)
    with pytest.raises(lv.TransactionAborted):
        saved.commit()


def within(place: Place) -> None:
    """Create a table; deltalake then creates another around it, which is registered."""
    with place.connect() as lake:
        lake.create_table("sales/orders", {"id": [1, 2]})
    place.write("sales", [{"id": 10}])
    with place.connect() as lake:
        lake.register("sales")


def test_gc_keeps_files_of_a_table_inside_the_directory_of_another(shop: Place) -> None:
    within(shop)
    with shop.connect(settings=OLD) as lake:
        with lake.transaction() as txn:
            txn.append("sales", {"id": [11]})
            txn.append("sales/orders", {"id": [3]})
        lake.gc()
    with shop.connect() as fresh:
        assert values(fresh.snapshot().read("sales/orders")) == [1, 2, 3]
        assert values(fresh.snapshot().read("sales")) == [10, 11]


def test_dropping_a_table_with_data_keeps_a_table_inside_its_directory(shop: Place) -> None:
    within(shop)
    with shop.connect() as lake:
        lake.drop_table("sales", delete_data=True)
    with shop.connect() as fresh:
        assert values(fresh.snapshot().read("sales/orders")) == [1, 2]
        with pytest.raises(lv.TableNotFound):
            fresh.snapshot().read("sales")


def test_a_table_is_not_created_inside_the_directory_of_another(shop: Place) -> None:
    with shop.connect() as lake:
        lake.create_table("sales", {"id": [1]})
        with pytest.raises(lv.InvalidOperation, match=r"sales/orders would be inside .* sales"):
            lake.create_table("sales/orders", {"id": [1]})
        lake.drop_table("sales")
        with pytest.raises(lv.InvalidOperation, match="sales, which was dropped"):
            lake.create_table("sales/orders", {"id": [1]})
        lake.register("sales")
        lake.drop_table("sales", delete_data=True)
        lake.create_table("sales/orders", {"id": [1]})


def test_gc_keeps_a_decided_commit_that_is_not_published_yet(lake: lv.Lake, shop: Place) -> None:
    dies(shop, is_entry("stock"), both)
    with shop.connect(settings=lv.Settings(max_age_seconds=0, outcome_retention_seconds=0)) as late:
        late.gc()
        late.gc()
        assert late.recover().ok
    assert state(shop) == (True, True)


@pytest.mark.parametrize("moment", ["head", "commit-object"])
def test_a_client_that_sleeps_before_its_commit_point_while_gc_runs_is_fenced(
    lake: lv.Lake, shop: Place, moment: str
) -> None:
    where = is_head if moment == "head" else lambda key: key.startswith("_lakevilla/commits/")
    txn = lake.transaction()
    both(txn)
    txn.read("orders")  # the read stores the data files

    def clean() -> None:
        with shop.connect(settings=OLD) as other:
            other.recover(confirm_head=True)
            other.gc()

    with interrupted(lake, where, clean), pytest.raises(lv.TransactionAborted):
        txn.commit()
    assert state(shop) == (False, False)
    # Run again, the transaction has an id above the floor, and new files.
    lake.run(both)
    assert state(shop) == (True, True)


def test_gc_keeps_files_of_a_client_that_sleeps_between_decision_and_publishing(
    lake: lv.Lake, shop: Place
) -> None:
    def clean() -> None:
        with shop.connect(settings=OLD) as other:
            other.gc()

    with interrupted(lake, is_entry("stock"), clean), lake.transaction() as txn:
        both(txn)
    assert txn.result is not None
    assert state(shop) == (True, True)


class ShiftedClock(SystemClock):
    """The machine's clock, shifted by some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return super().now() + self.seconds


def shifted(place: Place, seconds: float, **settings: Any) -> Lake:
    return Lake(
        LakeClient(
            place.root,
            LocalStore(place.root),
            settings=lv.Settings(**settings),
            clock=ShiftedClock(seconds),
        )
    )


def later(place: Place, seconds: float) -> Lake:
    """Return a client so many seconds later, by the store's clock too."""
    lake, clock = place.connect(), Later()
    clock.ahead_seconds = seconds
    clock.of(lake)
    return lake


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_client_whose_clock_is_behind_takes_an_id_above_the_floor(
    lake: lv.Lake, shop: Place, warm: bool
) -> None:
    behind = shifted(shop, -10 * 24 * 3600.0)
    if warm:
        behind.snapshot().read("orders")
    with shop.connect(settings=OLD) as other:
        other.gc()
    with behind.transaction() as txn:
        both(txn)
    assert state(shop) == (True, True)
    assert behind.outcome(txn.id).state == "committed"
    assert lake.outcome(txn.id).state == "committed"


def test_a_client_whose_clock_is_ahead_fences_no_transaction_that_commits_later(
    lake: lv.Lake, shop: Place
) -> None:
    shifted(shop, 10 * 24 * 3600.0).gc()
    lake.run(both)
    assert state(shop) == (True, True)
    times = [commit.timestamp_ms for commit in inside(lake).held.head.commits]
    assert times == sorted(times)


def test_a_committed_transaction_past_its_retention_is_never_reported_aborted(
    lake: lv.Lake, shop: Place
) -> None:
    with lake.transaction() as txn:
        both(txn)
    late = later(shop, 8 * 24 * 3600.0)
    late.gc()
    # HEAD's list of commits may keep it beyond the retention.
    assert late.outcome(txn.id).state in ("committed", "expired")
    assert late.outcome(shifted(shop, -3600.0).transaction().id).state == "expired"
    assert state(shop) == (True, True)


# ------------------------------------------------------------- idempotency keys


def load(txn: lv.Transaction) -> None:
    txn.append("orders", {"id": [5], "qty": [5]})


def count(place: Place) -> int:
    return sum(row["id"] == 5 for row in place.seen("orders"))


@pytest.mark.parametrize("key", ["load-2024-02-29", ("loader", 7)], ids=repr)
def test_a_key_commits_once_across_processes(lake: lv.Lake, shop: Place, key: Any) -> None:
    with lake.transaction(idempotency_key=key) as txn:
        load(txn)
    for _ in range(2):
        with shop.connect() as other:
            with pytest.raises(lv.AlreadyCommitted) as caught:
                with other.transaction(idempotency_key=key):
                    pytest.fail("the body ran")
            assert caught.value.kind == "already_committed"
            assert other.run(lambda txn: pytest.fail("it ran"), idempotency_key=key) is None
            told = other.outcome(idempotency_key=key)
            assert told.state == "committed"
    assert count(shop) == 1


def test_an_application_version_not_above_the_last_one_counts_as_committed(
    lake: lv.Lake, shop: Place
) -> None:
    for version in (3, 5):
        lake.run(load, idempotency_key=("loader", version))
    for version in (0, 3, 4, 5):
        with pytest.raises(lv.AlreadyCommitted):
            with lake.transaction(idempotency_key=("loader", version)) as txn:
                load(txn)
    lake.run(load, idempotency_key=("other", 1))
    assert count(shop) == 3
    assert shop.delta("orders").transaction_version("loader") == 5


def test_a_key_of_a_failed_transaction_can_be_used_again(lake: lv.Lake, shop: Place) -> None:
    with pytest.raises(ValueError, match="no"), lake.transaction(idempotency_key="k") as txn:
        load(txn)
        raise ValueError("no")
    lake.run(load, idempotency_key="k")
    assert count(shop) == 1


def test_a_key_is_kept_by_gc_for_the_retention_and_an_application_version_for_ever(
    lake: lv.Lake, shop: Place
) -> None:
    lake.run(load, idempotency_key="plain")
    lake.run(load, idempotency_key=("loader", 7))
    with shop.connect(settings=OLD) as other:
        other.gc()
        for key in ("plain", ("loader", 7)):
            assert other.run(lambda txn: pytest.fail("it ran"), idempotency_key=key) is None
    # The retention is over: only the application's version is kept.
    late = later(shop, 8 * 24 * 3600.0)
    late.gc()
    late.gc()
    assert late.run(lambda txn: pytest.fail("it ran"), idempotency_key=("loader", 7)) is None
    late.run(load, idempotency_key="plain")
    assert count(shop) == 3


@pytest.mark.parametrize("key", ["k", ("loader", 7)], ids=repr)
def test_a_key_used_again_while_its_first_user_sleeps_commits_once(
    lake: lv.Lake, shop: Place, key: Any
) -> None:
    """The second client waits for a lease, aborts the first transaction, and commits."""

    def second() -> None:
        with shop.connect(settings=lv.Settings(lease_seconds=0.2)) as other:
            other.run(load, idempotency_key=key)

    with interrupted(lake, is_head, second):
        with pytest.raises(lv.TransactionAborted), lake.transaction(idempotency_key=key) as txn:
            load(txn)
    assert count(shop) == 1
    assert lake.outcome(txn.id).state == "aborted"
    assert lake.outcome(idempotency_key=key).state == "committed"


def test_a_key_of_a_client_that_died_after_its_decision_counts_as_committed(
    lake: lv.Lake, shop: Place
) -> None:
    client = shop.connect()
    with pytest.raises(Gone), interrupted(client, is_entry("orders"), die):
        client.run(load, idempotency_key="k")
    assert lake.run(lambda txn: pytest.fail("it ran"), idempotency_key="k") is None
    lake.recover()
    assert count(shop) == 1


def test_the_outcome_of_an_unused_key_is_expired(lake: lv.Lake) -> None:
    assert lake.outcome(idempotency_key="never").state == "expired"


# ------------------------------------------------------------------ long history


@pytest.mark.night
def test_a_transaction_commits_after_hundreds_of_commits_have_gone_to_pages(
    shop: Place,
) -> None:
    """70 commits fill no page, 210 fill two; each open transaction still commits at most once."""
    with shop.connect() as lake, shop.connect() as writer:
        lake.run(lambda txn: txn.append("stock", {"sku": ["fig"], "left": [1]}))
        writer.create_table("noise", {"n": [0]})
        sleepers = [lake.transaction() for _ in range(3)]
        for number, txn in enumerate(sleepers):
            txn.read("orders", where=f"id = {number + 1}")
            txn.append("stock", {"sku": [f"late{number}"], "left": [1]})
        saved = lake.transaction()
        both(saved)
        saved.save()
        known: str | None = None

        def go_on(until: int) -> None:
            nonlocal known
            while writer.snapshot().version < until:
                with writer.transaction(wait="decided" if until % 7 else "published") as txn:
                    txn.append("noise", {"n": [1]})
                known = known or txn.id
            writer.close()

        go_on(70)
        sleepers[0].commit()
        go_on(210)
        assert len(list((Path(shop.root) / "_lakevilla" / "pages").iterdir())) >= 1
        sleepers[1].commit()
        writer.run(lambda txn: txn.update("orders", {"qty": "99"}, "id = 3"))
        with pytest.raises(lv.ConflictError):
            sleepers[2].commit()
        with shop.connect() as other:
            other.resume(saved.id).commit()
            assert other.outcome(saved.id).state == "committed"
            assert known is not None
            assert other.outcome(known).state == "committed"
        with pytest.raises((lv.AlreadyCommitted, lv.TransactionAborted)):
            saved.commit()
        assert {row["sku"] for row in shop.seen("stock")} >= {"late0", "late1"}
        assert "late2" not in {row["sku"] for row in shop.seen("stock")}
        assert state(shop) == (True, True)


# ---------------------------------------------------------------------- doctor


def copied(place: Place, to: Path) -> Place:
    shutil.copytree(place.root, to)
    return Place(str(to))


def test_a_copied_lake_is_read_only_until_it_is_adopted(
    lake: lv.Lake, shop: Place, tmp_path: Path
) -> None:
    dies(shop, is_entry("stock"), both)
    copy = copied(shop, tmp_path / "copy")
    with copy.connect() as there:
        assert values(there.snapshot().read("orders")) == [1, 2, 3, 4, 5]
        before = contents(copy.root)
        for write in (
            lambda: there.run(lambda txn: txn.append("orders", {"id": [6], "qty": [1]})),
            there.recover,
            there.gc,
            lambda: there.register("orders"),
        ):
            with pytest.raises(lv.InvalidOperation, match="adopt"):
                write()
        assert contents(copy.root) == before
        assert "moved" in {finding.kind for finding in there.doctor().findings}
        there.doctor(adopt=True)
        assert there.doctor() == lv.Report(True)
        assert state(copy) == (True, True)
        there.run(lambda txn: txn.append("orders", {"id": [6], "qty": [1]}))
        assert [row["id"] for row in copy.seen("orders")] == [1, 2, 3, 4, 5, 6]
        there.doctor(adopt=True)
    # The original lake is unaffected.
    lake.recover()
    lake.run(lambda txn: txn.append("orders", {"id": [7], "qty": [1]}))
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 3, 4, 5, 7]


def test_an_open_client_reports_a_table_whose_directory_is_gone_and_claims_nothing_there(
    lake: lv.Lake, shop: Place
) -> None:
    lake.read("stock")
    lake.recover()
    shutil.rmtree(Path(shop.root) / "stock")
    assert ("table_lost", "stock") in {(f.kind, f.table) for f in lake.doctor().findings}
    lake.recover()
    assert not (Path(shop.root) / "stock").exists()
    with pytest.raises(lv.TableNotFound):
        lake.read("stock")


def test_doctor_reports_a_table_that_foreign_clients_have_deleted_or_recreated(
    lake: lv.Lake, shop: Place
) -> None:
    shutil.rmtree(Path(shop.root) / "stock")
    with shop.connect() as other:
        assert {(f.kind, f.table) for f in other.doctor().findings} & {
            ("table_lost", "stock"), ("table_not_found", "stock"), ("corrupt_object", "stock")
        }  # fmt: skip
    shop.write("stock", [{"sku": "new", "left": 1}])
    with shop.connect() as other:
        assert {(f.kind, f.table) for f in other.doctor().findings} == {("table_lost", "stock")}
        other.unregister("stock")
        other.register("stock")
        # Decided commits on the lost table are void, which doctor still reports.
        assert {f.severity for f in other.doctor().findings} <= {"warning"}
        assert other.snapshot().read("stock").to_pylist() == [{"sku": "new", "left": 1}]


def test_a_lake_without_a_head_is_healthy_and_empty(shop: Place) -> None:
    with shop.connect() as lake:
        assert lake.doctor().ok
        for report in (lake.recover(), lake.gc()):
            assert report.ok
            assert [finding.kind for finding in report.findings] == ["empty"]
        assert lake.tables() == []


def test_a_transaction_in_forgotten_history_is_expired_by_any_clock(
    lake: lv.Lake, shop: Place, page_length: int
) -> None:
    with lake.transaction() as txn:
        both(txn)
    for number in range(2 * page_length + 2):  # HEAD no longer lists the first commit
        lake.run(load, metadata={"number": str(number)})
    undecided = lake.transaction()
    undecided.read("orders")
    late = later(shop, 8 * 24 * 3600.0)
    late.gc()
    late.gc()
    for client in (late, shifted(shop, -(24 * 3600.0)), shop.connect()):
        assert client.outcome(txn.id).state == "expired"
        # This transaction began after the forgotten history, so the kept history has its outcome.
        assert client.outcome(undecided.id).state == "aborted"
        with pytest.raises(lv.InvalidOperation, match="not known"):
            client.abort(txn.id)


def test_a_transaction_that_commits_by_a_log_entry_alone_cannot_be_aborted_by_id(
    lake: lv.Lake,
) -> None:
    txn = lake.transaction(lv.Feature.R)
    txn.append("orders", {"id": [5], "qty": [5]})
    with pytest.raises(lv.InvalidOperation, match="own log entry"):
        lake.abort(txn.id)
    with pytest.raises(lv.CommitOutcomeUnknown, match="own log entry"):
        lake.outcome(txn.id)
    txn.save()  # a saved transaction commits through HEAD
    lake.abort(txn.id)
    with pytest.raises(lv.TransactionAborted):
        txn.commit()


def test_recover_and_gc_write_nothing_where_no_lake_is(tmp_path: Path) -> None:
    misspelt = tmp_path / "misspelt"
    lake = lv.connect(str(misspelt))
    for report in (lake.recover(), lake.gc(dry_run=True), lake.gc()):
        assert report.ok
        assert [finding.kind for finding in report.findings] == ["empty"]
    assert not misspelt.exists()


def test_a_transaction_keeps_an_id_that_its_caller_has_seen_even_below_the_floor(
    lake: lv.Lake, shop: Place
) -> None:
    behind = shifted(shop, -10 * 24 * 3600.0)
    with shop.connect(settings=OLD) as other:
        other.register("orders")
        other.gc()
    txn = behind.transaction()
    seen = txn.id
    txn.append("orders", {"id": [5], "qty": [5]})
    with pytest.raises(lv.TransactionAborted):
        txn.commit()
    assert txn.id == seen
    assert lake.outcome(seen).state == "aborted"
    behind.run(lambda txn: txn.append("orders", {"id": [5], "qty": [5]}))


@pytest.mark.night
def test_a_dry_run_of_gc_writes_nothing_even_when_head_is_full(lake: lv.Lake, shop: Place) -> None:
    lake.run(load)
    while inside(lake).held is None or not overfull(inside(lake).held.head):
        lake.run(load)
    before = contents(shop.root)
    late = later(shop, 8 * 24 * 3600.0)
    assert late.gc(dry_run=True).ok
    assert contents(shop.root) == before
    late.gc()  # gc that is no dry run moves the oldest commits out of HEAD
    assert any(key.startswith("_lakevilla/pages/") for key in contents(shop.root).keys() - before)
