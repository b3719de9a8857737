"""A tree as canonical SQL: the text in a table's log, which is read back to the same tree."""

from __future__ import annotations

import re

from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.sql.expressions.types import is_decimal

# Precedence of a node's text; a text of lower precedence is put in parentheses.
_OR, _AND, _TEST, _SUM, _PRODUCT, _ATOM = 1, 2, 3, 5, 6, 9

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Words that a reader could read as something other than a name.
_RESERVED = frozenset(
    word
    for line in (
        "all and any array as asc at between binary both by case cast collate concat cross",
        "current_date current_time current_timestamp current_user date default desc distinct div",
        "double else end escape except exists extract false float for from full glob group having",
        "if ilike in inner integer intersect interval into is isnull join json kind lateral left",
        "like limit localtime localtimestamp map natural next not notnull null offset on or order",
        "outer over overlaps partition pivot regexp replace right rlike row rows select",
        "session_user set similar some struct table then time timestamp timestamp_ntz to trim true",
        "try_cast union unknown unnest unpivot using values when where window with xor zone",
    )
    for word in line.split()
)

_LEVELS = {
    "or": _OR,
    "and": _AND,
    "+": _SUM,
    "-": _SUM,
    "||": _SUM - 1,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "%": _PRODUCT,
    "neg": _SUM - 1,
    "add_interval": _SUM,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>", "not", "is_null", "in"), _TEST),
    **dict.fromkeys(("like", "ilike"), _TEST),
}


def render_sql(expr: Expr) -> str:
    """Return SQL that ``parse_expression`` reads back to the same tree.

    Columns of a bound merge are qualified with their alias, and read back as such.
    """
    if isinstance(expr, Literal):
        return _literal(expr)
    if isinstance(expr, Column):
        path = expr.path if expr.table is None else (expr.table, *expr.path)
        return ".".join(_identifier(name) for name in path)
    if isinstance(expr, Cast):
        return f"cast({render_sql(expr.arg)} as {expr.type})"
    if isinstance(expr, Case):
        parts = [f"when {render_sql(w)} then {render_sql(t)}" for w, t in expr.branches]
        if expr.otherwise is not None:
            parts.append(f"else {render_sql(expr.otherwise)}")
        return f"case {' '.join(parts)} end"
    return _call(expr)


def shown_sql(expr: Expr) -> str:
    """Return SQL for people, as its author would write it: without casts that types imply.

    It may read back to another tree.
    """
    return render_sql(_as_written(expr))


def _as_written(expr: Expr) -> Expr:
    if isinstance(expr, Literal):
        return _as_number(expr)
    if isinstance(expr, Call):
        return Call(expr.name, tuple(map(_as_written, expr.args)))
    if isinstance(expr, Cast):
        arg = _as_written(expr.arg)
        return arg if expr.implied else Cast(arg, expr.type)
    if isinstance(expr, Case):
        if expr.implied and expr.otherwise is not None:
            return _as_written(expr.otherwise)
        branches = tuple((_as_written(when), _as_written(then)) for when, then in expr.branches)
        return Case(branches, None if expr.otherwise is None else _as_written(expr.otherwise))
    return expr


def _as_number(constant: Literal) -> Expr:
    """Return a double in digits alone, where it has few: ``0`` for ``0.0e0``."""
    if constant.type != "double" or constant.value is None:
        return constant
    text = repr(float(constant.value)).removesuffix(".0")
    if not text.lstrip("-").replace(".", "").isdigit():
        return constant
    return Literal(_natural_decimal(text) or "long", text)


def _call(call: Call, negated: str = "") -> str:
    name, args = call.name, call.args
    if name in ("and", "or"):
        return f" {name} ".join(_at(arg, _LEVELS[name] + 1) for arg in args)
    if name == "not":
        inner = args[0]
        if isinstance(inner, Call) and inner.name in ("is_null", "in", "like", "ilike"):
            return _call(inner, "not ")
        return f"not ({render_sql(inner)})"
    if name == "neg":
        return f"-({render_sql(args[0])})"
    if name == "struct":
        pairs = zip(args[::2], args[1::2], strict=True)
        return "{" + ", ".join(f"{render_sql(k)}: {render_sql(v)}" for k, v in pairs) + "}"
    if name not in _LEVELS:
        return f"{name}({', '.join(render_sql(arg) for arg in args)})"
    left = _at(args[0], _LEVELS[name] if _LEVELS[name] >= _SUM else _LEVELS[name] + 1)
    if name == "is_null":
        return f"{left} is {negated}null"
    if name == "in":
        return f"{left} {negated}in ({', '.join(render_sql(arg) for arg in args[1:])})"
    if name in ("like", "ilike"):
        escape = f" escape {_at(args[2], _ATOM)}" if len(args) == 3 else ""
        return f"{left} {negated}{name} {_at(args[1], _ATOM)}{escape}"
    if name == "add_interval":
        count, unit = (arg.value if isinstance(arg, Literal) else "" for arg in args[1:])
        return f"{left} + interval '{count}' {unit}"
    return f"{left} {name} {_at(args[1], _LEVELS[name] + 1)}"


def _at(expr: Expr, level: int) -> str:
    text = render_sql(expr)
    own = _ATOM
    if isinstance(expr, Call):
        own = _LEVELS.get(expr.name, _ATOM)
    elif isinstance(expr, Literal) and text.startswith("-"):
        own = _SUM - 1
    return text if own >= level else f"({text})"


def _identifier(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Return a string constant."""
    return "'" + text.replace("'", "''") + "'"


def _literal(constant: Literal) -> str:
    text, type_ = constant.value, constant.type
    if text is None:
        return "null" if type_ == "void" else f"cast(null as {type_})"
    if type_ == "string":
        return quoted(text)
    if type_ in ("long", "boolean"):
        return text
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        return f"{type_} {quoted(text)}"
    if type_ == "binary":
        return f"X'{text}'"
    if type_ == "double" and text[-1].isdigit():
        return text if "e" in text else f"{text}e0"
    if is_decimal(type_) and _natural_decimal(text) == type_:
        return text
    return f"cast({quoted(text)} as {type_})"


def _natural_decimal(text: str) -> str | None:
    """Return the type that the parser gives to this number; None if it reads it as a long."""
    whole, dot, fraction = text.lstrip("-").partition(".")
    if not dot:
        return None if -(2**63) <= int(text) < 2**63 else f"decimal({len(whole)},0)"
    # Leading zeros count as digits only as far as the scale needs them.
    digits = len((whole + fraction).lstrip("0")) or 1
    return f"decimal({max(digits, len(fraction), 1)},{len(fraction)})"
