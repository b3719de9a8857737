"""Functions of Spark as functions of the expression language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from lakevilla.engines.spark.columns.casts import Typed, common, converted, decimal, need_utc, parts
from lakevilla.engines.spark.columns.nodes import AS_TEXT, SessionTerms, refused
from lakevilla.sql.expressions.tree import Call, Case, Cast, Expr, Literal
from lakevilla.sql.expressions.types import (
    decimal_parts,
    element_type,
    is_decimal,
    is_fractional,
    is_integer,
    is_numeric,
)
from lakevilla.sql.expressions.values import literal, value_of

# -------------------- making
#
# Conversion of Spark's functions to calls of the language: code that all makers share.


@dataclass(frozen=True, slots=True)
class Language:
    """The context of functions: the session's terms, and the current time."""

    terms: SessionTerms
    now: datetime

    def call(self, name: str, args: Sequence[Typed], type_: str) -> Typed:
        return self.plain(name, [arg.expr for arg in args], type_)

    @staticmethod
    def plain(name: str, args: Sequence[Expr], type_: str) -> Typed:
        return Typed(Call(name, tuple(args)), type_)

    def met(self, args: Sequence[Typed], what: str) -> tuple[list[Expr], str]:
        """Return operands in the type to which Spark converts them."""
        type_ = common(list(args), what, self.terms)
        return [converted(arg, type_, what, self.terms) for arg in args], type_


Maker: TypeAlias = Callable[[Language, list[Typed]], Typed]


def check_count(what: str, args: Sequence[Typed], *counts: int) -> None:
    if len(args) not in counts:
        raise refused(f"{what}() of {len(args)} operands", AS_TEXT)


def wants(what: str, arg: Typed, *types: str) -> Typed:
    if arg.type not in (*types, "void"):
        raise refused(f"{what}() of {arg.type}", f"it takes {' or '.join(types)}: cast the operand")
    return arg


def constant_of(what: str, arg: Typed, *types: type) -> object:
    constant = arg.constant
    value = None if constant is None else value_of(constant)
    if not isinstance(value, types) or isinstance(value, bool):
        raise refused(f"{what}() whose operands are not constant", AS_TEXT)
    return value


def exactly(name: str, types: Sequence[str], gives: str = "string", to: str | None = None) -> Maker:
    """Return a maker for operands of exactly these types; ``int`` stands for any integer."""

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, len(types))
        for arg, want in zip(args, types, strict=True):
            if want == "int":
                wants(name, arg, "byte", "short", "integer")
            else:
                wants(name, arg, want)
        return lang.call(to or name, args, gives)

    return make


# -------------------- moments
#
# Functions of dates and timestamps.


def _temporal_argument(what: str, arg: Typed, lang: Language, *types: str) -> Typed:
    need_utc(arg.type, f"{what}()", lang.terms)
    return wants(what, arg, *types)


def _part(name: str) -> Maker:
    types: tuple[str, ...] = ("date", "timestamp", "timestamp_ntz")
    if name in ("hour", "minute", "second"):
        types = types[1:]

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1)
        return lang.call(name, [_temporal_argument(name, args[0], lang, *types)], "integer")

    return make


def _date_add(sign: int) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count("date_add", args, 2)
        wants("date_add", args[0], "date")
        days = wants("date_add", args[1], "byte", "short", "integer")
        if sign < 0:
            days = OPERATORS["negative"](lang, [days])
        return lang.call("date_add", [args[0], days], "date")

    return make


def _trunc(lang: Language, args: list[Typed]) -> Typed:
    check_count("date_trunc", args, 2)
    unit = constant_of("date_trunc", args[0], str)
    instant = _temporal_argument("date_trunc", args[1], lang, "timestamp")
    unit = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}.get(
        str(unit).lower(), str(unit).lower()
    )
    return lang.plain("date_trunc", [literal(unit), instant.expr], "timestamp")


def _date_format(lang: Language, args: list[Typed]) -> Typed:
    check_count("date_format", args, 2)
    types = ("date", "timestamp", "timestamp_ntz") if lang.terms.is_utc else ("date",)
    instant = _temporal_argument("date_format", args[0], lang, *types)
    return lang.call("date_format", [instant, args[1]], "string")


def _read(type_: str) -> Maker:
    """Return a maker of ``to_date(text, format)`` and similar functions."""
    name = f"to_{type_}"

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1, 2)
        if type_ == "timestamp":
            if not lang.terms.zoned:
                raise refused(f"{name}()", "use to_timestamp_ntz")
            need_utc("timestamp", f"{name}()", lang.terms)
        if args[0].type == type_ and len(args) == 1:
            return args[0]
        wants(name, args[0], "string")
        if len(args) == 1:
            return Typed(Cast(args[0].expr, type_), type_)
        return lang.call(name, args, type_)

    return make


def _now(lang: Language, args: list[Typed]) -> Typed:
    return Typed(literal(lang.now.astimezone(UTC)), "timestamp")


def _today(lang: Language, args: list[Typed]) -> Typed:
    need_utc("timestamp", "current_date()", lang.terms)
    return Typed(literal(lang.now.astimezone(UTC).date()), "date")


MOMENTS: dict[str, Maker] = {
    **{
        name: _part(name)
        for name in (
            "year",
            "month",
            "day",
            "quarter",
            "weekofyear",
            "dayofyear",
            "dayofweek",
            "weekday",
            "hour",
            "minute",
            "second",
        )
    },
    "dayofmonth": _part("day"),
    "date_add": _date_add(1),
    "dateadd": _date_add(1),
    "date_sub": _date_add(-1),
    "datediff": exactly("datediff", ["date", "date"], "integer"),
    "date_diff": exactly("datediff", ["date", "date"], "integer"),
    "add_months": exactly("add_months", ["date", "int"], "date"),
    "last_day": exactly("last_day", ["date"], "date"),
    "make_date": exactly("make_date", ["int"] * 3, "date"),
    "date_trunc": _trunc,
    "date_format": _date_format,
    "to_date": _read("date"),
    "to_timestamp": _read("timestamp"),
    "to_timestamp_ntz": _read("timestamp_ntz"),
    "current_timestamp": _now,
    "now": _now,
    "current_date": _today,
    "curdate": _today,
}


# -------------------- nested
#
# Functions of arrays.


def _array(lang: Language, args: list[Typed]) -> Typed:
    exprs, type_ = lang.met(args, "array")
    return lang.plain("array", exprs, f"array<{type_}>")


def _element(name: str, to: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2)
        element = element_type(args[0].type)
        if element is None:
            raise refused(f"{name}() of {args[0].type}", AS_TEXT)
        wants(name, args[1], "byte", "short", "integer")
        return lang.call(to, args, element)

    return make


def _size(lang: Language, args: list[Typed]) -> Typed:
    if not lang.terms.ansi:
        raise refused("size()", "without ANSI mode it is -1 for NULL in Spark: use array_size")
    return lang.call("size", args, "integer")


def _array_size(lang: Language, args: list[Typed]) -> Typed:
    if element_type(args[0].type) is None:
        raise refused(f"array_size() of {args[0].type}", AS_TEXT)
    return lang.call("size", args, "integer")


def _contains(lang: Language, args: list[Typed]) -> Typed:
    check_count("array_contains", args, 2)
    element = element_type(args[0].type)
    if element is None or common([Typed(Literal("void"), element), args[1]], "array_contains",
                                 lang.terms) != element:  # fmt: skip
        raise refused(
            f"array_contains() of {args[0].type} and {args[1].type}",
            "cast the value to the type of the elements",
        )
    return lang.call("array_contains", args, "boolean")


NESTED: dict[str, Maker] = {
    "array": _array,
    "get": _element("get", "get"),
    "try_element_at": _element("try_element_at", "element_at"),
    "size": _size,
    "cardinality": _size,
    "array_size": _array_size,
    "array_contains": _contains,
}


# -------------------- numbers
#
# Functions of numbers.


def _doubles(name: str, count: int) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, count)
        for arg in args:
            if not is_numeric(arg.type) and arg.type != "void":
                raise refused(f"{name}() of {arg.type}", "cast the operand to double")
        exprs = [converted(arg, "double", name, lang.terms) for arg in args]
        return lang.plain(name, exprs, "double")

    return make


def _round(lang: Language, args: list[Typed]) -> Typed:
    check_count("round", args, 1, 2)
    digits = 0 if len(args) == 1 else constant_of("round", args[1], int)
    assert isinstance(digits, int)
    type_ = args[0].type
    if is_decimal(type_) and digits >= 0:
        precision, scale = decimal_parts(type_)
        kept = min(digits, scale)
        found = decimal(precision - scale + kept + 1, kept, "round()")
        return lang.plain("round", [args[0].expr, literal(digits)], found)
    if digits != 0 or not is_numeric(type_):
        raise refused(
            f"round() of {type_} to {digits} digits", "cast the number to decimal(p,s) first"
        )
    return args[0] if is_integer(type_) else lang.call("round", args[:1], type_)


def _whole(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1)
        type_ = args[0].type
        if is_integer(type_):
            return Typed(args[0].expr, "long")
        if is_fractional(type_):
            return Typed(Cast(Call(name, (args[0].expr,)), "long", implied=True), "long")
        if not is_decimal(type_):
            raise refused(f"{name}() of {type_}", "cast the operand to a number")
        precision, scale = decimal_parts(type_)
        return lang.call(name, args, decimal(precision - scale + 1, 0, f"{name}()"))

    return make


NUMBERS: dict[str, Maker] = {
    "power": _doubles("power", 2),
    "pow": _doubles("power", 2),
    **{name: _doubles(name, 1) for name in ("exp", "ln", "log10", "sqrt")},
    "sign": _doubles("sign", 1),
    "signum": _doubles("sign", 1),
    "round": _round,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "ceiling": _whole("ceil"),
}


# -------------------- operators
#
# Operators, comparisons and choices.


_NARROW = ("byte", "short", "integer", "float")


def _compared(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2)
        return lang.plain(name, lang.met(args, f"`{name}`")[0], "boolean")

    return make


def _unlike(lang: Language, args: list[Typed]) -> Typed:
    return lang.plain("<>", lang.met(args, "`!=`")[0], "boolean")


def _not(lang: Language, args: list[Typed]) -> Typed:
    if args[0].type not in ("boolean", "void"):
        raise refused(f"~ of {args[0].type}", "compare it with something")
    return lang.call("not", args, "boolean")


def _narrowed(expr: Expr, type_: str) -> Typed:
    """Return a computed number in Spark's type, which raises beyond its range as Spark does."""
    return Typed(Cast(expr, type_, implied=True) if type_ in _NARROW else expr, type_)


def _arithmetic(name: str) -> Maker:
    what = f"`{name}`"

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2)
        for arg in args:
            if not is_numeric(arg.type) and arg.type != "void":
                raise refused(
                    f"{what} of {args[0].type} and {args[1].type}",
                    "use date_add, add_months or datediff, or " + AS_TEXT,
                )
        if any(is_decimal(arg.type) for arg in args) and not any(
            is_fractional(arg.type) for arg in args
        ):
            type_ = _decimal_result(name, args)
            exprs = [arg.expr for arg in args]
        else:
            exprs, type_ = lang.met(args, what)
        whole = Call(name, tuple(exprs))
        if name == "%":
            return _narrowed(_unless_null(exprs[0], exprs[1], whole), type_)
        return _narrowed(whole, type_)

    return make


def _decimal_result(name: str, args: list[Typed]) -> str:
    if any(arg.type == "void" for arg in args):
        return next(arg.type for arg in args if arg.type != "void")
    (p1, s1), (p2, s2) = map(parts, args)
    if name == "*":
        return decimal(p1 + p2 + 1, s1 + s2, "`*` of decimals")
    if name == "%":
        whole, scale = max(p1 - s1, p2 - s2), max(s1, s2)
        decimal(whole + scale, scale, "`%` of decimals")
        return decimal(min(p1 - s1, p2 - s2) + scale, scale, "`%` of decimals")
    scale = max(s1, s2)
    return decimal(max(p1 - s1, p2 - s2) + scale + 1, scale, f"`{name}` of decimals")


def _quotient(lang: Language, args: list[Typed]) -> Typed:
    check_count("/", args, 2)
    if any(not is_numeric(arg.type) and arg.type != "void" for arg in args):
        raise refused(f"`/` of {args[0].type} and {args[1].type}", AS_TEXT)
    if any(is_decimal(arg.type) for arg in args) and not any(
        is_fractional(arg.type) for arg in args
    ):
        raise refused("`/` of decimals", "Spark rounds the quotient: cast an operand to double")
    exprs = [converted(arg, "double", "`/`", lang.terms) for arg in args]
    return Typed(_unless_null(exprs[0], exprs[1], Call("/", tuple(exprs))), "double")


def _unless_null(arg: Expr, by: Expr, whole: Expr) -> Expr:
    """Return NULL for NULL by zero, as Spark does; Spark computes the divisor nevertheless."""
    if isinstance(arg, Literal) and arg.value is not None:
        return whole
    none = Call("and", (Call("is_null", (arg,)), Call("not", (Call("is_null", (by,)),))))
    return Case(((none, Literal("void")),), whole, implied=True)


def _signed(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 1)
        if not is_numeric(args[0].type):
            raise refused(f"{name}() of {args[0].type}", "cast the operand to a number")
        constant = args[0].constant
        if name == "neg" and constant is not None and constant.value is not None:
            value = value_of(constant)
            assert not isinstance(value, str | bytes)
            return Typed(literal(-value), args[0].type)  # type: ignore[operator]
        return _narrowed(Call(name, (args[0].expr,)), args[0].type)

    return make


def _in(lang: Language, args: list[Typed]) -> Typed:
    return lang.plain("in", lang.met(args, "isin")[0], "boolean")


def _like(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2, 3)
        wants(name, args[0], "string")
        pattern = constant_of(name, args[1], str)
        escape = "\\" if len(args) == 2 else constant_of(name, args[2], str)
        assert isinstance(pattern, str)
        used = [literal(escape)] if isinstance(escape, str) and escape in pattern else []
        return lang.plain(name, [args[0].expr, literal(pattern), *used], "boolean")

    return make


def _unified(name: str, least: int) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        if len(args) < least:
            raise refused(f"{name}() of {len(args)} operands", AS_TEXT)
        exprs, type_ = lang.met(args, name)
        return lang.plain(name, exprs, type_)

    return make


def _nullif(lang: Language, args: list[Typed]) -> Typed:
    check_count("nullif", args, 2)
    equal = lang.plain("=", lang.met(args, "nullif")[0], "boolean").expr
    return Typed(Case(((equal, Literal("void")),), args[0].expr), args[0].type)


def _if(lang: Language, args: list[Typed]) -> Typed:
    check_count("if", args, 3)
    exprs, type_ = lang.met(args[1:], "if")
    return Typed(Case(((wants("if", args[0], "boolean").expr, exprs[0]),), exprs[1]), type_)


def _nvl2(lang: Language, args: list[Typed]) -> Typed:
    check_count("nvl2", args, 3)
    exprs, type_ = lang.met(args[1:], "nvl2")
    return Typed(Case(((Call("is_null", (args[0].expr,)), exprs[1]),), exprs[0]), type_)


def _not_null(lang: Language, args: list[Typed]) -> Typed:
    return lang.plain("not", [Call("is_null", (args[0].expr,))], "boolean")


def _nan(lang: Language, args: list[Typed]) -> Typed:
    if not is_fractional(args[0].type):
        raise refused(f"isnan() of {args[0].type}", "no value of such a column is NaN")
    return lang.plain("<=>", [args[0].expr, literal(float("nan"))], "boolean")


OPERATORS: dict[str, Maker] = {
    **{name: _compared(name) for name in ("=", "<", "<=", ">", ">=", "<=>")},
    "==": _compared("="),
    "equal_null": _compared("<=>"),
    "!=": _unlike,
    "<>": _unlike,
    "!": _not,
    "not": _not,
    **{name: _arithmetic(name) for name in ("+", "-", "*", "%")},
    "mod": _arithmetic("%"),
    "/": _quotient,
    "negative": _signed("neg"),
    "positive": lambda lang, args: args[0],
    "abs": _signed("abs"),
    "in": _in,
    "like": _like("like"),
    "ilike": _like("ilike"),
    "isnull": lambda lang, args: lang.call("is_null", args, "boolean"),
    "isnotnull": _not_null,
    "isnan": _nan,
    "coalesce": _unified("coalesce", 1),
    "nvl": _unified("coalesce", 2),
    "ifnull": _unified("coalesce", 2),
    "greatest": _unified("greatest", 2),
    "least": _unified("least", 2),
    "nullif": _nullif,
    "nvl2": _nvl2,
    "if": _if,
}


# -------------------- text
#
# Functions of text.


def _concat(lang: Language, args: list[Typed]) -> Typed:
    if len(args) < 2:
        raise refused(f"concat() of {len(args)} operands", AS_TEXT)
    whole = wants("concat", args[0], "string").expr
    for arg in args[1:]:
        whole = Call("||", (whole, wants("concat", arg, "string").expr))
    return Typed(whole, "string")


def _concat_ws(lang: Language, args: list[Typed]) -> Typed:
    if len(args) < 2:
        raise refused(f"concat_ws() of {len(args)} operands", AS_TEXT)
    return lang.call("concat_ws", [wants("concat_ws", arg, "string") for arg in args], "string")


def _substring(lang: Language, args: list[Typed]) -> Typed:
    check_count("substring", args, 2, 3)
    wants("substring", args[0], "string")
    numbers = [constant_of("substring", arg, int) for arg in args[1:]]
    start = numbers[0]
    assert isinstance(start, int)
    if start < 1:
        raise refused(f"substring() from {start}", "it begins at 1, or use F.right")
    if len(numbers) == 2 and isinstance(numbers[1], int):
        numbers[1] = max(numbers[1], 0)
    return lang.plain("substring", [args[0].expr, *map(literal, numbers)], "string")


def _trim(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        if len(args) != 1:
            raise refused(f"{name}() of other characters than spaces", AS_TEXT)
        return lang.call(name, [wants(name, args[0], "string")], "string")

    return make


def _replace(lang: Language, args: list[Typed]) -> Typed:
    check_count("replace", args, 2, 3)
    exprs = [wants("replace", arg, "string").expr for arg in args]
    return lang.plain("replace", [*exprs, literal("")][:3], "string")


def _found_at(lang: Language, args: list[Typed]) -> Typed:
    """Make a call of ``locate(part, text, start)``."""
    check_count("locate", args, 2, 3)
    if len(args) == 3 and constant_of("locate", args[2], int) != 1:
        raise refused("locate() from another place than 1", AS_TEXT)
    part, text = (wants("locate", arg, "string") for arg in args[:2])
    return lang.call("instr", [text, part], "integer")


def _split(lang: Language, args: list[Typed]) -> Typed:
    check_count("split", args, 2, 3)
    if len(args) == 3:
        limit = constant_of("split", args[2], int)
        if not isinstance(limit, int) or limit > 0:
            raise refused(f"split() into {limit} parts", AS_TEXT)
    return lang.call("split", [wants("split", a, "string") for a in args[:2]], "array<string>")


def _pad(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, 2, 3)
        wants(name, args[0], "string")
        constant_of(name, args[1], int)
        return lang.call(name, args, "string")

    return make


def _digest(name: str) -> Maker:
    def make(lang: Language, args: list[Typed]) -> Typed:
        wants(name, args[0], "string", "binary")
        return lang.call(name, args, "string")

    return make


TEXT: dict[str, Maker] = {
    **{name: exactly(name, ["string"]) for name in ("lower", "upper", "initcap", "reverse")},
    "lcase": exactly("lower", ["string"]),
    "ucase": exactly("upper", ["string"]),
    **{name: _trim(name) for name in ("trim", "ltrim", "rtrim")},
    **{
        name: exactly(name, ["string"], "integer", "length")
        for name in ("length", "len", "char_length", "character_length")
    },
    "concat": _concat,
    "concat_ws": _concat_ws,
    "substring": _substring,
    "substr": _substring,
    "replace": _replace,
    **{
        name: exactly(name, ["string", "string"], "boolean", to)
        for name, to in (
            ("startswith", "starts_with"),
            ("endswith", "ends_with"),
            ("contains", "contains"),
            ("rlike", "regexp_like"),
            ("regexp_like", "regexp_like"),
            ("regexp", "regexp_like"),
        )
    },
    "left": exactly("left", ["string", "int"]),
    "right": exactly("right", ["string", "int"]),
    "lpad": _pad("lpad"),
    "rpad": _pad("rpad"),
    "translate": exactly("translate", ["string"] * 3),
    "instr": exactly("instr", ["string", "string"], "integer"),
    "locate": _found_at,
    "position": _found_at,
    "split_part": exactly("split_part", ["string", "string", "int"]),
    "split": _split,
    "regexp_replace": exactly("regexp_replace", ["string"] * 3),
    "regexp_extract": exactly("regexp_extract", ["string", "string", "int"]),
    "md5": _digest("md5"),
    "sha": _digest("sha1"),
    "sha1": _digest("sha1"),
    "sha2": _digest("sha2"),
}


# -------------------- catalogue
#
# All functions, by Spark's names in lower case.


FUNCTIONS: dict[str, Maker] = {**OPERATORS, **NUMBERS, **TEXT, **MOMENTS, **NESTED}
