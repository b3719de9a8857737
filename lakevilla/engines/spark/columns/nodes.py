"""Nodes of Spark's columns, and terms that depend on the session."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from lakevilla.errors import InvalidOperation

# -------------------- nodes
#
# The content of a ``Column``, in few kinds of nodes: the same for classic sessions and for Connect.


@dataclass(frozen=True, slots=True)
class Name:
    """A column by its name; ``frame`` identifies the DataFrame that it was taken from."""

    parts: tuple[str, ...]
    frame: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, with Spark's type in LakeVilla's names: ``integer``, ``timestamp``,
    ``decimal(3,2)``.
    """

    value: object
    type: str


@dataclass(frozen=True, slots=True)
class Applied:
    """An operator or function, under Spark's name of it."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class CastTo:
    """A cast, to a type as Spark spells it."""

    arg: Node
    type: str


@dataclass(frozen=True, slots=True)
class Branches:
    """A choice: ``when(...).when(...).otherwise(...)``."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Item:
    """``a["b"]``, ``a.b``, ``a.getItem(b)``: a field, an element, or the value of a key."""

    of: Node
    key: Node


Node: TypeAlias = Name | Constant | Applied | CastTo | Branches | Item


def refused(what: str, instead: str) -> InvalidOperation:
    """Return the error for a ``Column`` that the language can't express."""
    return InvalidOperation(
        f"a Spark Column with {what} can't be an expression of the lake: {instead}"
    )


def spelled(parts: tuple[str, ...]) -> str:
    """Return a column's name as ``F.col`` accepts it."""
    return ".".join(
        part if part.isidentifier() else f"`{part.replace('`', '``')}`" for part in parts
    )


def too_deep() -> InvalidOperation:
    return InvalidOperation("a Spark Column is nested too deeply: use isin for many values")


AS_TEXT = "write it as SQL text, in the language of docs/expressions.md"
OF_MANY_ROWS = "it is no value of one row: compute it in a DataFrame, and merge that"
SOURCE = "compute it in a DataFrame, and merge that"

#: Nodes other than those above, by Spark's names of them, and alternatives to them.
BESIDE = {
    "SqlExpression": ("F.expr(...)", "pass its text itself, in the language of "
                      "docs/expressions.md"),
    "SortOrder": ("a sort order", "leave asc() or desc() out"),
    "Window": ("a window", OF_MANY_ROWS),
    "LambdaFunction": ("a function of elements", SOURCE),
    "UnresolvedNamedLambdaVariable": ("a function of elements", SOURCE),
    "InvokeInlineUserDefinedFunction": ("a user-defined function", SOURCE),
    "PythonUDF": ("a user-defined function", SOURCE),
    "ScalaUDF": ("a user-defined function", SOURCE),
    "UnresolvedStar": ("*", "name the columns"),
    "UnresolvedRegex": ("a pattern of column names", "name the columns"),
    "UpdateFields": ("withField or dropFields", "assign the fields, or compute the struct in a "
                     "DataFrame, and merge that"),
    "SubqueryExpression": ("a subquery", SOURCE),
    "LazyExpression": ("a subquery", SOURCE),
    "CallFunction": ("call_function", "call it by its own name in pyspark.sql.functions, or "
                     + AS_TEXT),
}  # fmt: skip


def beside(kind: str) -> InvalidOperation:
    """Return the error for a node that is none of the kinds above, by the name of its kind."""
    what, instead = BESIDE.get(kind, (kind, AS_TEXT))
    return refused(what, instead)


def of_python(value: object) -> Constant:
    """Return a Python value as a constant of the type that Spark gives it."""
    if value is None:
        return Constant(None, "void")
    if isinstance(value, bool):
        return Constant(value, "boolean")
    if isinstance(value, int):
        return Constant(value, "integer" if -(2**31) <= value < 2**31 else "long")
    if isinstance(value, float):
        return Constant(value, "double")
    if isinstance(value, Decimal):
        return Constant(value, _decimal_of(value))
    if isinstance(value, str):
        return Constant(value, "string")
    assert isinstance(value, bytes | bytearray)
    return Constant(bytes(value), "binary")


def _decimal_of(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise refused(f"the literal {value}", "no decimal column holds it: pass a float")
    scale = max(0, -exponent)
    return f"decimal({max(len(digits) + max(0, exponent), scale, 1)},{scale})"


# -------------------- session terms
#
# The effect of a session's settings on the meaning of its columns.


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UTC = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UTC+0", "GMT+0", "Etc/UCT"})


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """The settings of a session that change the meaning of columns.

    Attributes
    ----------
    zone : str
        The time zone in which Spark reads the dates and hours of timestamps. The lake reads them in
        UTC.
    ansi : bool
        Whether overflows and failing casts raise, as they do in the lake.
    zoned : bool
        Whether the type ``timestamp`` is one with a zone.
    """

    zone: str = "UTC"
    ansi: bool = True
    zoned: bool = True

    @property
    def is_utc(self) -> bool:
        return self.zone in _UTC

    @classmethod
    def of(cls, session: SparkSession) -> SessionTerms:
        get = session.conf.get
        return cls(
            str(get("spark.sql.session.timeZone")),
            str(get("spark.sql.ansi.enabled", "true")).lower() == "true",
            str(get("spark.sql.timestampType", "TIMESTAMP_LTZ")).upper() != "TIMESTAMP_NTZ",
        )
