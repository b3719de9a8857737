"""Another client's change of schema or constraints applies to rows written before it, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place, fill
from tests.support.tables import accounts


def _overwrites(txn: lv.Transaction) -> None:
    txn.overwrite("bank", [{"id": 1, "balance": -5}])


def _inserts(txn: lv.Transaction) -> None:
    txn.sql("insert into bank select * from debts")


def _updates_and_appends(txn: lv.Transaction) -> None:
    txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
    txn.append("bank", [{"id": 9, "balance": -9}])


@pytest.mark.parametrize("write", [_overwrites, _inserts, _updates_and_appends])
def test_rows_of_an_open_transaction_must_satisfy_a_constraint_that_another_adds(
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


def test_a_delete_is_not_redone_on_a_table_that_another_client_made_append_only(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(3)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = lake.transaction()
        txn.delete("bank", where="id = 1")
        with other.transaction() as rival:
            rival.alter("bank", set_properties={"delta.appendOnly": "true"})
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert other.snapshot().read("bank").num_rows == 3


def test_a_new_mapped_columns_values_are_not_lost_if_another_transaction_adds_a_column(
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
        # The column would get another id now, but the file has it under its first physical name.
        with pytest.raises(lv.ConflictError):
            first.commit()
        lake.run(pay)
        rows = other.snapshot().read("bank", ["paid"], where="id = 8")
    assert rows.to_pylist() == [{"paid": 80}]


@pytest.mark.parametrize("mode", ["none", "name"])
def test_a_new_columns_values_are_not_lost_if_another_transaction_adds_it_in_another_case(
    delta_place: Place, mode: str
) -> None:
    with delta_place.connect() as lake, delta_place.connect() as other:
        properties = {} if mode == "none" else {"delta.columnMapping.mode": mode}
        lake.create_table("bank", pa.Table.from_pylist(accounts(1)), properties=properties)

        def pay(txn: lv.Transaction) -> None:
            rows = [{"id": 8, "balance": 8, "paid": 80}]
            txn.append("bank", pa.Table.from_pylist(rows), schema_mode="merge")

        first = lake.transaction()
        pay(first)
        with other.transaction() as rival:
            rival.alter("bank", add_columns=pa.schema([("PAID", pa.int64())]))
        # The file has the column under a name that readers of the table don't look for.
        with pytest.raises(lv.ConflictError):
            first.commit()
        lake.run(pay)
        assert other.read("bank", ["PAID"], where="id = 8").to_pylist() == [{"PAID": 80}]


def test_a_read_after_an_append_conflicts_if_the_tables_metadata_changed_since(
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
