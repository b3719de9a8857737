"""DuckDB computes what the reference evaluator says: the same values, the same refusals."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakevilla.errors import InvalidOperation
from lakevilla.expressions.bind import bind
from lakevilla.expressions.duckdb import to_duckdb
from lakevilla.expressions.evaluate import compare, evaluate
from lakevilla.expressions.tree import Expr
from tests.unit.expressions.trees import ROWS, SCHEMA, any_tree, row_table

RAISED = "raised"


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set timezone = 'America/New_York'")
    return connection


def bound_or_rejected(tree: Expr) -> Expr:
    try:
        return bind(tree, SCHEMA, predicate=False)
    except InvalidOperation:
        assume(False)
        raise


def reference(tree: Expr, row: dict[str, Any]) -> Any:
    try:
        return evaluate(tree, row)
    except InvalidOperation:
        return RAISED


def computed(connection: duckdb.DuckDBPyConnection, sql: str, at: int) -> Any:
    try:
        found = connection.execute(f"select {sql} from numbered where number = {at}")
        return found.to_arrow_table().column(0).to_pylist()[0]
    except duckdb.Error:
        return RAISED


def same(a: Any, b: Any) -> bool:
    if a is None or b is None or isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and bool(a == b)
    return compare(a, b) == 0


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
    ],
)
@given(tree=any_tree(), rows=st.lists(ROWS, min_size=1, max_size=4))
def test_duckdb_agrees_with_the_reference(
    connection: duckdb.DuckDBPyConnection, tree: Expr, rows: list[dict[str, Any]]
) -> None:
    bound = bound_or_rejected(tree)
    sql = to_duckdb(bound, SCHEMA)
    table = row_table(rows).append_column("number", [list(range(len(rows)))])
    connection.register("numbered", table)
    for at, row in enumerate(table.to_pylist()):
        want, got = reference(bound, row), computed(connection, sql, at)
        assert same(want, got), f"{want!r} but DuckDB {got!r} for {sql}"
