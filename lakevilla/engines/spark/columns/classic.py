"""A ``Column`` of a classic session: the JVM's nodes, one by one, through py4j.

Only Spark's own structure of the expression is read, never its text: ``str(column)`` has lost the
text in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from lakevilla.engines.spark.columns.nodes import (
    AS_TEXT,
    Applied,
    Branches,
    CastTo,
    Constant,
    Item,
    Name,
    Node,
    beside,
    of_python,
    refused,
    spelled,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The key, in the metadata of an attribute, of the frame that it was taken from.
_FRAME = "__dataset_id"


def read(column: Any) -> Node:
    """Return the nodes of a classic ``Column``."""
    return _node(column._jc.node())


def frame_id(frame: Any) -> str:
    """Return a DataFrame's id, as ``Name.frame`` has it for a column that was taken from it."""
    return f"classic {frame._jdf.id()}"


def frame_alias(frame: Any) -> str | None:
    """Return the name that qualifies a DataFrame's columns; None if it has none, or several."""
    found = set()
    for column in _each(frame._jdf.queryExecution().analyzed().output()):
        names = list(_each(column.qualifier()))
        if names:
            found.add(str(names[-1]))
    return found.pop() if len(found) == 1 else None


def _node(node: Any) -> Node:
    kind = _kind(node)
    reader = _READERS.get(kind)
    if reader is None:
        raise beside(kind)
    return reader(node)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(seq: Any) -> Iterator[Any]:
    for at in range(seq.size()):
        yield seq.apply(at)


def _name(node: Any) -> Node:
    return Name(tuple(map(str, _each(node.nameParts()))))


def _function(node: Any) -> Node:
    name = str(node.functionName())
    if node.isUserDefinedFunction():
        raise refused(f"the function {name}()", AS_TEXT)
    if node.isDistinct():
        raise beside("Window")
    return Applied(name, tuple(map(_node, _each(node.arguments()))))


def _cast(node: Any) -> Node:
    mode = node.evalMode()
    if mode.isDefined() and "Ansi" not in str(mode.get().toString()):
        raise refused("try_cast", "cast what fits, within F.when")
    return CastTo(_node(node.child()), str(node.dataType().catalogString()))


def _chosen(node: Any) -> Node:
    branches = tuple((_node(pair._1()), _node(pair._2())) for pair in _each(node.branches()))
    rest = node.otherwise()
    return Branches(branches, _node(rest.get()) if rest.isDefined() else None)


def _item(node: Any) -> Node:
    return Item(_node(node.child()), _node(node.extraction()))


def _constant(node: Any) -> Node:
    value = node.value()
    if node.dataType().isDefined():
        raise refused("a literal of a declared type", "pass a Python value, or cast it")
    if value is None or isinstance(value, bool | str | float | bytes | bytearray | int | Decimal):
        return of_python(value)
    kind = _kind(value)
    # Spark decides the meaning of the JVM's own types: it knows their calendars.
    times = _jvm().org.apache.spark.sql.catalyst.util.DateTimeUtils
    try:
        if kind == "Date":
            return Constant(date(1970, 1, 1) + timedelta(days=times.fromJavaDate(value)), "date")
        if kind == "Timestamp":
            micros = times.fromJavaTimestamp(value)
            return Constant(_EPOCH + timedelta(microseconds=micros), "timestamp")
    except OverflowError:
        raise refused("a timestamp beyond the years 1 to 9999", "pass one within them") from None
    raise refused(f"a literal of type {kind}", AS_TEXT)


def _jvm() -> Any:
    from pyspark.sql.utils import get_active_spark_context

    context: Any = get_active_spark_context()
    return context._jvm


def _attribute(node: Any) -> Node:
    return _expression(node.expression())


def _expression(expression: Any) -> Name:
    """Return a resolved attribute, or a field of one, such as ``frame["a.b"]``."""
    kind = _kind(expression)
    if kind == "Alias":
        return _expression(expression.child())
    if kind == "GetStructField":
        outer = _expression(expression.child())
        return Name((*outer.parts, str(expression.extractFieldName())), outer.frame)
    if kind != "AttributeReference":
        raise beside(kind)
    metadata, name = expression.metadata(), str(expression.name())
    if not metadata.contains(_FRAME):
        raise refused(
            f"column {name} of a DataFrame",
            f"it does not say of which: write F.col({spelled((name,))!r})",
        )
    return Name((name,), f"classic {metadata.getLong(_FRAME)}")


_READERS: dict[str, Callable[[Any], Node]] = {
    "UnresolvedAttribute": _name,
    "UnresolvedFunction": _function,
    "Literal": _constant,
    "Cast": _cast,
    "CaseWhenOtherwise": _chosen,
    "UnresolvedExtractValue": _item,
    "Alias": lambda node: _node(node.child()),
    "ExpressionColumnNode": _attribute,
}
