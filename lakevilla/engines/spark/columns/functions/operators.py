"""Operators, comparisons and choices."""

from __future__ import annotations

from lakevilla.engines.spark.columns.coercion import Typed, converted, decimal, parts
from lakevilla.engines.spark.columns.functions.making import (
    Language,
    Maker,
    check_count,
    constant_of,
    wants,
)
from lakevilla.engines.spark.columns.nodes import AS_TEXT, refused
from lakevilla.sql.expressions.tree import Call, Case, Cast, Expr, Literal
from lakevilla.sql.expressions.types import is_decimal, is_fractional, is_numeric
from lakevilla.sql.expressions.values import literal, value_of

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
    """A computed number in Spark's type, which raises beyond it as Spark does."""
    return Typed(Cast(expr, type_) if type_ in _NARROW else expr, type_)


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
    """Spark's NULL by zero is NULL; it computes what it divides by nevertheless."""
    if isinstance(arg, Literal) and arg.value is not None:
        return whole
    none = Call("and", (Call("is_null", (arg,)), Call("not", (Call("is_null", (by,)),))))
    return Case(((none, Literal("void")),), whole)


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
