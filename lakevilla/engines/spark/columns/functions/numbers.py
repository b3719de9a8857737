"""Functions of numbers."""

from __future__ import annotations

from lakevilla.engines.spark.columns.coercion import Typed, converted, decimal
from lakevilla.engines.spark.columns.functions.making import (
    Language,
    Maker,
    check_count,
    constant_of,
)
from lakevilla.engines.spark.columns.nodes import refused
from lakevilla.sql.expressions.tree import Call, Cast
from lakevilla.sql.expressions.types import (
    decimal_parts,
    is_decimal,
    is_fractional,
    is_integer,
    is_numeric,
)
from lakevilla.sql.expressions.values import literal


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
            return Typed(Cast(Call(name, (args[0].expr,)), "long"), "long")
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
