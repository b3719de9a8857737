"""A client that only reads at a mistyped root, where no lake is, writes nothing there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
import lakevilla.dbapi

LOOKS: list[Callable[[lv.Transaction], object]] = [
    lambda txn: txn.sql("SELECT 1"),
    lambda txn: txn.sql("SELECT * FROM lakevilla_tables"),
    lambda txn: txn.sql("SELECT table_name FROM information_schema.tables"),
    lambda txn: txn.sql("SELECT * FROM stock"),
    lambda txn: txn.read("stock"),
    lambda txn: txn.sql("INSERT INTO stock VALUES (1)"),
    lambda txn: txn.update("stock", {"qty": 1}, where="true"),
    lambda txn: txn.append("stock", [{"qty": 1}]),
]


@pytest.mark.parametrize("place", range(len(LOOKS)))
def test_a_transaction_at_a_mistyped_root_leaves_nothing(tmp_path: Path, place: int) -> None:
    with lv.connect(tmp_path / "misty").transaction() as txn:
        with suppress(lv.TableNotFound):
            LOOKS[place](txn)
    assert list(tmp_path.rglob("*")) == []


def test_a_connection_at_a_mistyped_root_leaves_nothing(tmp_path: Path) -> None:
    with lakevilla.dbapi.connect(tmp_path / "misty") as connection:
        cursor = connection.cursor()
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        assert cursor.execute("SHOW TABLES").fetchall() == []
        with pytest.raises(lakevilla.dbapi.ProgrammingError, match="check the root"):
            cursor.execute("SELECT * FROM stock")
    assert list(tmp_path.rglob("*")) == []


def test_a_transaction_that_found_no_lake_creates_one_when_it_writes(tmp_path: Path) -> None:
    lake = lv.connect(tmp_path)
    with lake.transaction() as txn:
        assert txn.sql("SELECT * FROM lakevilla_tables").num_rows == 0
        txn.create_table("stock", [{"qty": 1}])
    assert lake.read("stock").num_rows == 1


def test_a_transaction_that_found_no_lake_conflicts_with_one_created_meanwhile(
    tmp_path: Path,
) -> None:
    """The transaction may have read that there are no tables, which is no longer true."""
    lake, other = lv.connect(tmp_path), lv.connect(tmp_path)
    txn = lake.transaction()
    assert txn.sql("SELECT * FROM lakevilla_tables").num_rows == 0
    other.create_table("orders", [{"id": 1}])
    with pytest.raises(lv.ConflictError, match="had seen that there was none"):
        txn.create_table("stock", [{"qty": 1}])
    txn.abort()
    assert [table.name for table in other.tables()] == ["orders"]


def test_a_table_without_a_lake_is_read_and_written_in_one_transaction(tmp_path: Path) -> None:
    """A table below the root shows that the root is not mistyped: reading it binds the
    transaction.
    """
    write_deltalake(tmp_path / "stock", pa.table({"qty": [1]}))
    lake = lv.connect(tmp_path)
    with lake.transaction() as txn:
        assert txn.read("stock").num_rows == 1
        txn.append("stock", [{"qty": 2}])
    assert lake.read("stock").num_rows == 2
