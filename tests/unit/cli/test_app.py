"""The command line: its output, as text and as JSON, and its exit status."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.output import Output
from lakevilla.results import Finding, QueuePlace, Report, TableQueue
from lakevilla.values import plain
from tests.support.copied import copy_lake


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}])
        lake.create_table("sales/orders", [{"sku": "tea", "qty": 1}])
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of the lake, for one test."""
    return copy_lake(furnished, tmp_path)


def run(*arguments: str, status: int = 0) -> Any:
    """Run a command with ``--json``; return the JSON that it prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout) if result.stdout else json.loads(result.stderr)


def test_the_command_tables_lists_tables(root: str) -> None:
    rows = run("tables", root)
    assert [row["name"] for row in rows] == ["sales/orders", "stock"]
    assert all(row["format"] == "delta" and not row["guarded"] for row in rows)
    shown = CliRunner().invoke(app, ["tables", root])
    assert shown.exit_code == 0
    assert "sales/orders" in shown.stdout


def test_a_table_whose_files_are_gone_is_unregistered(root: str) -> None:
    shutil.rmtree(Path(root) / "stock")
    run("unregister", root, "stock")
    assert [row["name"] for row in run("tables", root)] == ["sales/orders"]
    run("create", root, "stock", "sku:string")


def test_a_query_of_several_tables_reads_one_state(root: str) -> None:
    query = 'SELECT qty FROM stock UNION ALL SELECT qty FROM "sales/orders" ORDER BY qty'
    assert run("sql", root, query) == [{"qty": 1}, {"qty": 1}, {"qty": 5}]


def test_a_write_needs_option_write_and_commits(root: str) -> None:
    update = "UPDATE stock SET qty = qty - 1 WHERE sku = 'tea'"
    assert run("sql", root, update, status=2)["error"] == "invalid_operation"
    committed = run("sql", root, update, "--write")
    assert committed[0]["rows_updated"] == 1
    assert run("sql", root, "SELECT qty FROM stock WHERE sku = 'tea'") == [{"qty": 4}]


def test_a_write_without_option_write_is_refused_with_that_option(root: str) -> None:
    error = run("sql", root, "DELETE FROM stock", status=2)
    assert "--write" in error["message"]
    assert run("sql", root, "SELECT count(*) AS n FROM stock") == [{"n": 2}]


@pytest.mark.parametrize("stamp", ["2026-01-01", "2026-01-01T12:00:00"])
def test_a_time_without_a_zone_is_refused_and_the_error_shows_the_form(
    root: str, stamp: str
) -> None:
    message = run("sql", root, "SELECT 1", "--timestamp", stamp, status=2)["message"]
    assert "--timestamp" in message
    assert "Z for UTC" in message
    assert "datetime" not in message


def test_a_write_prints_its_global_version_and_counts_unshortened(root: str) -> None:
    delete = "DELETE FROM stock WHERE sku = 'jam'"
    shown = CliRunner().invoke(app, ["sql", root, delete, "--write"]).stdout
    with lv.connect(root) as lake, lake.snapshot() as state:
        assert f"global version {state.version}: " in shown
    assert "1 rows deleted" in shown
    assert "…" not in shown


def test_a_table_under_the_root_is_registered_under_its_name(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "sales" / "orders", pa.table({"id": [1]}))
    for command in ("tables", "snapshot"):
        shown = CliRunner().invoke(app, [command, str(tmp_path)]).stdout
        assert "lakevilla register" in shown
    told = run("register", str(tmp_path), "sales/orders")
    assert told == {"name": "sales/orders", "uri": str(tmp_path / "sales" / "orders")}
    assert [row["name"] for row in run("tables", str(tmp_path))] == ["sales/orders"]


def test_commands_that_write_leave_no_temporary_files_in_the_directory(root: str) -> None:
    def leftovers() -> list[Path]:
        return sorted((Path(root) / "_lakevilla" / "probe").rglob("*"))

    before = leftovers()
    # Each is a process of its own, and probes the store once.
    subprocess.run(
        [sys.executable, "-c", "from lakevilla.cli import main; main()", "recover", root],
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert leftovers() == before


def test_option_version_prints_the_version() -> None:
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.stdout.strip()) == (0, f"lakevilla {lv.__version__}")


def test_snapshot_lists_table_versions_of_one_state(root: str) -> None:
    state = run("snapshot", root)
    assert {row["table"]: row["version"] for row in state["tables"]} == {
        "sales/orders": 0,
        "stock": 0,
    }
    assert state["version"] is not None


def test_a_table_outside_the_root_is_registered(root: str, tmp_path_factory: Any) -> None:
    elsewhere = str(tmp_path_factory.mktemp("elsewhere") / "prices")
    lv.connect(str(Path(elsewhere).parent)).create_table("prices", [{"sku": "tea", "price": 2}])
    error = run("register", root, "prices", elsewhere, status=2)
    assert "lake" in error["message"]  # a table belongs to one lake only


def test_guard_and_unguard_set_and_lift_the_guard_of_a_table(root: str) -> None:
    run("guard", root, "stock")
    assert [row["name"] for row in run("tables", root) if row["guarded"]] == ["stock"]
    run("unguard", root, "stock")
    assert not any(row["guarded"] for row in run("tables", root))


@pytest.mark.parametrize("command", ["doctor", "recover", "gc"])
def test_doctor_recover_and_gc_report_a_healthy_lake(root: str, command: str) -> None:
    assert run(command, root)["ok"] is True
    assert "well" in CliRunner().invoke(app, [command, root]).stdout


def test_library_errors_go_to_stderr_with_status_2(root: str) -> None:
    result = CliRunner().invoke(app, ["sql", root, "SELECT * FROM nowhere"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_malformed_option_is_refused_and_its_value_not_repeated(root: str) -> None:
    result = CliRunner().invoke(app, ["tables", root, "--option", "secret-without-a-key"])
    assert result.exit_code == 2
    ill = CliRunner().invoke(app, ["tables", root, "--option", "=hunter2"])
    assert ill.exit_code == 2
    assert "hunter2" not in ill.output


def test_abort_ends_the_open_transaction_of_another_client(root: str) -> None:
    txn = lv.connect(root).transaction()
    txn.append("stock", [{"sku": "gin", "qty": 1}])
    assert run("abort", root, txn.id)["aborted"] == txn.id
    with pytest.raises(lv.TransactionAborted):
        txn.commit()
    assert run("sql", root, "SELECT count(*) AS n FROM stock WHERE sku = 'gin'") == [{"n": 0}]


def test_abort_of_an_unknown_id_is_reported(root: str) -> None:
    nobody = "01a1fe12-2e3e-7c57-a165-5fc19a000000"
    assert run("abort", root, nobody) == {"aborted": nobody, "known": False}
    assert "check the id" in CliRunner().invoke(app, ["abort", root, nobody]).stdout
    with lv.connect(root) as lake, lake.transaction(QUEUED) as txn:
        txn.update("stock", {"qty": "qty + 1"}, "sku = 'gin'")
        assert run("abort", root, txn.id)["known"]
        txn.abort()


@pytest.mark.parametrize("command", ["txns", "doctor"])
def test_a_root_without_a_lake_is_named(tmp_path: Path, command: str) -> None:
    shown = CliRunner().invoke(app, [command, str(tmp_path)]).stdout
    assert "has no lake yet" in " ".join(shown.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["tables", "txns", "doctor"])
def test_a_root_that_does_not_exist_is_reported(tmp_path: Path, command: str) -> None:
    result = CliRunner().invoke(app, [command, str(tmp_path / "mispelt")])
    assert result.exit_code == 2
    assert f"there is no directory {tmp_path}/mispelt" in " ".join(result.output.split())
    assert not (tmp_path / "mispelt").exists()


def test_abort_of_a_malformed_id_is_refused(root: str) -> None:
    assert "nonsense" in run("abort", root, "nonsense", status=2)["message"]


def test_findings_are_shown_with_their_table_and_transaction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    finding = Finding("warning", "pending", "2 commits [wait]", table="stock", txn_id="0193")
    Output(as_json=False).report(Report(False, (finding,)))
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("warning", "2 commits [wait]", "stock", "0193", "1 finding"):
        assert text in shown
    Output(as_json=True).report(Report(False, (finding,)))
    assert json.loads(capsys.readouterr().out)["findings"][0]["table"] == "stock"


QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I


def test_transactions_are_listed_with_the_names_of_their_tables(root: str, tmp_path: Path) -> None:
    assert run("txns", root) == []
    assert "no transaction" in CliRunner().invoke(app, ["txns", root]).stdout
    deltalake.write_deltalake(tmp_path / "elsewhere", pa.table({"id": [1]}))
    run("register", root, "beyond", str(tmp_path / "elsewhere"))
    with lv.connect(root) as lake:
        txn = lake.transaction(QUEUED)
        txn.append("beyond", [{"id": 2}])
        txn.save()
        (row,) = run("txns", root)
        assert (row["id"], row["state"], row["tables"]) == (txn.id, "running", ["beyond"])
        assert datetime.fromisoformat(row["started"]).tzinfo is not None
        shown = "".join(CliRunner().invoke(app, ["txns", root]).stdout.split())
        assert "running" in shown
        assert "beyond" in shown
        txn.abort()
    assert run("txns", root) == []


def test_doctor_shows_queues_as_a_tree(root: str) -> None:
    with lv.connect(root) as lake:
        first, second = lake.transaction(QUEUED), lake.transaction(QUEUED)
        first.update("stock", {"qty": "qty + 1"}, "sku = 'gin'")
        second.delete("stock", "sku = 'tea'")
        shown = CliRunner().invoke(app, ["doctor", root]).stdout.splitlines()
        (report,) = [run("doctor", root)]
        first.abort()
        second.abort()
    assert [place["txn_id"] for place in report["queues"][0]["places"]] == [first.id, second.id]
    at = {
        text: number
        for number, line in enumerate(shown)
        for text in (first.id, second.id)
        if text in line
    }
    table = next(number for number, line in enumerate(shown) if line.endswith("stock"))
    assert table < at[first.id] < at[second.id]
    assert "1  write" in shown[at[first.id]]
    assert "2  write" in shown[at[second.id]]
    assert run("doctor", root)["queues"] == []


def test_doctor_shows_waits_and_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (
        QueuePlace(number, "waiting", f"k{number}", txn, "write", "host:1", (other,))
        for number, txn, other in ((1, "t1", "t2"), (2, "t2", "t1"))
    )
    bad = QueuePlace(3, "unreadable", "sales/_lakevilla/markers/3.json")
    queue = TableQueue("sales", (one, two, bad), ("t9",))
    Output(as_json=False).report(Report(True, queues=(queue,), cycles=(("t1", "t2"),)))
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("reserved by t9", "1 write t1 waiting (host:1) → t2", "t1 ↔ t2", bad.key, "well"):
        assert text in shown
    Output(as_json=True).report(Report(True, queues=(queue,), cycles=(("t1", "t2"),)))
    told = json.loads(capsys.readouterr().out)
    assert told["queues"][0]["places"][0]["waits_for"] == ["t2"]
    assert told["cycles"] == [["t1", "t2"]]


def test_values_without_a_json_type_become_text() -> None:
    value = {
        "d": Decimal("1.10"),
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "b": b"\x01",
        "n": [None, True, (1, 2.5)],
        "f": Finding("note", "k", "m"),
    }
    assert plain(value) == {
        "d": "1.10",
        "t": "2026-01-02T00:00:00+00:00",
        "day": "2026-01-02",
        "b": "01",
        "n": [None, True, [1, 2.5]],
        "f": {
            "severity": "note",
            "kind": "k",
            "message": "m",
            "table": None,
            "txn_id": None,
            "key": None,
        },
    }


def test_optimize_and_vacuum_report_their_results(root: str) -> None:
    run("sql", root, "INSERT INTO stock SELECT 'nut', 3", "--write")
    done = run("optimize", root, "stock")
    assert (done["files_removed"], done["files_added"]) == (2, 1)
    assert "no files to compact" in CliRunner().invoke(app, ["optimize", root, "stock"]).stdout
    curve = ["--z-order", "sku", "--z-order", "qty"]
    assert run("optimize", root, "stock", *curve)["files_added"] == 1
    assert run("optimize", root, "stock", "--where", "qty = 1", status=2)["error"] == (
        "invalid_operation"
    )
    assert run("vacuum", root, "stock") == {"dry_run": True, "files": []}
    now = ["vacuum", root, "stock", "--retention-hours", "0"]
    assert run(*now, status=2)["error"] == "invalid_operation"
    refused = CliRunner().invoke(app, now)
    assert "switch this check off: `--no-enforce`" in " ".join(refused.stderr.split())
    told = run(*now, "--no-enforce")
    assert (told["dry_run"], len(told["files"])) == (True, 3)
    assert run(*now, "--no-enforce", "--no-dry-run")["files"] == told["files"]
    assert run(*now, "--no-enforce")["files"] == []
    assert len(run("sql", root, "SELECT * FROM stock")) == 3
