"""Every function of the language on rows of edge cases: DuckDB's values are those of the
reference.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.sql.expressions.functions.catalogue import MEANINGS
from lakevilla.sql.expressions.functions.shorthand import ALIASES, SHORTHANDS
from lakevilla.sql.expressions.tree import Call
from tests.support.function_cases import ALL, RAISED, Said, same

EVERY = [pytest.param(name, one, id=one.sql) for name, cases in ALL.items() for one in cases.said]

#: Expressions that are NULL in every row.
NOTHING = {"a[-1]", "m['zz']"}


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("set timezone = 'America/New_York'")
    for name, cases in ALL.items():
        rows = cases.table.append_column("__at", [list(range(len(cases.rows)))])
        connection.register("given", rows)
        connection.execute(f'create table "{name}" as from given')
    return connection


@pytest.mark.parametrize(("name", "one"), EVERY)
def test_each_function_on_duckdb_has_the_value_of_the_reference(
    connection: duckdb.DuckDBPyConnection, name: str, one: Said
) -> None:
    cases = ALL[name]
    expected = cases.expected(one)
    assert (
        name == "odd json" or one.sql in NOTHING or any(v not in (None, RAISED) for v in expected)
    )
    text = to_duckdb(cases.bound(one), cases.schema)
    fine = [at for at, value in enumerate(expected) if value is not RAISED]
    where = f"list_contains({fine}, __at)"
    found = connection.sql(f'select __at, {text} from "{name}" where {where} order by __at')
    column = found.to_arrow_table().column(1)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp("us", "UTC"))  # New York has no year 1
    got = column.to_pylist()
    for at, value in zip(fine, got, strict=True):
        assert same(expected[at], value, one.places), (cases.rows[at], expected[at], value, text)
    for at in set(range(len(expected))) - set(fine):
        with pytest.raises(duckdb.Error):
            connection.execute(f'select {text} from "{name}" where __at = {at}').fetchall()


def test_every_function_of_the_language_has_a_test_case() -> None:
    used = " ".join(one.sql for cases in ALL.values() for one in cases.said)
    trees = [cases.bound(one) for cases in ALL.values() for one in cases.said]
    called = {tree.name for tree in trees if isinstance(tree, Call)}
    assert set(MEANINGS) - called == set()
    assert [name for name in SHORTHANDS if f"{name}(" not in used] == []
    assert set(ALIASES.values()) <= set(MEANINGS) | {
        "||", "%", "is_null", "ceil", "length", "day", "ends_with", "coalesce", "lower", "upper",
        "starts_with", "substring",
    }  # fmt: skip
