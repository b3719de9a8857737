"""Predicates for the rows of a merge's target that the source can match, to exclude files.

They only save reads: the merge itself decides which rows match, and no row that may match is
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
from lakevilla.sql.expressions.types import type_name
from lakevilla.sql.expressions.values import literal_of

#: The most values of a key that the predicate names; for more values it names their range.
_VALUES = 64
#: The same where the predicate is compared with rows that other transactions have changed.
_MOST_KEYS = 256


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
                return Literal("boolean", "false")
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
