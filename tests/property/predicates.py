"""Draw random predicates over a table, as text with parameters; make them smaller part by part.

The constants compared with an operand are its values for rows of the table, and neighbours of
these: so they equal the bounds of files, or differ from them by one ulp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind, type_of
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.parse import parse_expression
from lakevilla.sql.expressions.tree import Call, Cast, Expr, Literal
from tests.property.values import between, neighbours, pool

_COMPARE = ("=", "<>", "<", "<=", ">", ">=", "<=>", "<", "<=", ">", ">=", "=")


_ABOVE = ("{} > {}", "{} > {}", "not ({} <= {})", "not ({} < {})", "{} >= {}", "{} <> {}",
          "{} not in ({})", "{} between {} and {}")  # fmt: skip
_ODD = ("{} > {}", "{} <= {}", "not ({} < {})", "{} <> {}", "{} = {}", "{} >= {}", "{} in ({})",
        "{} in ({})", "{} in ({}, {})", "{} not in ({})", "{} between {} and {}",
        "{} not between {} and {}", "{} not in ({}, {})")  # fmt: skip

_ZEROS = ("{} in ({})", "{} in ({}, {})", "{} not in ({})", "{} = {}", "{} <> {}", "{} >= {}")


@dataclass(frozen=True)
class Part:
    """A piece of SQL with placeholders ``{}`` for other pieces; a parameter has a value instead."""

    text: str
    parts: tuple[Part, ...] = ()
    value: Any = None
    boolean: bool = False

    def render(self) -> tuple[str, dict[str, Any]]:
        params: dict[str, Any] = {}
        return self._render(params), params

    def _render(self, params: dict[str, Any]) -> str:
        if self.text == ":":
            name = f"p{len(params)}"
            params[name] = self.value
            return f":{name}"
        pieces = self.text.split("{}")
        inner = [part._render(params) for part in self.parts]
        text = pieces[0]
        for piece, one in zip(pieces[1:], inner, strict=True):
            text += one + piece
        return text

    def smaller(self) -> Iterable[Part]:
        """Yield each boolean piece in place of the whole, then the pieces with one piece less."""
        if self.boolean:
            yield from self._booleans()
        for at, part in enumerate(self.parts):
            inner = part.parts if not part.boolean else ()
            for one in (*part.smaller(), *inner):
                yield replace(self, parts=(*self.parts[:at], one, *self.parts[at + 1 :]))

    def _booleans(self) -> Iterable[Part]:
        for part in self.parts:
            if part.boolean:
                yield part
            yield from part._booleans()


@dataclass(frozen=True)
class Leaf:
    part: Part
    type: str


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """Return the columns, and the fields of structs at any depth, by their SQL names."""

    def walk(field: pa.Field, path: str) -> Iterable[Leaf]:
        name = path + quoted(field.name)
        yield Leaf(Part(name), type_of(parse_expression(name), schema))
        if pa.types.is_struct(field.type):
            for inner in field.type:
                yield from walk(inner, f"{name}.")

    return [leaf for field in schema for leaf in walk(field, "")]


class Predicates:
    """Draw predicates over one table; columns in ``telling``, by SQL name, more often."""

    def __init__(
        self,
        schema: pa.Schema,
        rows: list[dict[str, Any]],
        rng: Random,
        telling: frozenset[str] = frozenset(),
    ) -> None:
        self.schema, self.rows, self.rng = schema, rows, rng
        every = leaves_of(schema)
        # The key and the mark are in every table: other columns test more.
        own = [leaf for leaf in every if leaf.part.text not in ('"id"', '"mark"')]
        scalars = [leaf for leaf in own if "<" not in leaf.type]
        reported = [leaf for leaf in scalars if leaf.part.text in telling]
        self.scalars = [*scalars, *reported * 5] or every[:1]
        self.every = own or every
        #: Columns of types whose order has traps.
        self.pointed = [
            leaf
            for leaf in self.scalars
            if leaf.type in ("timestamp", "timestamp_ntz", "float", "double")
        ]

    def draw(self) -> Part:
        shape = self.rng.random()
        if shape < 0.55:
            return self.atom()
        if shape < 0.65:
            return Part("not ({})", (self.atom(),), boolean=True)
        word = self.rng.choice(["and", "or"])
        two = Part(f"({{}}) {word} ({{}})", (self.atom(), self.atom()), boolean=True)
        if shape < 0.9:
            return two
        other = self.rng.choice(["and", "or", "and not", "or not"])
        return Part(f"({{}}) {other} ({{}})", (two, self.atom()), boolean=True)

    def atom(self) -> Part:
        rng = self.rng
        leaf = rng.choice(self.pointed if self.pointed and rng.random() < 0.35 else self.scalars)
        if leaf in self.pointed and rng.random() < 0.5:
            return self.later(leaf) if "timestamp" in leaf.type else self.odd(leaf)
        how = rng.random()
        if how < 0.07:
            text = rng.choice(["{} is null", "{} is not null"])
            return Part(text, (rng.choice(self.every).part,), boolean=True)
        if leaf.type == "boolean" and how < 0.5:
            text = rng.choice(["{}", "{} is true", "not {}", "{} is not true", "{} = true"])
            return Part(text, (leaf.part,), boolean=True)
        if leaf.type == "string" and how < 0.35:
            return self.text(leaf)
        if how < 0.15:
            return self.two_columns(leaf)
        operand = self.operand(leaf)
        if how < 0.25:
            items = tuple(self.constant(operand, leaf) for _ in range(rng.randint(1, 4)))
            items += (Part("null"),) if rng.random() < 0.15 else ()
            text = f"{{}} {rng.choice(['in', 'in', 'not in'])} ({', '.join(['{}'] * len(items))})"
            return Part(text, (operand, *items), boolean=True)
        if how < 0.32:
            ends = (self.constant(operand, leaf), self.constant(operand, leaf))
            return Part("{} between {} and {}", (operand, *ends), boolean=True)
        if how < 0.37:
            condition = Part("{} is null", (rng.choice(self.every).part,), boolean=True)
            compared = self.compared(operand, leaf)
            text = f"case when {{}} then {rng.choice(['true', 'false', 'null'])} else {{}} end"
            return Part(text, (condition, compared), boolean=True)
        return self.compared(operand, leaf)

    def compared(self, operand: Part, leaf: Leaf) -> Part:
        pair = (operand, self.constant(operand, leaf))
        if self.rng.random() < 0.15:
            pair = (pair[1], pair[0])
        return Part(f"{{}} {self.rng.choice(_COMPARE)} {{}}", pair, boolean=True)

    def later(self, leaf: Leaf) -> Part:
        """Return a timestamp months later than, equal to, close to or between those of the rows."""
        rng = self.rng
        unit, count = rng.choice([("month", 1), ("month", 1), ("month", 13), ("year", 1)])
        sign = "-" if count == 13 and rng.random() < 0.3 else "+"
        operand = Part(f"({{}} {sign} interval '{count}' {unit})", (leaf.part,))
        values = self.values_of(operand)
        value = between(values, rng) if rng.random() < 0.3 else None
        if value is None:
            value = rng.choice(values) if values else datetime(2023, 2, 28)
            value += timedelta(microseconds=rng.choice([0, 0, 0, 1, -1]))
        name = rng.choice(["=", "=", "<", "<=", ">", ">=", "<>"])
        return Part(f"{{}} {name} {{}}", (operand, self.plain(value)), boolean=True)

    def odd(self, leaf: Leaf) -> Part:
        """Return a value that only NaN satisfies, or a zero of either sign."""
        rng = self.rng
        operand = leaf.part if rng.random() < 0.8 else self.operand(leaf)
        values = [v for v in self.values_of(operand) if isinstance(v, float)]
        numbers = [v for v in values if v == v] or [1.5]
        some = max(numbers) if rng.random() < 0.4 else rng.choice(numbers)
        texts, second = _ODD, math.nan
        if {math.copysign(1, v) for v in numbers if v == 0} == {1, -1} and rng.random() < 0.5:
            # Zeros of both signs are one value, and two partitions.
            texts, some, second = _ZEROS, rng.choice([0.0, -0.0]), rng.choice(numbers)
        elif len(values) > len(numbers) and rng.random() < 0.6:
            # Above a file's numbers, and further away than bounds are rounded outwards.
            texts, some = _ABOVE, rng.choice([some, some + 1, abs(some) * 2 + 1])
        elif any(v == 0 for v in numbers) and rng.random() < 0.5:
            some, second = rng.choice([0.0, -0.0]), rng.choice([0.0, -0.0])
        text = rng.choice(texts)
        places = (operand, *map(self.plain, (some, second)[: text.count("{}") - 1]))
        return Part(text, places, boolean=True)

    def two_columns(self, leaf: Leaf) -> Part:
        others = [one for one in self.scalars if _kind(one.type) == _kind(leaf.type)]
        pair = (self.operand(leaf), self.operand(self.rng.choice(others)))
        return Part(f"{{}} {self.rng.choice(_COMPARE)} {{}}", pair, boolean=True)

    def text(self, leaf: Leaf) -> Part:
        rng, value = self.rng, self.value_of(leaf.part)
        value = value if isinstance(value, str) else "ab"
        start = value[: rng.choice([0, 1, 2, 15, 16, 31, 32, 33])]
        if rng.random() < 0.4:
            name = rng.choice(["starts_with", "ends_with", "contains"])
            part = rng.choice([start, value, value[-1:], start + chr(0x10FFFF), start[:-1] + "é"])
            return Part(f"{name}({{}}, {{}})", (leaf.part, self.plain(part)), boolean=True)
        own = start.replace("!", "").replace("%", "!%").replace("_", "!_")
        pattern = rng.choice([own + "%", own + "_", own + "_%", "%" + own, own])
        word = rng.choice(["like", "like", "ilike", "not like"])
        # Pattern and escape must be constants, and a parameter counts as one.
        return Part(f"{{}} {word} {{}} escape '!'", (leaf.part, self.plain(pattern)), boolean=True)

    # -- operands ------------------------------------------------------------------------

    def operand(self, leaf: Leaf, depth: int = 0) -> Part:
        """Return the column, or a function of it that binds."""
        rng = self.rng
        if rng.random() < (0.45 if depth == 0 else 0.75):
            return leaf.part
        inner = self.operand(leaf, depth + 1) if depth < 2 else leaf.part
        type_ = self.type_of(inner)
        if type_ is None:
            return leaf.part
        made = self.wrapped(inner, type_)
        return made if self.type_of(made) is not None else inner

    def wrapped(self, inner: Part, type_: str) -> Part:
        rng = self.rng
        kind = _kind(type_)
        if rng.random() < 0.1:
            name = rng.choice(["coalesce({}, {})", "nullif({}, {})", "greatest({}, {})",
                               "least({}, {})"])  # fmt: skip
            return Part(name, (inner, self.constant(inner, Leaf(inner, type_))))
        if rng.random() < 0.05:
            condition = Part("{} is null", (rng.choice(self.every).part,), boolean=True)
            return Part("case when {} then {} else {} end",
                        (condition, self.constant(inner, Leaf(inner, type_)), inner))  # fmt: skip
        if kind == "number":
            small = self.plain(rng.choice([0, 1, -1, 2, 10, Decimal("0.1"), 0.5, 1e10, -1.5, 1e300,
                                           2**62]))  # fmt: skip
            text = rng.choice(["cast({} as double)", "cast({} as float)", "cast({} as long)",
                               "cast({} as integer)", "cast({} as decimal(20,4))", "floor({})",
                               "cast({} as decimal(6,1))", "cast({} as byte)", "ceil({})",
                               "round({})", "round({}, 1)", "abs({})", "sqrt({})",
                               "sign({})", "-{}", "{} + {}", "{} - {}",
                               "{} * {}", "{} / {}", "{} % {}", "{} + {}",
                               "cast({} as string)"])  # fmt: skip
            if text.count("{}") == 1:
                return Part(text, (inner,))
            pair = (inner, small) if rng.random() < 0.7 else (small, inner)
            return Part(f"({text})", pair)
        if kind in ("date", "timestamp", "timestamp_ntz"):
            unit = rng.choice(["year", "month", "week", "day", "hour", "minute", "second",
                               "microsecond", "month", "month"])  # fmt: skip
            count = rng.choice([1, -1, 2, 12, 13, 30, -11])
            sign = "-" if count < 0 else "+"
            cut = rng.choice(["year", "quarter", "month", "week", "day", "hour", "minute"])
            to = rng.choice(["date", "timestamp", "timestamp_ntz", "string"])
            text = rng.choice([f"({{}} {sign} interval '{abs(count)}' {unit})",
                               f"({{}} {sign} interval '{abs(count)}' {unit})",
                               f"date_trunc('{cut}', {{}})", f"cast({{}} as {to})", "year({})",
                               "month({})", "day({})", "hour({})", "second({})",
                               f"date_add({{}}, {count * 20})", f"add_months({{}}, {count})",
                               "last_day({})", "quarter({})",
                               "date_format({}, 'yyyy-MM')"])  # fmt: skip
            return Part(text, (inner,))
        if kind == "string":
            text = rng.choice(["lower({})", "upper({})", "trim({})", "rtrim({})", "length({})",
                               "substring({}, 1, 2)", "substring({}, 2)", "({} || {})",
                               "replace({}, {}, 'b')", "left({}, 2)", "lpad({}, 3)",
                               "initcap({})", "regexp_replace({}, '[a-c]', 'x')",
                               "cast({} as long)", "cast({} as double)",
                               "cast({} as date)", "cast({} as decimal(6,2))"])  # fmt: skip
            more = tuple(
                self.plain(rng.choice(["a", "x", "é", ""])) for _ in range(text.count("{}") - 1)
            )
            return Part(text, (inner, *more))
        return inner

    # -- constants -----------------------------------------------------------------------

    def constant(self, operand: Part, leaf: Leaf) -> Part:
        rng = self.rng
        value = self.value_of(operand)
        if rng.random() < 0.25:
            inside = between(self.values_of(operand), rng)
            if inside is not None:
                return self.plain(inside)
        if value is None and rng.random() < 0.9:
            scalar = leaf.type if leaf.type != "void" else "long"
            value = rng.choice(pool(scalar, rng))
        if rng.random() < 0.02:
            return Part("null")
        near = neighbours(value)
        return self.plain(near[0] if rng.random() < 0.35 else rng.choice(near))

    def plain(self, value: Any) -> Part:
        """Return a constant, as a parameter or as text."""
        text = _written(value) if self.rng.random() < 0.4 else None
        return Part(":", value=value) if text is None else Part(text)

    def value_of(self, operand: Part) -> Any:
        """Return the operand's value for some row; None if it is NULL, or if it raises."""
        found = self.values_of(operand)
        return self.rng.choice(found) if found else None

    def values_of(self, operand: Part) -> list[Any]:
        """Return the operand's values for the rows where it is neither NULL nor raises."""
        bound = self.bound(operand)
        found = []
        for row in self.rows if bound is not None else ():
            with suppress(InvalidOperation):
                found.append(evaluate(bound, row))
        return [
            value for value in found if value is not None and not isinstance(value, dict | list)
        ]

    def type_of(self, operand: Part) -> str | None:
        bound = self.bound(operand)
        return None if bound is None else type_of(bound, self.schema)

    def bound(self, part: Part) -> Expr | None:
        sql, params = part.render()
        try:
            return bind(parse_expression(sql, params), self.schema, predicate=False)
        except InvalidOperation:
            return None


def _kind(type_: str) -> str:
    if type_ in ("byte", "short", "integer", "long", "float", "double") or "decimal" in type_:
        return "number"
    return type_


def _written(value: Any) -> str | None:
    """Return a constant as SQL writes it; None if SQL can't write it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        if not math.isfinite(value):
            text = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
            return f"cast('{text}' as double)"
        return f"({value!r})" if "e" in repr(value) else f"({value!r}e0)"
    if isinstance(value, Decimal):
        return f"({value:f})" if "." in f"{value:f}" else None
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        kind = "timestamp_ntz" if value.tzinfo is None else "timestamp"
        zone = "" if value.tzinfo is None else "+00:00"
        return f"{kind} '{value.replace(tzinfo=None).isoformat(sep=' ')}{zone}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    return None


def may_fold(expr: Expr) -> bool:
    """Return whether some row's value may be known without evaluating all parts of the
    expression.
    """
    from lakevilla.sql.expressions.tree import children

    if isinstance(expr, Literal) and expr.value is None:
        return True  # a function of NULL is NULL, whatever its other operands are
    lazy = isinstance(expr, Call) and expr.name in ("and", "or", "coalesce", "in", "nullif")
    lazy = lazy or (not isinstance(expr, Call | Cast) and bool(list(children(expr))))
    return lazy or any(may_fold(part) for part in children(expr))
