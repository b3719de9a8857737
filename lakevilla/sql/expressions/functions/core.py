"""Functions of the language: their core, numbers, and case of names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.sql.expressions.functions.declaring import (
    Function,
    Resolution,
    WrongTypes,
    constant_integer,
    constant_text,
    fixed,
)
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.expressions.types import (
    MAX_PRECISION,
    arrow_type,
    common_type,
    decimal_parts,
    decimal_type,
    element_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_nested,
    is_numeric,
    type_name,
)

# -------------------- core
#
# The operators, and the functions that every dialect has.


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")

#: Units of ``date_trunc`` from wide to narrow; those after ``day`` need a timestamp.
TRUNCATION_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")

#: Units of ``interval``; those after ``day`` need a timestamp.
INTERVAL_UNITS = ("year", "month", "week", "day", "hour", "minute", "second", "microsecond")


def _comparison(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if any(is_nested(type_) for type_ in types):
        raise WrongTypes("values that have an order; compare the fields of a struct one by one")
    return types, "boolean"


def _truth(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, "boolean"


def _same(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, types[0]


def _ordered(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return _comparison(args, types)[0], types[0]


def _array(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, f"array<{types[0] if types else 'void'}>"


def _struct(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    names = [constant_text(arg, "names of fields, each with a value") for arg in args[::2]]
    fields = [(name, arrow_type(one)) for name, one in zip(names, types[1::2], strict=True)]
    return types, type_name(pa.struct(fields))


def _map(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    key, item = map(element_type, types)
    if key is None or item is None:
        raise WrongTypes("an array of keys and an array of values")
    return types, f"map<{key},{item}>"


def _numbers(types: Sequence[str]) -> str:
    """Return the kind of arithmetic: ``long``, ``double`` or ``decimal``."""
    if not all(is_numeric(type_) or type_ == "void" for type_ in types):
        raise WrongTypes("numbers")
    if any(is_fractional(type_) for type_ in types):
        return "double"
    return "decimal" if any(is_decimal(type_) for type_ in types) else "long"


def _as_decimals(types: Sequence[str]) -> list[str]:
    known = [type_ for type_ in types if type_ != "void"]
    return [decimal_type(*decimal_parts(known[0] if t == "void" else t)) for t in types]


def _sum(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if any(type_ in _DATES for type_ in types):
        raise WrongTypes(
            "numbers, or a date and days; with a timestamp write interval '1' day, and "
            "datediff(end, start) for the days between two"
        )
    kind = _numbers(types)
    if kind != "decimal":
        return [kind, kind], kind
    wanted = _as_decimals(types)
    (p1, s1), (p2, s2) = map(decimal_parts, wanted)
    scale = max(s1, s2)
    precision = min(MAX_PRECISION, max(p1 - s1, p2 - s2) + scale + 1)
    return wanted, decimal_type(precision, scale)


def _product(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    kind = _numbers(types)
    if kind != "decimal":
        return [kind, kind], kind
    wanted = _as_decimals(types)
    (p1, s1), (p2, s2) = map(decimal_parts, wanted)
    return wanted, decimal_type(min(MAX_PRECISION, p1 + p2), s1 + s2)


def _quotient(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _numbers(types)
    return ["double", "double"], "double"


def _remainder(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    kind = _numbers(types)
    if kind != "decimal":
        return [kind, kind], kind
    both = common_type(*_as_decimals(types))
    if both is None:
        raise WrongTypes(f"decimals that fit {MAX_PRECISION} digits together")
    return [both, both], both


def _sign(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    kind = _numbers(types)
    type_ = types[0] if kind == "decimal" else kind
    return [type_], type_


def _whole(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    kind = _numbers(types)
    if kind != "decimal":
        return [kind], kind
    precision, scale = decimal_parts(types[0])
    return types, decimal_type(min(MAX_PRECISION, precision - scale + 1), 0)


def _round(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if len(args) == 1:
        return _whole(args, types)
    digits = constant_integer(args[1], 0)
    if not is_decimal(types[0]):
        raise WrongTypes("a decimal where digits are given: cast the number to decimal(p,s) first")
    precision, scale = decimal_parts(types[0])
    kept = min(digits, scale)
    return [types[0], None], decimal_type(min(MAX_PRECISION, precision - scale + kept + 1), kept)


def _like(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "void"):
        raise WrongTypes("a string")
    pattern = constant_text(args[1], "a constant string as the pattern")
    if len(args) == 3:
        escape = constant_text(args[2], "one character as the escape")
        if len(escape) != 1 or escape.isalnum() or escape in "%_":
            raise WrongTypes("one character, no letter, digit, % or _, as the escape")
        rest = pattern.replace(escape + escape, "")
        for at, char in enumerate(rest):
            if char == escape and rest[at + 1 : at + 2] not in ("%", "_"):
                raise WrongTypes("a pattern in which the escape precedes %, _ or itself")
    return ["string", *types[1:]], "boolean"


def _substring(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "void"):
        raise WrongTypes("a string")
    constant_integer(args[1], 1)
    if len(args) == 3:
        constant_integer(args[2], 0)
    return ["string", *types[1:]], "string"


def _check_unit(type_: str, unit: str, units: Sequence[str]) -> None:
    if unit not in units:
        raise WrongTypes(f"one of the units {', '.join(units)}")
    if type_ == "date" and units.index(unit) > units.index("day"):
        raise WrongTypes(f"a timestamp for the unit {unit}")
    if type_ not in ("date", "timestamp", "timestamp_ntz"):
        raise WrongTypes("a date or timestamp")


def _part(units: Sequence[str]) -> Callable[..., Resolution]:
    def resolve(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
        if types[0] not in units and types[0] != "void":
            raise WrongTypes(" or ".join(units))
        return [units[-1] if types[0] == "void" else types[0]], "long"

    return resolve


def _date_trunc(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _check_unit(types[1], constant_text(args[0], "a constant unit"), TRUNCATION_UNITS)
    return [None, types[1]], types[1]


def _add_interval(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    constant_integer(args[1], -(10**9))
    _check_unit(types[0], constant_text(args[2], "a constant unit"), INTERVAL_UNITS)
    return [types[0], None, None], types[0]


def _date_add(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("date", "void") or not (is_integer(types[1]) or types[1] == "void"):
        raise WrongTypes("a date and an integer")
    return ["date", "long"], "date"


_DATES = ("date", "timestamp", "timestamp_ntz")
_TIMES = ("timestamp", "timestamp_ntz")
_STRING = fixed(("string",), "string")


def _length(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if is_nested(types[0]):
        raise WrongTypes("string; of a list or a map write size(a)")
    return fixed(("string",), "long")(args, types)


def _operator(
    usage: str,
    gives: str,
    meaning: str,
    count: int,
    resolve: Callable[..., Resolution],
    *,
    most: int | None = -1,
    unifies: bool = False,
    raises: bool = False,
    spark: str = "",
    duckdb: str = "",
) -> Function:
    most = count if most == -1 else most
    return Function(
        usage, gives, meaning, count, most, resolve, unifies, False, raises, spark, duckdb
    )


_COMPARED = (
    "NULL if an operand is NULL. Strings and binaries compare byte by byte (UTF-8); "
    "NaN equals itself and is above every number; -0.0 equals 0.0. Arrays, structs and maps have "
    "no order, and are equal if all within is, where a NULL equals a NULL, and the entries of maps "
    "come in one order"
)
_DECIMALS = "overflow raises; decimals are exact, and raise beyond 38 digits"

CORE: dict[str, Function] = {
    "or": _operator("a or b", "boolean", "from left to right, stops at true", 2,
                    fixed(("boolean",), "boolean"), most=None),
    "and": _operator("a and b", "boolean", "from left to right, stops at false", 2,
                     fixed(("boolean",), "boolean"), most=None),
    "not": _operator("not a", "boolean", "", 1, fixed(("boolean",), "boolean")),
    **{
        name: _operator(f"a {name} b", "boolean", meaning, 2, _truth, unifies=True)
        for name, meaning in (("=", _COMPARED), ("<>", ""))
    },
    **{
        name: _operator(f"a {name} b", "boolean", "", 2, _comparison, unifies=True)
        for name in ("<", "<=", ">", ">=")
    },
    "<=>": _operator("a <=> b", "boolean",
                     "equal, NULL counting as a value; also `is not distinct from`, `is true`", 2,
                     _truth, unifies=True, duckdb="a is not distinct from b"),
    "is_null": _operator("a is null", "boolean", "", 1, _truth),
    "in": _operator("a in (b, ...)", "boolean",
                    "as `a = b or ...`; in an empty list: false, also for NULL", 1, _truth,
                    most=None, unifies=True),
    "like": _operator("a like 'b' escape 'c'", "boolean",
                      "% any text, _ one character; no escape character unless given; "
                      "pattern and escape are constants", 2, _like, most=3),
    "ilike": _operator("a ilike 'b' escape 'c'", "boolean",
                       "as like, after lower() on both sides", 2, _like, most=3),
    "||": _operator("a || b", "string", "NULL if an operand is NULL; also concat(a, ...)", 2,
                    _STRING, most=2),
    "+": _operator("a + b", "long, double or decimal",
                   f"integers compute as long; {_DECIMALS}; doubles follow IEEE 754", 2, _sum,
                   raises=True),
    "-": _operator("a - b", "long, double or decimal", "as +", 2, _sum, raises=True),
    "*": _operator("a * b", "long, double or decimal", "as +", 2, _product, raises=True),
    "/": _operator("a / b", "double", "true division; by zero raises, also NULL / 0", 2, _quotient,
                   raises=True, duckdb="a / nullif(b, 0)"),
    "%": _operator("a % b", "long, double or decimal",
                   "the sign is that of a; by zero raises, also NULL % 0; also mod(a, b)", 2,
                   _remainder, raises=True),
    "neg": _operator("-a", "long, double or decimal", _DECIMALS, 1, _sign, raises=True),
    "add_interval": _operator("a + interval '1' day", "as a",
                              "also `-`; a is a date or timestamp, the number a constant; a month "
                              f"ends on its last day. Units: {', '.join(INTERVAL_UNITS)}", 3,
                              _add_interval, raises=True),
    "array": Function("array(a, ...)", "array", "for assignments; also [a, ...]", 0, None,
                      _array, unifies=True),
    "struct": Function("{'a': 1, 'b': x}", "struct", "for assignments; in any order, and what is "
                       "left out is NULL; a column of maps takes it too, by its names as keys", 0,
                       None, _struct, called=False),
    "map": Function(":mapping", "map", "for assignments; a parameter whose keys are no names",
                    2, 2, _map, called=False),
    "coalesce": Function("coalesce(a, ...)", "common type", "the first that is not NULL; "
                         "later ones are not evaluated; also nvl, ifnull", 1, None, _same,
                         unifies=True),
    "nullif": Function("nullif(a, b)", "common type", "NULL if a = b, else a", 2, 2, _same,
                       unifies=True),
    "greatest": Function("greatest(a, b, ...)", "common type", "NULLs are left out; NaN is "
                         "the greatest", 2, None, _ordered, unifies=True),
    "least": Function("least(a, b, ...)", "common type", "NULLs are left out", 2, None, _ordered,
                      unifies=True),
    "abs": Function("abs(a)", "long, double or decimal", _DECIMALS, 1, 1, _sign, raises=True),
    "round": Function("round(a), round(a, digits)", "long, double or decimal",
                      "half away from zero; digits need a decimal", 1, 2, _round, raises=True),
    "floor": Function("floor(a)", "long, double or decimal", "", 1, 1, _whole, raises=True),
    "ceil": Function("ceil(a)", "long, double or decimal", "also ceiling", 1, 1, _whole,
                     raises=True),
    "lower": Function("lower(a)", "string", "character by character (simple case mapping)", 1, 1,
                      _STRING),
    "upper": Function("upper(a)", "string", "character by character (simple case mapping)", 1, 1,
                      _STRING),
    "trim": Function("trim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "ltrim": Function("ltrim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "rtrim": Function("rtrim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "length": Function("length(a)", "long", "in characters (code points); also char_length", 1, 1,
                       _length),
    "substring": Function("substring(a, start), substring(a, start, length)", "string",
                          "start is a constant from 1, length a constant from 0; also substr", 2, 3,
                          _substring),
    "replace": Function("replace(a, from, to)", "string", "all places; an empty `from` changes "
                        "nothing", 3, 3, _STRING),
    "starts_with": Function("starts_with(a, b)", "boolean", "also startswith", 2, 2,
                            fixed(("string",), "boolean"), spark="startswith(a, b)"),
    "ends_with": Function("ends_with(a, b)", "boolean", "also endswith", 2, 2,
                          fixed(("string",), "boolean"), spark="endswith(a, b)"),
    "contains": Function("contains(a, b)", "boolean", "", 2, 2, fixed(("string",), "boolean")),
    "year": Function("year(a)", "long", "timestamps in UTC, here and below; also "
                     "extract(year from a)", 1, 1, _part(_DATES)),
    "month": Function("month(a)", "long", "", 1, 1, _part(_DATES)),
    "day": Function("day(a)", "long", "also dayofmonth", 1, 1, _part(_DATES)),
    "hour": Function("hour(a)", "long", "", 1, 1, _part(_TIMES)),
    "minute": Function("minute(a)", "long", "", 1, 1, _part(_TIMES)),
    "second": Function("second(a)", "long", "whole seconds", 1, 1, _part(_TIMES)),
    "date_trunc": Function("date_trunc('unit', a)", "as a", "a week begins on Monday. Units: "
                           + ", ".join(TRUNCATION_UNITS), 2, 2, _date_trunc),
    "date_add": Function("date_add(a, days)", "date", "also a + days, a - days", 2, 2, _date_add,
                         raises=True, duckdb="a + days"),
}  # fmt: skip


# -------------------- numbers
#
# Functions of real numbers, as IEEE 754 and Java define them.


def _doubles(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if not all(is_numeric(type_) or type_ == "void" for type_ in types):
        raise WrongTypes("numbers")
    return ["double"] * len(types), "double"


_LAST_PLACE = "to within one unit in the last place"

NUMBERS: dict[str, Function] = {
    "power": Function("power(a, b)", "double", f"also pow; {_LAST_PLACE}; NaN where IEEE 754 has "
                      "none; NaN for 1 or -1 to a power that is infinite or NaN; a to the 0 is 1",
                      2, 2, _doubles),
    "exp": Function("exp(a)", "double", _LAST_PLACE, 1, 1, _doubles),
    "ln": Function("ln(a)", "double", f"NULL for a <= 0; {_LAST_PLACE}", 1, 1, _doubles),
    "log10": Function("log10(a)", "double", "NULL for a <= 0; to within two units in the last "
                      "place", 1, 1, _doubles),
    "sqrt": Function("sqrt(a)", "double", "NaN for a < 0; exactly rounded", 1, 1, _doubles),
    "sign": Function("sign(a)", "double", "-1, 0 or 1; NaN for NaN; also signum", 1, 1, _doubles),
}  # fmt: skip


def _power(a: float, b: float) -> float:
    if b != b or (math.isinf(b) and abs(a) == 1):
        return math.nan
    try:
        return math.pow(a, b)
    except OverflowError:
        pass
    except ValueError:  # zero to a negative power, or the root of a negative number
        if a != 0:
            return math.nan
    odd = b == math.floor(b) and math.fmod(b, 2) != 0
    return math.copysign(math.inf, a) if odd else math.inf


def _exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _log(log: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda a: None if a <= 0 else log(a)


def _sign_of(a: float) -> float:
    return a if a != a else float((a > 0) - (a < 0))


#: The meaning of each function for operands that are not NULL.
NUMBER_MEANINGS: dict[str, Callable[..., Any]] = {
    "power": _power,
    "exp": _exp,
    "ln": _log(math.log),
    "log10": _log(math.log10),
    "sqrt": lambda a: math.nan if a < 0 else math.sqrt(a),
    "sign": _sign_of,
}


# -------------------- casing
#
# Unicode's simple case mapping: one character for one, where Python may return several.


_LOWER = {"\u0130": "i"}
_UPPER = {
    "\u00df": "\u1e9e",
    **{
        chr(at): chr(at + 8) for start in (0x1F80, 0x1F90, 0x1FA0) for at in range(start, start + 8)
    },
    **{chr(at): chr(at + 9) for at in (0x1FB3, 0x1FC3, 0x1FF3)},
}


def lower(text: str) -> str:
    return "".join(
        low if len(low := char.lower()) == 1 else _LOWER.get(char, char) for char in text
    )


def upper(text: str) -> str:
    return "".join(up if len(up := char.upper()) == 1 else _UPPER.get(char, char) for char in text)
