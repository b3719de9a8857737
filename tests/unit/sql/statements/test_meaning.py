"""Each function is classified: it means the same in DuckDB's SELECT, or something else."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lakevilla.sql.expressions.functions.catalogue import FUNCTIONS
from lakevilla.sql.expressions.functions.shorthand import ALIASES, SHORTHANDS
from lakevilla.sql.expressions.parse import StatementExpressions
from lakevilla.sql.statements.meaning.duckdb import SAME_NAMES, OtherMeaning, meaning_in
from lakevilla.sql.statements.meaning.spellings import SPELLINGS

#: Functions that the engine computes itself, since DuckDB defines them differently.
OTHERS = {"element_at", "ln", "log10", "regexp_replace", "reverse", "sign", "split", "to_json"}
COLUMNS = pa.schema([("i", pa.int64()), ("d", pa.float64()), ("f", pa.float32()),
                     ("s", pa.string()), ("m", pa.decimal128(10, 2)),
                     ("w", pa.decimal128(38, 2)), ("t", pa.timestamp("us", "UTC")),
                     ("n", pa.timestamp("us")), ("y", pa.date32())])  # fmt: skip


def test_each_function_is_listed_either_as_the_same_in_duckdb_or_as_different() -> None:
    called = {name for name, function in FUNCTIONS.items() if function.called}
    written = {name for name in called | SHORTHANDS.keys() | ALIASES.keys() if name.isidentifier()}
    assert written - {"is_null", "add_interval"} <= SAME_NAMES | OTHERS | SPELLINGS.keys()
    assert not OTHERS & SAME_NAMES


def test_functions_accepted_without_checking_operands_do_not_exist_in_duckdb() -> None:
    known = {
        name for (name,) in duckdb.sql("SELECT function_name FROM duckdb_functions()").fetchall()
    }
    assert {"initcap", "nvl", "date_format", "locate", "rlike", "to_date"}.isdisjoint(known)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cast(d as bigint) = 1", "cast of double to long .* round"),
        ("i = cast(1.5 as bigint)", "cast of .* to long"),
        ("log10(d) > 1", "log10"),
        ("array_contains([1, 2], i)", "array_contains"),
        ("f + 1 > 2", "float"),
        ("f in (2.5e0, 0.1)", "in of float and double and decimal"),
        ("f between 0.1 and 2.5e0", "between of float and .* float to double"),
        ("i between d and i", "between"),
        ("coalesce(m, 2.5e0) = 1", "coalesce of decimal.* and double .* without e0"),
        ("case when i = 1 then 9.99 else 2.5e0 end = 1", "case of decimal.* and double"),
        ("w < 2.5e0", "< of decimal.* and double"),
        ("i = 1e17", "= of long and double"),
        ("nullif(i, 0.5) = 1", "nullif of long and decimal"),
        ("nullif(w, d) = 1", "nullif of decimal.* and double"),
        ("i / -5::float = 1", "/ of long and float"),
        ("d % floor(f) = 1", "floor of float"),
        ("ceil(9223372036854775808) = d", "ceil of decimal"),
        ("date_trunc('month', t) <> '2024-02-29'", "<> of timestamp"),
        ("timestamp_ntz '2024-02-29 01:00:00' = date_trunc('day', n)", "= of timestamp_ntz"),
        ("reverse(s) = 'a'", "reverse .* accents"),
        ("left(s, i) = 'a'", "left"),
        ("regexp_matches(s, 'a.c')", "regexp_like"),
        ("cast(coalesce(i, 0.0) as string) = s", "coalesce of long and decimal.* no more digits"),
        ("s = cast(greatest(1.500, m) + 1 as string) || 'x'", "greatest of decimal"),
        ("cast(case when i = 1 then i else 0.00 end as string) = s", "case of long and decimal"),
        ("cast(y + interval '1' month as string) = s", "cast of date to string .* has a time"),
        ("s = coalesce(date_trunc('month', y), y)::string || 'x'", "cast of date to string"),
        ("cast(case when i = 1 then y else y - interval 1 day end as string) = s", "of date"),
    ],
)
def test_expressions_that_mean_something_else_in_duckdb_are_refused_by_name(
    text: str, said: str
) -> None:
    together = StatementExpressions(meaning=meaning_in("duckdb"))
    together.predicate(text)
    with pytest.raises(OtherMeaning, match=said):
        together.check(COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "coalesce(i, 2.5e0) = 1",
        "coalesce(d, 0.0) = 0",
        "m < 2.5e0",
        "i = 2e0",
        "w < d",
        "nullif(m, 0.00) = 1",
        "date_trunc('month', t) <> '2024-02-01'",
        "date_trunc('day', n) = n",
        "cast(coalesce(m, 0.5, 1) as string) = s",
        "coalesce(i, 0.0) = 1",
        "cast(coalesce(date_add(y, 1), last_day(y)) as string) = s",
        "cast(cast(y + interval '1' month as date) as string) = s",
        "date_trunc('month', t) < '2024-02-29'",
    ],
)
def test_expressions_that_mean_the_same_in_duckdb_are_accepted(text: str) -> None:
    together = StatementExpressions(meaning=meaning_in("duckdb"))
    together.predicate(text)
    together.check(COLUMNS)


def test_expressions_are_accepted_unchecked_on_spark() -> None:
    together = StatementExpressions(meaning=meaning_in("spark"))
    together.predicate("cast(d as bigint) = 1")
    together.check(COLUMNS)
