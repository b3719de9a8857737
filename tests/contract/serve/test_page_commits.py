"""A person sees what a commit did, row by row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look
from tests.support.inside import inside
from tests.support.tables import accounts


def test_a_commit_has_the_rows_that_it_changed(lake: lv.Lake, gateway: Gateway) -> None:
    with lake.transaction(metadata={"why": "count"}) as txn:
        txn.update("stock", {"balance": "balance + 1"}, where="id = 1")
        txn.append("sales/orders", [{"id": 9, "balance": 9}])
    page = look(gateway, look(gateway, "/").links()["3"])
    assert "why count" in page.text()
    assert [row[:2] for row in page.rows(0)] == [["sales/orders", "changed"], ["stock", "changed"]]
    assert page.rows(1) == [["added", "9", "9"]]
    assert sorted(page.rows(2)) == [["added", "1", "101"], ["removed", "1", "100"]]
    first = look(gateway, "/commit", version=1)
    assert len(first.rows(1)) == 2


def test_a_commit_of_a_branch_is_compared_with_the_branch(lake: lv.Lake, gateway: Gateway) -> None:
    lake.branch("night/shift")
    lake.on("night/shift").run(lambda txn: txn.append("stock", [{"id": 8, "balance": 1}]))
    lake.run(lambda txn: txn.append("stock", [{"id": 7, "balance": 2}]))
    assert look(gateway, "/commit", version=3, on="night/shift").rows(1) == [["added", "8", "1"]]
    assert look(gateway, "/commit", version=3).rows(1) == [["added", "7", "2"]]


def test_a_large_commit_shows_its_first_rows(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        lake.create_table("many", {"id": pa.array([], pa.int64())})
        with lake.transaction() as txn:
            for start in range(0, 3000, 100):
                txn.append("many", {"id": pa.array(range(start, start + 100))})
        look(gateway, "/commit", version=2)
        with inside(lake).requests.counting() as made:
            page = look(gateway, "/commit", version=2)
        assert len(page.rows(1)) == 200
        assert "there are more" in page.text()
        assert made.get <= 5  # three of 30 files have the first 201 rows


def test_a_commit_of_many_tables_shows_rows_of_those_that_are_chosen(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        with lake.transaction() as txn:
            for number in range(5):
                txn.create_table(f"t{number}", accounts(1))
        page = look(gateway, "/commit", version=1)
        assert len(page.all("h2")) == 1 + 3
        assert "2 other tables" in page.text()
        chosen = look(gateway, page.links()["t4"])
        assert [one.text for one in chosen.all("h2")] == ["Tables", "Rows of t4"]


def test_a_value_of_each_kind_is_shown_as_text(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        values = pa.table(
            {
                "binary": pa.array([b"\xff\x00"]),
                "list": pa.array([[1, None]]),
                "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
                "nothing": pa.array([None], pa.string()),
            }
        )
        lake.create_table("odd", values)
        (row,) = look(gateway, "/commit", version=1).rows(1)
        assert row[1:] == ["ff00", "1, NULL", "a: 1", "NULL"]
