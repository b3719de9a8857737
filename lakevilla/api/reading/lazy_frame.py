"""A table as a lazy frame of polars, and the translation of polars' predicates."""

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
# A table as a ``LazyFrame`` of polars, which reads the table when it is collected.
#
# Polars passes the columns and the predicate of a query. The parts of the predicate that mean the
# same in LakeVilla's language are tested on the log and on the files' statistics, so that files
# without a matching row are not read; polars' own filter then sees the rows that are left.


if TYPE_CHECKING:
    import polars as pl


Frame = TypeVar("Frame")


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Return Arrow rows as a polars DataFrame."""
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
    """Return a lazy frame of a table's rows in the transaction's present state."""
    layout = executor.look(table).snapshot.layout
    schema = projection(layout, check_columns(columns))
    given = executor.optional_predicate(where, params, table)
    if given is not None:
        bind(given, layout.schema)  # raise an error here, not when the frame is collected
    empty = frame_of(schema.empty_table())
    # Several threads of polars may read one frame; a transaction belongs to one thread at a time.
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
        # with ``n_rows``, the predicate would be applied before the limit
        if predicate is not None and n_rows is None:
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
# Translate the parts of a polars predicate that mean the same as a predicate of LakeVilla.
#
# Polars serializes an expression as JSON, whose form may change with the version of polars: a part
# that has any unknown key is not translated. That is safe because a reader that uses the
# translation filters by polars' own predicate afterwards; a part that is left out only costs time.


#: A node of the JSON.
Node: TypeAlias = Any

_AND, _OR = ("And", "LogicalAnd"), ("Or", "LogicalOr")
#: A comparison of polars, with LakeVilla's operator and the one for exchanged operands.
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
    """An error for a part without an equivalent predicate of LakeVilla."""


def translated(predicate: str, schema: pa.Schema) -> Expr | None:
    """Return a predicate that is true for all rows for which polars' predicate is true.

    Parameters
    ----------
    predicate : str
        As ``polars.Expr.meta.serialize(format="json")`` writes it.
    schema : pyarrow.Schema
        The table's schema.

    Returns
    -------
    Expr or None
        None if no part of the predicate can be translated.
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
    """Translate a boolean expression; AND, OR and NOT are three-valued in both languages."""
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
            # For NULL, polars' test is false, not unknown, if the list has no NULL.
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
    """Return the Python value of a scalar; polars' JSON can't have NaN or infinities."""
    match kind, value:
        case ("Boolean", bool()) | ("String", str()) | ("Float64", float()):
            return value
        case "Float32", float():
            # the JSON has the shortest decimal that rounds to this float32
            return ctypes.c_float(value).value
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
        raise _NotTranslated  # LakeVilla's timestamp constants have at most six decimals
    try:
        instant = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise _NotTranslated from None
    return instant.replace(tzinfo=None) if zone is None else instant


def _listed(stream: list[int]) -> list[object]:
    """Return the values of a list that polars has written as an Arrow stream of one column."""
    try:
        (column,) = pa.ipc.open_stream(bytes(stream)).read_all().columns
    except (pa.ArrowException, ValueError):
        raise _NotTranslated from None
    if column.null_count or not len(column) or pa.types.is_nested(column.type):
        raise _NotTranslated  # polars compares NULL in a list like a value
    values: list[object] = column.to_pylist()
    return values


def _no() -> object:
    raise _NotTranslated
