"""A resumed transaction commits its saved operations if no conflict has come since."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.places import Place, fill
from tests.support.tables import accounts


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


def objects(root: Path) -> set[Path]:
    return {path for path in root.rglob("[!.]*") if path.is_file()}


def test_a_saved_transaction_that_is_aborted_leaves_nothing(tmp_path: Path) -> None:
    stored = lv.Settings(in_memory_file_limit_bytes=0)
    with lv.connect(tmp_path, settings=stored) as lake:
        lake.create_table("bank", accounts(1))
        before = objects(tmp_path)
        txn = lake.transaction()
        txn.append("bank", accounts(1))
        txn.save()
        assert objects(tmp_path) > before
        txn.abort()
        assert objects(tmp_path) == before
        with pytest.raises(lv.TransactionNotFound):
            lake.resume(txn.id)


def test_the_files_of_a_resumed_transaction_outlive_the_abort_by_its_first_owner(
    tmp_path: Path,
) -> None:
    stored = lv.Settings(in_memory_file_limit_bytes=0)
    with lv.connect(tmp_path, settings=stored) as lake, lv.connect(tmp_path) as other:
        lake.create_table("bank", accounts(1))
        txn = lake.transaction()
        txn.append("bank", [{"id": 7, "balance": 7}])
        txn.save()
        resumed = other.resume(txn.id)
        txn.abort()
        resumed.commit()
        assert sorted(other.read("bank")["id"].to_pylist()) == [0, 7]


def test_a_resumed_transaction_checks_for_its_files_before_it_commits(local_place: Place) -> None:
    local_place.write("bank", accounts(1))
    with local_place.connect() as lake, local_place.connect() as other:
        txn = lake.transaction()
        txn.append("bank", [{"id": 9, "balance": 9}])
        txn.save()
        # A week later VACUUM deletes the saved files, as no log entry names them.
        for file in Path(local_place.uri("bank")).glob("lv-*.parquet"):
            file.unlink()
        with pytest.raises(lv.TransactionAborted):
            other.resume(txn.id).commit()
    assert len(local_place.seen("bank")) == 1


def test_a_resumed_transaction_shows_no_table_in_a_newer_state_than_its_earlier_reads(
    place: Place,
) -> None:
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


def test_a_resumed_transaction_can_read_newer_tables_if_its_earlier_reads_are_unchanged(
    place: Place,
) -> None:
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
