"""Queries whose rows the caller does not see, such as EXPLAIN: they are no reads of the
transaction.

A stub stands in for Spark's session: no frame is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.connecting import SparkFrames, open_client
from lakevilla.api.run import begin_transaction
from lakevilla.api.spark import executor as on_spark
from lakevilla.engines.spark.engine import SparkEngine
from lakevilla.sql.statements.select import Select
from lakevilla.sql.statements.statement import parse_statement


class Session:
    """A stub of Spark's session that runs nothing."""

    class conf:
        @staticmethod
        def get(name: str, default: object = None) -> object:
            return "UTC" if name == "spark.sql.session.timeZone" else default

    def range(self, end: int) -> None:
        """Accept the call by which the caller checks that the session is not stopped."""


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with lv.connect(tmp_path) as lake:
        lake.create_table("seen", [{"id": 1}])
        lake.create_table("told", [{"id": 1}])
    monkeypatch.setattr(on_spark, "run_select", lambda *_: "a frame")
    monkeypatch.setattr(on_spark, "plan_of", lambda frame: f"the plan of {frame}")
    monkeypatch.setattr(on_spark, "arrow_schema", lambda *_: pa.schema([]))
    monkeypatch.setattr(SparkEngine, "frame", lambda *_: "the rows")
    client: Any = open_client(
        str(tmp_path),
        storage_options=None,
        settings=lv.Settings(),
        catalogs={},
        files_outside=(),
        spark=SparkFrames(None, "python"),
        conditional_writes="require",
    )
    client._spark = Session()
    begun = begin_transaction(client, on_spark.SparkExecutor)
    yield begun
    begun.abort()


def query(table: str) -> Select:
    found = parse_statement(f"SELECT id FROM {table}", None, "spark")
    assert isinstance(found, Select)
    return found


@pytest.mark.parametrize("unseen", ["plan", "schema_of_query"])
def test_a_query_without_rows_is_not_noted_as_a_read(executor: Any, unseen: str) -> None:
    def read() -> list[str]:
        return [location for location, _ in executor.state.work.reads]

    ask: Callable[..., object] = getattr(executor, unseen)
    ask(query("told"), {}, {})
    assert read() == []
    executor.select(query("seen"), {}, {})
    ask(query("told"), {}, {})
    ask(query("seen"), {}, {})
    assert read() == ["seen"]
