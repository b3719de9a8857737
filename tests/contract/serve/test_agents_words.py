"""Messages in the words of an agent's tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.reader import Reader
from lakevilla.serve.agents.words import for_agents
from lakevilla.serve.agents.work import Work


def test_an_agent_is_told_what_its_own_tools_can_do(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        reader = Reader(lake, AgentLimits(result_bytes=1000))
        work = Work(reader, {})
        calls: list[Callable[[], object]] = [
            lambda: reader.describe("nothing", ""),
            lambda: reader.query("SELECT * FROM stock WHERE sku = :x", ""),
            lambda: reader.query("SELECT ?", ""),
            lambda: reader.query("SELECT * FROM read_csv('x')", ""),
            lambda: reader.query("SELECT * FROM '/etc/passwd'", ""),
            lambda: reader.query("SELECT repeat('x', 10000)", ""),
            lambda: work.execute("CREATE TABLE stock (a INT)"),
            lambda: work.execute("CREATE TEMP TABLE t AS SELECT 1"),
            lambda: work.execute("INSERT INTO stock VALUES ('a', 1) ON CONFLICT DO NOTHING"),
            lambda: work.execute("INSERT INTO nothing VALUES (1)"),
        ]
        for call in calls:
            with pytest.raises(lv.LakeVillaError) as raised:
                call()
            message = for_agents(raised.value.message)
            assert not [one for one in ("lake.", "txn.", "()", "params", "=True") if one in message]


def test_an_agent_is_told_what_becomes_of_rows_in_conflict(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        work = Work(Reader(lake, AgentLimits()), {"any": "SELECT true"})
        work.execute("UPDATE stock SET qty = 1")
        lake.run(lambda txn: txn.update("stock", {"qty": "2"}, where="sku = 'tea'"))
        for keys, said in (({}, "give keys="), ({"stock": ["sku"]}, "discard the branch")):
            with pytest.raises(lv.MergeConflict) as raised:
                work.merge(keys)
            message = for_agents(raised.value.message)
            assert said in message
            assert "on_conflict" not in message
