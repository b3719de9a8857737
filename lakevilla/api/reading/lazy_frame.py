"""A lazy frame of polars over a table, and predicates of polars as expressions."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from lakevilla.api.arguments import check_columns
from lakevilla.api.execution.executor import Executor
from lakevilla.engines.base import projection
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Predicate, bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal

__all__ = [
    "frame_of",
    "lazy_frame",
    "translated",
]

# -------------------- lazy frame
#
# A table as a ``LazyFrame`` of polars, which is read when it is collected.
#
# Polars passes the columns and the predicate of a query. The parts of the predicate that mean the
# same in LakeVilla's language are tested on the log and on the files' statistics, so that files
# without a matching row are not read; polars' own filter then sees the rows that are left.


if TYPE_CHECKING:
    import polars as pl


Frame = TypeVar("Frame")


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Return rows of Arrow as a frame of polars.

    Raises
    ------
    InvalidOperation
        Polars is not installed.
    """
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise InvalidOperation("to_polars needs polars: pip install polars") from None
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def lazy_frame(
    executor: Executor[Frame],
    table: str,
    columns: Sequence[str] | None,
    where: Predicate | None,
    params: Mapping[str, object] | None,
) -> pl.LazyFrame:
    """Return a table's rows, read when they are collected, in the state that is bound now."""
    layout = executor.look(table).snapshot.layout
    schema = projection(layout, check_columns(columns))
    given = executor.optional_predicate(where, params, table)
    if given is not None:
        bind(given, layout.schema)  # an error is raised here, not when the frame is collected
    empty = frame_of(schema.empty_table())
    # Polars may read one frame by several threads; a transaction belongs to one at a time.
    opening = threading.Lock()

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = schema.names if with_columns is None else with_columns
        filtered = predicate.meta.root_names() if predicate is not None else []
        needed = [name for name in schema.names if name in {*names, *filtered}] or schema.names[:1]
        pushed = given
        if predicate is not None and n_rows is None:  # else for the first rows alone
            text = predicate.meta.serialize(format="json")
            pushed = _both(given, translated(text, schema))
        with opening:
            rows = executor.scan_where(table, needed, pushed)
        left = n_rows
        for batch in rows:
            frame = frame_of(pa.Table.from_batches([batch]))
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(names)
            if left == 0:
                return
        yield empty.select(names)

    import polars.io.plugins

    return polars.io.plugins.register_io_source(source, schema=dict(empty.schema))


def _both(one: Expr | None, other: Expr | None) -> Expr | None:
    if one is None or other is None:
        return one if other is None else other
    return Call("and", (one, other))


# -------------------- polars predicates
#
# Predicates of polars as predicates of LakeVilla: the parts of them that mean the same in both.
#
# Polars writes an expression as JSON, whose form may change with its version: a part that is not
# known here, to the last key, is not translated. That is safe because a reader that uses the
# translation filters by the predicate itself afterwards; a part that is left out costs time.


#: A part of the JSON.
Node: TypeAlias = Any

_AND, _OR = ("And", "LogicalAnd"), ("Or", "LogicalOr")
#: An operator of polars, and the one that means the same with its operands exchanged.
_COMPARED = {
    "Eq": ("=", "="),
    "NotEq": ("<>", "<>"),
    "Lt": ("<", ">"),
    "LtEq": ("<=", ">="),
    "Gt": (">", "<"),
    "GtEq": (">=", "<="),
    "EqValidity": ("<=>", "<=>"),
}
_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_PER_SECOND = {"Milliseconds": 10**3, "Microseconds": 10**6, "Nanoseconds": 10**9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _NotTranslated(Exception):
    """No expression of LakeVilla means this."""


def translated(predicate: str, schema: pa.Schema) -> Expr | None:
    """Return a predicate that is true of all rows for which polars' predicate is.

    Parameters
    ----------
    predicate : str
        As ``polars.Expr.meta.serialize(format="json")`` writes it.
    schema : pyarrow.Schema
        The table's schema.

    Returns
    -------
    Expr or None
        None if no part of it can be translated.
    """
    found = []
    for part in _conjuncts(json.loads(predicate)):
        try:
            found.append(bind(_tree(part), schema))
        except (_NotTranslated, InvalidOperation):
            continue
    return reduce(lambda left, right: Call("and", (left, right)), found) if found else None


def _conjuncts(node: Node) -> Iterator[Node]:
    match node:
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _AND:
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


def _tree(node: Node) -> Expr:
    """Translate a boolean expression. Both languages have three truth values in AND, OR, NOT."""
    match node:
        case {"Column": str(name)}:
            return Column((name,))
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _AND:
            return Call("and", (_tree(left), _tree(right)))
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in _OR:
            return Call("or", (_tree(left), _tree(right)))
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _COMPARED:
            return _comparison(left, _COMPARED[op], right)
        case {"Function": {"input": [*operands], "function": {"Boolean": test}}}:
            return _test(test, operands)
        case {"Function": {"input": [column, text], "function": {"StringExpr": "StartsWith"}}}:
            return Call("starts_with", (_column(column), _constant(text)))
    raise _NotTranslated


def _comparison(left: Node, op: tuple[str, str], right: Node) -> Expr:
    match left, right:
        case {"Column": _}, {"Column": _}:
            return Call(op[0], (_column(left), _column(right)))
        case {"Column": _}, _:
            return Call(op[0], (_column(left), _constant(right)))
        case _, {"Column": _}:
            return Call(op[1], (_column(right), _constant(left)))
    raise _NotTranslated


def _test(test: Node, operands: list[Node]) -> Expr:
    match test, operands:
        case "Not", [operand]:
            return Call("not", (_tree(operand),))
        case "IsNull", [operand]:
            return Call("is_null", (_column(operand),))
        case "IsNotNull", [operand]:
            return Call("not", (Call("is_null", (_column(operand),)),))
        case "IsNan" | "IsNotNan", [operand]:
            is_nan = Call("=", (_column(operand), literal(float("nan"))))
            return is_nan if test == "IsNan" else Call("not", (is_nan,))
        case {"IsBetween": {"closed": str(closed)}}, [operand, low, high] if closed in _BETWEEN:
            above, below = _BETWEEN[closed]
            column = _column(operand)
            lower, upper = Call(above, (column, _constant(low))), _constant(high)
            return Call("and", (lower, Call(below, (column, upper))))
        case {"IsIn": {"nulls_equal": bool(nulls_equal)}}, [
            operand,
            {"Literal": {"Scalar": {"List": [*stream]}}},
        ]:
            column = _column(operand)
            within = Call("in", (column, *map(literal, _listed(stream))))
            if not nulls_equal:
                return within
            # For NULL, which is not in the list, the test is false and not unknown.
            return Call("and", (within, Call("not", (Call("is_null", (column,)),))))
    raise _NotTranslated


def _column(node: Node) -> Expr:
    match node:
        case {"Column": str(name)}:
            return Column((name,))
    raise _NotTranslated


def _constant(node: Node) -> Expr:
    match node:
        case {"Literal": {"Scalar": dict(scalar)}} if len(scalar) == 1:
            ((kind, value),) = scalar.items()
            return literal(_value(kind, value))
    raise _NotTranslated


def _value(kind: str, value: Node) -> object:
    """Return the Python value of a scalar; the JSON has neither NaN nor the infinities."""
    match kind, value:
        case ("Boolean", bool()) | ("String", str()) | ("Float64", float()):
            return value
        case "Float32", float():
            return ctypes.c_float(value).value  # the JSON has the shortest text that rounds to it
        case "Date", int():
            return date.fromordinal(_EPOCH.toordinal() + value) if abs(value) < 10**6 else _no()
        case "Binary", [*codes]:
            return bytes(codes)
        case "Decimal", [int(digits), int(), int(scale)]:
            return Decimal(digits).scaleb(-scale)
        case "Datetime", [int(count), str(unit), zone] if unit in _PER_SECOND:
            return _to_datetime(count, _PER_SECOND[unit], zone)
        case _, int() if kind in _INTEGERS and not isinstance(value, bool):
            return value
    raise _NotTranslated


def _to_datetime(count: int, per_second: int, zone: Node) -> datetime:
    microseconds, rest = divmod(count * 10**6, per_second)
    if rest:
        raise _NotTranslated  # a constant of LakeVilla has no more than six decimals
    try:
        instant = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise _NotTranslated from None
    return instant.replace(tzinfo=None) if zone is None else instant


def _listed(stream: list[int]) -> list[object]:
    """Return the values of a list, which polars writes as an Arrow stream of one column."""
    try:
        (column,) = pa.ipc.open_stream(bytes(stream)).read_all().columns
    except (pa.ArrowException, ValueError):
        raise _NotTranslated from None
    if column.null_count or not len(column) or pa.types.is_nested(column.type):
        raise _NotTranslated  # NULL in a list is a value to polars
    values: list[object] = column.to_pylist()
    return values


def _no() -> object:
    raise _NotTranslated
