"""A person compares states of the lake, and sees what both sides have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look
from tests.support.tables import accounts


def test_two_states_are_compared_by_tables_and_rows(lake: lv.Lake, gateway: Gateway) -> None:
    lake.tag("monday")
    lake.run(lambda txn: txn.update("stock", {"balance": "7"}, where="id = 1"))
    lake.run(lambda txn: txn.append("sales/orders", [{"id": 9, "balance": 9}]))
    for a, b in (("monday", "main"), ("v2", "v4"), ("monday", "v4")):
        page = look(gateway, "/compare", a=a, b=b)
        assert [row[0] for row in page.rows()] == ["sales/orders", "stock"]
        rows = look(gateway, page.links()["stock"])
        assert sorted(rows.rows(1)) == [["added", "1", "7"], ["removed", "1", "100"]]
        paired = look(gateway, page.links()["stock"], keys="id")
        assert paired.rows(1) == [["was", "1", "100"], ["is", "1", "7"]]
    assert "No table differs" in look(gateway, "/compare", a="v4", b="main").text()
    assert "Choose two states" in look(gateway, "/compare").text()


def test_rows_that_a_branch_and_the_lake_have_changed_are_told_by_key(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        lake.create_table("bank", accounts(6))
        lake.branch("night")
        night = lake.on("night")
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "1"}, where="id = 1")
            txn.update("bank", {"balance": "2"}, where="id = 2")
            txn.delete("bank", where="id = 3")
            txn.update("bank", {"balance": "4"}, where="id = 4")
        with night.transaction() as txn:
            txn.update("bank", {"balance": "11"}, where="id = 1")
            txn.update("bank", {"balance": "2"}, where="id = 2")
            txn.update("bank", {"balance": "33"}, where="id = 3")
            txn.update("bank", {"balance": "55"}, where="id = 5")
        for a, b in (("main", "night"), ("night", "main")):
            page = look(gateway, "/compare", a=a, b=b, table="bank", keys="id")
            assert page.rows(2) == [
                ["1", *_of(1, 100, 1, 11), "conflict"],
                ["2", *_of(2, 100, 2, 2), "same change"],
                ["3", "id: 3, balance: 100", "no row", "id: 3, balance: 33", "conflict"],
            ]
        with pytest.raises(lv.MergeConflict) as conflict:
            lake.merge("night", keys={"bank": "id"}, on_equal="keep")
        assert {row["key"]["id"] for row in conflict.value.rows("bank").to_pylist()} == {1, 3}
        lake.merge("night", keys={"bank": "id"}, on_conflict="ours")
        page = look(gateway, "/compare", a="main", b="night", table="bank", keys="id")
        assert "No row of bank is changed on both sides" in page.text()
        assert "since night@" in page.text()


def _of(key: int, *balances: int) -> list[str]:
    return [f"id: {key}, balance: {balance}" for balance in balances]


def test_states_and_columns_that_are_not_there_are_named(lake: lv.Lake, gateway: Gateway) -> None:
    page = look(gateway, "/compare", sound=False, a="nothing", b="main")
    assert page.status == 404
    assert "nothing" in page.text()
    lake.branch("night")
    lake.on("night").run(lambda txn: txn.append("stock", accounts(1)))
    page = look(gateway, "/compare", a="main", b="night", table="stock", keys="nothing")
    assert "no column 'nothing'" in page.text()
