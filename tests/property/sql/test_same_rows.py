"""Give UPDATE, DELETE and MERGE the condition of a SELECT: they find the same rows.

A text that the list of same meanings (``engines/sql/meaning``) accepts has DuckDB's value on every
row, and a DELETE deletes the rows that the SELECT before it has returned.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import StatementExpressions
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, meaning_in
from tests.property.sql.conditions import ROWS, Conditions, table

_RAISED = object()


@pytest.mark.parametrize("seed", range(400))
def test_a_compiled_expression_has_the_value_that_duckdb_computes(seed: int) -> None:
    random = Random(seed)
    rows = table(random)
    database = _database(rows)
    drawn = Conditions(random)
    outcomes: Counter[str] = Counter()
    for _ in range(60):
        text = random.choice((drawn.condition, drawn.number, drawn.text, drawn.instant))(3)
        outcomes[_compared(database, text, rows.schema)] += 1
    assert outcomes["same"] > 5, outcomes


def _compared(database: duckdb.DuckDBPyConnection, text: str, schema: pa.Schema) -> str:
    together = StatementExpressions(meaning=meaning_in("duckdb"))
    try:
        tree = together.assignments({"value": text})["value"]
        bound = bind(tree, schema, predicate=False)
        together.check(schema)
    except InvalidOperation:
        return "refused"
    except OtherMeaning:
        return "by the engine"
    theirs, ours = _values(database, text), _values(database, to_duckdb(bound, schema))
    if theirs is None:
        return "refused by the SELECT"
    assert ours is not None, text
    for row, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if one is not _RAISED and other is not _RAISED:
            assert _same(one, other), f"row {row}: {text} is {one} in a SELECT and {other} else"
    return "same"


def _database(rows: pa.Table) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("given", rows)
    database.execute("CREATE TABLE t AS FROM given ORDER BY id")
    return database


def _values(database: duckdb.DuckDBPyConnection, text: str) -> list[Any] | None:
    """Return the value on each row; None for a row on which the text has no value."""
    query = f"SELECT {text} FROM t"
    try:
        return _plain(database.sql(f"{query} ORDER BY id").to_arrow_table())
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException):
        return None
    except duckdb.Error:
        found: list[Any] = []
        for row in range(ROWS):
            try:
                found += _plain(database.sql(f"{query} WHERE id = {row}").to_arrow_table())
            except duckdb.Error:
                found.append(_RAISED)
        return found


def _plain(found: pa.Table) -> list[Any]:
    return [_comparable(value) for value in found.column(0)]


def _comparable(scalar: pa.Scalar) -> Any:
    """Return numbers by their value and timestamps in UTC, whatever the type is."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return _RAISED  # a year that the language does not support
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _same(one: Any, other: Any) -> bool:
    """Return whether a SELECT and the language compute the same value; NaN equals itself."""
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        one, other = float(one), float(other)
        return one == other or (one != one and other != other)
    return bool(one == other)


@pytest.mark.parametrize("seed", range(60))
def test_a_delete_deletes_the_rows_that_the_select_before_it_has_returned(seed: int) -> None:
    random = Random(seed)
    lake = lv.connect(f"memory://same/{seed}")
    lake.create_table("t", table(random))
    session = lake.session()
    drawn = Conditions(random)
    done = 0
    for _ in range(15):
        text = drawn.condition(2)
        session.sql("BEGIN")
        try:
            shown = _ids(session.sql(f"SELECT id FROM t WHERE {text}"))
            session.sql(f"DELETE FROM t WHERE {text}")
        except lv.LakeVillaError:
            session.sql("ROLLBACK")
            continue
        left = _ids(session.sql("SELECT id FROM t"))
        assert left == set(range(ROWS)) - shown, text
        session.sql("ROLLBACK")
        done += 1
    assert done > 2


def _ids(found: Any) -> set[int]:
    return {row["id"] for row in found.to_pylist()}
