"""A SELECT in Spark's SQL, over DataFrames in the place of the tables that it names.

Spark would find more than the lake's tables under a name: catalogs, files, views of the session. So
each name is replaced by the frame that it stands for, and a query that names anything else is
refused before Spark sees it.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode
from lakevilla.sql.expressions.parse import refuse_unused
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType, exp
from lakevilla.sql.statements.select import Select, query_of, table_parts, table_path, tokens_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Characters that no plain name has, and that a pattern of names has.
_PATTERN = re.compile(r"[.*+?|()\[\]{}^$\\]")


def run_select(
    session: SparkSession,
    select: Select,
    frames: Mapping[str, DataFrame],
    params: Mapping[str, object],
) -> DataFrame:
    """Return the rows of a query; ``frames`` are named as ``Select.tables`` names them.

    Raises
    ------
    InvalidOperation
        Spark does not understand the query, or a parameter is missing or not used.
    """
    from pyspark.errors import PySparkException

    from lakevilla.engines.spark.rows import first_line

    sql = _with_values(select.sql, params)
    text, places = _template(sql)
    given: dict[str, Any] = {place: frames[table] for place, table in places.items()}
    try:
        return session.sql(text, **given) if given else session.sql(sql)
    except PySparkException as error:
        raise InvalidOperation(f"sql: {first_line(error)}") from None


def assigned(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return rows as INSERT assigns them: 1.5 is a decimal, and may be put into doubles."""
    from pyspark.sql.types import DecimalType

    floating = {field.name.lower(): field for field in schema if pa.types.is_floating(field.type)}
    columns = []
    for field in frame.schema.fields:
        target = floating.get(field.name.lower())
        column = frame[f"`{field.name.replace('`', '``')}`"]
        if target is not None and isinstance(field.dataType, DecimalType):
            kind = "double" if pa.types.is_float64(target.type) else "float"
            column = column.cast(kind).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def plan_of(frame: DataFrame) -> str:
    """Return Spark's plan of a frame."""
    printed = io.StringIO()
    with redirect_stdout(printed):  # no public method returns the plan
        frame.explain()
    return printed.getvalue().strip()


def columns_named(select: Select) -> frozenset[str] | None:
    """Return the query's words, in lower case, that can mean columns; None if it may use all
    columns.

    No other columns of a table need be read than those that some word in the query can mean. Every
    word counts: one that looks like a function or a unit may be a column's name, and so may a text,
    by a setting of Spark's.
    """
    root = query_of(select.sql, "spark")
    for node in root.walk():
        if isinstance(node, exp.Star | exp.Columns) and not isinstance(node.parent, exp.Count):
            return None
        if isinstance(node, exp.Pivot):
            return None
        if isinstance(node, exp.Join) and node.args.get("method"):
            return None  # NATURAL names no column
        if isinstance(node, exp.Select) and not node.expressions:
            return None
        if isinstance(node, exp.Table) and not isinstance(node.parent, exp.From | exp.Join):
            return None
        if isinstance(node, exp.TableAlias) and node.columns:
            return None  # names by position: a column list renames the table's columns
    if "|>" in select.sql:
        return None
    words = frozenset(token.text.lower() for token in tokens_of(select.sql, "spark"))
    # A text is a name in IDENTIFIER(...), and a name may be a pattern, by a setting of Spark's.
    if "identifier" in words or any(_PATTERN.search(word) for word in _quoted_names(root)):
        return None
    return words


def _quoted_names(root: exp.Expr) -> Iterator[str]:
    return (name.name for name in root.find_all(exp.Identifier) if name.args.get("quoted"))


def parameters_in(sql: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return the given parameters that a text uses."""
    return {name.text: params[name.text] for _, name in _marks(sql, params)}


def _template(sql: str) -> tuple[str, dict[str, str]]:
    """Return the query with a placeholder of ``SparkSession.sql`` for each table, and its table."""
    spans = []
    for table in query_of(sql, "spark").find_all(exp.Table):
        parts = table_parts(table)
        if parts is None:
            continue
        ends = [part.meta for part in table.parts]
        start, end = min(e["start"] for e in ends), max(e["end"] for e in ends) + 1
        # A column may be qualified by the last part of its table's name.
        alias = "" if table.alias else f" AS `{parts[-1].replace('`', '``')}`"
        of_sample = _sample_after(sql, end) if table.args.get("sample") else end
        spans.append((start, end, table_path(parts), of_sample, alias))
    pieces, position = [], 0
    places: dict[str, str] = {}
    for start, end, name, of_sample, alias in sorted(spans):
        place = f"lakevilla_{len(places)}"
        places[place] = name
        pieces += [_escaped(sql[position:start]), "{", place, "}"]
        pieces += [_escaped(sql[end:of_sample]), _escaped(alias)]
        position = of_sample
    return "".join([*pieces, _escaped(sql[position:])]), places


def _sample_after(sql: str, end: int) -> int:
    """Return the end of the sample that follows a table: Spark accepts an alias only after it."""
    tokens = [token for token in tokens_of(sql, "spark") if token.start >= end]
    found, depth = end, 0
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.R_PAREN and depth == 0:
            found = token.end + 1
            if following is None or following.text.lower() != "repeatable":
                break
    return found


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _with_values(sql: str, params: Mapping[str, object]) -> str:
    """Return the query with constants in the place of its parameters; a list follows IN.

    Spark's own parameters do not pass the SQL parser that the Delta connector puts in the place of
    Spark's. No text of a parameter becomes SQL: strings are passed as the bytes that they are.
    """
    # https://github.com/delta-io/delta/issues/7640
    pieces, position, used = [], 0, set()
    for colon, name in _marks(sql, params):
        used.add(name.text)
        pieces += [sql[position : colon.start], _constant(params[name.text], name.text)]
        position = name.end + 1
    refuse_unused(params, used)
    return "".join([*pieces, sql[position:]])


def _marks(sql: str, params: Mapping[str, object]) -> list[tuple[Token, Token]]:
    """Return the colons and names of parameters; Spark reports one without a value, and its own."""
    return [
        (colon, name)
        for colon, name in itertools.pairwise(tokens_of(sql, "spark"))
        if colon.token_type is TokenType.COLON
        and name.start == colon.end + 1
        and name.text in params
    ]


def _constant(value: object, name: str) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() if -(2**63) <= value < 2**63:
            return f"({value})" if -(2**31) <= value < 2**31 else f"CAST('{value}' AS BIGINT)"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case Decimal() if value.is_finite():
            digits, scale = len(value.as_tuple().digits), -int(value.as_tuple().exponent)
            precision = max(digits, scale, 1) if scale >= 0 else digits - scale
            return f"CAST('{value:f}' AS DECIMAL({precision},{max(scale, 0)}))"
        case str():
            if not is_unicode(value):
                raise InvalidOperation(f"parameter :{name} has half of a surrogate pair")
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ'{value.isoformat(' ', 'microseconds')}'"
            instant = value.astimezone(UTC).replace(tzinfo=None)
            return f"TIMESTAMP'{instant.isoformat(' ', 'microseconds')}Z'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case list() | tuple():
            return f"({', '.join(_constant(item, name) for item in value) or 'NULL'})"
    raise InvalidOperation(
        f"parameter :{name} is of type {type(value).__name__}: give a number, text, bytes, date, "
        "datetime, None or a list of them"
    )
