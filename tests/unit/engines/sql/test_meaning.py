"""Each function is known to mean the same in DuckDB's SELECT, or another thing."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lakevilla.engines.sql.meaning.duckdb import SAME_NAMES, OtherMeaning, meaning_in
from lakevilla.engines.sql.meaning.spellings import SPELLINGS
from lakevilla.expressions.functions.catalogue import FUNCTIONS
from lakevilla.expressions.functions.shorthand import ALIASES, SHORTHANDS
from lakevilla.expressions.statement import StatementExpressions

#: Those that the engine computes, since DuckDB means something else by them.
OTHERS = {"element_at", "regexp_replace", "reverse", "sign", "split", "to_json"}
COLUMNS = pa.schema([("i", pa.int64()), ("d", pa.float64()), ("f", pa.float32()),
                     ("s", pa.string())])  # fmt: skip


def test_a_new_function_is_held_against_duckdb_before_it_counts_as_the_same() -> None:
    called = {name for name, function in FUNCTIONS.items() if function.called}
    written = {name for name in called | SHORTHANDS.keys() | ALIASES.keys() if name.isidentifier()}
    assert written - {"is_null", "add_interval"} <= SAME_NAMES | OTHERS | SPELLINGS.keys()
    assert not OTHERS & SAME_NAMES


def test_what_counts_as_the_same_without_an_operand_is_no_function_of_duckdb() -> None:
    known = {
        name for (name,) in duckdb.sql("SELECT function_name FROM duckdb_functions()").fetchall()
    }
    assert {"initcap", "nvl", "date_format", "locate", "rlike", "to_date"}.isdisjoint(known)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cast(d as bigint) = 1", "cast of double to long .* round"),
        ("i = cast(1.5 as bigint)", "cast of .* to long"),
        ("f + 1 > 2", "float"),
        ("i between d and i", "between"),
        ("reverse(s) = 'a'", "reverse .* accents"),
        ("left(s, i) = 'a'", "left"),
        ("regexp_matches(s, 'a.c')", "regexp_like"),
    ],
)
def test_what_means_something_else_is_named(text: str, said: str) -> None:
    together = StatementExpressions(meaning=meaning_in("duckdb"))
    together.predicate(text)
    with pytest.raises(OtherMeaning, match=said):
        together.check(COLUMNS)


def test_on_spark_the_language_stands_as_it_is() -> None:
    together = StatementExpressions(meaning=meaning_in("spark"))
    together.predicate("cast(d as bigint) = 1")
    together.check(COLUMNS)
