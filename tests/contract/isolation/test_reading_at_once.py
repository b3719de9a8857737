"""Reads outside a transaction: ``lake.read``, ``scan``, ``sql`` and ``table.read``."""

from __future__ import annotations

import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import accounts


def test_each_read_outside_a_transaction_shows_all_commits_so_far(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("bank", accounts(2))
        table = lake.table("bank")
        assert lake.read("bank", ["id"], where="id < :n", params={"n": 1}).to_pylist() == [
            {"id": 0}
        ]
        with other.transaction() as txn:
            txn.append("bank", accounts(3))
        for rows in (
            lake.read("bank"),
            lake.scan("bank").read_all(),
            lake.sql("FROM bank"),
            table.read(),
        ):
            assert rows.num_rows == 5
        (row,) = table.read(["id"], where="id = :n", params={"n": 2}).to_pylist()
        assert row == {"id": 2}


def test_a_query_outside_a_transaction_shows_one_state_of_all_tables(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        for table in ("here", "there"):
            lake.create_table(table, accounts(1))
        rows = lake.scan("here")
        with other.transaction() as txn:
            for table in ("here", "there"):
                txn.append(table, accounts(1))
        assert rows.read_all().num_rows == 1, "a scan shows the state of its call"
        query = "SELECT (SELECT count(*) FROM here) AS h, (SELECT count(*) FROM there) AS t"
        assert lake.sql(query).to_pylist() == [{"h": 2, "t": 2}]


def test_reads_outside_a_transaction_refuse_unknown_names_and_writes(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("bank", accounts(1))
        with pytest.raises(lv.TableNotFound, match="bnk"):
            lake.read("bnk")
        with pytest.raises(lv.InvalidOperation, match="runs only SELECT"):
            lake.sql("DELETE FROM bank")
        with pytest.raises(lv.InvalidOperation, match="no column gone"):
            lake.table("bank").read(["gone"])
        assert lake.read("bank").num_rows == 1


def test_a_verb_refuses_a_table_object_as_its_rows_and_names_txn_read(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.create_table("a", accounts(2))
        lake.create_table("b", accounts(1))
        itself = lake.table("a")
        for use in (
            lambda txn: txn.append("b", itself),
            lambda txn: txn.overwrite("b", itself),
            lambda txn: txn.upsert("b", itself, keys=["id"]),
            lambda txn: txn.create_table("c", itself),
            lambda txn: txn.sql("SELECT * FROM rows", views={"rows": itself}),
        ):
            with lake.transaction() as txn:
                with pytest.raises(lv.InvalidOperation, match=r"pass txn\.read\('a'\)"):
                    use(txn)
        with lake.transaction() as txn:
            txn.append("b", txn.read("a"))
        assert lake.read("b").num_rows == 3
