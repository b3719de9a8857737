"""``lakevilla log``: a line for each commit, and the graph of branches."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.commit_lines import Branch, age, commit_lines, graph_lines
from lakevilla.results import HistoryEntry, LoggedOperation, Ref

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def commit(version: int, *operations: LoggedOperation, **fields: Any) -> HistoryEntry:
    """A commit that was made as many minutes after noon of the day before as its version says."""
    given = {
        "timestamp": NOW - timedelta(days=1) + timedelta(minutes=version),
        "txn_id": "id",
        "tables": tuple(done.table for done in operations),
        "metadata": {},
        "kind": "transaction",
    }
    return HistoryEntry(version=version, operations=operations, **{**given, **fields})


def done(table: str, operation: str = "WRITE", **counts: int) -> LoggedOperation:
    metrics = {f"num_{name}_rows": str(count) for name, count in counts.items()}
    return LoggedOperation(table, operation, {}, metrics)


def ref(name: str, version: int, base: int | None, kind: Any = "branch") -> Ref:
    return Ref(name, kind, version, base, NOW, "me", False, {}, None)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "now"),
        (0.9, "now"),
        (59, "59s ago"),
        (60, "1m ago"),
        (3600, "1h ago"),
        (86400, "1d ago"),
        (99 * 86400, "99d ago"),
        (100 * 86400, "2025-10-23"),
    ],
)
def test_an_age_has_one_unit_and_becomes_a_date(seconds: float, shown: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == shown


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            commit(25, done("stock", "UPDATE", updated=1), metadata={"job": "load", "try": "2"}),
            "UPDATE stock  +1 -1  job=load try=2",
        ),
        (commit(25, *(done(f"t{n}", inserted=2) for n in range(300))), "WRITE 300 tables  +600"),
        (
            commit(25, done("a", inserted=1), done("b", "DELETE", deleted=3)),
            "WRITE a, DELETE b  +1 -3",
        ),
        (commit(25, *(done(name, name.upper()) for name in "abcde")), "A a, B b, C c, 2 more"),
        (commit(25, tables=("a", "b"), kind="foreign"), "foreign a, b"),
        (commit(25, done("a"), members=("x", "y")), "WRITE a  2 transactions"),
        (
            commit(
                25,
                LoggedOperation(
                    "a",
                    "TRANSACTION",
                    {"operations": '[{"operation": "UPDATE"}, {"operation": "DELETE"}]'},
                ),
            ),
            "UPDATE+DELETE a",
        ),
        (commit(25, LoggedOperation("a", "TRANSACTION", {"operations": "[3]"})), "TRANSACTION a"),
        (
            commit(25, LoggedOperation("a", "MERGE", {"branch": "night@3"}), merged="night@3"),
            "MERGE night@3 into a",
        ),
        (commit(25, done("a"), metadata={"note": "two\nlines\x1b[2J"}), None),
    ],
)
def test_a_commit_is_one_line(entry: HistoryEntry, line: str | None) -> None:
    (shown,) = commit_lines([entry], NOW)
    assert len(shown.splitlines()) == 1
    assert shown.isprintable()
    assert line is None or shown == f"25  23h ago  {line}"


def test_the_graph_shows_where_branches_begin_and_were_merged() -> None:
    lake = [
        commit(7, done("a"), timestamp=NOW - timedelta(minutes=1)),
        commit(6, done("a", "MERGE"), merged="b@5", timestamp=NOW - timedelta(minutes=2)),
        commit(4, done("a"), timestamp=NOW - timedelta(minutes=5)),
        commit(3, done("a"), timestamp=NOW - timedelta(minutes=9)),
    ]
    b = [
        commit(6, done("b"), timestamp=NOW - timedelta(seconds=30)),
        commit(5, done("b"), timestamp=NOW - timedelta(minutes=4)),
    ]
    c = [commit(4, done("c"), timestamp=NOW - timedelta(minutes=3))]
    refs = [ref("b", 6, 4), ref("c", 4, 3), ref("closing", 4, None, "tag"), ref("new", 7, 7)]
    shown = graph_lines(lake, [Branch(refs[0], b), Branch(refs[1], c)], refs, NOW)
    assert [line.rstrip() for line in shown] == [
        "│ *    b@6  30s ago  WRITE b",
        "* │      7   1m ago  WRITE a  (branch new)",
        "* │      6   2m ago  MERGE a",
        "├─┤",
        "│ │ *  c@4   3m ago  WRITE c",
        "│ * │  b@5   4m ago  WRITE b",
        "├─╯ │",
        "*   │    4   5m ago  WRITE a  (tag closing)",
        "├───╯",
        "*        3   9m ago  WRITE a",
    ]


def test_the_graph_keeps_the_order_of_commits_where_clocks_do_not() -> None:
    lake = [
        commit(3, done("a", "MERGE"), merged="b@2", timestamp=NOW - timedelta(hours=3)),
        commit(1, done("a"), timestamp=NOW - timedelta(hours=1)),
    ]
    b = [commit(2, done("b"), timestamp=NOW)]
    named = ref("b", 2, 1)
    lines = graph_lines(lake, [Branch(named, b)], [named], NOW)
    names = ("3  3h ago", "b@2     now", "1  1h ago")
    assert [name for line in lines for name in names if name in line] == list(names)


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("branched")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.branch("night")
        lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        lake.merge("night")
        with lake.transaction(metadata={"job": "load"}) as txn:
            txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
    return str(root)


def log(*words: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["log", *words])
    assert result.exit_code == status, result.output
    return result


def test_log_prints_a_line_for_each_commit(branched: str) -> None:
    parts = [line.strip().split("  ") for line in log(branched).stdout.splitlines()]
    assert [[part[0], *part[2:]] for part in parts] == [
        ["3", "UPDATE stock", "+1 -1", "job=load"],
        ["2", "MERGE night@2 into stock", "+1"],
        ["1", "CREATE TABLE+WRITE stock", "+1"],
    ]
    assert [one["version"] for one in json.loads(log(branched, "--json").stdout)] == [3, 2, 1]


def test_log_cuts_lines_only_in_a_terminal(branched: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "job=load" in log(branched).stdout
    monkeypatch.setenv("COLUMNS", "20")
    assert {len(line) <= 20 for line in log(branched).stdout.splitlines()} == {True}


def test_log_draws_the_branches_of_a_lake(branched: str) -> None:
    marks = [line[:4].rstrip() for line in log(branched, "--graph").stdout.splitlines()]
    assert marks == ["*", "*", "├─╮", "│ *", "├─╯", "*"]
    only = log(branched, "--graph", "-n", "1")
    assert len(only.stdout.splitlines()) == 1
    assert "older ones left out" in only.stderr


@pytest.mark.parametrize("words", [["--json"], ["-v"], ["-t", "stock"], ["--on", "night"]])
def test_a_graph_of_anything_but_the_lake_is_refused(branched: str, words: list[str]) -> None:
    assert "--graph" in log(branched, "--graph", *words, status=2).stderr


def test_operations_that_a_stranger_noted_in_another_form_have_their_common_name() -> None:
    for noted in ("7", "[7]", '[{"a": 1}]', "[" * 50_000):
        one = LoggedOperation("t", "TRANSACTION", {"operations": noted})
        assert "TRANSACTION" in str(commit_lines([commit(1, one)], NOW))
