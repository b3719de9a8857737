"""Bind an expression to the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.evaluate import without_zone
from lakevilla.sql.expressions.functions.catalogue import FUNCTIONS, resolve
from lakevilla.sql.expressions.render import quoted, shown_sql
from lakevilla.sql.expressions.syntax.slips import instead_of
from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal, substitute
from lakevilla.sql.expressions.types import (
    arrow_type,
    common_type,
    element_type,
    is_decimal,
    is_integer,
    is_nested,
    is_numeric,
    is_whole_decimal,
    type_name,
)
from lakevilla.sql.expressions.values import adapt, cast_value, literal, literal_of, value_of

# -------------------- bind
#
# Binding a tree to a schema: names become exact columns, types are checked and made equal.
#
# A bound tree is valid for every engine: each operand has the type that its operator wants, by
# casts that lose nothing. Binding a bound tree changes nothing.


#: One table's schema, or in a merge those of both aliases.
Schemas: TypeAlias = pa.Schema | Mapping[str, pa.Schema]


def bind(expr: Expr, schema: Schemas, *, alias: str | None = None, predicate: bool = True) -> Expr:
    """Return the tree with exact columns and equal types.

    Parameters
    ----------
    expr : Expr
    schema : pyarrow.Schema or Mapping of alias to schema
        With a mapping, columns of the result have their alias.
    alias : str, optional
        A name by which columns of a single schema may be qualified.
    predicate : bool
        Whether the expression must be boolean.

    Raises
    ------
    InvalidOperation
        An unknown or ambiguous column, or types that do not fit together.
    """
    bound, type_ = typed(expr, Scope(schema, alias))
    if not predicate or type_ == "boolean":
        return bound
    if type_ == "void":
        return coerce(bound, type_, "boolean")
    raise InvalidOperation(
        f"a predicate must be boolean, {shown_sql(expr)} is {type_}: compare it with something"
    )


def exact(expr: Expr, schema: Schemas, *, alias: str | None = None, predicate: bool = True) -> Expr:
    """Return the tree with exact columns, checked as by ``bind``, and otherwise unchanged.

    Such a tree can later be bound to a schema with other types: it has no cast that ``bind`` adds.
    """
    bind(expr, schema, alias=alias, predicate=predicate)
    scope = Scope(schema, alias)
    return substitute(expr, lambda column: scope.column(column)[0])


def type_of(expr: Expr, schema: Schemas, *, alias: str | None = None) -> str:
    """Return the Delta type name of an expression's value."""
    return typed(expr, Scope(schema, alias))[1]


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node that computes something, and the types of its operands before they are made equal."""

    node: Call | Cast | Case
    types: tuple[str, ...]


def typed_nodes(expr: Expr, schema: Schemas, *, alias: str | None = None) -> tuple[TypedNode, ...]:
    """Return the nodes of a tree except columns and constants, operands before operators."""
    scope = Scope(schema, alias, seen=[])
    typed(expr, scope)
    assert scope.seen is not None
    return tuple(scope.seen)


def typed(expr: Expr, scope: Scope) -> tuple[Expr, str]:
    """Return the tree with exact columns and equal types, and the type of its value."""
    try:
        return _bind(expr, scope)
    except RecursionError:
        raise InvalidOperation("expression is nested too deeply: split it") from None


class Scope:
    """A lookup of columns by name, without regard to case."""

    def __init__(
        self, schemas: Schemas, alias: str | None = None, seen: list[TypedNode] | None = None
    ) -> None:
        #: The nodes that were bound; None if the caller does not need them.
        self.seen = seen
        tables: dict[str | None, Any] = {}
        if isinstance(schemas, Mapping):
            tables.update(schemas)
        else:
            tables[None] = schemas
        self._schemas = tables
        self._aliases = {name.lower(): name for name in self._schemas if name is not None}
        self._alias = None if alias is None else alias.lower()
        #: The fields of a table, or of a struct within it, by their names in lower case.
        self._folded: dict[tuple[str | None, tuple[str, ...]], dict[str, list[pa.Field]]] = {}

    def note(self, node: Call | Cast | Case, types: Iterable[str]) -> None:
        if self.seen is not None:
            self.seen.append(TypedNode(node, tuple(types)))

    def field(self, name: str) -> pa.Field:
        """Return a top-level column of a single schema, for assignment."""
        if not isinstance(name, str):
            raise InvalidOperation(f"a column is named by a string, not {name!r}")
        found = self.fields(name)
        if len(found) != 1:
            raise self.unknown(name, [one.name for one in found])
        return found[0]

    def unknown(self, name: str, ambiguous: Sequence[str] = ()) -> InvalidOperation:
        """Return the error for a name that no column has, or that each of ``ambiguous`` has."""
        return _no_column(name, self._schemas, ambiguous=ambiguous)

    def fields(self, name: str) -> list[pa.Field]:
        """Return the top-level columns of a single schema that a name may mean; it may be
        qualified.
        """
        schema = self._schemas[None]
        found = self._match(name, schema)
        if not found and self._alias is not None:
            prefix, dot, rest = name.partition(".")
            if dot and prefix.lower() == self._alias:
                found = self._match(rest, schema)
        return found

    def paths(self, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the exact paths of the columns that a path may mean."""
        return [found.path for found in self._find(Column(path))]

    def within(self, column: Column) -> tuple[Column, str]:
        """Return exact column and type for a path without an alias, whose first name may be one,
        too.
        """
        found = self._look(column.table, column.path)
        if len(found) != 1:
            raise self.unknown(".".join(column.path), [one.name for one in found])
        return Column(found[0].path, found[0].table), found[0].type

    def column(self, column: Column) -> tuple[Column, str]:
        """Return the exact column and its type."""
        found = self._find(column)
        if len(found) != 1:
            raise self.unknown(".".join(column.path), [one.name for one in found])
        return Column(found[0].path, found[0].table), found[0].type

    def lacks(self, expr: Expr) -> bool:
        """Return whether an expression is a plain name that no column has."""
        if not isinstance(expr, Column) or expr.table is not None or len(expr.path) > 1:
            return False
        return not self._find(expr)

    def _find(self, column: Column) -> list[_Found]:
        # Under this schema, the name of a column that is tied to a field may be another column's.
        assert not column.ids, f"{column} was not located in a layout"
        if column.table is not None:
            if column.table not in self._schemas:
                raise InvalidOperation(f"unknown alias {column.table!r}: use {self._names()}")
            return self._look(column.table, column.path)
        for table, path in self._readings(column.path):
            if found := self._look(table, path):
                return found
        return [hit for t in self._schemas for hit in self._look(t, column.path)]

    def _readings(self, path: tuple[str, ...]) -> Iterable[tuple[str | None, tuple[str, ...]]]:
        """Yield the readings in which the first name is an alias; an alias precedes a struct
        column.
        """
        first = path[0].lower()
        if len(path) > 1 and first in self._aliases:
            yield self._aliases[first], path[1:]
        if len(path) > 1 and first == self._alias and None in self._schemas:
            yield None, path[1:]

    def _look(self, table: str | None, path: tuple[str, ...]) -> list[_Found]:
        fields = self._match(path[0], self._schemas[table], table)
        names: list[tuple[str, ...]] = [(field.name,) for field in fields]
        for name in path[1:]:
            inner = [
                (child, (*prefix, child.name))
                for field, prefix in zip(fields, names, strict=True)
                if pa.types.is_struct(field.type)
                for child in self._match(name, field.type, table, prefix)
            ]
            fields, names = [pair[0] for pair in inner], [pair[1] for pair in inner]
        return [
            _Found(table, name, type_name(field.type))
            for field, name in zip(fields, names, strict=True)
        ]

    def _match(
        self,
        name: str,
        fields: pa.Schema | pa.StructType,
        table: str | None = None,
        path: tuple[str, ...] = (),
    ) -> list[pa.Field]:
        """Return the fields of that name: the one with exactly this name, else all that differ only
        in case.

        A search for each of many columns does not examine all columns each time.
        """
        if exact := fields.get_all_field_indices(name):
            return [fields.field(at) for at in exact]
        folded = self._folded.get((table, path))
        if folded is None:
            folded = self._folded[table, path] = _by_folded_name(fields)
        return folded.get(name.lower(), [])

    def _names(self) -> str:
        return ", ".join(self._aliases.values()) or "no alias"


@dataclass(frozen=True, slots=True)
class _Found:
    table: str | None
    path: tuple[str, ...]
    type: str

    @property
    def name(self) -> str:
        return ".".join(self.path if self.table is None else (self.table, *self.path))


def match(name: str, fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the fields of that name: the one with exactly this name, else all that differ only in
    case.
    """
    candidates = [field for field in fields if field.name.lower() == name.lower()]
    return [field for field in candidates if field.name == name] or candidates


def _by_folded_name(fields: Iterable[pa.Field]) -> dict[str, list[pa.Field]]:
    """Return fields by their names in lower case."""
    found: dict[str, list[pa.Field]] = {}
    for field in fields:
        found.setdefault(field.name.lower(), []).append(field)
    return found


def _no_column(
    name: str, schemas: Mapping[str | None, pa.Schema], ambiguous: Sequence[str]
) -> InvalidOperation:
    if ambiguous:
        options = ", ".join(dict.fromkeys(ambiguous))
        return InvalidOperation(f"column {name} could be any of {options}: write its full name")
    if instead := instead_of(name):
        return InvalidOperation(f"there is no column {name}: {instead}")
    known = {
        path.lower(): path
        for alias, schema in schemas.items()
        for path in _paths(schema, "" if alias is None else f"{alias}.")
    }
    _, dot, rest = name.lower().partition(".")
    # Without its first name, or with one of the aliases before it, the name may be a column.
    near = [path for path in known if dot and (path == rest or path.endswith(f".{rest}"))]
    near = near or get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(known[key] for key in near)}?"
    else:
        some = [*list(known.values())[:10], *(["..."] if len(known) > 10 else [])]
        hint = f"there are {', '.join(some)}"
    return InvalidOperation(f"there is no column {name}: {hint}")


def _paths(fields: Iterable[pa.Field], prefix: str = "") -> Iterable[str]:
    for field in fields:
        yield prefix + field.name
        if pa.types.is_struct(field.type):
            yield from _paths(field.type, f"{prefix}{field.name}.")


def _bind(expr: Expr, scope: Scope) -> tuple[Expr, str]:
    if isinstance(expr, Literal):
        return expr, expr.type
    if isinstance(expr, Column):
        return scope.column(expr)
    if isinstance(expr, Cast):
        return _bind_cast(expr, scope)
    if isinstance(expr, Case):
        return _bind_case(expr, scope)
    pairs = [_operand(arg, expr, scope) for arg in expr.args]
    args, types = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    scope.note(expr, types)
    if (later := _days_later(expr.name, args, types)) is not None:
        return later
    if (instant := without_zone(expr.name, args, types)) is not None:
        return instant, instant.type
    function = FUNCTIONS.get(expr.name)
    if expr.name == "struct":
        return Call(expr.name, tuple(args)), resolve(expr.name, args, types)[1]
    if function is not None and function.unifies and args:
        type_ = unified(expr, args, types)
        args = [coerce(arg, t, type_) for arg, t in zip(args, types, strict=True)]
        types = [type_] * len(args)
    elif any(is_decimal(type_) for type_ in types):
        # A whole constant counts with its own digits, not with those of a long.
        for at, arg in enumerate(args):
            if isinstance(arg, Literal) and is_integer(arg.type) and arg.value is not None:
                if expr.name == "round":
                    continue
                args[at] = _decimal_constant(int(arg.value))
                types[at] = type_of(args[at], _EMPTY)
    wanted, type_ = resolve(expr.name, args, types)
    coerced = (
        arg if want is None else coerce(arg, t, want)
        for arg, t, want in zip(args, types, wanted, strict=True)
    )
    return Call(expr.name, tuple(coerced)), type_


def _days_later(name: str, args: Sequence[Expr], types: Sequence[str]) -> tuple[Expr, str] | None:
    """Return a date with a whole number of days added; None for other operands."""
    if name not in ("+", "-") or types[0] != "date" or not is_integer(types[1]):
        return None
    days = coerce(args[1], types[1], "long")
    if name == "-" and isinstance(days, Literal) and days.value is not None:
        days = literal(-int(days.value))
    elif name == "-":
        days = Call("neg", (days,))
    return Call("date_add", (args[0], days)), "date"


def _operand(arg: Expr, call: Call, scope: Scope) -> tuple[Expr, str]:
    try:
        return _bind(arg, scope)
    except InvalidOperation as error:
        if scope.lacks(arg) and any(_is_text(other, scope) for other in call.args):
            raise with_quotes(error, arg) from None
        raise


def _is_text(expr: Expr, scope: Scope) -> bool:
    """Return whether quoted text could be an operand next to an operand of the type."""
    return not scope.lacks(expr) and is_text_in_quotes(_bind(expr, scope)[1])


def is_text_in_quotes(type_: str) -> bool:
    """Return whether a constant of the type is written in quotes."""
    return type_ in _WRITTEN_IN_QUOTES


def with_quotes(error: InvalidOperation, column: Expr) -> InvalidOperation:
    """Return the error for a name that may be a text without quotes, or with the wrong quotes."""
    assert isinstance(column, Column)
    name = column.path[0]
    text = quoted(name)
    return InvalidOperation(
        f"{error}{'' if str(error).endswith('?') else ';'} text is written {text}, in single "
        f'quotes: "{name}" is a column'
    )


_WRITTEN_IN_QUOTES = ("string", "date", "time", "timestamp", "timestamp_ntz")
_EMPTY = pa.schema([])


def _decimal_constant(value: int) -> Expr:
    return literal(Decimal(value))


def _bind_cast(expr: Cast, scope: Scope) -> tuple[Expr, str]:
    arg, type_ = _bind(expr.arg, scope)
    scope.note(expr, (type_,))
    if not castable(type_, expr.type):
        raise InvalidOperation(
            f"{type_} cannot be cast to {expr.type} in {shown_sql(expr)}: engines differ there; "
            "convert the value before it is written, or cast through another type"
        )
    return coerce(arg, type_, expr.type, implied=expr.implied), expr.type


def _bind_case(expr: Case, scope: Scope) -> tuple[Expr, str]:
    whens, values, types = [], [], []
    for when, then in expr.branches:
        bound, type_ = _bind(when, scope)
        if type_ not in ("boolean", "void"):
            raise InvalidOperation(
                f"{shown_sql(when)} after `when` is {type_}, not boolean: compare it"
            )
        whens.append(coerce(bound, type_, "boolean"))
        value, type_ = _bind(then, scope)
        values.append(value)
        types.append(type_)
    if expr.otherwise is not None:
        value, type_ = _bind(expr.otherwise, scope)
        values.append(value)
        types.append(type_)
    scope.note(expr, types)
    type_ = unified(expr, values, types)
    values = [coerce(value, t, type_) for value, t in zip(values, types, strict=True)]
    branches = tuple(zip(whens, values, strict=False))
    otherwise = None if expr.otherwise is None else values[-1]
    return Case(branches, otherwise, expr.implied), type_


def unified(expr: Expr, args: Sequence[Expr], types: Sequence[str]) -> str:
    """Return the common type of all operands; constants adapt to operands that are not constant."""
    fixed = [t for arg, t in zip(args, types, strict=True) if not _gives_way(arg)]
    type_ = common_type(*fixed) if fixed else "void"
    for arg, own in zip(args, types, strict=True):
        if type_ is None:
            break
        if not _gives_way(arg) or (type_ != "void" and _adapted(arg, type_) is not None):
            continue
        type_ = common_type(type_, own)
    if type_ is None:
        shown = shown_sql(expr)
        raise InvalidOperation(
            f"{' and '.join(dict.fromkeys(types))} do not go together in "
            f"{shown if len(shown) < 200 else shown[:197] + '...'}: {_meeting_hint(types)}"
        )
    return type_


def _meeting_hint(types: Sequence[str]) -> str:
    if {"timestamp", "timestamp_ntz"} <= set(types):
        return (
            "use a datetime with a zone for a timestamp column, one without for a timestamp_ntz "
            "column, or cast one side"
        )
    if any(element_type(type_) is not None for type_ in types):
        return "write `in` to find one of several values, or take one of them"
    instants = [type_ for type_ in types if type_ in ("date", "timestamp", "timestamp_ntz")]
    if instants and any(map(is_numeric, types)):
        one, other = ("date", "date") if instants[0] == "date" else ("timestamp", "datetime")
        return f"write {one} '2024-01-31', in quotes, or pass a {other} in params"
    return "cast one side, or write the constant in the other's type"


def _gives_way(arg: Expr) -> bool:
    return isinstance(arg, Literal)


def _adapted(arg: Expr, type_: str) -> Literal | None:
    return adapt(arg, type_) if isinstance(arg, Literal) else None


def coerce(arg: Expr, type_: str, to: str, *, implied: bool = True) -> Expr:
    """Return the operand in another type: a constant by its value, any other operand by a cast.

    ``implied``: nobody has written that cast.
    """
    if isinstance(arg, Literal):
        # For a timestamp constant without a zone, the zone is decided here even if the types are
        # equal.
        adapted = adapt(arg, to)
        if adapted is not None:
            return adapted
        return arg if type_ == to else literal_of(to, cast_value(value_of(arg), to))
    return arg if type_ == to else Cast(arg, to, implied)


def castable(type_: str, to: str) -> bool:
    """Return whether a cast has one meaning on every engine."""
    if type_ in (to, "void"):
        return True
    inner, inner_to = element_type(type_), element_type(to)
    if inner is not None and inner_to is not None:
        return castable(inner, inner_to)
    if is_nested(type_) and is_nested(to):
        return assignable(type_, to)
    if is_numeric(to):
        if is_numeric(type_):
            return True
        return type_ == "string" or (type_ == "boolean" and is_integer(to))
    if to == "string":
        return is_integer(type_) or is_decimal(type_) or type_ in ("boolean", "date")
    instants = ("date", "timestamp", "timestamp_ntz")
    return (to in instants and type_ in (*instants, "string")) or (
        to in ("boolean", "time") and type_ == "string"
    )


def assignable(type_: str, to: str) -> bool:
    """Return whether a column of type ``to`` accepts the value unchanged, or rounded, or raises."""
    if type_ in (to, "void"):
        return True
    if is_numeric(type_) and is_numeric(to):
        return is_integer(type_) or not is_integer(to) or is_whole_decimal(type_)
    inner, inner_to = element_type(type_), element_type(to)
    if inner is not None and inner_to is not None:
        return assignable(inner, inner_to)
    if is_nested(type_) and is_nested(to):
        return _nested_assignable(arrow_type(type_), arrow_type(to))
    return type_ == "date" and to in ("timestamp", "timestamp_ntz")


def _nested_assignable(given: pa.DataType, to: pa.DataType) -> bool:
    """Return whether a map or a struct is assignable.

    Fields of structs are matched by their names, whose order and case do not matter; some may be
    missing.
    """
    if pa.types.is_map(given) and pa.types.is_map(to):
        pairs = [(given.key_type, to.key_type), (given.item_type, to.item_type)]
    elif pa.types.is_struct(given) and pa.types.is_struct(to):
        known = {field.name.lower(): field.type for field in to}
        names = [field.name.lower() for field in given]
        if len(set(names)) < len(names) or not known.keys() >= set(names):
            return False
        pairs = [(field.type, known[field.name.lower()]) for field in given]
    else:
        return False
    return all(assignable(type_name(one), type_name(other)) for one, other in pairs)


# -------------------- given
#
# Predicates as callers pass them: text, or an expression object of another library.


class ColumnLike(Protocol):
    """An expression over columns: a ``Column`` of Spark, on a lake with ``spark=``."""

    def isNull(self) -> object: ...

    def isNotNull(self) -> object: ...


Predicate: TypeAlias = str | ColumnLike
