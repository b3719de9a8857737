"""Conditions and assignments as data, and their texts in the dialects of the actors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias

#: ``language`` is LakeVilla's own, in which values are parameters.
Dialect: TypeAlias = Literal["language", "duckdb", "spark", "deltalake"]

_SQL_TYPES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
}


@dataclass(frozen=True)
class Test:
    """A comparison of a column of a type: ``=``, ``<>``, ``<``, ``>=``, ``<=>``, ``in``,
    ``between``, ``is null``, ``like``, each perhaps after ``not``.
    """

    __test__ = False

    column: str
    type: str
    how: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Joined:
    word: Literal["and", "or"]
    left: Where
    right: Where


@dataclass(frozen=True)
class Not:
    inner: Where


@dataclass(frozen=True)
class Every:
    """All rows."""


Where: TypeAlias = Test | Joined | Not | Every


@dataclass(frozen=True)
class Set:
    """An assignment: ``text`` has ``{c}`` for a column of the row, or ``{v}`` for a value."""

    column: str
    type: str
    text: str
    other: str = ""
    value: Any = None


class Texts:
    """Conditions and assignments in one dialect; ``params`` has the values of the parameters."""

    def __init__(self, dialect: Dialect, prefix: str = "") -> None:
        self.dialect, self.prefix = dialect, prefix
        self.params: dict[str, Any] = {}

    def where(self, where: Where) -> str:
        match where:
            case Every():
                return "true"
            case Not(inner):
                return f"not ({self.where(inner)})"
            case Joined(word, left, right):
                return f"({self.where(left)}) {word} ({self.where(right)})"
            case Test():
                return self._test(where)

    def assigned(self, one: Set) -> str:
        value = self.value(one.value, one.type) if "{v}" in one.text else ""
        return one.text.format(c=self.name(one.other), v=value)

    def name(self, column: str) -> str:
        mark = "`" if self.dialect == "spark" else '"'
        return f"{self.prefix}{mark}{column.replace(mark, mark * 2)}{mark}"

    def value(self, value: Any, type_: str) -> str:
        if self.dialect != "language":
            return literal(value, type_, self.dialect)
        name = f"p{len(self.params)}"
        self.params[name] = value
        return f":{name}"

    def _test(self, test: Test) -> str:
        name = self.name(test.column)
        values = [self.value(one, test.type) for one in test.values]
        match test.how:
            case "is null" | "is not null":
                return f"{name} {test.how}"
            case "in" | "not in":
                return f"{name} {test.how} ({', '.join(values)})"
            case "between" | "not between":
                return f"{name} {test.how} {values[0]} and {values[1]}"
            case "<=>" if self.dialect in ("duckdb", "deltalake"):
                return f"{name} is not distinct from {values[0]}"
            case _:
                return f"{name} {test.how} {values[0]}"


def columns_of(where: Where) -> Iterator[str]:
    match where:
        case Test(column):
            yield column
        case Joined(_, left, right):
            yield from columns_of(left)
            yield from columns_of(right)
        case Not(inner):
            yield from columns_of(inner)


def literal(value: Any, type_: str, dialect: Dialect) -> str:
    """Return a value of a scalar type as a text of the dialect."""
    kind = sql_type(type_, dialect)
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')" if dialect == "duckdb" else f"X'{value.hex()}'"
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        if dialect == "spark":
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, datetime):
        return f"CAST('{value.isoformat(sep=' ')}' AS {kind})"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float) and not math.isfinite(value):
        word = "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
        return f"CAST('{word}' AS {kind})"
    text = format(value, "f") if isinstance(value, Decimal) else repr(value)
    return f"CAST('{text}' AS {kind})"


def sql_type(type_: str, dialect: Dialect) -> str:
    if type_ == "string":
        return "VARCHAR" if dialect != "spark" else "STRING"
    if type_ == "binary":
        return "BLOB" if dialect == "duckdb" else "BINARY"
    if type_ == "timestamp":
        return "TIMESTAMP" if dialect == "spark" else "TIMESTAMPTZ"
    if type_ == "timestamp_ntz":
        return "TIMESTAMP_NTZ" if dialect == "spark" else "TIMESTAMP"
    return _SQL_TYPES.get(type_, type_.upper())
