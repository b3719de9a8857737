"""The brackets of a path's step, applied to its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.api.catalog.paths import PathStep
from lakevilla.errors import InvalidOperation
from lakevilla.sql.catalog import Constant, Operator, Term
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal, columns
from lakevilla.sql.expressions.types import arrow_type

Row = dict[str, Any]

#: A predicate over a row, or a position.
Check = Callable[[Row], bool] | int
#: The column by which a path names one row of a step.
KEYS = {
    "snapshots": "version",
    "commits": "version",
    "files": "path",
    "partitions": "name",
    "columns": "name",
    "statistics": "column",
}
#: Steps whose rows have a number as their key.
_BY_VERSION = frozenset({"snapshots", "commits"})
#: Types whose bounds a predicate may be meant for where there are no rows that tell.
_ANY_TYPE = ("long", "string", "double", "date", "timestamp", "timestamp_ntz", "boolean")


def filtered(rows: Sequence[Row], step: PathStep, own: pa.Schema) -> list[Row]:
    """Return the rows that pass a step's filters, which are applied one after the other.

    Raises
    ------
    InvalidOperation
        A column does not exist.
    """
    return passed(rows, checks(step, own, rows))


def checks(step: PathStep, own: pa.Schema, every: Sequence[Row]) -> list[Check]:
    """Return the filters of a step as checks of rows, of which ``every`` has all there are.

    Keys of maps are taken from these rows; so are the types of the columns that they describe.

    Raises
    ------
    InvalidOperation
        A column does not exist.
    """
    found = [one if isinstance(one, int) else _check(one, step, own, every) for one in step.filters]
    if step.member is not None:
        key, member = key_of(step, own), step.member
        found.insert(step.before, lambda row: str(row[key]) == member)
    return found


def passed(rows: Sequence[Row], checks: Iterable[Check]) -> list[Row]:
    """Return the rows that pass checks, one after the other; a position counts those before it."""
    left = list(rows)
    for one in checks:
        if isinstance(one, int):
            left = left[one : one + 1 or None] if abs(one) <= len(left) else []
        else:
            left = [row for row in left if one(row)]
    return left


def key_of(step: PathStep, own: pa.Schema) -> str:
    """Return the column by which a path names one row of a step."""
    key = KEYS[step.text]
    return key if key in own.names else "name"


def _check(condition: Expr, step: PathStep, own: pa.Schema, every: Sequence[Row]) -> Check:
    schema, maps = _bindable(own, every, condition)
    try:
        if "max" in own.names and _names_bounds(condition):
            return _check_of_bounds(condition, schema, every)
        bound = bind(condition, schema)
    except InvalidOperation as error:
        raise InvalidOperation(f"step {step.text!r}: {error.message}") from None
    return lambda row: is_true(bound, _flat(row, maps))


def _names_bounds(condition: Expr) -> bool:
    return any(column.path[0].lower() in ("min", "max") for column in columns(condition))


def _check_of_bounds(condition: Expr, schema: pa.Schema, every: Iterable[Row]) -> Check:
    """Return the check of a predicate over bounds, which have the types of their columns.

    A column with whose type the predicate can't be compared does not pass.

    Raises
    ------
    InvalidOperation
        It can be compared with none.
    """
    bound: dict[str, Expr] = {}
    refused: InvalidOperation | None = None
    for name in {row["type"] for row in every} or _ANY_TYPE:
        typed = [
            field.with_type(arrow_type(name)) if field.name in ("min", "max") else field
            for field in schema
        ]
        try:
            bound[name] = bind(condition, pa.schema(typed))
        except InvalidOperation as error:
            refused = error
    if refused is not None and not bound:
        raise refused

    def check(row: Row) -> bool:
        known = bound.get(row["type"])
        if known is None:
            return False
        ends = {name: _as_typed(row[name], row["type"]) for name in ("min", "max")}
        return is_true(known, {**row, **ends})

    return check


def _as_typed(text: str | None, name: str) -> Any:
    """Return a bound, which the catalog has as text, as a value of its column's type."""
    try:
        return pa.scalar(text, pa.string()).cast(arrow_type(name)).as_py()
    except pa.ArrowInvalid:
        return None  # no value of that type, as a client without LakeVilla may have written it


def _bindable(
    own: pa.Schema, rows: Sequence[Row], condition: Expr
) -> tuple[pa.Schema, Mapping[str, tuple[str, ...]]]:
    """Return the columns, each map replaced by a struct with a field for each key in the rows.

    Without rows the keys are unknown; then the struct has the keys that the condition names.
    """
    fields, maps = [], {}
    for field in own:
        if not pa.types.is_map(field.type):
            fields.append(field)
            continue
        keys = {key for row in rows for key in row.get(field.name) or ()}
        if not rows:
            named = (column.path for column in columns(condition))
            keys = {path[1] for path in named if len(path) > 1 and path[0] == field.name}
        maps[field.name] = tuple(sorted(keys))
        if keys:
            kinds = [pa.field(key, pa.string()) for key in maps[field.name]]
            fields.append(pa.field(field.name, pa.struct(kinds)))
    return pa.schema(fields), maps


def _flat(row: Row, maps: Mapping[str, tuple[str, ...]]) -> Row:
    changed = {
        name: {key: (row[name] or {}).get(key) for key in keys} for name, keys in maps.items()
    }
    return {**row, **changed}


_TURNED: dict[str, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME: dict[str, Operator] = {name: name for name in _TURNED.values()}


def constants_in(step: PathStep, own: pa.Schema) -> list[Term]:
    """Return the terms of a step's first filters by which rows are excluded before they are made.

    Terms after a position are not returned: a position counts the rows that passed before it.
    """
    found: list[Term] = []
    for number, one in enumerate((*step.filters, None)):
        if step.member is not None and number == step.before and step.text not in _BY_VERSION:
            found.append(Term(key_of(step, own), "=", (step.member,)))
        if one is None or isinstance(one, int):
            break
        for term in _terms(one):
            if term.column in own.names and not pa.types.is_map(own.field(term.column).type):
                found.append(term)
    return found


def _terms(condition: Expr) -> Iterator[Term]:
    if not isinstance(condition, Call):
        return
    if condition.name == "and":
        for one in condition.args:
            yield from _terms(one)
        return
    args = condition.args
    if condition.name in _SAME and len(args) == 2:
        for side, other, operators in ((args[0], args[1], _SAME), (args[1], args[0], _TURNED)):
            value = _constant(other)
            if isinstance(side, Column) and value is not None:
                yield Term(".".join(side.path).lower(), operators[condition.name], (value,))
                return
    elif condition.name == "in" and isinstance(args[0], Column):
        values = [_constant(one) for one in args[1:]]
        known = tuple(value for value in values if value is not None)
        if known and len(known) == len(values):
            yield Term(".".join(args[0].path).lower(), "in", known)
    elif condition.name in ("like", "starts_with") and isinstance(args[0], Column):
        prefix = _constant(args[1])
        if isinstance(prefix, str):
            if condition.name == "like":
                ends = [at for at in map(prefix.find, "%_\\") if at >= 0]
                prefix = prefix[: min(ends)] if ends else prefix
            if len(args) == 2:  # a third argument, the escape character, changes the meaning
                yield Term(".".join(args[0].path).lower(), "prefix", (prefix,))


def _constant(node: Expr) -> Constant | None:
    if not isinstance(node, Literal) or node.value is None:
        return None
    if node.type == "string":
        return node.value
    if node.type in ("byte", "short", "integer", "long"):
        return int(node.value)
    if node.type in ("float", "double") or node.type.startswith("decimal"):
        return float(node.value)
    return None
