"""Tools run in a process of their own, whose end is not that of the session."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.session import Given
from lakevilla.serve.agents.workers import Workers


@pytest.mark.night
def test_a_session_goes_on_after_the_end_of_its_process(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        workers = Workers(Given(lake, AgentLimits(), {"any": "SELECT true"}, "agent-1"))
        done = workers.call("execute", "DELETE FROM stock")
        assert done == {"branch": "agent-1-1", "rows_deleted": 1}
        with pytest.raises(lv.InvalidOperation, match="query takes SELECT"):
            workers.call("query", "DELETE FROM stock", "")
        (process,) = [one for one in workers.processes if one is not None]
        os.kill(process, signal.SIGKILL)
        with pytest.raises(lv.InvalidOperation, match="has died"):
            workers.call("query", "SELECT count(*) FROM stock", "")
        found = workers.call("query", "SELECT count(*) FROM stock", "")
        assert (found["state"], found["rows"]) == ("agent-1-1", [[0]])
        workers.call("merge", {})
        assert lake.read("stock").num_rows == 0
        workers.close()
        assert workers.processes == [None]
