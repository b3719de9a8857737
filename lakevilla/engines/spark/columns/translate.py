"""Translate columns of Spark to expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.engines.spark.columns import classic, connect
from lakevilla.engines.spark.columns.casts import Typed, cast, common, converted, type_spelled
from lakevilla.engines.spark.columns.functions import FUNCTIONS, Language
from lakevilla.engines.spark.columns.nodes import (
    AS_TEXT,
    Applied,
    Branches,
    CastTo,
    Constant,
    Item,
    Name,
    Node,
    SessionTerms,
    refused,
    spelled,
    too_deep,
)
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, type_of
from lakevilla.sql.expressions.functions.shorthand import REFUSED
from lakevilla.sql.expressions.tree import Case, Column, Expr, Literal
from lakevilla.sql.expressions.types import arrow_type, type_name
from lakevilla.sql.expressions.values import literal

# -------------------- translate
#
# A ``Column``'s nodes as a tree of the language, typed as Spark types them.
#
# The language computes integers as longs and real numbers as doubles. Where Spark has a narrower
# type, a cast to it is written, which raises where Spark's own computation does.


_NOTHING = pa.schema([])


class Translator:
    """Translator from nodes to trees, over the columns of a table or of both sides of a merge.

    Parameters
    ----------
    schemas : pyarrow.Schema or Mapping of alias to schema
    terms : SessionTerms
        Of the session that the columns were made in.
    whose : callable
        Returns the alias of a column that was taken from a DataFrame.
    now : datetime
        Aware; the value of ``current_timestamp``.
    """

    def __init__(
        self, schemas: Schemas, terms: SessionTerms, whose: FrameIds, now: datetime
    ) -> None:
        self._schemas, self._whose = schemas, whose
        self._lang = Language(terms, now)

    def expression(self, node: Node) -> Expr:
        """Return the tree, with its columns as they were named: it is not bound yet.

        Raises
        ------
        InvalidOperation
            Names a part that no expression of the lake can express with Spark's meaning.
        """
        try:
            return self._typed(node).expr
        except RecursionError:
            raise too_deep() from None

    def _typed(self, node: Node) -> Typed:
        if isinstance(node, Name):
            return self._column(node)
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, CastTo):
            type_ = type_spelled(node.type, self._lang.terms)
            return cast(self._typed(node.arg), type_, self._lang.terms)
        if isinstance(node, Branches):
            return self._chosen(node)
        if isinstance(node, Item):
            return self._item(node)
        return self._function(node)

    def _column(self, node: Name) -> Typed:
        if node.frame is None:
            return self._found(Column(node.parts))
        return self._found(Column(node.parts, self._whose(node)))

    def _found(self, column: Column) -> Typed:
        return Typed(column, type_of(column, self._schemas))

    def _constant(self, node: Constant) -> Typed:
        if node.value is None:
            return Typed(Literal("void"), node.type)
        return Typed(literal(node.value, "a literal of a Spark Column"), node.type)

    def _chosen(self, node: Branches) -> Typed:
        terms = self._lang.terms
        whens = [self._boolean(when, "F.when") for when, _ in node.branches]
        values = [self._typed(then) for _, then in node.branches]
        if node.otherwise is not None:
            values.append(self._typed(node.otherwise))
        met = common(values, "the values of F.when", terms)
        trees = [converted(value, met, "the values of F.when", terms) for value in values]
        rest = None if node.otherwise is None else trees.pop()
        return Typed(Case(tuple(zip(whens, trees, strict=True)), rest), met)

    def _boolean(self, node: Node, what: str) -> Expr:
        found = self._typed(node)
        if found.type not in ("boolean", "void"):
            raise refused(f"{what} of {found.type}", "compare it with something")
        return found.expr

    def _item(self, node: Item) -> Typed:
        outer = self._typed(node.of)
        key = node.key
        if outer.type.startswith("struct<"):
            named = isinstance(key, Constant) and isinstance(key.value, str)
            if not named or not isinstance(outer.expr, Column):
                raise refused("a field of a computed value", AS_TEXT)
            assert isinstance(key, Constant)
            return self._found(Column((*outer.expr.path, str(key.value)), outer.expr.table))
        if outer.type.startswith("map<"):
            return self._lang.call("get", [outer, self._typed(key)], self._item_type(outer.type))
        if outer.type.startswith("array<"):
            raise refused(
                "an element of an array by getItem or [...]",
                "Spark raises where there is none: use F.get, which gives NULL here and there",
            )
        raise refused(f"a part of a value of type {outer.type}", AS_TEXT)

    @staticmethod
    def _item_type(map_type: str) -> str:
        return type_name(arrow_type(map_type).item_type)

    def _function(self, node: Applied) -> Typed:
        name = node.name.lower()
        if name in ("and", "or"):
            terms = self._terms_of(name, node)
            return self._lang.plain(name, [self._boolean(one, name) for one in terms], "boolean")
        make = FUNCTIONS.get(name)
        if make is None:
            reason = REFUSED.get(name, "docs/spark.md lists the functions that can")
            raise refused(f"{node.name}()", reason)
        return make(self._lang, [self._typed(arg) for arg in node.args])

    @staticmethod
    def _terms_of(name: str, node: Applied) -> list[Node]:
        """Return the operands of a chain of the same operator, whose tree is as deep as the chain
        is long.
        """
        found: list[Node] = []
        pending: list[Node] = [node]
        while pending:
            one = pending.pop()
            if isinstance(one, Applied) and one.name.lower() == name:
                pending += reversed(one.args)
            else:
                found.append(one)
        return found


# -------------------- reading
#
# Recognising a ``Column``, and reading it by the kind of its session.


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A function that returns, for a column taken from a DataFrame, the alias of that frame here.
FrameIds = Callable[[Name], str | None]


def is_column(value: object) -> bool:
    """Return whether it is a ``Column`` of Spark, classic or Connect."""
    return any(
        kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(value).__mro__
    )


def read_column(column: Any, session: SparkSession) -> Node:
    """Return the nodes of a ``Column``.

    Raises
    ------
    InvalidOperation
        It has a part that no expression of the lake has, or it is of another kind of session.
    """
    if _of_connect(column) != _of_connect(session):
        raise InvalidOperation(
            "a Spark Column of a classic session and a lake on Spark Connect, or the other way "
            "round, do not go together: make it while the lake's own session is the active one"
        )
    try:
        if _of_connect(column):
            return connect.read(column, getattr(session, "client"))  # noqa: B009 (Connect's alone)
        return classic.read(column)
    except RecursionError:
        raise too_deep() from None


def frame_ids(frames: Sequence[tuple[Any, str | None]], what: str) -> FrameIds:
    """Return a function that finds, for a column of a DataFrame, the alias of that frame.

    The alias is the one next to the frame in ``frames``, None for the only table. ``what`` names
    the frames that a column may be taken from, for messages.
    """

    def alias_of(name: Name) -> str | None:
        for frame, alias in frames:
            kind = connect if _of_connect(frame) else classic
            if kind.frame_id(frame) == name.frame:
                return alias
        shown = spelled(name.parts)
        raise refused(
            f"column {shown} of a DataFrame",
            f"it must be of {what} itself, not of one made from it: write F.col({shown!r})",
        )

    return alias_of


def frame_alias(frame: Any) -> str | None:
    """Return the name by which columns of a DataFrame may be qualified; None if it has none."""
    return connect.frame_alias(frame) if _of_connect(frame) else classic.frame_alias(frame)


def _of_connect(given: Any) -> bool:
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(given).__mro__)
