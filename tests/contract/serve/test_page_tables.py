"""A person sees the tables of a lake, in each of its states."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look
from tests.support.places import Place
from tests.support.tables import accounts


def test_the_tables_have_sizes_and_the_last_change(lake: lv.Lake, gateway: Gateway) -> None:
    lake.run(lambda txn: txn.append("stock", accounts(3)))
    orders, stock = look(gateway, "/tables").rows()
    assert orders[0] == "sales/orders"
    assert stock[:2] == ["stock", "5"]
    assert stock[3] == "2"
    assert stock[4].startswith("3, ")
    assert stock[5:] == ["LakeVilla", "—", "iceberg"]


def test_the_tables_name_other_clients_and_those_that_write_now(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    place.write("bank", accounts(1))
    with place.connect() as lake, serving(lake) as gateway:
        lake.run(lambda txn: txn.append("bank", accounts(1)))
        place.write("bank", accounts(1), mode="append")
        lake.absorb()
        txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        txn.save()
        (row,) = look(gateway, "/tables").rows()
        txn.abort()
        assert row[5:7] == ["another client", "1"]


def test_tables_are_found_by_the_beginning_of_their_names(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        with lake.transaction() as txn:
            for number in range(120):
                txn.create_table(f"t/{number:03}", accounts(1))
            txn.create_table("other", accounts(1))
        page, names = look(gateway, "/tables", prefix="t/"), list[str]()
        while True:
            names += [row[0] for row in page.rows()]
            if "Next tables" not in page.links():
                break
            page = look(gateway, page.links()["Next tables"])
        assert names == [f"t/{number:03}" for number in range(120)]


def test_a_table_has_columns_files_versions_and_statistics(lake: lv.Lake, gateway: Gateway) -> None:
    lake.create_table("parts", [{"id": 1, "region": "Asia"}], partition_by="region")
    lake.run(lambda txn: txn.append("parts", [{"id": 7, "region": "Europe"}]))
    page = look(gateway, look(gateway, "/tables").links()["parts"])
    assert page.rows() == [["id", "int64", "yes", ""], ["region", "string", "yes", "yes"]]
    files = look(gateway, page.links()["Files"])
    assert sorted(row[4] for row in files.rows()) == ["region=Asia", "region=Europe"]
    assert {row[1] for row in files.rows()} == {"1"}
    versions = look(gateway, page.links()["Versions"])
    assert [row[0] for row in versions.rows()] == ["1", "0"]
    statistics = look(gateway, page.links()["Statistics"])
    found = [row[1:4] for row in statistics.rows() if row[0] == "id"]
    assert sorted(found) == [["1", "1", "0"], ["7", "7", "0"]]
    of_file = look(gateway, next(to for text, to in files.links().items() if "Europe" in text))
    assert ["id", "7", "7", "0"] in of_file.rows()


@pytest.mark.parametrize("state", ["v2", "night", "monday"])
def test_a_table_is_shown_as_of_a_state(lake: lv.Lake, gateway: Gateway, state: str) -> None:
    lake.tag("monday")
    lake.branch("night")
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    rows = look(gateway, "/tables", on=state).rows()
    assert [row[:2] for row in rows] == [["sales/orders", "3"], ["stock", "2"]]
    links = look(gateway, "/tables", on=state).links()
    assert len(look(gateway, links["stock"] + "&part=files").rows()) == 1
    assert len(look(gateway, "/table", name="stock", part="files").rows()) == 2
    assert look(gateway, links["stock"] + "&part=versions").rows()


def test_a_table_of_ten_thousand_columns_is_shown_in_pages(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        lake.create_table("wide", pa.table({f"c{number:05}": [number] for number in range(10_000)}))
        page = look(gateway, "/table", name="wide")
        assert len(page.rows()) == 200
        assert len(page.html) < 100_000
        last = look(gateway, "/table", name="wide", **{"from": 9_900})
        assert [row[0] for row in last.rows()][-1] == "c09999"
        assert "Next" not in last.links()
        # Delta has statistics of the first 32 columns.
        assert len(look(gateway, "/table", name="wide", part="statistics").rows()) == 32


def test_a_page_of_another_state_leads_back_to_the_same_page_of_main(
    lake: lv.Lake, gateway: Gateway
) -> None:
    lake.tag("monday")
    for path, params in (("/table", {"name": "stock"}), ("/commit", {"version": "2"})):
        page = look(gateway, path, on="monday", **params)
        back = look(gateway, page.links()["back to main"])
        assert page.all("h1")[0].text.startswith(back.all("h1")[0].text)
        assert "back to main" not in back.links()
