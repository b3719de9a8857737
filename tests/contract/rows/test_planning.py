"""Writers' SQL names no column twice in an expression: DuckDB plans such expressions slowly.

See docs/upstream.md, "Expressions that differ in a column alone have one hash".
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlglot
from sqlglot import exp

import lakevilla as lv
from lakevilla.engines.duckdb.writing import writer

COLUMNS = ("id", "a", "b")
ROWS = [dict.fromkeys(COLUMNS, 1), dict.fromkeys(COLUMNS, 2)]

WRITES: dict[str, Callable[[lv.Transaction], object]] = {
    "update": lambda txn: txn.update("t", {"a": "a + 1", "b": "b + 1"}, where="id = 1"),
    "upsert": lambda txn: txn.upsert("t", [dict.fromkeys(COLUMNS, 1)], "id"),
    "merge": lambda txn: (
        txn.merge("t", [dict.fromkeys(COLUMNS, 1)], on="target.id = source.id")
        .when_matched_update({"a": "target.a + 1", "b": "target.b + source.b"})
        .execute()
    ),
}


@pytest.mark.parametrize("verb", WRITES)
def test_expressions_for_new_values_name_no_column_twice(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    statements: list[str] = []
    stream = writer.stream

    def watched(cursor: object, sql: str, *rest: object) -> object:
        statements.append(sql)
        return stream(cursor, sql, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "stream", watched)
    lake.create_table("t", ROWS)
    lake.run(WRITES[verb])
    computed = [
        case
        for sql in statements
        for case in sqlglot.parse_one(sql, dialect="duckdb").find_all(exp.Case)
    ]
    assert len(computed) >= 2
    for case in computed:
        named = [column.name for column in case.find_all(exp.Column)]
        assert len(named) == len(set(named)), case.sql()
