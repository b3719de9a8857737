"""``lake.absorb``: commits of other clients get global versions in the lake's order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.traces import cost

ROW = pa.table({"id": pa.array([9], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        for name in ("sales/orders", "sales/items", "stock"):
            lake.create_table(name, [{"id": 1}])
        yield lake


def append(lake: lv.Lake, name: str) -> None:
    deltalake.write_deltalake(lake[name].uri, ROW, mode="append")


def rows(lake: lv.Lake) -> dict[str, int]:
    found = lake.sql("SELECT name, rows FROM lakevilla_tables").to_pylist()
    return {row["name"]: row["rows"] for row in found}


def test_absorbed_commits_count_in_the_catalog_and_appear_in_the_feed(lake: lv.Lake) -> None:
    version = lake.history(1)[0].version
    append(lake, "stock")
    append(lake, "sales/orders")
    assert rows(lake) == {"sales/items": 1, "sales/orders": 1, "stock": 1}
    assert lake.absorb() == ["sales/orders", "stock"]
    assert rows(lake) == {"sales/items": 1, "sales/orders": 2, "stock": 2}
    seen = [(one.kind, sorted(one.tables)) for one in lake.changes(version)]
    assert sorted(name for kind, names in seen for name in names) == ["sales/orders", "stock"]
    assert {kind for kind, _ in seen} == {"foreign"}
    assert lake.absorb() == []


def test_absorb_takes_in_commits_of_the_named_tables_only(lake: lv.Lake) -> None:
    append(lake, "stock")
    append(lake, "sales/orders")
    assert lake.absorb(["sales/*"]) == ["sales/orders"]
    assert rows(lake)["stock"] == 1
    lake.rename_table("stock", "shelf")  # the rename absorbs the foreign commit itself
    append(lake, "shelf")
    assert lake.absorb(["shelf"]) == ["shelf"]


def test_absorbing_costs_a_check_of_each_log_and_one_replacement_of_head(lake: lv.Lake) -> None:
    lake.absorb()
    idle = cost(lake, lambda: lake.absorb())
    assert (idle.get, idle.put, idle.list) == (2 + 3, 0, 0)  # HEAD twice: once for names
    append(lake, "stock")
    assert cost(lake, lambda: lake.absorb()).put == 1


def test_absorb_refuses_unknown_table_names_and_branches(lake: lv.Lake) -> None:
    with pytest.raises(lv.TableNotFound, match="'stocks'"):
        lake.absorb(["stocks"])
    with pytest.raises(lv.InvalidOperation, match=r"no table name of the lake matches 'shop/\*'"):
        lake.absorb(["shop/*"])
    lake.branch("etl")
    with pytest.raises(lv.InvalidOperation, match="absorb: this is branch 'etl'"):
        lake.on("etl").absorb()


def test_absorb_finds_nothing_in_a_lake_without_tables(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path / "new")) as lake:
        assert lake.absorb() == []


def test_the_absorb_command_absorbs_commits_of_other_clients(lake: lv.Lake) -> None:
    append(lake, "stock")
    assert "added: stock" in CliRunner().invoke(app, ["absorb", lake.root]).stdout
    assert "nothing to add" in CliRunner().invoke(app, ["absorb", lake.root, "stock"]).stdout
