"""Mistakes of users for which the error message once did not help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 1}])
        lake.create_table("orders", [{"sku": "tea", "qty": 1}])
        yield lake


def test_create_table_with_an_absolute_path_outside_the_root_is_refused(
    lake: lv.Lake, tmp_path: Path
) -> None:
    outside = str(tmp_path / "outside")
    with pytest.raises(lv.InvalidOperation, match=r"outside of the lake's root.*leave out the"):
        lake.create_table(outside, [{"a": 1}])
    assert not Path(outside).exists()
    lake.create_table(f"file://{outside}", [{"a": 1}])  # an explicit URI is accepted
    lake.create_table(f"{lake.root}/inside", [{"a": 1}])
    assert "inside" in [table.name for table in lake.tables()]


def test_rename_table_to_an_existing_name_is_refused_with_that_name(lake: lv.Lake) -> None:
    with pytest.raises(lv.TableExists, match=r"there is a table 'orders' already"):
        lake.rename_table("stock", "orders")


@pytest.mark.parametrize("verb", ["cherry_pick", "revert"])
def test_a_missing_commit_is_reported_under_the_version_that_the_caller_gave(
    lake: lv.Lake, verb: str
) -> None:
    with pytest.raises(lv.VersionNotFound, match="no global version 999"):
        getattr(lake, verb)(999)


def test_wrong_arguments_are_reported_with_the_name_of_the_public_class(lake: lv.Lake) -> None:
    with pytest.raises(TypeError, match=r"^Lake\.read\(\)"):
        lake.read()  # type: ignore[call-arg]
    with lake.snapshot() as state, pytest.raises(TypeError, match=r"^Snapshot\.read\(\)"):
        state.read("stock", columnz=3)  # type: ignore[call-arg]
    with lake.transaction() as txn, pytest.raises(TypeError, match=r"^Transaction\.read\(\)"):
        txn.read("stock", columnz=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "query",
    [
        "TABLE lakevilla_tables",
        "FROM main.lakevilla_tables",
        "SELECT t.* FROM main.lakevilla_tables AS t",
        "FROM (TABLE\n lakevilla_tables) AS t",
    ],
)
def test_the_catalog_of_tables_can_be_queried_under_its_other_names(
    lake: lv.Lake, query: str
) -> None:
    assert lake.sql(query)["name"].to_pylist() == ["orders", "stock"]


def test_a_duration_without_a_unit_is_refused(lake: lv.Lake) -> None:
    found = CliRunner().invoke(app, ["maintain", lake.root, "--every", "10"])
    assert found.exit_code == 2
    assert "--every '10' has no unit: write 10s" in found.stderr.replace("\n", " ")


def test_commands_for_files_export_restore_and_cherry_pick_work(lake: lv.Lake) -> None:
    def run(*arguments: str) -> str:
        found = CliRunner().invoke(app, list(arguments))
        assert found.exit_code == 0, (found.stdout, found.stderr)
        return found.stdout

    assert "lv-" in run("query", lake.root, "/stock/files", "--json")
    assert run("export", lake.root, "stock", "exports/stock", "--copy").strip().endswith("stock")
    lake.run(lambda txn: txn.delete("stock", where="true"))
    version = lake.history(1)[0].version
    assert "stock" in run("restore", lake.root, "stock", "0")
    assert lake.read("stock").num_rows == 1
    lake.rollback(version - 1)
    assert "global version" in run("cherry-pick", lake.root, str(version))
    assert lake.read("stock").num_rows == 0
