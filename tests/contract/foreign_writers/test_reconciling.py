"""Decided commits that a foreign commit made unfit: a client replays each once and reports it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import interrupted, is_entry, unpublished
from tests.support.tables import accounts

QUICK = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.001)


def test_validation_includes_a_foreign_commit_found_while_publishing_pending_commits(
    local_place: Place,
) -> None:
    local_place.write("bank", accounts(3))
    settings = lv.Settings(max_pending=0)
    with local_place.connect() as first, local_place.connect(settings=settings) as lake:
        first.register("bank")
        with unpublished(first), first.transaction() as txn:
            txn.append("bank", [{"id": 50, "balance": 1}])
        second = lake.transaction()
        total = sum(second.read("bank")["balance"].to_pylist())
        second.update("bank", {"balance": total}, where="id = 1")
        # The commit publishes pending commits first, and finds their log version taken.
        with (
            interrupted(lake, is_entry("bank"), lambda: local_place.delta("bank").delete("id = 2")),
            pytest.raises(lv.ConflictError),
        ):
            second.commit()
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 100), (50, 1)]


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
        # The new table's log can't be written yet when the merge into the old table is replayed.
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
        inner = inside(helper).store

        class Lossy(WrappedStore):
            def put(
                self, key: str, body: bytes, condition: Condition
            ) -> Stored | Refused | Failure:
                if key.startswith("_lakevilla/commits/"):
                    return Failure("no answer")
                return self.inner.put(key, body, condition)

        inside(helper).store = Lossy(inner)
        assert not helper.recover().ok
        inside(helper).store = inner
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
        # First an OPTIMIZE, which isn't reported; then a DELETE in the same file.
        with (
            interrupted(lake, lambda key: entry(key) and key.endswith("3.json"), delete),
            interrupted(lake, lambda key: entry(key) and key.endswith("2.json"), compact),
            pytest.raises(lv.ForeignConflict) as raised,
        ):
            txn.commit()
        assert raised.value.result is not None
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]


def test_a_late_report_of_a_replay_whose_object_gc_has_deleted_says_so(local_place: Place) -> None:
    """A process slept in the middle of its publishing, for longer than gc keeps commit objects."""
    local_place.write("bank", accounts(3))
    commits = Path(local_place.root) / "_lakevilla" / "commits"
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")

        def meanwhile() -> None:
            local_place.delta("bank").delete("id = 2")
            known = set(commits.glob("*.json"))
            assert other.recover().ok
            (replayed,) = set(commits.glob("*.json")) - known
            replayed.unlink()

        txn = lake.transaction().__enter__()
        txn.update("bank", {"balance": "7"}, where="id = 1")
        with (
            interrupted(lake, is_entry("bank"), meanwhile),
            pytest.raises(
                lv.ForeignConflict, match="what came of it is not kept any more"
            ) as caught,
        ):
            txn.commit()
        assert caught.value.result.id == txn.id
        assert caught.value.table == "bank"
    rows = local_place.seen("bank")
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 7)]
