"""Functions that are short for other expressions, and names that are refused with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.sql.expressions.tree import Call, Case, Cast, Expr, Literal
from lakevilla.sql.expressions.values import literal

#: Other spellings of a function.
ALIASES = {
    "array_length": "size",
    "array_size": "size",
    "cardinality": "size",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "concat": "||",
    "date_diff": "datediff",
    "day_of_month": "day",
    "dayofmonth": "day",
    "endswith": "ends_with",
    "ifnull": "coalesce",
    "isnull": "is_null",
    "lcase": "lower",
    "len": "length",
    "list_contains": "array_contains",
    "nvl": "coalesce",
    "mod": "%",
    "pow": "power",
    "regexp": "regexp_like",
    "regexp_matches": "regexp_like",
    "rlike": "regexp_like",
    "sha": "sha1",
    "signum": "sign",
    "startswith": "starts_with",
    "strpos": "instr",
    "substr": "substring",
    "ucase": "upper",
    "week": "weekofyear",
}


@dataclass(frozen=True, slots=True)
class Shorthand:
    """A call that is read as another expression.

    Attributes
    ----------
    usage, meaning : str
        Its spelling, and the expression that it is short for.
    counts : tuple of int
        Numbers of operands that it accepts.
    written_out : Callable
        From operands to the expression.
    spark, duckdb : str
        As in ``Function``.
    """

    usage: str
    meaning: str
    counts: tuple[int, ...]
    written_out: Callable[[Sequence[Expr]], Expr]
    spark: str = ""
    duckdb: str = ""


def _if(args: Sequence[Expr]) -> Expr:
    return Case(((args[0], args[1]),), args[2] if len(args) == 3 else None)


def _cast_or_format(type_: str) -> Callable[[Sequence[Expr]], Expr]:
    def written_out(args: Sequence[Expr]) -> Expr:
        if len(args) == 2:
            return Call(f"to_{type_}", tuple(args))
        return Cast(args[0], type_)

    return written_out


def _date_sub(args: Sequence[Expr]) -> Expr:
    days = args[1]
    if isinstance(days, Literal) and days.type == "long" and days.value is not None:
        return Call("date_add", (args[0], literal(-int(days.value))))
    return Call("date_add", (args[0], Call("neg", (days,))))


def _nvl2(args: Sequence[Expr]) -> Expr:
    return Case(((Call("is_null", (args[0],)), args[2]),), args[1])


SHORTHANDS: dict[str, Shorthand] = {
    "if": Shorthand("if(c, a, b)", "case when c then a else b end; also iff", (3,), _if),
    "iff": Shorthand("iff(c, a, b)", "", (3,), _if, spark="if(c, a, b)", duckdb="if(c, a, b)"),
    "nvl2": Shorthand("nvl2(a, b, c)", "case when a is null then c else b end", (3,), _nvl2,
                      duckdb="none"),
    "isnotnull": Shorthand("isnotnull(a)", "a is not null", (1,),
                           lambda args: Call("not", (Call("is_null", tuple(args)),)),
                           duckdb="a is not null"),
    "isnan": Shorthand("isnan(a)", "a <=> NaN: false for NULL", (1,),
                       lambda args: Call("<=>", (args[0], literal(math.nan)))),
    "date_sub": Shorthand("date_sub(a, days)", "date_add(a, -days)", (2,), _date_sub,
                          duckdb="a - days"),
    "locate": Shorthand("locate(a, b)", "instr(b, a)", (2,),
                        lambda args: Call("instr", (args[1], args[0])), duckdb="instr(b, a)"),
    "position": Shorthand("position(a in b)", "instr(b, a); also position(a, b)", (2,),
                          lambda args: Call("instr", (args[1], args[0]))),
    "sha256": Shorthand("sha256(a)", "sha2(a, 256)", (1,),
                        lambda args: Call("sha2", (args[0], literal(256))),
                        spark="sha2(a, 256)"),
    "date": Shorthand("date(a)", "cast(a as date)", (1,), lambda args: Cast(args[0], "date"),
                      duckdb="cast(a as date)"),
    "to_date": Shorthand("to_date(a)", "cast(a as date)", (1, 2), _cast_or_format("date"),
                         duckdb="cast(a as date)"),
    "to_timestamp": Shorthand("to_timestamp(a)", "cast(a as timestamp)", (1, 2),
                              _cast_or_format("timestamp"), duckdb="cast(a as timestamptz)"),
    "to_timestamp_ntz": Shorthand("to_timestamp_ntz(a)", "cast(a as timestamp_ntz)", (1, 2),
                                  _cast_or_format("timestamp_ntz"),
                                  duckdb="cast(a as timestamp)"),
}  # fmt: skip

_FORMATS = "write to_date, to_timestamp or date_format with a format as 'yyyy-MM-dd'"
_RANDOM = "it gives another value each time: compute it first, and pass it in params"
_DIGESTS = "it is not the same everywhere: use md5, sha1 or sha2(a, 256)"
_PATTERNS = "engines differ in it: use regexp_like, regexp_replace or regexp_extract"
_EPOCHS = "engines differ in it: write a timestamp, or compute the number first"
_JSON = "use get_json_object(a, '$.b') for a value, to_json(a) for a text"

#: Functions that users may try, and alternatives to them.
REFUSED: dict[str, str] = {
    **dict.fromkeys(("rand", "random", "randn", "uuid", "gen_random_uuid"), _RANDOM),
    **dict.fromkeys(("hash", "xxhash64", "crc32", "murmur_hash"), _DIGESTS),
    **dict.fromkeys(("strptime", "strftime", "try_strptime"), _FORMATS),
    **dict.fromkeys(("regexp_count", "regexp_extract_all", "regexp_full_match", "regexp_instr",
                     "regexp_substr"), _PATTERNS),
    **dict.fromkeys(("unix_timestamp", "from_unixtime", "epoch", "to_unix_timestamp"), _EPOCHS),
    **dict.fromkeys(("json_extract", "json_extract_string", "json_value", "json_tuple",
                     "from_json"), _JSON),
    "struct_extract": "write a.b for the field b of the column a",
    "log": "it is the natural logarithm in Spark and that to base 10 in DuckDB: use ln or log10",
    "log2": "engines differ in its last places: write ln(a) / ln(2)",
    "trunc": "it cuts numbers in DuckDB and dates in Spark: use cast(a as long), or "
             "date_trunc('month', a)",
    "dateadd": "write a + interval '1' day, date_add(a, days) or add_months(a, n)",
    "to_char": _FORMATS,
    "try_cast": "cast what fits, in a case expression",
    "exists": "a subquery is not available here: use merge, whose source may be a query",
    "max": "it is of many rows: use greatest for several values of one row",
    "min": "it is of many rows: use least for several values of one row",
    **dict.fromkeys(("count", "sum", "avg", "first", "last"),
                    "it is of many rows: compute it by a query first, and pass it in params"),
}  # fmt: skip
