"""Bound trees as DuckDB SQL with the language's meaning, whatever the session's settings.

Where DuckDB is lenient, the text makes it strict: division by zero and malformed strings raise,
timestamps are split in UTC, decimals get the type that the language gives them. Columns must have
the DuckDB type of their Delta type (``duckdb_type``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.engines.duckdb.functions import RENDERED
from lakevilla.engines.duckdb.sqltext import (
    duckdb_type,
    quote_name,
    quote_text,
    to_type,
    utc,
    wall_clock_literal,
    within_years,
)
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, Scope
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.functions.catalogue import RAISING, resolve
from lakevilla.sql.expressions.functions.core import COMPARISONS
from lakevilla.sql.expressions.render import quoted, shown_sql
from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal, columns
from lakevilla.sql.expressions.types import (
    MAX_PRECISION,
    common_type,
    decimal_parts,
    is_decimal,
    is_fractional,
    is_integer,
)
from lakevilla.sql.expressions.values import STRING_FORMS

MAX_TEXT = 16 << 20

#: Return the SQL of a column from its path and alias.
ColumnSQL = Callable[[tuple[str, ...], str | None], str]


def to_duckdb(expr: Expr, schema: Schemas, column: ColumnSQL | None = None) -> str:
    """Return a bound expression as DuckDB SQL.

    Parameters
    ----------
    expr : Expr
        Bound to ``schema``.
    schema : pyarrow.Schema or Mapping of alias to schema
        Types decide how casts and arithmetic are written.
    column : Callable, optional
        SQL of a column; by default its quoted names.

    Raises
    ------
    InvalidOperation
        The text would be too long.
    """
    try:
        return _Renderer(Scope(schema), column or _quoted_column).render(expr).text
    except RecursionError:
        raise InvalidOperation("expression is nested too deeply: split it") from None


def _quoted_column(path: tuple[str, ...], table: str | None) -> str:
    sql = quote_name(path[0])
    if table is not None:
        sql = f"{quote_name(table)}.{sql}"
    for name in path[1:]:
        sql = f"struct_extract({sql}, {quote_text(name)})"
    return sql


@dataclass(frozen=True, slots=True)
class _SQL:
    """SQL text that needs no parentheses, the Delta type of its value, and whether it can raise."""

    text: str
    type: str
    raises: bool = False


class _Renderer:
    def __init__(self, scope: Scope, column: ColumnSQL) -> None:
        self._scope = scope
        self._column = column

    def render(self, expr: Expr) -> _SQL:
        sql = self._render(expr)
        if len(sql.text) > MAX_TEXT:
            raise InvalidOperation("expression is too large: split it, or pass lists as a source")
        return sql

    def _render(self, expr: Expr) -> _SQL:
        if isinstance(expr, Literal):
            return _SQL(_literal(expr), expr.type)
        if isinstance(expr, Column):
            type_ = self._scope.column(expr)[1]
            return _SQL(self._column(expr.path, expr.table), type_)
        if isinstance(expr, Cast):
            arg = self.render(expr.arg)
            raises = arg.raises or common_type(arg.type, expr.type) != expr.type
            text = _row_by_row(expr.arg, arg.text) if raises else arg.text
            return _SQL(_cast(text, arg.type, expr.type, shown_sql(expr)), expr.type, raises)
        if isinstance(expr, Case):
            return self._case(expr)
        args = [self.render(arg) for arg in expr.args]
        if expr.name in ("and", "or"):
            text = _logic(expr.name, args)
            return _SQL(text, "boolean", any(arg.raises for arg in args))
        types = [arg.type for arg in args]
        _, type_ = resolve(expr.name, expr.args, types)
        compares = expr.name in COMPARISONS or expr.name == "in"
        texts = [_opaque(arg) if compares else arg.text for arg in args]
        if expr.name in RAISING:
            texts = [_row_by_row(*pair) for pair in zip(expr.args, texts, strict=True)]
        if expr.name == "in" and args[0].raises and len(args) > 1:
            text = _in_its_place(args[0].text, texts[1:])
        else:
            text = _call(expr, texts, types, type_)
        raises = expr.name in RAISING or any(arg.raises for arg in args)
        return _SQL(f"({text})", type_, raises)

    def _case(self, expr: Case) -> _SQL:
        branches = [(self.render(when), self.render(then)) for when, then in expr.branches]
        parts = [f"WHEN {when.text} THEN {then.text}" for when, then in branches]
        raises = any(sql.raises for branch in branches for sql in branch)
        if expr.otherwise is not None:
            otherwise = self.render(expr.otherwise)
            parts.append(f"ELSE {otherwise.text}")
            raises = raises or otherwise.raises
        return _SQL(f"(CASE {' '.join(parts)} END)", branches[0][1].type, raises)


def _opaque(sql: _SQL) -> str:
    """Hide an operand that can raise from the optimizer.

    DuckDB turns ``a + 1 > 5`` into ``a > 4`` and drops casts next to constants: then the overflow
    that should raise is lost. It does not optimize within lists.
    """
    # DuckDB means it so: https://github.com/duckdb/duckdb/pull/24998
    return f"list_extract([{sql.text}], 1)" if sql.raises else sql.text


def _row_by_row(expr: Expr, text: str) -> str:
    """Return an operand of an operation that can raise, computed only for the rows that need it.

    DuckDB casts a struct's field for all rows of a chunk, including those that a filter or a CASE
    has left out, and raises for them.
    """
    # docs/upstream.md, "A field of a struct is cast for rows that a condition excludes"
    nested = isinstance(expr, Column) and len(expr.path) > 1
    return f"list_extract([{text}], 1)" if nested else text


def _logic(name: str, terms: Sequence[_SQL]) -> str:
    """Evaluate ``and`` and ``or`` from left to right.

    DuckDB reorders terms as it runs, so a term that can raise is put behind a CASE that repeats the
    terms before it. The terms before it also stay outside of the CASE, where DuckDB uses
    statistics.
    """
    word = f" {name.upper()} "
    for at in range(1, len(terms)):
        if terms[at].raises:
            head, tail = _logic(name, terms[:at]), _logic(name, terms[at:])
            stop = f"NOT {head} THEN false" if name == "and" else f"{head} THEN true"
            return f"({head}{word}(CASE WHEN {stop} ELSE {tail} END))"
    return f"({word.join(term.text for term in terms)})"


def _literal(constant: Literal) -> str:
    text, type_ = constant.value, constant.type
    if text is None:
        return "NULL" if type_ == "void" else f"CAST(NULL AS {duckdb_type(type_)})"
    if type_ == "boolean":
        return text
    if type_ == "string":
        return quote_text(text)
    if type_ == "binary":
        return f"from_hex('{text}')"
    if type_ == "float":
        return f"CAST(CAST({quoted(text)} AS DOUBLE) AS FLOAT)"
    if type_ == "timestamp" and not text.endswith("Z"):
        text += "Z"
    return f"CAST({quoted(text)} AS {duckdb_type(type_)})"


def _cast(sql: str, type_: str, to: str, shown: str) -> str:
    if type_ in (to, "void"):
        return to_type(sql, to)
    if type_ == "string":
        return _cast_string(sql, to, shown)
    if is_integer(to) and (is_fractional(type_) or is_decimal(type_)):
        return to_type(f"trunc({sql})", to)
    if is_decimal(to) and is_fractional(type_):
        return _decimal_of_fraction(to_type(sql, "double"), to)
    if is_decimal(to) and is_decimal(type_):
        (precision, scale), new_scale = decimal_parts(type_), decimal_parts(to)[1]
        wide = min(MAX_PRECISION, precision - scale + new_scale + 1)
        # Round in a wider type, then narrow: DuckDB checks the digits before it rounds, and 9.96
        # would become a decimal(2,1) of three digits.
        return to_type(to_type(sql, f"decimal({max(wide, new_scale, 1)},{new_scale})"), to)
    if is_fractional(to) and is_decimal(type_) and decimal_parts(type_)[0] > 15:
        # DuckDB divides in binary, which is inexact beyond 15 digits; text is exact.
        # https://github.com/duckdb/duckdb/issues/14387
        sql, type_ = to_type(to_type(sql, "string"), "double"), "double"
    if to == "float" and type_ != "double":
        return to_type(to_type(sql, "double"), "float")
    if to == "string" and is_decimal(type_) and len(set(decimal_parts(type_))) == 1:
        # If a type has no digit before the point, DuckDB leaves out the zero there.
        # docs/upstream.md, "The text of a decimal lacks the zero before the point"
        return f"regexp_replace({to_type(sql, to)}, '^(-?)[.]', '\\10.')"
    if to in ("date", "timestamp_ntz") and type_ == "timestamp":
        return to_type(utc(sql, type_), to)
    if to == "timestamp":
        return f"({to_type(sql, 'timestamp_ntz')} AT TIME ZONE 'UTC')"
    return to_type(sql, to)


def _decimal_of_fraction(sql: str, to: str) -> str:
    """Cast through the shortest text: in binary, 1.005 is below the half that rounds up.

    The text of a small number has an exponent, and DuckDB (1.5) rounds such a text one digit after
    the other: 6.9e-05 would be 0.1 with one decimal. With 37 decimals, almost nothing is rounded.
    """
    # https://github.com/duckdb/duckdb/issues/3091 (doubles)
    # https://github.com/duckdb/duckdb/issues/23768 (texts with an exponent)
    text = to_type(sql, "string")
    small = to_type(to_type(text, "decimal(38,37)"), to)
    large = to_type(to_type(text, _wider(to)), to)
    return f"(CASE WHEN abs({sql}) < 1e-3 THEN {small} ELSE {large} END)"


def _wider(type_: str) -> str:
    precision, scale = decimal_parts(type_)
    return f"decimal({min(MAX_PRECISION, precision + 1)},{scale})"


def _cast_string(sql: str, to: str, shown: str) -> str:
    kind = "decimal" if is_decimal(to) else to
    form = STRING_FORMS[kind].pattern
    if to == "timestamp":
        # A text without a zone is in UTC, whatever the session's zone.
        zoned = f"regexp_matches({sql}, ':.*(Z|[+-][0-9]{{2}}:[0-9]{{2}})$')"
        naive = f"CAST({sql} AS TIMESTAMP) AT TIME ZONE 'UTC'"
        clock = within_years(f"({to_type(sql, to)} AT TIME ZONE 'UTC')", shown)
        value = f"CASE WHEN {zoned} THEN {clock} AT TIME ZONE 'UTC' ELSE {naive} END"
    elif is_decimal(to):
        value = to_type(to_type(sql, _wider(to)), to)
    elif to == "float":
        value = to_type(to_type(sql, "double"), "float")
    elif is_integer(to):
        value = to_type(to_type(sql, "decimal(38,0)"), to)
    else:
        value = to_type(sql, to)
    message = f"cannot cast to {to} in {shown}: correct the value, or leave such rows out"
    return (
        f"(CASE WHEN NOT regexp_full_match({sql}, {quoted(form)}) "
        f"THEN error({quote_text(message)} || ' (' || {sql} || ')') ELSE {value} END)"
    )


def _call(call: Call, args: list[str], types: list[str], type_: str) -> str:
    name = call.name
    if (template := _TEMPLATES.get(name)) is not None:
        return template.format(*args)
    return _SPECIAL[name](call, args, types, type_)


def _same(call: Call, args: list[str], types: list[str], type_: str) -> str:
    """Return an equality that counts NULL as a value.

    ``x IS DISTINCT FROM c OR x = c`` is false to DuckDB's optimizer where all of ``x`` is NULL, so
    a CASE hides an equality over one table's columns from it. A merge's condition compares two
    tables: it stays unchanged, to be a join's key.
    """
    # https://github.com/duckdb/duckdb/issues/25992
    equal = f"{args[0]} IS NOT DISTINCT FROM {args[1]}"
    left, right = ({column.table for column in columns(arg)} for arg in call.args)
    if left and right and left.isdisjoint(right):
        return equal
    return f"CASE WHEN {equal} THEN true ELSE false END"


def _function(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return f"{call.name}({', '.join(args)})"


def _in(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if len(args) == 1:
        return "false"
    return f"{args[0]} IN ({', '.join(args[1:])})"


def _in_its_place(operand: str, items: Sequence[str]) -> str:
    """Return ``IN`` of an operand that can raise, evaluated row by row.

    For many constants DuckDB makes a join, whose operand it computes for all rows, including those
    that a CASE around it has left out.
    """
    # docs/upstream.md, "IN with many constants is computed for rows that a condition excludes"
    listed = ", ".join(items)
    return f"list_extract(list_transform([{operand}], lambda __one: __one IN ({listed})), 1)"


def _like(call: Call, args: list[str], types: list[str], type_: str) -> str:
    escape = f" ESCAPE {args[2]}" if len(args) == 3 else ""
    if call.name == "like":
        return f"{args[0]} LIKE {args[1]}{escape}"
    pattern = quote_text(evaluate(Call("lower", (call.args[1],)), {}))
    return f"lower({args[0]}) LIKE {pattern}{escape}"


def _sum(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if is_decimal(type_):
        # Cast both to one type, or DuckDB would keep sums of short decimals to 18 digits.
        args = [to_type(arg, type_) for arg in args]
        return to_type(f"{args[0]} {call.name} {args[1]}", type_)
    return f"{args[0]} {call.name} {args[1]}"


def _product(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if not is_decimal(type_):
        return f"{args[0]} * {args[1]}"
    precision, scale = decimal_parts(types[0])
    if decimal_parts(type_)[0] > 18:  # else DuckDB would keep the product to 18 digits
        args = [to_type(args[0], f"decimal({max(19, precision)},{scale})"), args[1]]
    return to_type(f"{args[0]} * {args[1]}", type_)


def _divide(call: Call, args: list[str], types: list[str], type_: str) -> str:
    divisor, zero = args[1], to_type("0", types[1]) if types[1] != "void" else "0"
    constant = call.args[1]
    known = isinstance(constant, Literal) and evaluate(constant, {}) not in (0, -1)
    if not known:
        message = (
            f"division by zero in {shown_sql(call)}: use nullif(divisor, 0), or leave such rows "
            "out with a case expression"
        )
        # The least long % -1 overflows in DuckDB; the remainder by 1 is the same.
        # https://github.com/duckdb/duckdb/issues/25112
        ones = "WHEN -1 THEN 1 " if call.name == "%" and types[1] == "long" else ""
        raises = f"WHEN {zero} THEN error({quote_text(message)})"
        divisor = f"(CASE {divisor} {raises} {ones}ELSE {divisor} END)"
    return f"{args[0]} {call.name} {divisor}"


def _whole(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if type_ == "long":
        return args[0]
    if not is_decimal(type_):
        return f"{call.name}({args[0]})"
    digits = ""
    if len(call.args) == 2:
        digits = f", {decimal_parts(type_)[1]}"
    return to_type(f"{call.name}({to_type(args[0], _wider(types[0]))}{digits})", type_)


def _substring(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return f"substring({', '.join(args)})"


def _part(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return f"{call.name}({utc(args[0], types[0])})"


def _date_trunc(call: Call, args: list[str], types: list[str], type_: str) -> str:
    # Hide it from the optimizer: where no value can be equal to a constant, DuckDB (1.5) makes a
    # comparison with it false, for NULL too, and then `not` true.
    # https://github.com/duckdb/duckdb/pull/24368
    return wall_clock_literal(
        f"list_extract([date_trunc({args[0]}, {utc(args[1], type_)})], 1)", type_
    )


_INTERVALS = {
    "year": ("to_months", 12),
    "month": ("to_months", 1),
    "week": ("to_days", 7),
    "day": ("to_days", 1),
    "hour": ("to_hours", 1),
    "minute": ("to_minutes", 1),
    "second": ("to_seconds", 1),
    "microsecond": ("to_microseconds", 1),
}


def _add_interval(call: Call, args: list[str], types: list[str], type_: str) -> str:
    count, unit = (evaluate(arg, {}) for arg in call.args[1:])
    function, factor = _INTERVALS[unit]
    moved = within_years(f"{utc(args[0], type_)} + {function}({count * factor})", shown_sql(call))
    return wall_clock_literal(moved, type_)


def _date_add(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return within_years(f"{args[0]} + CAST({args[1]} AS INTEGER)", shown_sql(call))


def _array(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return to_type(f"[{', '.join(args)}]", type_)


def _struct(call: Call, args: list[str], types: list[str], type_: str) -> str:
    names = (arg.value or "" for arg in call.args[::2] if isinstance(arg, Literal))
    pairs = zip(names, args[1::2], strict=True)
    return f"struct_pack({', '.join(f'{quote_name(name)} := {arg}' for name, arg in pairs)})"


_TEMPLATES = {
    "not": "NOT {0}",
    **{name: f"{{0}} {name} {{1}}" for name in ("=", "<>", "<", "<=", ">", ">=", "||")},
    "is_null": "{0} IS NULL",
    "neg": "-{0}",
    "trim": "trim({0}, ' ')",
    "ltrim": "ltrim({0}, ' ')",
    "rtrim": "rtrim({0}, ' ')",
}

_SPECIAL: dict[str, Callable[[Call, list[str], list[str], str], str]] = {
    "<=>": _same,
    **dict.fromkeys(
        ("coalesce", "nullif", "greatest", "least", "abs", "lower", "upper", "length", "replace",
         "starts_with", "ends_with", "contains"), _function),
    "in": _in,
    "like": _like,
    "ilike": _like,
    "+": _sum,
    "-": _sum,
    "*": _product,
    "/": _divide,
    "%": _divide,
    "round": _whole,
    "floor": _whole,
    "ceil": _whole,
    "substring": _substring,
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), _part),
    "date_trunc": _date_trunc,
    "add_interval": _add_interval,
    "date_add": _date_add,
    "array": _array,
    "struct": _struct,
    "map": _function,
    **RENDERED,
}  # fmt: skip
