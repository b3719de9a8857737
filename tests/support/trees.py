"""Draw random typed trees and rows, for the properties of the expression language."""

from __future__ import annotations

import ctypes
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.sql.expressions.values import literal

SCHEMA = pa.schema(
    [
        ("b", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("dec", pa.decimal128(6, 2)),
        ("wide", pa.decimal128(38, 6)),
        ("s", pa.string()),
        ("t", pa.string()),
        ("bin", pa.binary()),
        ("bo", pa.bool_()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("tn", pa.timestamp("us")),
        ("st", pa.struct([("n", pa.int64()), ("Name", pa.string())])),
    ]
)

_TEXT = st.text(alphabet="aAbBzZ%_ é!ßÉ1'\"\\😀", max_size=6)
_NUMERALS = st.sampled_from(
    ["1", "-7", "007", "2.5", " 3", "1e3", "abc", "", "300", "2024-02-29", "2023-02-29", "true",
     "2024-02-29 01:02:03", "2024-02-29T01:02:03.5Z", "2024-02-29 01:02:03+02:00", "NaN", "9.996"]
)  # fmt: skip
_DATES = st.dates(date(1600, 1, 1), date(2200, 12, 31))
_MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(2200, 12, 31))
_DOUBLES = st.sampled_from(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        0.1,
        1.005,
        1e-7,
        1e15,
        1e22,
        1e300,
        -1e300,
        127.5,
        float("nan"),
        float("inf"),
        float("-inf"),
        0.49999999999999994,
    ]
) | st.floats(allow_nan=True)


def _single(value: float) -> float:
    return ctypes.c_float(value).value


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    small = st.integers(-2000, 2000)
    limit = 10**precision - 1
    whole = small | st.integers(-limit, limit) | st.sampled_from([limit, -limit, 0])
    return whole.map(lambda n: Decimal(n).scaleb(-scale, _CONTEXT))


_CONTEXT = Context(prec=60)


def _integers(bits: int) -> st.SearchStrategy[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.integers(-3, 9) | st.sampled_from([least, most]) | st.integers(least, most)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": _integers(8),
    "i": _integers(32),
    "l": _integers(64),
    "f": _DOUBLES.map(_single),
    "x": _DOUBLES,
    "dec": _decimals(6, 2),
    "wide": _decimals(38, 6),
    "s": _TEXT,
    "t": _TEXT | _NUMERALS,
    "bin": st.binary(max_size=3),
    "bo": st.booleans(),
    "d": _DATES,
    "ts": _MOMENTS.map(lambda instant: instant.replace(tzinfo=UTC)),
    "tn": _MOMENTS,
}

ROWS = st.fixed_dictionaries(
    {
        **{name: st.none() | values for name, values in VALUES.items()},
        "st": st.none()
        | st.fixed_dictionaries({"n": st.none() | _integers(64), "Name": st.none() | _TEXT}),
    }
)


def _columns(*names: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from([Column(tuple(name.split("."))) for name in names])


def _constants(*names: str) -> st.SearchStrategy[Expr]:
    return st.one_of(*(VALUES[name].map(literal) for name in names))


_LEAVES: dict[str, st.SearchStrategy[Expr]] = {
    "integer": _columns("b", "i", "l", "st.n") | _constants("b", "i", "l"),
    "decimal": _columns("dec", "wide") | _constants("dec"),
    "double": _columns("f", "x") | _constants("x"),
    "string": _columns("s", "t", "st.name") | _constants("s", "t"),
    "binary": _columns("bin") | _constants("bin"),
    "boolean": _columns("bo") | st.booleans().map(literal),
    "date": _columns("d") | _constants("d"),
    "timestamp": _columns("ts") | _constants("ts"),
    "timestamp_ntz": _columns("tn") | _constants("tn"),
}
KINDS = tuple(_LEAVES)
_NUMBERS = ("integer", "decimal", "double")
_CAST_TO = {
    "integer": ("byte", "integer", "long"),
    "decimal": ("decimal(4,1)", "decimal(18,6)", "decimal(38,10)"),
    "double": ("double", "float"),
    "string": ("string",),
    "boolean": ("boolean",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "timestamp_ntz": ("timestamp_ntz",),
}
_MOMENT_KINDS = ("date", "timestamp", "timestamp_ntz")
_CAST_FROM = {
    "integer": ("integer", "decimal", "double", "boolean", "string"),
    "decimal": ("integer", "decimal", "double", "string"),
    "double": ("integer", "decimal", "double", "string"),
    "string": ("integer", "decimal", "boolean", "date", "string"),
    "boolean": ("string",),
    **dict.fromkeys(_MOMENT_KINDS, (*_MOMENT_KINDS, "string")),
}


@st.composite
def trees(draw: st.DrawFn, kind: str = "boolean", depth: int = 3) -> Expr:
    """Draw a tree, not bound, whose value is of a kind."""
    if depth == 0:
        return draw(_LEAVES[kind])
    choice = draw(st.integers(0, 9))
    if choice <= 1:
        return draw(_LEAVES[kind])

    def sub(of: str) -> Expr:
        return draw(trees(of, depth - 1))

    if choice == 2:
        whens = tuple((sub("boolean"), sub(kind)) for _ in range(draw(st.integers(1, 2))))
        return Case(whens, draw(st.none() | trees(kind, depth - 1)))
    if choice == 3 and kind != "binary":
        name = draw(st.sampled_from(["coalesce", "nullif", "greatest", "least"]))
        return Call(name, (sub(kind), sub(kind)))
    if choice <= 5 and kind in _CAST_TO:
        source = draw(st.sampled_from(_CAST_FROM[kind]))
        arg = sub(source)
        if not isinstance(arg, Literal):
            return Cast(arg, draw(st.sampled_from(_CAST_TO[kind])))
        return arg if source == kind else draw(_LEAVES[kind])
    return _BUILD[kind](draw, sub)


def _number(kind: str) -> Any:
    def build(draw: Any, sub: Any) -> Expr:
        names = ["+", "-", "*", "%", "neg", "abs", "round", "floor", "ceil"]
        name = draw(st.sampled_from([*names, *(["sqrt", "sign"] if kind == "double" else [])]))
        if kind == "double" and name == "%":
            name = "/"
        if name in ("+", "-", "*", "/", "%"):
            other = kind
            if kind == "double" or (kind == "decimal" and name != "%"):
                other = draw(st.sampled_from(_NUMBERS if kind == "double" else ("decimal",)))
            return Call(name, (sub(kind), sub(other)))
        if name == "round" and kind == "decimal":
            return Call(name, (sub(kind), literal(draw(st.integers(0, 3)))))
        arg = sub(kind)
        return Call(name, (arg,)) if not (name == "neg" and isinstance(arg, Literal)) else arg

    return build


def _integer(draw: Any, sub: Any) -> Expr:
    name = draw(st.sampled_from(["arithmetic", "length", "part", "place", "days"]))
    if name == "place":
        return Call("instr", (sub("string"), sub("string")))
    if name == "days":
        return Call("datediff", tuple(sub(draw(st.sampled_from(_MOMENT_KINDS))) for _ in "ab"))
    if name == "arithmetic":
        return _number("integer")(draw, sub)
    if name == "length":
        return Call("length", (sub("string"),))
    kind = draw(st.sampled_from(_MOMENT_KINDS))
    parts = ["year", "month", "day", "quarter", "weekofyear", "dayofyear", "dayofweek", "weekday"]
    parts += [] if kind == "date" else ["hour", "minute", "second"]
    return Call(draw(st.sampled_from(parts)), (sub(kind),))


def _string(draw: Any, sub: Any) -> Expr:
    name = draw(
        st.sampled_from(["lower", "upper", "trim", "ltrim", "rtrim", "||", "substring", "replace",
                         "initcap", "reverse", "md5", "translate", "concat_ws", "left", "right",
                         "constants", "date_format"])
    )  # fmt: skip
    if name in ("translate", "concat_ws"):
        return Call(name, (sub("string"), sub("string"), sub("string")))
    if name in ("left", "right"):
        return Call(name, (sub("string"), sub("integer")))
    if name == "constants":
        name, *constants = draw(st.sampled_from(_WITH_CONSTANTS))
        return Call(name, (sub("string"), *map(literal, constants)))
    if name == "date_format":
        format_text = literal(draw(st.sampled_from(["yyyy-MM-dd", "MM/yyyy", "dd"])))
        return Call(name, (sub(draw(st.sampled_from(_MOMENT_KINDS))), format_text))
    if name == "||":
        return Call(name, (sub("string"), sub("string")))
    if name == "replace":
        return Call(name, (sub("string"), sub("string"), sub("string")))
    if name == "substring":
        counts = (literal(draw(st.integers(1, 4))), literal(draw(st.integers(0, 4))))
        return Call(name, (sub("string"), *counts[: draw(st.integers(1, 2))]))
    return Call(name, (sub("string"),))


_WITH_CONSTANTS = [
    ("lpad", 4, "é!"),
    ("rpad", 3),
    ("split_part", "a", 2),
    ("split_part", "b", -1),
    ("regexp_replace", "[aé]", "<>"),
    ("regexp_replace", "([a-z])(.)", "$2$1"),
    ("regexp_extract", r"(\w)b*\z", 1),
    ("get_json_object", "$.a"),
]


def _moment(kind: str) -> Any:
    units = ["year", "month", "week", "day"]
    units += [] if kind == "date" else ["hour", "minute", "second"]

    def build(draw: Any, sub: Any) -> Expr:
        unit = literal(draw(st.sampled_from(units)))
        if draw(st.booleans()):
            return Call("date_trunc", (unit, sub(kind)))
        if kind == "date" and draw(st.booleans()):
            name = draw(st.sampled_from(["date_add", "last_day", "add_months", "to_date"]))
            if name == "to_date":
                return Call(name, (sub("string"), literal("yyyy-MM-dd")))
            if name == "last_day":
                return Call(name, (sub(draw(st.sampled_from(_MOMENT_KINDS))),))
            if name == "add_months":
                return Call(name, (sub("date"), sub("integer")))
            return Call("date_add", (sub(kind), literal(draw(st.integers(-400, 400)))))
        return Call("add_interval", (sub(kind), literal(draw(st.integers(-40, 40))), unit))

    return build


def _boolean(draw: Any, sub: Any) -> Expr:
    name = draw(
        st.sampled_from(["and", "or", "not", "is_null", "in", "like", "text", *["compare"] * 5])
    )
    if name in ("and", "or"):
        terms: list[Expr] = []
        for _ in range(draw(st.integers(2, 3))):
            term = sub("boolean")
            nested = isinstance(term, Call) and term.name == name
            terms += term.args if nested else (term,)
        return Call(name, tuple(terms))
    if name == "not":
        return Call(name, (sub("boolean"),))
    if name == "like":
        name = draw(st.sampled_from(["like", "ilike"]))
        pattern = draw(st.text(alphabet="aAb%_é", max_size=4))
        escape = ()
        if draw(st.booleans()):
            pattern, escape = pattern.replace("é", "!%"), (literal("!"),)
        return Call(name, (sub("string"), literal(pattern), *escape))
    if name == "text" and draw(st.booleans()):
        regexp = draw(st.sampled_from(["^a", "b$", "[^aé]+", ".", r"\s", r"!\z"]))
        return Call("regexp_like", (sub("string"), literal(regexp)))
    if name == "text":
        name = draw(st.sampled_from(["starts_with", "ends_with", "contains"]))
        return Call(name, (sub("string"), sub("string")))
    kind = draw(st.sampled_from(KINDS))
    if name == "is_null":
        return Call(name, (sub(kind),))
    other = kind
    if kind in _NUMBERS:
        other = draw(st.sampled_from(_NUMBERS))
    if name == "in":
        items = draw(st.lists(_LEAVES[kind] | st.just(Literal("void")), max_size=4))
        return Call(name, (sub(kind), *items))
    name = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]))
    return Call(name, (sub(kind), sub(other)))


_BUILD: dict[str, Any] = {
    "integer": _integer,
    "decimal": _number("decimal"),
    "double": _number("double"),
    "string": _string,
    "binary": lambda draw, sub: draw(_LEAVES["binary"]),
    "boolean": _boolean,
    **{kind: _moment(kind) for kind in _MOMENT_KINDS},
}


def any_tree() -> st.SearchStrategy[Expr]:
    """Draw a tree of any kind."""
    return st.sampled_from(KINDS).flatmap(lambda kind: trees(kind))


def row_table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)
