"""The families of functions as DuckDB SQL, with the language's meaning.

Each function takes the call, the SQL of its operands, their types and its own type. Operands for
which DuckDB would raise are removed before they reach its function: inside a CASE, DuckDB may
compute them for rows that the CASE leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakevilla.engines.duckdb.sqltext import (
    quote_text,
    to_type,
    utc,
    wall_clock_literal,
    within_years,
)
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.functions.patterns import LAST_BREAK, Pattern, pattern, replacement
from lakevilla.sql.expressions.functions.temporal import (
    Format,
    canonical,
    form_of,
    format_of,
    read_format,
)
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import Call
from lakevilla.sql.expressions.types import arrow_type, element_type, type_name

Rendering = Callable[[Call, list[str], list[str], str], str]

_NAN = "CAST('NaN' AS DOUBLE)"
#: More characters than any text has: DuckDB counts characters in 32 bits.
_MOST = 2**31 - 1


def _template(text: str) -> Rendering:
    return lambda call, args, types, type_: text.format(*args)


def _constant(call: Call, at: int) -> Any:
    return evaluate(call.args[at], {})


def _error(call: Call, what: str) -> str:
    return f"error({quote_text(f'{shown_sql(call)} {what}')})"


# -- numbers ---------------------------------------------------------------------------------


def _power(call: Call, args: list[str], types: list[str], type_: str) -> str:
    odd = "isnan({1}) OR (isinf({1}) AND abs({0}) = 1)"
    return f"CASE WHEN {odd} THEN {{0}} + {_NAN} ELSE pow({{0}}, {{1}}) END".format(*args)


def _positive(name: str) -> Rendering:
    return _template(f"{name}(CASE WHEN {{0}} > 0 THEN {{0}} END)")


# -- text ------------------------------------------------------------------------------------


def _side(call: Call, args: list[str], types: list[str], type_: str) -> str:
    count = f"CASE WHEN {args[1]} < 0 THEN 0 WHEN {args[1]} > {_MOST} THEN {_MOST} ELSE {args[1]}"
    return f"{call.name}({args[0]}, {count} END)"


def _pad(call: Call, args: list[str], types: list[str], type_: str) -> str:
    fill = args[2] if len(args) == 3 else "' '"
    return f"{call.name}({args[0]}, {to_type(args[1], 'integer')}, {fill})"


def _joined(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if len(args) == 1:
        return f"CASE WHEN {args[0]} IS NOT NULL THEN '' END"
    return f"concat_ws({', '.join(args)})"


def _pattern(call: Call) -> tuple[Pattern, str]:
    found = pattern(_constant(call, 1))
    return found, quote_text(found.text)


def _regexp_like(call: Call, args: list[str], types: list[str], type_: str) -> str:
    found, text = _pattern(call)
    matches = f"regexp_matches({args[0]}, {text})"
    if not found.dollar:
        return matches
    cut = f"regexp_replace({args[0]}, {quote_text(LAST_BREAK)}, '')"
    return f"{matches} OR regexp_matches({cut}, {text})"


def _regexp_replace(call: Call, args: list[str], types: list[str], type_: str) -> str:
    found, text = _pattern(call)
    with_ = quote_text(replacement(_constant(call, 2), found.groups))
    return f"regexp_replace({args[0]}, {text}, {with_}, 'g')"


def _regexp_extract(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return f"regexp_extract({args[0]}, {_pattern(call)[1]}, {_constant(call, 2)})"


def _split(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return f"string_split_regex({args[0]}, {_pattern(call)[1]})"


def _initcap(call: Call, args: list[str], types: list[str], type_: str) -> str:
    word = "upper(substring(__word, 1, 1)) || lower(substring(__word, 2))"
    words = f"list_transform(string_split({args[0]}, ' '), lambda __word: {word})"
    return f"array_to_string({words}, ' ')"


# -- dates -----------------------------------------------------------------------------------


def _add_months(call: Call, args: list[str], types: list[str], type_: str) -> str:
    moved = within_years(f"{args[0]} + to_months({to_type(args[1], 'integer')})", shown_sql(call))
    return to_type(moved, "date")


def _make_date(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return within_years(f"make_date({', '.join(args)})", shown_sql(call))


_FIELDS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%g",
    "SSSSSS": "%f",
}


def _date_format(call: Call, args: list[str], types: list[str], type_: str) -> str:
    pieces = format_of(_constant(call, 1)).pieces
    text = "".join(_FIELDS[piece] if field else piece for piece, field in pieces)
    return f"strftime({utc(args[0], types[0])}, {quote_text(text)})"


def _read_format(call: Call, args: list[str], types: list[str], type_: str) -> str:
    timed = type_ != "date"
    found: Format = read_format(_constant(call, 1), "fraction" if timed else "day")
    form = quote_text(form_of(found))
    iso = f"regexp_replace({args[0]}, {form}, {quote_text(canonical(found, timed))})"
    value = wall_clock_literal(f"CAST({iso} AS TIMESTAMP)", type_) if timed else to_type(iso, type_)
    wrong = _error(call, "reads a text of another form: correct it, or leave such rows out")
    return f"CASE WHEN NOT regexp_full_match({args[0]}, {form}) THEN {wrong} ELSE {value} END"


# -- arrays and maps ----------------------------------------------------------------


def _get(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if types[0].startswith("map<"):
        return f"map_extract_value({args[0]}, {args[1]})"
    # A negative index finds nothing; DuckDB would count from the end.
    at = f"CASE WHEN {args[1]} BETWEEN 0 AND {_MOST} THEN {args[1]} + 1 END"
    return f"list_extract({args[0]}, {at})"


def _element_at(call: Call, args: list[str], types: list[str], type_: str) -> str:
    if types[0].startswith("map<"):
        return f"map_extract_value({args[0]}, {args[1]})"
    wrong = _error(call, "counts elements from 1: there is no element 0")
    known = f"{args[1]} BETWEEN -{_MOST} AND {_MOST}"
    zero = f"WHEN {args[1]} = 0 AND len({args[0]}) > 0 THEN {wrong}"
    return f"list_extract({args[0]}, CASE {zero} WHEN {known} THEN {args[1]} END)"


def _size(call: Call, args: list[str], types: list[str], type_: str) -> str:
    name = "cardinality" if types[0].startswith("map<") else "len"
    return f"CAST({name}({args[0]}) AS BIGINT)"


def _array_contains(call: Call, args: list[str], types: list[str], type_: str) -> str:
    found = f"list_contains({args[0]}, {args[1]})"
    unknown = f"{args[1]} IS NULL OR (NOT {found} AND list_count({args[0]}) < len({args[0]}))"
    return f"CASE WHEN {unknown} THEN NULL ELSE {found} END"


# -- JSON ------------------------------------------------------------------------------------


def _to_json(call: Call, args: list[str], types: list[str], type_: str) -> str:
    return _written(args[0], types[0], 0)


def _written(sql: str, type_: str, depth: int) -> str:
    """Return the JSON of a value; NULL for NULL."""
    if (element := element_type(type_)) is not None:
        one = f"__one{depth}"
        items = f"lambda {one}: coalesce({_written(one, element, depth + 1)}, 'null')"
        return f"'[' || array_to_string(list_transform({sql}, {items}), ',') || ']'"
    if type_.startswith("struct<"):
        fields = ", ".join(
            f"{quote_text(f'{chr(34)}{field.name}{chr(34)}:')} || "
            + _written(f"struct_extract({sql}, {quote_text(field.name)})",
                       type_name(field.type), depth)
            for field in arrow_type(type_)
        )  # fmt: skip
        return f"(CASE WHEN {sql} IS NOT NULL THEN '{{' || concat_ws(',', {fields}) || '}}' END)"
    return f"CAST(to_json({sql}) AS VARCHAR)"


#: Syntax beyond RFC 8259 that DuckDB accepts as JSON, in a document without its strings.
#: docs/upstream.md, "json_valid is true of text that is no JSON"
_LENIENT = r",[ \t\n\r]*[\]}]|/|[nN][aA][nN]|[iI][nN][fF]"


def _get_json_object(call: Call, args: list[str], types: list[str], type_: str) -> str:
    bare = f"""regexp_replace({args[0]}, '"(?:[^"\\\\]|\\\\.)*"', '""', 'g')"""
    valid = f"json_valid({args[0]}) AND NOT regexp_matches({bare}, '{_LENIENT}')"
    document = f"(CASE WHEN {valid} THEN {args[0]} END)"
    kind = f"json_type({document}, {args[1]})"
    text = f"json_extract_string({document}, {args[1]})"
    number = f"abs(CAST(json_extract({document}, {args[1]}) AS DOUBLE))"
    wrong = _error(
        call, "finds an object, an array or a number with an exponent: name a part of it"
    )
    return (
        f"CASE WHEN {kind} IS NULL OR {kind} = 'NULL' THEN NULL "
        f"WHEN {kind} IN ('VARCHAR', 'BOOLEAN', 'BIGINT', 'UBIGINT') THEN {text} "
        f"WHEN {kind} = 'DOUBLE' AND ({number} = 0 OR ({number} >= 0.001 AND {number} < 1e7)) "
        f"THEN {text} ELSE {wrong} END"
    )


RENDERED: dict[str, Rendering] = {
    "power": _power,
    "exp": _template("exp({0})"),
    "ln": _positive("ln"),
    "log10": _positive("log10"),
    "sqrt": _template(f"sqrt(CASE WHEN {{0}} < 0 THEN {_NAN} ELSE {{0}} END)"),
    "sign": _template("CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"),
    "left": _side,
    "right": _side,
    "lpad": _pad,
    "rpad": _pad,
    "initcap": _initcap,
    # Reverse character by character: DuckDB's own function keeps letters and their accents
    # together.
    "reverse": _template("array_to_string(list_reverse(regexp_extract_all({0}, '(?s).')), '')"),
    "translate": _template("translate({0}, {1}, {2})"),
    "instr": _template("instr({0}, {1})"),
    "concat_ws": _joined,
    "split_part": _template("split_part({0}, {1}, {2})"),
    "split": _split,
    "regexp_like": _regexp_like,
    "regexp_replace": _regexp_replace,
    "regexp_extract": _regexp_extract,
    "md5": _template("md5({0})"),
    "sha1": _template("sha1({0})"),
    "sha2": _template("sha256({0})"),
    "quarter": _template("quarter({0})"),
    "weekofyear": _template("weekofyear({0})"),
    "dayofyear": _template("dayofyear({0})"),
    "dayofweek": _template("dayofweek({0}) + 1"),
    "weekday": _template("isodow({0}) - 1"),
    "datediff": _template("date_diff('day', {1}, {0})"),
    "add_months": _add_months,
    "last_day": _template("last_day({0})"),
    "make_date": _make_date,
    "date_format": _date_format,
    "to_date": _read_format,
    "to_timestamp": _read_format,
    "to_timestamp_ntz": _read_format,
    "get": _get,
    "element_at": _element_at,
    "size": _size,
    "array_contains": _array_contains,
    "to_json": _to_json,
    "get_json_object": _get_json_object,
}
