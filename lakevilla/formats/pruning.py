"""The files that may hold a row for which a predicate is true, from the log alone.

Every part of the predicate is evaluated over all files at once, as the set of its possible
values: a value between two bounds, NULL, true, false. A file is left out only if the whole can
be true for no row; unknown parts keep it. Partition values are used first; statistics
are parsed only for the files that they leave.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import array, scalar
from lakevilla.errors import InvalidOperation
from lakevilla.formats.file_statistics import (
    ColumnStatistics,
    PartitionColumn,
    partition_column,
    read_statistics,
)
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.bind import bind, type_of
from lakevilla.sql.expressions.evaluate import compare, evaluate
from lakevilla.sql.expressions.functions.core import COMPARISONS
from lakevilla.sql.expressions.loosen import mapped_bounds, rising_operand
from lakevilla.sql.expressions.tree import Call, Cast, Column, Expr, Literal, columns
from lakevilla.sql.expressions.types import arrow_type, is_fractional, is_nested, type_name
from lakevilla.sql.expressions.values import value_of

_BATCH = 1 << 16


def may_match(files: pa.Table, layout: Layout, where: Expr) -> pa.BooleanArray:
    """Return for each file whether it may hold a row for which ``where`` is true.

    Parameters
    ----------
    files : pyarrow.Table
        ``FILES_SCHEMA``; only ``partition_values`` and ``stats`` are read.
    layout : Layout
        The table's.
    where : Expr
        A predicate over ``layout.schema``.
    """
    pruner = _Pruner(layout, where)
    return _concat([pruner.may_match(batch) for batch in _batches(files)])


def always_true(files: pa.Table, layout: Layout, where: Expr) -> pa.BooleanArray:
    """Return for each file whether ``where`` is true for all its rows, by partition values alone.

    Statistics are not used: a wrong one would cost rows rather than time. The result is exact if
    ``where`` depends on partition columns alone.
    """
    pruner = _Pruner(layout, where)
    return _concat([pruner.always_true(batch) for batch in _batches(files)])


def _batches(files: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = files.select(["partition_values", "stats"]).to_batches(
        max_chunksize=_BATCH
    )
    return batches


def _concat(parts: Sequence[pa.Array]) -> pa.BooleanArray:
    return pa.concat_arrays(parts) if parts else array([], pa.bool_())


# Conditions over a batch of files: an array, or a scalar that holds for all files.
_Mask = Any
_NO, _YES = scalar(False, pa.bool_()), scalar(True, pa.bool_())
_ZERO = scalar(0, pa.int64())


@dataclass(frozen=True, slots=True)
class _Truth:
    """The possible results of a condition in the rows of each file."""

    true: _Mask
    false: _Mask
    null: _Mask


@dataclass(frozen=True, slots=True)
class _Range:
    """The possible values: between bounds that are null where unknown, or NULL, or NaN.

    ``exact``: the two bounds are equal, and are the value of every row.
    """

    low: Any
    high: Any
    null: _Mask
    value: _Mask
    nan: bool = False
    exact: bool = False

    def of_all(self) -> _Range:
        """Return the range of one file as the range of all files."""
        low, high, null, value = (part[0] for part in (self.low, self.high, self.null, self.value))
        return _Range(low, high, null, value, self.nan, self.exact)


class _Pruner:
    """A predicate prepared for evaluation over batches of files."""

    def __init__(self, layout: Layout, where: Expr) -> None:
        self._where = bind(where, layout.schema)
        self._schema = layout.schema
        partitions = {name.lower() for name in layout.partition_by}
        self._keys: dict[Column, tuple[str, str]] = {}
        self._leaves: dict[Column, tuple[tuple[str, ...], str]] = {}
        for column in columns(self._where):
            path, type_ = _physical(column, layout)
            if len(path) == 1 and column.path[0].lower() in partitions:
                self._keys[column] = (path[0], type_)
            else:
                self._leaves[column] = (path, type_)

    def may_match(self, batch: pa.RecordBatch) -> pa.Array:
        known = self._partitions(batch)
        if self._keys or not self._leaves:
            truth = _Follower(self._schema, known, {}).truth(self._where)
            keep = _as_array(truth.true, len(batch))
        else:
            keep = pa.repeat(_YES, len(batch))
        if not self._leaves or not keep.true_count:
            return keep
        places = pc.indices_nonzero(keep)
        stats = batch.column("stats").take(places)
        paths = {path: type_ for path, type_ in self._leaves.values() if not is_nested(type_)}
        read = read_statistics(stats, paths)
        leaves = {column: read[path] for column, (path, _) in self._leaves.items() if path in read}
        known = {
            column: PartitionColumn(part.values, part.readable, part.indices.take(places))
            for column, part in known.items()
        }
        truth = _Follower(self._schema, known, leaves).truth(self._where)
        return pc.replace_with_mask(keep, keep, _as_array(truth.true, len(places)))

    def always_true(self, batch: pa.RecordBatch) -> pa.Array:
        truth = _Follower(self._schema, self._partitions(batch), {}).truth(self._where)
        return _as_array(pc.invert(pc.or_(truth.false, truth.null)), len(batch))

    def _partitions(self, batch: pa.RecordBatch) -> dict[Column, PartitionColumn]:
        maps = batch.column("partition_values")
        return {
            column: partition_column(maps, key, type_)
            for column, (key, type_) in self._keys.items()
        }


def _physical(column: Column, layout: Layout) -> tuple[tuple[str, ...], str]:
    """Return the path by which the log names a column, and its type."""
    logical: Any = layout.schema
    physical: Any = layout.statistics_schema
    path: list[str] = []
    for name in column.path:
        at = logical.get_all_field_indices(name)[0]
        path.append(physical[at].name if path else physical.field(at).name)
        logical, physical = logical.field(at).type, physical.field(at).type
    return tuple(path), type_name(logical)


def _as_array(mask: _Mask, length: int) -> pa.Array:
    return pa.repeat(mask, length) if isinstance(mask, pa.Scalar) else mask


class _Follower:
    """The evaluation of a bound expression over a batch of files."""

    def __init__(
        self,
        schema: pa.Schema,
        partitions: dict[Column, PartitionColumn],
        leaves: dict[Column, ColumnStatistics],
    ) -> None:
        self._schema = schema
        self._partitions = partitions
        self._leaves = leaves

    # -- conditions ------------------------------------------------------------------

    def truth(self, expr: Expr) -> _Truth:
        if isinstance(expr, Call):
            name, args = expr.name, expr.args
            if name in ("and", "or"):
                return reduce(_both if name == "and" else _either, map(self.truth, args))
            if name == "not":
                inner = self.truth(args[0])
                return _Truth(inner.false, inner.true, inner.null)
            if name in COMPARISONS:
                return _compared(name, self.range(args[0]), self.range(args[1]))
            if name == "is_null":
                value = self.range(args[0])
                return _Truth(value.null, value.value, _NO)
            if name == "in":
                return self._in(args[0], args[1:])
            if name in ("like", "starts_with") and not self._exact(expr):
                return self._prefixed(expr)
        value = self.range(expr)
        return _Truth(
            pc.and_(value.value, pc.fill_null(value.high, _YES)),
            pc.and_(value.value, pc.invert(pc.fill_null(value.low, _NO))),
            value.null,
        )

    def _in(self, arg: Expr, items: Sequence[Expr]) -> _Truth:
        value = self.range(arg)
        if not items:
            return _Truth(_NO, _YES, _NO)
        if not all(isinstance(item, Literal) for item in items):
            equal = [_compared("=", value, self.range(item)) for item in items]
            return reduce(_either, equal)
        type_ = type_of(arg, self._schema)
        constants = [value_of(item) for item in items if isinstance(item, Literal)]
        comparable = [c for c in constants if c is not None and c == c]
        if isinstance(value.low, pa.Scalar):
            own = value.low.as_py()  # None: a value without columns may be NULL
            equal_one = own is not None and any(compare(c, own) == 0 for c in comparable)
            found: _Mask = _NO if value.exact and not equal_one else _YES
        elif value.exact and not is_fractional(type_):
            found = pc.is_in(value.low, value_set=array(comparable, arrow_type(type_)))
        else:
            found = _any_between(sorted(comparable, key=cmp_to_key(compare)), value.low, value.high)
        if value.exact:
            missed = pc.and_(value.value, pc.invert(found))
            if None in constants:
                return _Truth(pc.and_(value.value, found), _NO, pc.or_(value.null, missed))
            return _Truth(pc.and_(value.value, found), missed, value.null)
        if value.nan and len(comparable) < sum(c is not None for c in constants):
            found = _YES  # NaN is in the list, and may be in the file
        null = value.null if None not in constants else pc.or_(value.null, value.value)
        return _Truth(pc.and_(value.value, found), value.value, null)

    def _prefixed(self, call: Call) -> _Truth:
        """Evaluate ``like 'abc%'``: values between two bounds begin with their common prefix."""
        value, pattern = self.range(call.args[0]), call.args[1]
        null = pc.or_(value.null, self.range(pattern).null)
        prefix = value_of(pattern) if isinstance(pattern, Literal) else None
        if not isinstance(prefix, str):
            return _Truth(_YES, _YES, null)
        if call.name == "like":
            stops = [prefix.find(c) for c in ("%", "_") if c in prefix]
            if len(call.args) == 3:
                escape = value_of(call.args[2]) if isinstance(call.args[2], Literal) else None
                stops += [prefix.find(str(escape))] if str(escape) in prefix else []
            prefix = prefix[: min(stops)] if stops else prefix
        size = len(prefix)
        low = pc.utf8_slice_codeunits(value.low, 0, size) if size else scalar("", pa.string())
        high = pc.utf8_slice_codeunits(value.high, 0, size) if size else scalar("", pa.string())
        above = pc.fill_null(pc.less_equal(low, scalar(prefix, pa.string())), _YES)
        below = pc.fill_null(pc.greater_equal(high, scalar(prefix, pa.string())), _YES)
        return _Truth(pc.and_(value.value, pc.and_(above, below)), value.value, null)

    # -- values ----------------------------------------------------------------------

    def range(self, expr: Expr) -> _Range:
        if is_nested(type_of(expr, self._schema)):
            return self._unknown(expr)
        if isinstance(expr, Literal):
            return _constant(expr)
        if isinstance(expr, Column):
            if expr in self._partitions:
                return _partition_range(self._partitions[expr], type_of(expr, self._schema))
            if expr in self._leaves:
                return _leaf_range(self._leaves[expr])
            return self._unknown(expr)
        if self._exact(expr):
            return self._evaluated(expr)
        if isinstance(expr, Call) and (expr.name in _CONDITIONS):
            truth = self.truth(expr)
            value = pc.or_(truth.true, truth.false)
            return _Range(pc.invert(truth.false), truth.true, truth.null, value)
        return self._rising(expr)

    def _unknown(self, expr: Expr) -> _Range:
        type_ = type_of(expr, self._schema)
        nothing = scalar(None, pa.null() if is_nested(type_) else arrow_type(type_))
        return _Range(nothing, nothing, _YES, _YES, nan=is_fractional(type_))

    def _exact(self, expr: Expr) -> bool:
        return all(column in self._partitions for column in columns(expr))

    def _evaluated(self, expr: Expr) -> _Range:
        """Evaluate an expression over partition columns, once for each combination of values."""
        used = columns(expr)
        type_ = arrow_type(type_of(expr, self._schema))
        if not used:
            value, known = _once(expr, (), (), ())
            return _exact_range(array([value], type_), array([known], pa.bool_())).of_all()
        parts = [self._partitions[column] for column in used]
        seen: dict[tuple[int | None, ...], tuple[Any, bool]] = {}
        places: list[tuple[int | None, ...]] = list(
            zip(*(part.indices.to_pylist() for part in parts), strict=True)
        )
        for place in places:
            if place not in seen:
                seen[place] = _once(expr, used, parts, place)
        found = [seen[place] for place in places]
        values = array([value for value, _ in found], type_)
        sure = array([known for _, known in found], pa.bool_())
        return _exact_range(values, sure)

    def _rising(self, expr: Expr) -> _Range:
        """Map bounds by a function that never falls: it keeps the order of its operand's bounds."""
        at = rising_operand(expr, self._schema)
        if at is None:
            return self._unknown(expr)
        operand = expr.arg if isinstance(expr, Cast) else expr.args[at]  # type: ignore[union-attr]
        inner = self.range(operand)
        if isinstance(inner.low, pa.Scalar) and not inner.low.is_valid:
            return self._unknown(expr)
        type_ = type_of(expr, self._schema)
        source = type_of(operand, self._schema)
        low, high = (
            mapped_bounds(expr, at, bound, source, type_) for bound in (inner.low, inner.high)
        )
        # A sum of infinities is NaN; a cast makes no NaN that did not exist before.
        nan = is_fractional(type_) and (inner.nan or not isinstance(expr, Cast))
        return _Range(low, high, inner.null, inner.value, nan=nan)


_CONDITIONS = frozenset({*COMPARISONS, "and", "or", "not", "is_null", "in", "like", "starts_with"})


def _both(a: _Truth, b: _Truth) -> _Truth:
    null = pc.or_(pc.and_(a.null, pc.or_(b.true, b.null)), pc.and_(b.null, pc.or_(a.true, a.null)))
    return _Truth(pc.and_(a.true, b.true), pc.or_(a.false, b.false), null)


def _either(a: _Truth, b: _Truth) -> _Truth:
    turned = _both(_Truth(a.false, a.true, a.null), _Truth(b.false, b.true, b.null))
    return _Truth(turned.false, turned.true, turned.null)


def _compared(name: str, a: _Range, b: _Range) -> _Truth:
    if name in (">", ">="):
        return _compared({">": "<", ">=": "<="}[name], b, a)
    if pa.types.is_null(a.low.type) or pa.types.is_null(b.low.type):
        true = false = _YES  # a NULL without a type has no bounds to compare
    elif name in ("<", "<="):
        below, above = (pc.less, pc.greater_equal) if name == "<" else (pc.less_equal, pc.greater)
        true, false = _may(below(a.low, b.high), b.nan), _may(above(a.high, b.low), a.nan)
    else:
        true, false = _may_equal(a, b), _may_differ(a, b)
    if name == "<>":
        true, false = false, true
    values = pc.and_(a.value, b.value)
    true, false = pc.and_(values, true), pc.and_(values, false)
    if name == "<=>":
        one = pc.or_(pc.and_(a.null, b.value), pc.and_(a.value, b.null))
        return _Truth(pc.or_(true, pc.and_(a.null, b.null)), pc.or_(false, one), _NO)
    return _Truth(true, false, pc.or_(a.null, b.null))


def _may(condition: _Mask, nan: bool) -> _Mask:
    return _YES if nan else pc.fill_null(condition, _YES)


def _may_equal(a: _Range, b: _Range) -> _Mask:
    if a.nan and b.nan:
        return _YES
    left = pc.fill_null(pc.less_equal(a.low, b.high), _YES)
    return pc.and_(left, pc.fill_null(pc.less_equal(b.low, a.high), _YES))


def _may_differ(a: _Range, b: _Range) -> _Mask:
    if a.nan or b.nan:
        return _YES
    same = pc.and_(pc.equal(a.low, b.high), pc.equal(a.high, b.low))
    return pc.fill_null(pc.invert(same), _YES)


def _any_between(constants: Sequence[Any], low: pa.Array, high: pa.Array) -> pa.Array:
    """Return for each file whether one of the sorted constants is between its bounds."""
    if len(constants) <= 8:
        pairs = [
            pc.and_(
                pc.fill_null(pc.less_equal(low, constant), _YES),
                pc.fill_null(pc.greater_equal(high, constant), _YES),
            )
            for constant in (scalar(c, low.type) for c in constants)
        ]
        return reduce(pc.or_, pairs, pa.repeat(_NO, len(low)))
    found = []
    for least, most in zip(low.to_pylist(), high.to_pylist(), strict=True):
        at = 0 if least is None else bisect_left(constants, least)
        found.append(at < len(constants) and (most is None or constants[at] <= most))
    return array(found, pa.bool_())


def _constant(constant: Literal) -> _Range:
    value, type_ = value_of(constant), arrow_type(constant.type)
    if value is None or value != value:
        nothing, there = scalar(None, type_), _NO if value is None else _YES
        return _Range(nothing, nothing, pc.invert(there), there, nan=value is not None)
    exactly = scalar(value, type_)
    return _Range(exactly, exactly, _NO, _YES, exact=True)


def _partition_range(part: PartitionColumn, type_: str) -> _Range:
    values = array(part.values, arrow_type(type_)).take(part.indices)
    if all(part.readable):
        return _exact_range(values, _YES)
    sure = pc.fill_null(array(part.readable, pa.bool_()).take(part.indices), _YES)
    return _exact_range(values, sure)


def _exact_range(values: pa.Array, sure: _Mask) -> _Range:
    """Return the range of one value per file; a value that is not sure may be any value."""
    is_valid = pc.is_valid(values)
    nan = False
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        nan = True
        values = pc.if_else(pc.fill_null(pc.is_nan(values), _NO), scalar(None, values.type), values)
    doubt = pc.invert(sure)
    return _Range(
        values,
        values,
        pc.or_(pc.invert(is_valid), doubt),
        pc.or_(is_valid, doubt),
        nan=nan,
        exact=not nan and bool(pc.all(sure).as_py() if isinstance(sure, pa.Array) else sure),
    )


def _leaf_range(stats: ColumnStatistics) -> _Range:
    null = pc.fill_null(pc.greater(stats.nulls, _ZERO), _YES)
    value = pc.fill_null(pc.less(stats.nulls, stats.rows), _YES)
    # No statistic records NaN, which writers include in the maximum or not.
    return _Range(stats.low, stats.high, null, value, nan=pa.types.is_floating(stats.low.type))


def _once(
    expr: Expr,
    used: Sequence[Column],
    parts: Sequence[PartitionColumn],
    place: tuple[int | None, ...],
) -> tuple[Any, bool]:
    """Return the value for one combination of partition values, and whether it is sure."""
    if any(at is not None and not part.readable[at] for part, at in zip(parts, place, strict=True)):
        return None, False
    row = {
        column.path[0]: None if at is None else part.values[at]
        for column, part, at in zip(used, parts, place, strict=True)
    }
    try:
        return evaluate(expr, row), True
    except InvalidOperation:
        return None, False  # the engine evaluates it too, and raises
