"""``lake.maintain`` and ``lakevilla maintain`` as a scheduler calls them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.traces import cost

ALL = ["recover", "keep", "checkpoint", "optimize", "vacuum", "gc"]


def small_files(lake: lv.Lake, table: str, count: int, **options: Any) -> None:
    lake.create_table(table, [{"id": 0}], **options)
    for number in range(1, count):
        lake.run(lambda txn, number: txn.append(table, [{"id": number}]), number)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_properties_of_a_table_decide_whether_maintain_optimizes_it(
    shared_place: Place, format: str
) -> None:
    with shared_place.connect() as lake:
        few = {"lakevilla.optimize.small_files": 3}
        small_files(lake, "few", 4, properties=few, format=format)
        small_files(lake, "many", 4, format=format)
        never = {**few, "lakevilla.optimize": False}
        small_files(lake, "never", 4, properties=never, format=format)
        old = {"lakevilla.optimize.days": 0}
        small_files(lake, "old", 4, properties=old, format=format)
        before = {table.name: table.version for table in lake.tables()}
        assert lake.maintain().ok
        after = {table.name: table.version for table in lake.tables()}
        assert {name for name in after if after[name] != before[name]} == {"few", "old"}
        assert lake.read("few").num_rows == lake.read("old").num_rows == 4
        assert lake.doctor().ok


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("lakevilla.optimize.small_file", 3, "did you mean lakevilla.optimize.small_files"),
        ("lakevilla.vaccum", False, "did you mean lakevilla.vacuum"),
        ("lakevilla.optimize.small_files", 1, "a whole number from 2 on"),
        ("lakevilla.vacuum", "weekly", "true or false"),
    ],
)
def test_an_invalid_property_for_maintain_is_refused(
    tmp_path: Path, format: str, name: str, value: object, hint: str
) -> None:
    with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.InvalidOperation, match=hint):
        lake.create_table("t", [{"id": 1}], properties={name: value}, format=format)


def test_maintain_of_an_idle_lake_costs_at_most_three_requests_per_task(local_place: Place) -> None:
    with local_place.connect() as lake:
        small_files(lake, "t", 3)
        for _ in range(3):
            lake.maintain()
    with local_place.connect() as lake:
        # A record for each task, and HEAD for each that no time keeps from being due.
        assert cost(lake, lake.maintain) == Requests(get=len(ALL) + 4)
        assert cost(lake, lambda: lake.maintain(["gc"])) == Requests(get=3)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"tasks": ["sweep"]}, "no task 'sweep': choose from recover"),
        ({"tasks": []}, "no task is named"),
        ({"tasks": "gc"}, "pass tasks="),
        ({"budget_seconds": -1}, "budget_seconds"),
        ({"budget_seconds": True}, "budget_seconds"),
    ],
)
def test_invalid_arguments_of_maintain_are_refused(
    tmp_path: Path, arguments: Any, hint: str
) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", [{"id": 1}])
        with pytest.raises(lv.InvalidOperation, match=hint):
            lake.maintain(**arguments)


def test_maintain_without_a_lake_writes_nothing(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        assert [one.kind for one in lake.maintain().findings] == ["empty"]
    assert not list(tmp_path.iterdir())


def test_maintain_is_refused_on_a_branch(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.branch("etl")
        with pytest.raises(lv.InvalidOperation, match="maintain is for the lake itself"):
            lake.on("etl").maintain()


def test_maintain_writes_a_missing_checkpoint(tmp_path: Path) -> None:
    import deltalake
    import pyarrow as pa

    where = str(tmp_path / "t")
    for number in range(25):
        deltalake.write_deltalake(where, pa.table({"id": [number]}), mode="append")
    log = tmp_path / "t" / "_delta_log"
    for path in [*log.glob("*.checkpoint*"), *log.glob("_last_checkpoint")]:
        path.unlink()
    with lv.connect(str(tmp_path)) as lake:
        lake.register("t")
        assert lake.maintain(["checkpoint"]).ok
        assert len(list(log.glob("*.checkpoint.parquet"))) == 1
        lake.run(lambda txn: txn.append("t", [{"id": 99}]))
        lake.maintain(["checkpoint"])
        assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    assert deltalake.DeltaTable(where).to_pyarrow_table().num_rows == 26


def test_doctor_reports_when_maintain_last_did_a_task(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", [{"id": 1}])
        assert not [one for one in lake.doctor().findings if one.kind == "upkeep"]
        lake.maintain(["gc"])
        report = lake.doctor()
        (note,) = [one for one in report.findings if one.kind == "upkeep"]
        assert note.message.startswith("gc: last done 20")
        assert report.ok


# ------------------------------------------------------------------ the command


def invoke(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["maintain", *arguments])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def root(tmp_path: Path) -> str:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", [{"id": 1}])
    return str(tmp_path)


def test_the_maintain_command_prints_one_line_per_task(root: str) -> None:
    lines = invoke(root).stdout.splitlines()
    assert [line.split()[1].rstrip(":") for line in lines[:-1]] == ALL
    assert lines[-1] == "well"
    report = json.loads(invoke(root, "--task", "gc", "--budget", "5m", "--json").stdout)
    assert [one["kind"] for one in report["findings"]] == ["gc"]


def test_the_maintain_command_exits_with_1_if_a_task_reports_an_error(root: str) -> None:
    log = Path(root, "t", "_delta_log", "00000000000000000000.json")
    log.write_text("{")
    assert "corrupt_object" in invoke(root, "--task", "recover", status=1).stdout


def test_the_maintain_command_refuses_invalid_arguments(root: str) -> None:
    assert "write 30s, 10m, 1h or 1d" in invoke(root, "--every", "soon", status=2).stderr
    assert "there is no task" in invoke(root, "--task", "sweep", "--every", "1h", status=2).stderr


@pytest.mark.night
def test_the_maintain_command_repeats_its_tasks_until_it_is_stopped(root: str) -> None:
    command = [sys.executable, "-m", "lakevilla.cli", "maintain", root, "--every", "1s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = []
        while sum(line.startswith(b"well") for line in seen) < 2:
            seen.append(process.stdout.readline())
            assert seen[-1], process.stderr.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    with lv.connect(root) as lake:
        assert not [one for one in lake.doctor().findings if "is running it" in one.message]


def test_maintain_reports_a_lost_tag_that_prevents_the_vacuum_of_a_table(
    local_place: Place,
) -> None:
    """Foreign clients have deleted log entries that the tag needs: the user has to decide."""
    with local_place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        lake.tag("closing")
        for number in range(1, 6):
            lake.run(lambda txn, number: txn.append("t", [{"id": number}]), number)
        local_place.delta("t").create_checkpoint()
        for number in range(3):
            Path(local_place.root, "t/_delta_log", f"{number:020}.json").unlink()
    with local_place.connect() as lake:
        report = lake.maintain(["vacuum"])
        assert not report.ok
        (found,) = (one for one in report.findings if one.severity != "note")
        assert (found.kind, found.table) == ("ref_lost", "t")
        assert "'closing'" in found.message
        lake.delete_ref("closing")
        # Otherwise vacuum would be due only in a day.
        Path(local_place.root, "_lakevilla/maintenance/vacuum.json").unlink()
        assert lake.maintain(["vacuum"]).ok
