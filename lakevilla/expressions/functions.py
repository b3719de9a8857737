"""The operators and functions of the language: what they take, give and mean.

Each has one meaning on every engine; what cannot be given one is left out. The table
in ``docs/expressions.md`` is made from this one (a test holds them equal).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.errors import InvalidOperation
from lakevilla.expressions.tree import Expr, Literal
from lakevilla.expressions.types import (
    MAX_PRECISION,
    common_type,
    decimal_parts,
    decimal_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_nested,
    is_numeric,
)

__all__ = [
    "ALIASES",
    "COMPARISONS",
    "FUNCTIONS",
    "INTERVAL_UNITS",
    "RAISING",
    "TRUNCATION_UNITS",
    "Function",
    "Resolution",
    "documentation",
]

#: Operand types a call wants, and the type it gives. None as a wanted type: as it is.
Resolution = tuple[Sequence[str | None], str]


@dataclass(frozen=True, slots=True)
class Function:
    """An operator or function.

    Attributes
    ----------
    usage : str
        How it is written.
    gives : str
        Type of the result, for people.
    meaning : str
        What it does, where that is not plain.
    least, most : int, int or None
        Number of operands; None for any.
    unifies : bool
        Its operands are brought to their common type before ``resolve`` sees them.
    resolve : Callable
        From operands and their types to the types wanted and the type given; a wrong
        type raises ``_WrongTypes``.
    called : bool
        Written as ``name(...)`` rather than as an operator.
    """

    usage: str
    gives: str
    meaning: str
    least: int
    most: int | None
    resolve: Callable[[Sequence[Expr], Sequence[str]], Resolution]
    unifies: bool = False
    called: bool = True


class _WrongTypes(Exception):
    """The operands have types that the function does not take; ``str()`` says what it takes."""


COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")

#: Units of ``date_trunc`` from wide to narrow; those after ``day`` need a timestamp.
TRUNCATION_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")

#: Units of ``interval``; those after ``day`` need a timestamp.
INTERVAL_UNITS = ("year", "month", "week", "day", "hour", "minute", "second", "microsecond")

#: Other spellings of a function.
ALIASES = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "concat": "||",
    "day_of_month": "day",
    "dayofmonth": "day",
    "endswith": "ends_with",
    "startswith": "starts_with",
    "substr": "substring",
}

#: Calls that may raise on some row; the rest never do (casts are judged by their types).
RAISING = frozenset(
    {"+", "-", "*", "/", "%", "neg", "abs", "round", "floor", "ceil", "date_add", "add_interval"}
)


def _fixed(wanted: Sequence[str], gives: str) -> Callable[..., Resolution]:
    def resolve(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
        whole = [*wanted, *[wanted[-1]] * (len(types) - len(wanted))][: len(types)]
        if any(type_ not in (want, "void") for type_, want in zip(types, whole, strict=True)):
            raise _WrongTypes(", ".join(wanted))
        return whole, gives

    return resolve


def _comparison(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if any(is_nested(type_) for type_ in types):
        raise _WrongTypes("values that have an order; compare the fields of a struct one by one")
    return types, "boolean"


def _any_to_boolean(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, "boolean"


def _same(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, types[0]


def _ordered(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return _comparison(args, types)[0], types[0]


def _array(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    return types, f"array<{types[0] if types else 'void'}>"


def _numbers(types: Sequence[str]) -> str:
    """The kind of arithmetic: ``long``, ``double`` or ``decimal``."""
    if not all(is_numeric(type_) or type_ == "void" for type_ in types):
        raise _WrongTypes("numbers")
    if any(is_fractional(type_) for type_ in types):
        return "double"
    return "decimal" if any(is_decimal(type_) for type_ in types) else "long"


def _as_decimals(types: Sequence[str]) -> list[str]:
    known = [type_ for type_ in types if type_ != "void"]
    return [decimal_type(*decimal_parts(known[0] if t == "void" else t)) for t in types]


def _sum(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
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
        raise _WrongTypes(f"decimals that fit {MAX_PRECISION} digits together")
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
    digits = _constant_integer(args[1], 0)
    if not is_decimal(types[0]):
        raise _WrongTypes("a decimal where digits are given: cast the number to decimal(p,s) first")
    precision, scale = decimal_parts(types[0])
    kept = min(digits, scale)
    return [types[0], None], decimal_type(min(MAX_PRECISION, precision - scale + kept + 1), kept)


def _constant_integer(arg: Expr, least: int) -> int:
    if isinstance(arg, Literal) and is_integer(arg.type) and arg.value is not None:
        value = int(arg.value)
        if value >= least:
            return value
    raise _WrongTypes(f"a constant integer of at least {least}")


def _constant_text(arg: Expr, what: str) -> str:
    if isinstance(arg, Literal) and arg.type == "string" and arg.value is not None:
        return arg.value
    raise _WrongTypes(what)


def _like(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "void"):
        raise _WrongTypes("a string")
    pattern = _constant_text(args[1], "a constant string as the pattern")
    if len(args) == 3:
        escape = _constant_text(args[2], "one character as the escape")
        if len(escape) != 1 or escape.isalnum() or escape in "%_":
            raise _WrongTypes("one character, no letter, digit, % or _, as the escape")
        rest = pattern.replace(escape + escape, "")
        for at, char in enumerate(rest):
            if char == escape and rest[at + 1 : at + 2] not in ("%", "_"):
                raise _WrongTypes("a pattern in which the escape stands before %, _ or itself")
    return ["string", *types[1:]], "boolean"


def _substring(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "void"):
        raise _WrongTypes("a string")
    _constant_integer(args[1], 1)
    if len(args) == 3:
        _constant_integer(args[2], 0)
    return ["string", *types[1:]], "string"


def _moment(type_: str, unit: str, units: Sequence[str]) -> None:
    if unit not in units:
        raise _WrongTypes(f"one of the units {', '.join(units)}")
    if type_ == "date" and units.index(unit) > units.index("day"):
        raise _WrongTypes(f"a timestamp for the unit {unit}")
    if type_ not in ("date", "timestamp", "timestamp_ntz"):
        raise _WrongTypes("a date or timestamp")


def _part(units: Sequence[str]) -> Callable[..., Resolution]:
    def resolve(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
        if types[0] not in units and types[0] != "void":
            raise _WrongTypes(" or ".join(units))
        return [units[-1] if types[0] == "void" else types[0]], "long"

    return resolve


def _date_trunc(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _moment(types[1], _constant_text(args[0], "a constant unit"), TRUNCATION_UNITS)
    return [None, types[1]], types[1]


def _add_interval(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    _constant_integer(args[1], -(10**9))
    _moment(types[0], _constant_text(args[2], "a constant unit"), INTERVAL_UNITS)
    return [types[0], None, None], types[0]


def _date_add(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("date", "void") or not (is_integer(types[1]) or types[1] == "void"):
        raise _WrongTypes("a date and an integer")
    return ["date", "long"], "date"


_DATES = ("date", "timestamp", "timestamp_ntz")
_TIMES = ("timestamp", "timestamp_ntz")
_STRING = _fixed(("string",), "string")


def _operator(
    usage: str,
    gives: str,
    meaning: str,
    count: int,
    resolve: Callable[..., Resolution],
    *,
    most: int | None = -1,
    unifies: bool = False,
) -> Function:
    return Function(
        usage, gives, meaning, count, count if most == -1 else most, resolve, unifies, called=False
    )


_COMPARED = (
    "NULL if an operand is NULL. Strings and binaries compare byte by byte (UTF-8); "
    "NaN equals itself and is above every number; -0.0 equals 0.0"
)
_DECIMALS = "overflow raises; decimals are exact, and raise beyond 38 digits"

FUNCTIONS: dict[str, Function] = {
    "or": _operator("a or b", "boolean", "from left to right, stops at true", 2,
                    _fixed(("boolean",), "boolean"), most=None),
    "and": _operator("a and b", "boolean", "from left to right, stops at false", 2,
                     _fixed(("boolean",), "boolean"), most=None),
    "not": _operator("not a", "boolean", "", 1, _fixed(("boolean",), "boolean")),
    **{
        name: _operator(f"a {name} b", "boolean", _COMPARED if name == "=" else "", 2, _comparison,
                        unifies=True)
        for name in COMPARISONS[:-1]
    },
    "<=>": _operator("a <=> b", "boolean",
                     "equal, NULL counting as a value; also `is not distinct from`, `is true`", 2,
                     _comparison, unifies=True),
    "is_null": _operator("a is null", "boolean", "", 1, _any_to_boolean),
    "in": _operator("a in (b, ...)", "boolean",
                    "as `a = b or ...`; in an empty list: false, also for NULL", 1, _comparison,
                    most=None, unifies=True),
    "like": _operator("a like 'b' escape 'c'", "boolean",
                      "% any text, _ one character; no escape character unless given; "
                      "pattern and escape are constants", 2, _like, most=3),
    "ilike": _operator("a ilike 'b' escape 'c'", "boolean",
                       "as like, after lower() on both sides", 2, _like, most=3),
    "||": _operator("a || b", "string", "NULL if an operand is NULL; also concat(a, ...)", 2,
                    _STRING, most=2),
    "+": _operator("a + b", "long, double or decimal",
                   f"integers compute as long; {_DECIMALS}; doubles follow IEEE 754", 2, _sum),
    "-": _operator("a - b", "long, double or decimal", "as +", 2, _sum),
    "*": _operator("a * b", "long, double or decimal", "as +", 2, _product),
    "/": _operator("a / b", "double", "true division; by zero raises, also NULL / 0", 2, _quotient),
    "%": _operator("a % b", "long, double or decimal",
                   "the sign is that of a; by zero raises, also NULL % 0", 2, _remainder),
    "neg": _operator("-a", "long, double or decimal", _DECIMALS, 1, _sign),
    "add_interval": _operator("a + interval '1' day", "as a",
                              "also `-`; a is a date or timestamp, the number a constant; a month "
                              f"ends on its last day. Units: {', '.join(INTERVAL_UNITS)}", 3,
                              _add_interval),
    "array": Function("array(a, ...)", "array", "for assignments", 0, None, _array, unifies=True),
    "coalesce": Function("coalesce(a, ...)", "common type", "the first that is not NULL; "
                         "later ones are not evaluated", 1, None, _same, unifies=True),
    "nullif": Function("nullif(a, b)", "common type", "NULL if a = b, else a", 2, 2, _ordered,
                       unifies=True),
    "greatest": Function("greatest(a, b, ...)", "common type", "NULLs are left out; NaN is "
                         "the greatest", 2, None, _ordered, unifies=True),
    "least": Function("least(a, b, ...)", "common type", "NULLs are left out", 2, None, _ordered,
                      unifies=True),
    "abs": Function("abs(a)", "long, double or decimal", _DECIMALS, 1, 1, _sign),
    "round": Function("round(a), round(a, digits)", "long, double or decimal",
                      "half away from zero; digits need a decimal", 1, 2, _round),
    "floor": Function("floor(a)", "long, double or decimal", "", 1, 1, _whole),
    "ceil": Function("ceil(a)", "long, double or decimal", "also ceiling", 1, 1, _whole),
    "lower": Function("lower(a)", "string", "character by character (simple case mapping)", 1, 1,
                      _STRING),
    "upper": Function("upper(a)", "string", "character by character (simple case mapping)", 1, 1,
                      _STRING),
    "trim": Function("trim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "ltrim": Function("ltrim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "rtrim": Function("rtrim(a)", "string", "spaces (U+0020) only", 1, 1, _STRING),
    "length": Function("length(a)", "long", "in characters (code points); also char_length", 1, 1,
                       _fixed(("string",), "long")),
    "substring": Function("substring(a, start), substring(a, start, length)", "string",
                          "start is a constant from 1, length a constant from 0; also substr", 2, 3,
                          _substring),
    "replace": Function("replace(a, from, to)", "string", "all places; an empty `from` changes "
                        "nothing", 3, 3, _STRING),
    "starts_with": Function("starts_with(a, b)", "boolean", "", 2, 2,
                            _fixed(("string",), "boolean")),
    "ends_with": Function("ends_with(a, b)", "boolean", "", 2, 2, _fixed(("string",), "boolean")),
    "contains": Function("contains(a, b)", "boolean", "", 2, 2, _fixed(("string",), "boolean")),
    "year": Function("year(a)", "long", "timestamps in UTC, here and below", 1, 1, _part(_DATES)),
    "month": Function("month(a)", "long", "", 1, 1, _part(_DATES)),
    "day": Function("day(a)", "long", "also dayofmonth", 1, 1, _part(_DATES)),
    "hour": Function("hour(a)", "long", "", 1, 1, _part(_TIMES)),
    "minute": Function("minute(a)", "long", "", 1, 1, _part(_TIMES)),
    "second": Function("second(a)", "long", "whole seconds", 1, 1, _part(_TIMES)),
    "date_trunc": Function("date_trunc('unit', a)", "as a", "a week begins on Monday. Units: "
                           + ", ".join(TRUNCATION_UNITS), 2, 2, _date_trunc),
    "date_add": Function("date_add(a, days)", "date", "", 2, 2, _date_add),
}  # fmt: skip


def resolve(name: str, args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    """Wanted operand types and result type of a call.

    Raises
    ------
    InvalidOperation
        Wrong number or types of operands, or no such function.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise InvalidOperation(
            f"function {name!r} is not available in an expression: use one of "
            f"{', '.join(sorted(n for n, f in FUNCTIONS.items() if f.called))}"
        )
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        raise InvalidOperation(f"{name} takes other operands: write {function.usage}")
    try:
        return function.resolve(args, types)
    except _WrongTypes as wrong:
        raise InvalidOperation(
            f"{function.usage} does not take ({', '.join(types)}): it takes {wrong}"
        ) from None


def documentation() -> str:
    """The table of operators and functions, in Markdown."""
    rows = ["| write | gives | meaning |", "|---|---|---|"]
    for function in FUNCTIONS.values():
        usage = f"`{function.usage}`".replace("|", "\\|")
        rows.append(f"| {usage} | {function.gives} | {function.meaning} |")
    return "\n".join(rows) + "\n"
