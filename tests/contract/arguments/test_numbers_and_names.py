"""Invalid arguments are refused before anything is done."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.tables import contents

HUGE = pytest.param(10**5000, id="huge")  # Python refuses to convert it to text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("a", [{"id": 1, "n": 1}])
        lake.run(lambda txn: txn.append("a", [{"id": 2, "n": 2}]))
    return tmp_path


@pytest.fixture
def lake(root: Path) -> Iterator[lv.Lake]:
    before = contents(root)
    with lv.connect(str(root)) as lake:
        yield lake
    assert contents(root) == before


@pytest.mark.parametrize("hours", [math.inf, -math.inf, math.nan, -1, 1e300, HUGE, True, "x", [1]])
def test_a_retention_that_is_no_number_of_hours_is_refused(lake: lv.Lake, hours: Any) -> None:
    for dry_run in (True, False):
        with pytest.raises(lv.InvalidOperation, match="retention_hours must be a number") as told:
            lake.table("a").vacuum(hours, dry_run, enforce_retention_duration=False)
        assert told.value.table == "a"


@pytest.mark.parametrize("size", [0, -1, 2**63, 10**30, HUGE, 1.5, math.nan, True, "x", [1]])
def test_an_impossible_target_file_size_is_refused(lake: lv.Lake, size: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="target_file_size_bytes must be"):
        lake.table("a").optimize(target_file_size_bytes=size)


@pytest.mark.parametrize("columns", [5, None, [None], "", [""], ["id", 5], b"id", [["id"]]])
def test_a_z_order_that_is_no_list_of_column_names_is_refused(lake: lv.Lake, columns: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="z_order_by must be"):
        lake.table("a").optimize(z_order_by=columns)


@pytest.mark.parametrize("columns", [5, [None], [5], "id", b"id", ["id", None], [], ()])
def test_columns_that_are_no_list_of_names_are_refused(lake: lv.Lake, columns: Any) -> None:
    now = lake.snapshot()
    with pytest.raises(lv.InvalidOperation, match="columns"):
        now.changes("a", 0, columns=columns)
    with pytest.raises(lv.InvalidOperation, match="columns"):
        now.read("a", columns=columns)


def test_column_names_can_be_passed_in_any_iterable(lake: lv.Lake) -> None:
    now = lake.snapshot()
    assert now.read("a", columns=iter(["n", "id"])).schema.names == ["n", "id"]  # type: ignore[arg-type]
    assert now.changes("a", 0, columns=("n",)).schema.names[0] == "n"


@pytest.mark.parametrize("number", [-1, 1.0, math.nan, True, "1", [1], 2**63, HUGE])
def test_versions_and_limits_that_are_no_whole_numbers_are_refused(
    lake: lv.Lake, number: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match="since must be a whole number"):
        lake.snapshot().changes("a", number)
    with pytest.raises(lv.InvalidOperation, match="version must be a whole number"):
        lake.snapshot(number)
    with pytest.raises(lv.InvalidOperation, match="limit must be a whole number"):
        lake.history(number)
    with pytest.raises(lv.InvalidOperation, match="limit must be a whole number"):
        lake.table("a").history(number)


def test_a_property_can_request_files_of_any_size(root: Path) -> None:
    stated = {"delta.targetFileSize": "9999999999t"}
    with lv.connect(str(root)) as lake:
        lake.run(lambda txn: txn.alter("a", set_properties=stated))
        assert lake.table("a").optimize().files_added == 1


def test_an_unreadable_property_is_refused_with_a_short_message(lake: lv.Lake) -> None:
    stated = {"delta.targetFileSize": "9" * 5000}
    with pytest.raises(lv.InvalidOperation, match="it may be a number of bytes") as told:
        lake.run(lambda txn: txn.alter("a", set_properties=stated))
    assert len(str(told.value)) < 300


@pytest.mark.parametrize(
    "command",
    [
        ["vacuum", "--retention-hours", "inf"],
        ["vacuum", "--retention-hours", "nan"],
        ["vacuum", "--retention-hours", "1e400"],
        ["vacuum", "--retention-hours", "-1"],
        ["optimize", "--target-size", "1" + "0" * 30],
        ["optimize", "--target-size", "0"],
        ["optimize", "--z-order", ""],
    ],
)
def test_a_command_refuses_invalid_numbers_without_a_traceback(
    root: Path, command: list[str]
) -> None:
    verb, *options = command
    result = CliRunner().invoke(app, [verb, str(root), "a", *options])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "invalid_operation" in result.stderr
