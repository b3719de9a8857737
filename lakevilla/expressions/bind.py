"""Tying a tree to a schema: names become exact columns, types are checked and made equal.

A bound tree holds for every engine: each operand has the type its operator wants, by
casts that lose nothing. Binding a bound tree changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.expressions.evaluate import without_zone
from lakevilla.expressions.functions.catalogue import FUNCTIONS, resolve
from lakevilla.expressions.render import quoted, render_sql
from lakevilla.expressions.syntax.slips import instead_of
from lakevilla.expressions.tree import Call, Case, Cast, Column, Expr, Literal
from lakevilla.expressions.types import (
    common_type,
    element_type,
    is_decimal,
    is_integer,
    is_numeric,
    is_whole_decimal,
    type_name,
)
from lakevilla.expressions.values import adapt, cast_value, literal, literal_of, value_of
from lakevilla.expressions.walk import substitute

#: One table's schema, or in a merge those of both aliases.
Schemas: TypeAlias = pa.Schema | Mapping[str, pa.Schema]


def bind(expr: Expr, schema: Schemas, *, alias: str | None = None, predicate: bool = True) -> Expr:
    """The tree with exact columns and equal types.

    Parameters
    ----------
    expr : Expr
    schema : pyarrow.Schema or Mapping of alias to schema
        With a mapping, columns of the result carry their alias.
    alias : str, optional
        A name by which columns of a single schema may be qualified.
    predicate : bool
        Whether the expression must be boolean.

    Raises
    ------
    InvalidOperation
        An unknown or ambiguous column, or types that do not go together.
    """
    bound, type_ = _guarded(expr, Scope(schema, alias))
    if not predicate or type_ == "boolean":
        return bound
    if type_ == "void":
        return _coerce(bound, type_, "boolean")
    raise InvalidOperation(
        f"a predicate must be boolean, {render_sql(expr)} is {type_}: compare it with something"
    )


def exact(expr: Expr, schema: Schemas, *, alias: str | None = None, predicate: bool = True) -> Expr:
    """The tree with exact columns, checked as by ``bind`` and else as it was written.

    So it can be bound to a schema with other types later on: no cast has been put in.
    """
    bind(expr, schema, alias=alias, predicate=predicate)
    scope = Scope(schema, alias)
    return substitute(expr, lambda column: scope.column(column)[0])


def exact_assignments(
    assignments: Mapping[str, Expr],
    target: pa.Schema,
    schema: Schemas | None = None,
    *,
    alias: str | None = None,
) -> dict[str, Expr]:
    """Assignments under exact names, checked as by ``bind_assignments``; see ``exact``."""
    names = bind_assignments(assignments, target, schema, alias=alias)
    scope = Scope(target if schema is None else schema, alias)
    values = (
        substitute(value, lambda column: scope.column(column)[0]) for value in assignments.values()
    )
    return dict(zip(names, values, strict=True))


def type_of(expr: Expr, schema: Schemas, *, alias: str | None = None) -> str:
    """The Delta type name of an expression's value."""
    return _guarded(expr, Scope(schema, alias))[1]


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node that computes something, and the types of its operands before they are made equal."""

    node: Call | Cast | Case
    types: tuple[str, ...]


def typed_nodes(expr: Expr, schema: Schemas, *, alias: str | None = None) -> tuple[TypedNode, ...]:
    """The nodes of a tree that are no columns or constants, operands before what takes them."""
    scope = Scope(schema, alias, seen=[])
    _guarded(expr, scope)
    assert scope.seen is not None
    return tuple(scope.seen)


def bind_assignments(
    assignments: Mapping[str, Expr],
    target: pa.Schema,
    schema: Schemas | None = None,
    *,
    alias: str | None = None,
) -> dict[str, Expr]:
    """Assignments under the exact names of the target's columns, cast to their types.

    A value too large for a narrower column raises when it is computed; casts from
    fractional to whole numbers, and between kinds of types, must be written out.

    Parameters
    ----------
    assignments : Mapping of column name to expression
    target : pyarrow.Schema
        The columns assigned to.
    schema : Schemas, optional
        What the expressions may refer to; ``target`` if not given.
    alias : str, optional
        A name by which target columns may be qualified.
    """
    columns = Scope(target, alias)
    scope = columns if schema is None else Scope(schema, alias)
    bound: dict[str, Expr] = {}
    for name, expr in assignments.items():
        field = columns.field(name)
        if field.name in bound:
            raise InvalidOperation(f"column {field.name} is assigned twice: keep one assignment")
        try:
            tree, type_ = _guarded(expr, scope)
        except InvalidOperation as error:
            if scope.lacks(expr) and type_name(field.type) in _WRITTEN_IN_QUOTES:
                raise _with_quotes(error, expr) from None
            raise
        value = _assign(tree, type_, type_name(field.type), field.name)
        if not field.nullable and isinstance(value, Literal) and value.value is None:
            raise InvalidOperation(
                f"column {field.name} is NOT NULL: assign a value, or drop NOT NULL with alter",
                reason="constraint",
            )
        bound[field.name] = value
    return bound


def _guarded(expr: Expr, scope: Scope) -> tuple[Expr, str]:
    try:
        return _bind(expr, scope)
    except RecursionError:
        raise InvalidOperation("expression is nested too deeply: split it") from None


class Scope:
    """Finds columns by name, without regard to case."""

    def __init__(
        self, schemas: Schemas, alias: str | None = None, seen: list[TypedNode] | None = None
    ) -> None:
        #: What was bound, if somebody wants to know.
        self.seen = seen
        tables: dict[str | None, Any] = {}
        if isinstance(schemas, Mapping):
            tables.update(schemas)
        else:
            tables[None] = schemas
        self._schemas = tables
        self._aliases = {name.lower(): name for name in self._schemas if name is not None}
        self._alias = None if alias is None else alias.lower()

    def note(self, node: Call | Cast | Case, types: Iterable[str]) -> None:
        if self.seen is not None:
            self.seen.append(TypedNode(node, tuple(types)))

    def field(self, name: str) -> pa.Field:
        """A top-level column of a single schema, for assignment."""
        if not isinstance(name, str):
            raise InvalidOperation(f"a column is named by a string, not {name!r}")
        schema = self._schemas[None]
        found = _match(name, schema)
        if not found and self._alias is not None:
            prefix, dot, rest = name.partition(".")
            if dot and prefix.lower() == self._alias:
                found = _match(rest, schema)
        if len(found) != 1:
            raise _unknown(name, {None: schema}, ambiguous=found)
        return found[0]

    def column(self, column: Column) -> tuple[Column, str]:
        """The exact column and its type."""
        found = self._find(column)
        if len(found) != 1:
            raise _unknown(".".join(column.path), self._schemas, ambiguous=found)
        return Column(found[0].path, found[0].table), found[0].type

    def lacks(self, expr: Expr) -> bool:
        """Whether an expression is a plain name that no column has."""
        if not isinstance(expr, Column) or expr.table is not None or len(expr.path) > 1:
            return False
        return not self._find(expr)

    def _find(self, column: Column) -> list[_Found]:
        # By name a column that is tied to a field may be another one on this schema.
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
        """The ways to read a first name as an alias; an alias wins over a struct column."""
        first = path[0].lower()
        if len(path) > 1 and first in self._aliases:
            yield self._aliases[first], path[1:]
        if len(path) > 1 and first == self._alias and None in self._schemas:
            yield None, path[1:]

    def _look(self, table: str | None, path: tuple[str, ...]) -> list[_Found]:
        fields = _match(path[0], self._schemas[table])
        names: list[tuple[str, ...]] = [(field.name,) for field in fields]
        for name in path[1:]:
            inner = [
                (child, (*prefix, child.name))
                for field, prefix in zip(fields, names, strict=True)
                if pa.types.is_struct(field.type)
                for child in _match(name, field.type)
            ]
            fields, names = [pair[0] for pair in inner], [pair[1] for pair in inner]
        return [
            _Found(table, name, type_name(field.type))
            for field, name in zip(fields, names, strict=True)
        ]

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


def _match(name: str, fields: Iterable[pa.Field]) -> list[pa.Field]:
    """The fields of that name: the exact one, else all that differ in case alone."""
    candidates = [field for field in fields if field.name.lower() == name.lower()]
    return [field for field in candidates if field.name == name] or candidates


def _unknown(
    name: str, schemas: Mapping[str | None, pa.Schema], ambiguous: Sequence[pa.Field | _Found]
) -> InvalidOperation:
    if ambiguous:
        options = ", ".join(dict.fromkeys(field.name for field in ambiguous))
        return InvalidOperation(f"column {name} could be any of {options}: write its full name")
    if instead := instead_of(name):
        return InvalidOperation(f"there is no column {name}: {instead}")
    known = {
        path.lower(): path
        for alias, schema in schemas.items()
        for path in _paths(schema, "" if alias is None else f"{alias}.")
    }
    _, dot, rest = name.lower().partition(".")
    # Without the name in front, or with one of the aliases there, it may be a column.
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
    if (moment := without_zone(expr.name, args, types)) is not None:
        return moment, moment.type
    function = FUNCTIONS.get(expr.name)
    if function is not None and function.unifies and args:
        type_ = unified(expr, args, types)
        args = [_coerce(arg, t, type_) for arg, t in zip(args, types, strict=True)]
        types = [type_] * len(args)
    elif any(is_decimal(type_) for type_ in types):
        # A whole constant takes part with the digits it has, not with those of a long.
        for at, arg in enumerate(args):
            if isinstance(arg, Literal) and is_integer(arg.type) and arg.value is not None:
                if expr.name == "round":
                    continue
                args[at] = _decimal_constant(int(arg.value))
                types[at] = type_of(args[at], _EMPTY)
    wanted, type_ = resolve(expr.name, args, types)
    coerced = (
        arg if want is None else _coerce(arg, t, want)
        for arg, t, want in zip(args, types, wanted, strict=True)
    )
    return Call(expr.name, tuple(coerced)), type_


def _days_later(name: str, args: Sequence[Expr], types: Sequence[str]) -> tuple[Expr, str] | None:
    """A whole number beside a date is days; None for anything else."""
    if name not in ("+", "-") or types[0] != "date" or not is_integer(types[1]):
        return None
    days = _coerce(args[1], types[1], "long")
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
            raise _with_quotes(error, arg) from None
        raise


def _is_text(expr: Expr, scope: Scope) -> bool:
    """Whether text in quotes could stand beside it."""
    return not scope.lacks(expr) and _bind(expr, scope)[1] in _WRITTEN_IN_QUOTES


def _with_quotes(error: InvalidOperation, column: Expr) -> InvalidOperation:
    """What is to be said where quotes may have been forgotten, or be the wrong ones."""
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
    if not _castable(type_, expr.type):
        raise InvalidOperation(
            f"{type_} cannot be cast to {expr.type} in {render_sql(expr)}: engines differ there; "
            "convert the value before it is written, or cast through another type"
        )
    return _coerce(arg, type_, expr.type), expr.type


def _bind_case(expr: Case, scope: Scope) -> tuple[Expr, str]:
    whens, values, types = [], [], []
    for when, then in expr.branches:
        bound, type_ = _bind(when, scope)
        if type_ not in ("boolean", "void"):
            raise InvalidOperation(
                f"{render_sql(when)} after `when` is {type_}, not boolean: compare it"
            )
        whens.append(_coerce(bound, type_, "boolean"))
        value, type_ = _bind(then, scope)
        values.append(value)
        types.append(type_)
    if expr.otherwise is not None:
        value, type_ = _bind(expr.otherwise, scope)
        values.append(value)
        types.append(type_)
    scope.note(expr, types)
    type_ = unified(expr, values, types)
    values = [_coerce(value, t, type_) for value, t in zip(values, types, strict=True)]
    branches = tuple(zip(whens, values, strict=False))
    return Case(branches, None if expr.otherwise is None else values[-1]), type_


def unified(expr: Expr, args: Sequence[Expr], types: Sequence[str]) -> str:
    """The type in which all operands meet; constants give way to what is no constant."""
    fixed = [t for arg, t in zip(args, types, strict=True) if not _gives_way(arg)]
    type_ = common_type(*fixed) if fixed else "void"
    for arg, own in zip(args, types, strict=True):
        if type_ is None:
            break
        if not _gives_way(arg) or (type_ != "void" and _adapted(arg, type_) is not None):
            continue
        type_ = common_type(type_, own)
    if type_ is None:
        shown = render_sql(expr)
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
    moments = [type_ for type_ in types if type_ in ("date", "timestamp", "timestamp_ntz")]
    if moments and any(map(is_numeric, types)):
        one, other = ("date", "date") if moments[0] == "date" else ("timestamp", "datetime")
        return f"write {one} '2024-01-31', in quotes, or pass a {other} in params"
    return "cast one side, or write the constant in the other's type"


def _gives_way(arg: Expr) -> bool:
    return isinstance(arg, Literal)


def _adapted(arg: Expr, type_: str) -> Literal | None:
    return adapt(arg, type_) if isinstance(arg, Literal) else None


def _coerce(arg: Expr, type_: str, to: str) -> Expr:
    if isinstance(arg, Literal):
        # A zone-less timestamp constant is settled here even where the types are equal.
        adapted = adapt(arg, to)
        if adapted is not None:
            return adapted
        return arg if type_ == to else literal_of(to, cast_value(value_of(arg), to))
    return arg if type_ == to else Cast(arg, to)


def _castable(type_: str, to: str) -> bool:
    """Whether a cast has one meaning on every engine."""
    if type_ in (to, "void"):
        return True
    inner, inner_to = element_type(type_), element_type(to)
    if inner is not None and inner_to is not None:
        return _castable(inner, inner_to)
    if is_numeric(to):
        if is_numeric(type_):
            return True
        return type_ == "string" or (type_ == "boolean" and is_integer(to))
    if to == "string":
        return is_integer(type_) or is_decimal(type_) or type_ in ("boolean", "date")
    moments = ("date", "timestamp", "timestamp_ntz")
    return (to in moments and type_ in (*moments, "string")) or (
        to in ("boolean", "time") and type_ == "string"
    )


def _assign(arg: Expr, type_: str, to: str, name: str) -> Expr:
    if _assignable(type_, to):
        if isinstance(arg, Call) and arg.name == "array" and element_type(to) is not None:
            return Cast(_assign_elements(arg, type_, to, name), to)
        return _coerce(arg, type_, to)
    if isinstance(arg, Literal) and (adapted := adapt(arg, to)) is not None:
        return adapted
    if isinstance(arg, Call) and arg.name == "array" and element_type(to) is not None:
        return Cast(_assign_elements(arg, type_, to, name), to)
    hint = "convert the value"
    if isinstance(arg, Literal) and _is_no_number(arg):
        hint = f"no {to} is NaN or infinite: assign null, or leave such rows out"
    elif isinstance(arg, Literal) and {type_, to} == {"timestamp", "timestamp_ntz"}:
        hint = f"pass a datetime {'with' if to == 'timestamp' else 'without'} a zone"
    elif _castable(type_, to):
        hint = f"write cast(... as {to})"
    raise InvalidOperation(
        f"a value of type {type_} cannot be assigned to column {name} of type {to} in "
        f"{render_sql(arg)}: {hint}"
    )


def _is_no_number(arg: Literal) -> bool:
    value = value_of(arg)
    return isinstance(value, float) and not math.isfinite(value)


def _assign_elements(arg: Call, type_: str, to: str, name: str) -> Expr:
    inner, inner_to = element_type(type_) or "void", element_type(to) or "void"
    return Call("array", tuple(_assign(item, inner, inner_to, name) for item in arg.args))


def _assignable(type_: str, to: str) -> bool:
    """Whether a column of type ``to`` takes the value as it is, or rounded, or raises."""
    if type_ in (to, "void"):
        return True
    if is_numeric(type_) and is_numeric(to):
        return is_integer(type_) or not is_integer(to) or is_whole_decimal(type_)
    inner, inner_to = element_type(type_), element_type(to)
    if inner is not None and inner_to is not None:
        return _assignable(inner, inner_to)
    return type_ == "date" and to in ("timestamp", "timestamp_ntz")
