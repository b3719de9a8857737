"""Predicates for the rows that a statement can match, and for those that it makes.

They only save reads: the statement itself decides which rows match, and no row that may match is
excluded.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import MergeSpec
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal, all_of, columns, substitute
from lakevilla.sql.expressions.types import INTEGERS, is_fractional, type_name
from lakevilla.sql.expressions.values import literal_of, value_of
from lakevilla.sublogs.operations import Delete, InlineSource, Merge, Operation, Update

#: The most values of a key that the predicate names; for more values it names their range.
_VALUES = 64
#: The same where the predicate is compared with rows that other transactions have changed.
_MOST_KEYS = 256
#: The predicate of a statement that matches, or makes, no row.
NO_ROW = Literal("boolean", "false")


def may_be_matched(
    spec: MergeSpec, target: pa.Schema, rows: pa.Table | None, within: Expr | None
) -> Expr | None:
    """Return a predicate over the target that is true for each row on which a clause may act.

    Parameters
    ----------
    spec : MergeSpec
        Bound.
    target : pyarrow.Schema
    rows : pyarrow.Table or None
        The source, if its rows are in this process.
    within : Expr or None
        A further predicate that is known to be true for all such rows.

    Returns
    -------
    Expr or None
        Bound; None if a clause may act on any row.
    """
    if any(clause.kind.startswith("not_matched_by_source") for clause in spec.clauses):
        return None
    found = [] if within is None else [within]
    for term in _terms(spec.on):
        known = _alone(term, spec.target_alias)
        if known is None and rows is not None:
            known = _equal(term, spec, rows)
        if known is not None:
            found.append(known)
    together = all_of(found)
    return None if together is None else bind(together, target)


def reach(on: Expr, aliases: tuple[str, str], target: pa.Schema, rows: pa.Table) -> Expr | None:
    """Return a predicate over the target that is true for each row that a source row matches.

    ``aliases``: that of the source, and that of the target. The predicate is not bound, as ``on``
    is not. A term is left out unless both its columns have one type.
    """
    spec = MergeSpec(on, *aliases, ())
    found = []
    for term in _terms(on):
        sides = columns(term)
        types = {
            (target if column.table == aliases[1] else rows.schema).field(column.path[0]).type
            for column in sides
        }
        known = _equal(term, spec, rows, _MOST_KEYS) if len(types) == 1 else None
        if known is not None:
            found.append(known)
    return all_of(found)


def _terms(on: Expr) -> Iterator[Expr]:
    if isinstance(on, Call) and on.name == "and":
        for arg in on.args:
            yield from _terms(arg)
    else:
        yield on


def _alone(term: Expr, alias: str) -> Expr | None:
    """Return a term over the target if ``term`` names only the target's columns; else None."""
    tables = {column.table for column in columns(term)}
    if tables != {alias}:
        return None
    return substitute(term, lambda column: Column(column.path))


def _equal(term: Expr, spec: MergeSpec, rows: pa.Table, most: int = _VALUES) -> Expr | None:
    """Return a predicate with the source's values for a term ``target.key = source.key``."""
    if not isinstance(term, Call) or term.name not in ("=", "<=>"):
        return None
    left, right = term.args
    if isinstance(left, Column) and left.table == spec.source_alias:
        left, right = right, left
    if not (isinstance(left, Column) and left.table == spec.target_alias):
        return None
    if not (isinstance(right, Column) and right.table == spec.source_alias):
        return None
    if len(right.path) > 1 or right.path[0] not in rows.schema.names:
        return None
    values = rows[right.path[0]]
    return _among(Column(left.path), values, most, or_null=term.name == "<=>")


def _among(column: Column, values: pa.ChunkedArray, most: int, *, or_null: bool) -> Expr | None:
    bounds = _bounds(column, values, most)
    if bounds is None or not (or_null and values.null_count):
        return bounds
    return Call("or", (bounds, Call("is_null", (column,))))


def _bounds(column: Column, values: pa.ChunkedArray, most: int) -> Expr | None:
    if not _has_bounds(values):
        return None
    type_ = type_name(values.type)
    try:
        different = pc.unique(values.drop_null()) if len(values) <= _VALUES**2 else None
        if different is not None and len(different) <= most:
            if not len(different):
                return NO_ROW
            return Call("in", (column, *(literal_of(type_, one.as_py()) for one in different)))
        least, greatest = (literal_of(type_, one.as_py()) for one in pc.min_max(values).values())
    except (pa.ArrowException, InvalidOperation, ValueError, OverflowError):
        return None  # the language of expressions has no literal for a value
    return Call("and", (Call(">=", (column, least)), Call("<=", (column, greatest))))


def _has_bounds(values: pa.ChunkedArray) -> bool:
    """Return whether files have usable bounds for such values; statistics do not cover NaN."""
    kind = values.type
    if pa.types.is_floating(kind):
        return not pc.any(pc.is_nan(values)).as_py()
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
        or kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    )


# -------------------- made
#
# The rows that a statement puts into new files, by what it says, and whether they can be rows that
# another one has requested (note 65, rule V12).


def rows_made(operation: Operation, target: pa.Schema) -> Expr | None:
    """Return a predicate that is true or NULL for each row that an operation adds or changes.

    None if the operation does not show one. It names columns as the operation does, which is not
    tied to fields; ``target`` is the table's schema.
    """
    match operation:
        case Delete():
            return NO_ROW
        case Update(assignments=assignments, where=where):
            stay = all(column.path[0] not in assignments for column in columns(where))
            return where if stay else None
        case Merge(source=InlineSource(ipc=ipc)) if operation.columns is None:
            return _rows_merged(operation, target, pa.ipc.open_stream(ipc).read_all())
    return None


def _rows_merged(operation: Merge, target: pa.Schema, rows: pa.Table) -> Expr | None:
    """Return the keys of the source, if each row of the table that a clause makes has one."""
    sides = operation.source_alias, operation.target_alias
    equal: list[Expr] = []
    keys: dict[str, Column] = {}
    for term in _terms(operation.on):
        named = {column.table: column for column in columns(term)}
        if len(named) < 2 or len(columns(term)) > 2:
            continue
        of_source, of_target = (named[alias] for alias in sides)
        name = of_target.path[0]
        is_known = name in target.names and of_source.path[0] in rows.schema.names
        if not is_known or len(of_target.path) > 1 or name in keys:
            return None
        keys[name] = of_source
        equal.append(term)
    for clause in operation.clauses:
        if clause.kind.endswith("_delete"):
            continue
        if clause.kind not in ("matched_update", "not_matched_insert"):
            return None
        for name, key in keys.items():
            given = clause.assignments.get(name, None if "insert" in clause.kind else key)
            if not isinstance(given, Column) or (given.table, given.path) != (key.table, key.path):
                return None
    known = all_of(equal)
    made = None if known is None else reach(known, sides, target, rows)
    # A key that is NULL matches no row, and is inserted: keys that are all NULL do not mean no row.
    return None if made == NO_ROW and rows.num_rows else made


def are_disjoint(one: Expr, other: Expr, schema: pa.Schema) -> bool:
    """Return whether no row makes one predicate true, and the other one true or NULL.

    Both name the columns of ``schema``. They are disjoint if they allow a column different values.
    Of all comparisons only those with constants of the column's own type are looked at, as any
    other may round. False if that does not show it.
    """
    others = dict(_allowed(other, schema))
    return any(
        name in others and values.isdisjoint(others[name]) for name, values in _allowed(one, schema)
    )


def _allowed(expr: Expr, schema: pa.Schema) -> Iterator[tuple[str, frozenset[object]]]:
    """Yield columns to which a predicate allows only some values, and these."""
    if not isinstance(expr, Call):
        return
    if expr.name == "and":
        for arg in expr.args:
            yield from _allowed(arg, schema)
    elif expr.name in ("in", "="):
        column, *constants = expr.args
        if isinstance(column, Column) and len(column.path) == 1 and column.path[0] in schema.names:
            (name,) = column.path
            kind = type_name(schema.field(name).type)
            known = [one for one in constants if isinstance(one, Literal)]
            values = [one for one in known if one.value is not None]  # NULL equals no value
            if len(known) == len(constants) and all(_is_exact(kind, one.type) for one in values):
                yield name, frozenset(map(_value, values))


def _is_exact(kind: str, constant: str) -> bool:
    """Return whether different constants are never equal to one value; NaN is excluded."""
    whole = kind in INTEGERS and constant in INTEGERS
    return whole or (kind == constant and not is_fractional(kind))


def _value(constant: Literal) -> object:
    text = constant.value
    return int(text) if text and constant.type in INTEGERS else value_of(constant)
