"""What stands in a step's brackets, applied to its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.api.catalog.paths import PathStep
from lakevilla.errors import InvalidOperation
from lakevilla.sql.catalog import Constant, Operator, Term
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sql.expressions.walk import columns

Row = dict[str, Any]


def filtered(
    rows: Sequence[Row], step: PathStep, own: pa.Schema, every: Sequence[Row] | None = None
) -> list[Row]:
    """The rows that are left, one filter after the other.

    ``every`` are the rows of all tables, by which is told what keys a map may have.

    Raises
    ------
    InvalidOperation
        A column is not there.
    """
    left = list(rows)
    for one in step.filters:
        if isinstance(one, int):
            left = left[one : one + 1 or None] if abs(one) <= len(left) else []
            continue
        schema, maps = _bindable(own, rows if every is None else every, one)
        try:
            bound = bind(one, schema)
        except InvalidOperation as error:
            raise InvalidOperation(f"step {step.text!r}: {error.message}") from None
        left = [row for row in left if is_true(bound, _flat(row, maps))]
    return left


def _bindable(
    own: pa.Schema, rows: Sequence[Row], condition: Expr
) -> tuple[pa.Schema, Mapping[str, tuple[str, ...]]]:
    """The columns with each map as a struct of the keys that are there.

    Where there are no rows nobody can tell, and what is asked for is taken to be there.
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
    """The terms of a step's first filters that leave out rows before they are made.

    After a position nothing is: it counts the rows that were left.
    """
    found: list[Term] = []
    for one in step.filters:
        if isinstance(one, int):
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
            if len(args) == 2:  # with an escape of its own a pattern says something else
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
