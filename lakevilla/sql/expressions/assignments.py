"""Assignments to columns, and to fields of structs: names are found, types converted or refused.

``SET place.city = 'Ulm'`` sets the whole column, to its own struct with one field changed. It is
expressed by a call that is no function of the language, ``SET_FIELDS``, so that a client that
performs it later fills in the fields that the struct has by then. ``FILL_FIELDS`` is the other such
call: a struct of a merge's source, and the target's values of the fields that it lacks. Both name
fields as columns, so the fields are tied to their ids as any column is. Neither call remains once a
value is bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import (
    Schemas,
    Scope,
    assignable,
    castable,
    coerce,
    is_text_in_quotes,
    match,
    typed,
    with_quotes,
)
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import (
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    columns,
    substitute,
)
from lakevilla.sql.expressions.types import arrow_type, element_type, type_name
from lakevilla.sql.expressions.values import EMPTY_MAP, adapt, literal_of, value_of

#: ``(place, place.city, value, ...)``: the struct in a column with other values in some fields.
SET_FIELDS = "set_fields"
#: ``(source.s, target.s)``: the struct ``source.s``, completed with fields of ``target.s``.
FILL_FIELDS = "fill_fields"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = re.compile(r'"((?:[^"]|"")+)"|`((?:[^`]|``)+)`|([^."`]+)')


def spelled(path: Sequence[str]) -> str:
    """Return a column, or a field by its path, as a text that can have no other meaning.

    A single plain name is itself; else each name is in double quotes.
    """
    if len(path) == 1 and _PLAIN.fullmatch(path[0]):
        return path[0]
    return ".".join('"' + name.replace('"', '""') + '"' for name in path)


def path_in(text: str) -> tuple[str, ...] | None:
    """Return the names in ``a.b``, ``"a.b".c`` or ```a.b`.c``; None if the text is no path."""
    names: list[str] = []
    index = 0
    while (part := _PART.match(text, index)) is not None:
        double, back, plain = part.groups()
        names.append(
            double.replace('""', '"') if double else back.replace("``", "`") if back else plain
        )
        index = part.end()
        if index == len(text):
            return tuple(names)
        if text[index] != ".":
            return None
        index += 1
    return None


def filled(source: Column, target: Column) -> Expr:
    """Return a source's struct, completed with the target's fields; NULL where the source's is
    NULL.
    """
    return Call(FILL_FIELDS, (source, target))


def operands(value: Expr) -> tuple[Column, ...]:
    """Return each column once from which an assigned value is computed.

    Fields that a struct keeps while its other fields are set do not count.
    """
    if isinstance(value, Call) and value.name == FILL_FIELDS:
        return columns(value.args[0])
    if isinstance(value, Call) and value.name == SET_FIELDS:
        found = (column for part in value.args[2::2] for column in operands(part))
        return tuple(dict.fromkeys(found))
    return columns(value)


def exact_assignments(
    assignments: Mapping[str, Expr],
    target: pa.Schema,
    schema: Schemas | None = None,
    *,
    alias: str | None = None,
    inserts: bool = False,
) -> dict[str, Expr]:
    """Return assignments under the exact names of columns, checked as by ``bind_assignments``.

    Their values stay as they were written, so that they can be bound to a schema with other types
    later.

    Parameters
    ----------
    assignments : Mapping of str to expression
        By a column's name, or by the path of a field within a struct: ``s.a``. A name with a dot in
        it is a path unless a column has it; in double quotes or backticks it is one name.
    target : pyarrow.Schema
        The columns assigned to.
    schema : Schemas, optional
        The columns that the expressions may refer to; ``target`` if not given.
    alias : str, optional
        A name by which target columns may be qualified; in a mapping that of the target.
    inserts : bool
        There is no row yet, so no field of a struct can be set by itself.

    Raises
    ------
    InvalidOperation
        A name is no column's, or may mean two columns; a column is assigned twice, or as a whole
        and in part; or a value does not fit.
    """
    own = alias if isinstance(schema, Mapping) else None
    targets = _by_column(assignments, Scope(target, alias), inserts=inserts)
    written = {name: one.value(name, own) for name, one in targets.items()}
    bind_assignments(written, target, schema, alias=alias)
    scope = Scope(target if schema is None else schema, alias)
    return {name: one.exact(scope).value(name, own) for name, one in targets.items()}


def bind_assignments(
    assignments: Mapping[str, Expr],
    target: pa.Schema,
    schema: Schemas | None = None,
    *,
    alias: str | None = None,
) -> dict[str, Expr]:
    """Return assignments under the exact names of the target's columns, cast to their types.

    A value too large for a narrower column raises when it is computed; casts from fractional to
    whole numbers, and between kinds of types, must be written out. The fields of structs are
    matched by their names, in any order and case; those that a value lacks are NULL.

    Parameters
    ----------
    assignments : Mapping of column name to expression
    target : pyarrow.Schema
        The columns assigned to.
    schema : Schemas, optional
        The columns that the expressions may refer to; ``target`` if not given.
    alias : str, optional
        A name by which target columns may be qualified.
    """
    columns = Scope(target, alias)
    scope = columns if schema is None else Scope(schema, alias)
    bound: dict[str, Expr] = {}
    for name, expr in assignments.items():
        found = columns.field(name)
        if found.name in bound:
            raise _twice(found.name)
        bound[found.name] = _Fitting(scope, found.name).into(expr, found)
    return bound


# ------------------------------------------------------------------ targets


@dataclass(slots=True)
class _Target:
    """A column that is assigned to: as a whole, or fields within it by their paths."""

    whole: Expr | None = None
    parts: dict[tuple[str, ...], Expr] = field(default_factory=dict)

    def value(self, name: str, own: str | None) -> Expr:
        """Return the new value of the column ``name``; ``own`` is the alias of its table."""
        if self.whole is not None:
            return self.whole
        pairs = ((Column(path, own), value) for path, value in self.parts.items())
        return Call(SET_FIELDS, (Column((name,), own), *(arg for pair in pairs for arg in pair)))

    def exact(self, scope: Scope) -> _Target:
        """Return the target with the exact names of columns in its values."""

        def exactly(value: Expr) -> Expr:
            return substitute(value, lambda column: scope.column(column)[0])

        whole = None if self.whole is None else exactly(self.whole)
        return _Target(whole, {path: exactly(value) for path, value in self.parts.items()})


def _by_column(
    assignments: Mapping[str, Expr], scope: Scope, *, inserts: bool
) -> dict[str, _Target]:
    found: dict[str, _Target] = {}
    for name, value in assignments.items():
        path = _path(name, scope)
        target = found.setdefault(path[0], _Target())
        shown = ".".join(path)
        if len(path) > 1 and inserts:
            raise InvalidOperation(
                f"an insert sets columns as a whole, and {shown} is a field within one: give "
                f"{path[0]} a struct"
            )
        for other in target.parts:
            if other == path:
                raise _twice(shown)
            if other[: len(path)] == path or path[: len(other)] == other:
                raise _in_part(*sorted((".".join(other), shown), key=len))
        if target.whole is not None:
            raise _twice(shown) if len(path) == 1 else _in_part(path[0], shown)
        if len(path) > 1:
            target.parts[path] = value
        elif target.parts:
            raise _in_part(shown, ".".join(next(iter(target.parts))))
        else:
            target.whole = value
    return found


def _path(name: str, scope: Scope) -> tuple[str, ...]:
    """Return the exact path of the column or field that is assigned to."""
    if not isinstance(name, str):
        raise InvalidOperation(f"a column is named by a string, not {name!r}")
    whole = scope.fields(name)
    names = path_in(name)
    within = [] if names in (None, (name,)) else scope.paths(names or ())
    found = list(dict.fromkeys([*((one.name,) for one in whole), *within]))
    if len(found) == 1:
        return found[0]
    if whole and within:
        column, path = (spelled(found[0]), spelled(found[-1]))
        raise InvalidOperation(
            f"{name} could be the column {column} or a field within {found[-1][0]}: write {column} "
            f"for the column, {path} for the field"
        )
    if not found and names is not None:
        _refuse_elements(names, scope)
    shown = name if names is None or len(names) == 1 else ".".join(names)
    raise scope.unknown(shown, [".".join(path) for path in found])


def _refuse_elements(names: tuple[str, ...], scope: Scope) -> None:
    for count in range(len(names) - 1, 0, -1):
        for path in scope.paths(names[:count]):
            kind = scope.column(Column(path))[1]
            if not kind.startswith("struct<"):
                raise InvalidOperation(
                    f"{'.'.join(names)} is no field of a struct, as {'.'.join(path)} is "
                    f"{kind.partition('<')[0]}: assign {'.'.join(path)} as a whole"
                )
            return


def _twice(name: str) -> InvalidOperation:
    return InvalidOperation(f"column {name} is assigned twice: keep one assignment")


def _in_part(whole: str, part: str) -> InvalidOperation:
    return InvalidOperation(
        f"{whole} is assigned as a whole, and {part} within it: keep one assignment"
    )


# ------------------------------------------------------------------ values


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Binder of values for a column, or for a field within it; ``name`` is for messages."""

    scope: Scope
    name: str

    def within(self, name: str) -> _Fitting:
        return _Fitting(self.scope, f"{self.name}.{name}")

    def into(self, expr: Expr, target: pa.Field) -> Expr:
        value = self.of(expr, target.type)
        if not target.nullable and isinstance(value, Literal) and value.value is None:
            raise InvalidOperation(
                f"column {self.name} is NOT NULL: assign a value, or drop NOT NULL with alter",
                reason="constraint",
            )
        return value

    def of(self, expr: Expr, kind: pa.DataType) -> Expr:
        if isinstance(expr, Call):
            if expr.name == SET_FIELDS:
                return self._with_fields(expr, kind)
            if expr.name == FILL_FIELDS:
                source, target = (self.scope.column(one)[0] for one in _columns_of(expr.args))
                return self._filled(source, target, kind)
            if _constructs(expr):
                return self._constructed(expr, kind)
        try:
            tree, type_ = typed(expr, self.scope)
        except InvalidOperation as error:
            if self.scope.lacks(expr) and is_text_in_quotes(type_name(kind)):
                raise with_quotes(error, expr) from None
            raise
        return self._fit(tree, type_, type_name(kind))

    def _with_fields(self, call: Call, kind: pa.DataType) -> Expr:
        named = _columns_of((call.args[0], *call.args[1::2]))
        base, *paths = (self.scope.within(one)[0] for one in named)
        within = (path.path[len(base.path) :] for path in paths)
        changes = dict(zip(within, call.args[2::2], strict=True))
        return self._rebuilt(base, kind, changes)

    def _rebuilt(
        self, column: Column, kind: pa.DataType, changes: Mapping[tuple[str, ...], Expr]
    ) -> Expr:
        """Return the struct in ``column`` with other values at some paths within it."""
        parts: list[Expr] = []
        for one in kind:
            here = Column((*column.path, one.name), column.table)
            inner = {path[1:]: value for path, value in changes.items() if path[0] == one.name}
            within, value = self.within(one.name), inner.get(())
            if value is not None:
                new = within.into(value, one)
            else:
                new = within._rebuilt(here, one.type, inner) if inner else here
            parts += (Literal("string", one.name), new)
        return Call("struct", tuple(parts))

    def _filled(self, source: Column, target: Column, kind: pa.DataType) -> Expr:
        given, type_ = self.scope.column(source)[1], type_name(kind)
        own = arrow_type(given)
        if not (pa.types.is_struct(own) and pa.types.is_struct(kind)) or _covers(own, kind):
            return self._fit(source, given, type_)
        names = {one.name.lower(): one.name for one in own}
        self._refuse_unknown(names.values(), kind)
        parts: list[Expr] = []
        for one in kind:
            kept, name = Column((*target.path, one.name), target.table), names.get(one.name.lower())
            value: Expr = kept
            if name is not None:
                taken = Column((*source.path, name), source.table)
                value = self.within(one.name)._filled(taken, kept, one.type)
            parts += (Literal("string", one.name), value)
        is_null = Call("is_null", (source,))
        return Case(((is_null, Literal(type_)),), Call("struct", tuple(parts)))

    def _constructed(self, call: Call, kind: pa.DataType) -> Expr:
        """Return a struct, a map or an array that is written out, in the type of its target."""
        if call.name == "array" and pa.types.is_list(kind):
            within = tuple(self.within("element").of(item, kind.value_type) for item in call.args)
            return Cast(Call("array", within), type_name(kind))
        if call.name == "struct" and pa.types.is_struct(kind):
            return self._struct(call, kind)
        if call.name == "struct" and pa.types.is_map(kind):
            return self._map(call.args[::2], call.args[1::2], kind)
        if call.name == "map" and pa.types.is_map(kind):
            # Once the equality is bound, each side is an array in a cast.
            keys, items = (one.arg if isinstance(one, Cast) else one for one in call.args)
            if isinstance(keys, Call) and isinstance(items, Call):
                return self._map(keys.args, items.args, kind)
        if pa.types.is_struct(kind) and call == EMPTY_MAP:
            return self._struct(Call("struct", ()), kind)
        tree, type_ = typed(call, self.scope)
        return self._fit(tree, type_, type_name(kind))

    def _struct(self, call: Call, kind: pa.DataType) -> Expr:
        names = [key.value or "" for key in call.args[::2] if isinstance(key, Literal)]
        given = dict(zip((name.lower() for name in names), call.args[1::2], strict=True))
        if len(given) < len(names):
            raise InvalidOperation(
                f"a value for {self.name} has a field twice, of {', '.join(names)}: keep one"
            )
        self._refuse_unknown(names, kind)
        parts: list[Expr] = []
        for one in kind:
            value = given.get(one.name.lower(), Literal("void"))
            parts += (Literal("string", one.name), self.within(one.name).into(value, one))
        return Call("struct", tuple(parts))

    def _map(self, keys: Iterable[Expr], items: Iterable[Expr], kind: pa.DataType) -> Expr:
        sides = (("key", keys, kind.key_type), ("value", items, kind.item_type))
        arrays = (
            Cast(
                Call("array", tuple(self.within(side).of(one, type_) for one in some)),
                f"array<{type_name(type_)}>",
            )
            for side, some, type_ in sides
        )
        return Call("map", tuple(arrays))

    def _refuse_unknown(self, names: Iterable[str], kind: pa.DataType) -> None:
        for name in names:
            if not any(one.name.lower() == name.lower() for one in kind):
                known = ", ".join(one.name for one in kind)
                raise InvalidOperation(
                    f"column {self.name} has no field {name}; its fields are {known}: leave it "
                    "out, or add the field first"
                )

    def _fit(self, arg: Expr, type_: str, to: str) -> Expr:
        if assignable(type_, to):
            return self._array(arg, type_, to) or coerce(arg, type_, to)
        if isinstance(arg, Literal) and (adapted := adapt(arg, to) or _day(arg, to)) is not None:
            return adapted
        if (array := self._array(arg, type_, to)) is not None:
            return array
        self._refuse_fields(type_, to)
        hint = "convert the value"
        if isinstance(arg, Literal) and _is_no_number(arg):
            hint = f"no {to} is NaN or infinite: assign null, or leave such rows out"
        elif isinstance(arg, Literal) and {type_, to} == {"timestamp", "timestamp_ntz"}:
            hint = f"pass a datetime {'with' if to == 'timestamp' else 'without'} a zone"
        elif castable(type_, to):
            hint = f"write cast(... as {to})"
        raise InvalidOperation(
            f"a value of type {type_} cannot be assigned to column {self.name} of type {to} in "
            f"{shown_sql(arg)}: {hint}"
        )

    def _refuse_fields(self, type_: str, to: str) -> None:
        """Refuse by its name a field, at any depth, that the target of the value lacks."""
        if not to.startswith(("struct<", "array<", "map<")):
            return
        given, kind = arrow_type(type_), arrow_type(to)
        if pa.types.is_struct(given) and pa.types.is_struct(kind):
            self._refuse_unknown((one.name for one in given), kind)
            for one in given:
                (other,) = match(one.name, kind)
                self.within(other.name)._refuse_fields(type_name(one.type), type_name(other.type))
        elif pa.types.is_list(given) and pa.types.is_list(kind):
            inner = type_name(given.value_type), type_name(kind.value_type)
            self.within("element")._refuse_fields(*inner)
        elif pa.types.is_map(given) and pa.types.is_map(kind):
            inner = type_name(given.item_type), type_name(kind.item_type)
            self.within("value")._refuse_fields(*inner)

    def _array(self, arg: Expr, type_: str, to: str) -> Expr | None:
        """Return an array that is written out; each of its elements is assigned by itself."""
        inner_to = element_type(to)
        if not isinstance(arg, Call) or arg.name != "array" or inner_to is None:
            return None
        inner = element_type(type_) or "void"
        return Cast(Call("array", tuple(self._fit(one, inner, inner_to) for one in arg.args)), to)


def _day(arg: Literal, to: str) -> Literal | None:
    """Return the day of a timestamp constant without a zone if it is midnight; else None."""
    if to != "date" or arg.type not in ("timestamp", "timestamp_ntz") or arg.value is None:
        return None
    instant = value_of(arg)
    if not isinstance(instant, datetime) or arg.value.endswith("Z") or instant.time() != time():
        return None
    return literal_of("date", instant.date())


def _columns_of(args: Iterable[Expr]) -> list[Column]:
    """Return the operands that are columns."""
    return [one for one in args if isinstance(one, Column)]


def _constructs(expr: Expr) -> bool:
    """Return whether a struct or a map is written out, itself or as an element of an array."""
    if not isinstance(expr, Call):
        return False
    if expr.name == "array":
        return any(map(_constructs, expr.args))
    return expr.name in ("struct", "map")


def _covers(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the type ``given`` has each field of ``kind``, at any depth within structs."""
    if not (pa.types.is_struct(given) and pa.types.is_struct(kind)):
        return True
    known = {one.name.lower(): one.type for one in given}
    return all(
        one.name.lower() in known and _covers(known[one.name.lower()], one.type) for one in kind
    )


def _is_no_number(arg: Literal) -> bool:
    value = value_of(arg)
    return isinstance(value, float) and not math.isfinite(value)
