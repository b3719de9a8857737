"""An agent starts ``lakevilla mcp``, and speaks to it by the protocol's own client."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

import lakevilla as lv
from tests.integrations.agents.clients import COMMAND, Refused, agent, run

READING = {"list_tables", "describe", "query", "history", "diff", "list_branches"}
WRITING = {"execute", "changes", "merge", "rebase", "discard"}
CHECK = ("--check", "not_negative=SELECT min(qty) >= 0 FROM stock")


def rows(root: Path, on: str = "main") -> dict[str, int]:
    with lv.connect(root) as lake:
        return {one["sku"]: one["qty"] for one in lake.on(on).read("stock").to_pylist()}


def test_an_agent_reads_the_lake_and_can_change_nothing(root: Path) -> None:
    async def story() -> None:
        async with agent(root) as call:
            tools = await call.tools()
            assert set(tools) == READING
            assert all(one.annotations.read_only_hint for one in tools.values())
            assert all(one.description for one in tools.values())
            assert {row[0] for row in (await call("list_tables"))["rows"]} == {
                "stock",
                "sales/orders",
            }
            assert [row[0] for row in (await call("describe", table="stock"))["rows"]] == [
                "sku",
                "qty",
            ]
            found = await call("query", sql="SELECT sku FROM stock ORDER BY qty")
            assert found == {"state": "main", "columns": ["sku"], "rows": [["jam"], ["tea"]]}
            assert [one["version"] for one in (await call("history", limit=1))["commits"]] == [2]
            for sql in ("DELETE FROM stock", "SELECT * FROM read_csv('/etc/passwd')", "USE main"):
                with pytest.raises(Refused):
                    await call("query", sql=sql)
            with pytest.raises(Refused, match="list_tables"):
                await call("describe", table="nothing")
            with pytest.raises(Refused):
                await call("execute", sql="DELETE FROM stock")

    run(story)
    assert rows(root) == {"tea": 5, "jam": 2}


def test_an_answer_is_cut_and_a_query_for_ever_is_ended(root: Path) -> None:
    async def story() -> None:
        async with agent(root, "--max-rows", "3", "--timeout", "1", "--memory", "128") as call:
            found = await call("query", sql="SELECT range AS n FROM range(1000000)")
            assert found["rows"] == [[0], [1], [2]]
            assert "only the first 3 rows" in found["note"]
            assert len((await call("history"))["commits"]) == 2
            endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"
            with pytest.raises(Refused, match="timeout_seconds = 1"):
                await call("query", sql=endless)
            with pytest.raises(Refused):
                await call("query", sql="SELECT len(list(range)) FROM range(100000000)")
            assert (await call("query", sql="SELECT 1"))["rows"] == [[1]]

    run(story)


def test_changes_of_an_agent_are_merged_once_they_pass_the_checks(root: Path) -> None:
    async def story() -> None:
        async with agent(root, "--write", *CHECK) as call:
            tools = await call.tools()
            assert set(tools) == READING | WRITING
            ends = {name for name, one in tools.items() if one.annotations.destructive_hint}
            assert ends == {"merge", "discard"}
            done = await call("execute", sql="UPDATE stock SET qty = qty - 3 WHERE sku = 'jam'")
            assert rows(root) == {"tea": 5, "jam": 2}
            assert rows(root, done["branch"]) == {"tea": 5, "jam": -1}
            seen = await call("query", sql="SELECT qty FROM stock WHERE sku = 'jam'")
            assert (seen["state"], seen["rows"]) == (done["branch"], [[-1]])
            lake = await call("query", sql="SELECT qty FROM stock WHERE sku = 'jam'", ref="main")
            assert lake["rows"] == [[2]]
            with pytest.raises(Refused, match="not_negative: SELECT min"):
                await call("merge")
            assert rows(root) == {"tea": 5, "jam": 2}
            await call("execute", sql="UPDATE stock SET qty = 0 WHERE qty < 0")
            assert (await call("merge", keys={"stock": ["sku"]}))["checks"] == ["not_negative"]
            assert (await call("list_branches"))["refs"] == []

    run(story)
    assert rows(root) == {"tea": 5, "jam": 0}


def test_a_statement_that_can_not_be_interrupted_is_ended_with_its_process(root: Path) -> None:
    async def story() -> None:
        async with agent(root, "--write", *CHECK, "--timeout", "2", "--memory", "4096") as call:
            done = await call("execute", sql="DELETE FROM stock WHERE sku = 'jam'")
            with pytest.raises(Refused, match="could not be interrupted"):
                await call("query", sql="SELECT len(list_sort(range(60000000)))")
            found = await call("query", sql="SELECT count(*) FROM stock")
            assert (found["state"], found["rows"]) == (done["branch"], [[1]])

    run(story)


def test_without_checks_the_branch_stays_for_a_person(root: Path) -> None:
    async def story() -> None:
        async with agent(root, "--write", "--branch", "fix") as call:
            await call("execute", sql="DELETE FROM stock WHERE sku = 'jam'")
            with pytest.raises(Refused, match=r"lakevilla merge .* fix"):
                await call("merge")

            with lv.connect(root) as lake:
                lake.branch("kept", at="fix")
                lake.delete_ref("fix")
            with pytest.raises(Refused, match="the next execute begins another"):
                await call("query", sql="SELECT * FROM stock")
            assert len((await call("query", sql="SELECT * FROM stock"))["rows"]) == 2

    run(story)
    assert rows(root) == {"tea": 5, "jam": 2}
    assert rows(root, "kept") == {"tea": 5}


def test_calls_at_the_same_time_are_all_answered(root: Path) -> None:
    async def story() -> None:
        async with agent(root, "--write", *CHECK) as call:
            texts = [f"INSERT INTO stock VALUES ('sku{n}', {n})" for n in range(6)]
            done = await asyncio.gather(*(call("execute", sql=text) for text in texts))
            assert len({one["branch"] for one in done}) == 1
            found = await asyncio.gather(*(call("query", sql=f"SELECT {n}") for n in range(6)))
            assert [one["rows"] for one in found] == [[[n]] for n in range(6)]
            await call("merge")

    run(story)
    assert len(rows(root)) == 8


def test_only_the_protocol_is_on_stdout(root: Path) -> None:
    command = [*COMMAND, "mcp", str(root), "--write", *CHECK]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "merge by not_negative" in done.stderr


def test_an_interrupt_ends_it_while_it_waits(root: Path) -> None:
    command = [*COMMAND, "mcp", str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 7
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT


def test_checks_without_leave_to_write_are_refused(root: Path) -> None:
    command = [*COMMAND, "mcp", str(root), *CHECK]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--write" in done.stderr
