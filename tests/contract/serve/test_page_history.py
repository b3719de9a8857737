"""A person sees the history of a lake: commits, branches, merges and tags."""

from __future__ import annotations

from pathlib import Path

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look
from tests.support.tables import accounts


def test_the_history_has_each_commit_with_its_tables(lake: lv.Lake, gateway: Gateway) -> None:
    with lake.transaction() as txn:
        txn.append("stock", accounts(1))
        txn.append("sales/orders", accounts(1))
    rows = look(gateway, "/").rows()
    assert len(rows) == 3
    assert rows[0][0].startswith("3 main")
    assert rows[0][1] == "write sales/orders stock"
    assert rows[2][1] == "create table, write stock"


def test_the_history_says_what_an_engine_did(lake: lv.Lake, gateway: Gateway) -> None:
    table = gateway.pyiceberg().load_table("root.stock")
    table.append(table.scan().to_arrow())
    gateway.pyiceberg().drop_table("sales.orders")
    rows = look(gateway, "/").rows()
    assert rows[0][1] == "tables entered or left the lake sales/orders"
    assert rows[1][1] == "by an Iceberg client stock"


def test_the_graph_has_branches_and_where_they_begin_and_merge(
    lake: lv.Lake, gateway: Gateway
) -> None:
    lake.tag("monday")
    lake.branch("night")
    lake.on("night").run(lambda txn: txn.append("stock", accounts(1)))
    lake.run(lambda txn: txn.append("sales/orders", accounts(1)))
    lake.merge("night")
    lake.branch("idle")
    page = look(gateway, "/")
    rows = page.rows()
    assert [row[0].split()[0] for row in rows] == ["4", "3", "3", "2", "1"]
    assert "main" in rows[0][0]
    assert "idle" in rows[0][0]
    assert rows[0][1].startswith("merge of night@3")
    assert "on night" in " ".join(row[0] for row in rows[1:3])
    assert "monday" in rows[3][0]
    assert len(page.all("circle")) == 5
    # The main line, the beginning of each of two branches, and a merge.
    assert len(page.all("path")) == 4
    assert "5 commits, 2 branches and 1 merges" in page.all("desc")[0].text


def test_a_branch_and_a_tag_have_a_history_of_their_own(lake: lv.Lake, gateway: Gateway) -> None:
    lake.tag("monday")
    lake.branch("night/shift")
    lake.on("night/shift").run(lambda txn: txn.append("stock", accounts(1)))
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    lake.run(lambda txn: txn.append("stock", accounts(1)))
    links = look(gateway, "/").links()
    branch = look(gateway, links["night/shift"])
    assert [row[0].split()[0] for row in branch.rows()] == ["3"]
    assert "begins with version 2 of main" in branch.text()
    tag = look(gateway, links["monday"])
    assert [row[0].split()[0] for row in tag.rows()] == ["2", "1"]
    version = look(gateway, "/", on="v3")
    assert [row[0].split()[0] for row in version.rows()] == ["3", "2", "1"]


def test_older_commits_are_on_pages_of_their_own(lake: lv.Lake, gateway: Gateway) -> None:
    for number in range(60):
        lake.run(lambda txn, row=number: txn.append("stock", accounts(1, row)))
    page, versions = look(gateway, "/"), list[int]()
    while True:
        versions += [int(row[0].split()[0]) for row in page.rows()]
        if "Older" not in page.links():
            break
        page = look(gateway, page.links()["Older"])
    assert versions == list(range(62, 0, -1))


def test_a_graph_of_many_branches_names_the_others(lake: lv.Lake, gateway: Gateway) -> None:
    for number in range(7):
        lake.branch(f"b{number}")
    page = look(gateway, "/")
    assert "Not in the graph: 2 older branches" in page.text()
    listed = look(gateway, page.links()["All branches and tags"])
    assert [row[0] for row in listed.rows()] == [f"b{number}" for number in range(7)]


def test_a_root_without_a_lake_has_a_page(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "none") as lake, serving(lake) as gateway:
        assert "no commit yet" in look(gateway, "/").text()
        assert "No table" in look(gateway, "/tables").text()
        assert "None yet" in look(gateway, "/refs").text()
    assert not (tmp_path / "none").exists()
