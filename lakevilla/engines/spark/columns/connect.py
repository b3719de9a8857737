"""A ``Column`` of a Spark Connect client: the plan that it would send to the server."""

from __future__ import annotations

from collections.abc import Callable
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
    too_deep,
)
from lakevilla.sql.expressions.types import decimal_parts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(column: Any, client: Any) -> Node:
    """Return the nodes of a ``Column`` of Connect; ``client`` belongs to its session."""
    try:
        plan = column._expr.to_plan(client)
    except Exception as error:
        if type(error).__name__ not in ("DecodeError", "RecursionError"):
            raise
        raise too_deep() from None  # a message of protobuf nests about a hundred deep
    return _node(plan)


def frame_id(frame: Any) -> str:
    """Return a DataFrame's id, as ``Name.frame`` has it for a column that was taken from it."""
    return f"connect {frame._plan._plan_id}"


def frame_alias(frame: Any) -> str | None:
    """Return the name that a DataFrame's ``alias`` has given it; None if that was not the last
    call.
    """
    alias = getattr(frame._plan, "_alias", None)
    return alias if isinstance(alias, str) else None


def _node(expr: Any) -> Node:
    kind = expr.WhichOneof("expr_type")
    reader = _READERS.get(kind)
    if reader is None:
        raise beside(_BESIDE.get(kind, str(kind)))
    return reader(getattr(expr, kind))


def _name(attribute: Any) -> Node:
    frame = f"connect {attribute.plan_id}" if attribute.HasField("plan_id") else None
    return Name(parts_of(attribute.unparsed_identifier), frame)


def parts_of(text: str) -> tuple[str, ...]:
    """Return the names in ``a.b`` or ``a.`b.c```, as Spark reads a column's name."""
    parts, at = [], 0
    while True:
        if text[at : at + 1] == "`":
            name = ""
            while True:
                end = text.find("`", at + 1)
                if end < 0:
                    raise refused(f"the name {text!r}", "close its backtick")
                name += text[at + 1 : end]
                at = end + 1
                if text[at : at + 1] != "`":
                    break
                name += "`"
        else:
            end = text.find(".", at)
            name = text[at:] if end < 0 else text[at:end]
            at += len(name)
        parts.append(name)
        if at == len(text):
            break
        if text[at] != ".":
            raise refused(f"the name {text!r}", "put a name with backticks in backticks")
        at += 1
    if not all(parts):
        raise refused(f"the name {text!r}", "put names between its dots")
    return tuple(parts)


def _function(call: Any) -> Node:
    name = call.function_name
    if call.is_user_defined_function:
        raise refused(f"the function {name}()", AS_TEXT)
    if call.is_distinct:
        raise beside("Window")
    args = tuple(map(_node, call.arguments))
    if name == "when":
        pairs = tuple(zip(args[::2], args[1::2], strict=False))
        return Branches(pairs, args[-1] if len(args) % 2 else None)
    return Applied(name, args)


def _cast(cast: Any) -> Node:
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

    if cast.eval_mode not in (0, cast.EVAL_MODE_ANSI):
        raise refused("try_cast", "cast what fits, within F.when")
    if cast.WhichOneof("cast_to_type") == "type_str":
        return CastTo(_node(cast.expr), cast.type_str)
    return CastTo(_node(cast.expr), proto_schema_to_pyspark_data_type(cast.type).simpleString())


def _item(item: Any) -> Node:
    return Item(_node(item.child), _node(item.extraction))


_WHOLE = ("byte", "short", "integer", "long")


def _constant(literal: Any) -> Node:
    kind = literal.WhichOneof("literal_type")
    value = getattr(literal, kind)
    if kind == "null":
        return Constant(None, "void")
    if kind in (*_WHOLE, "boolean", "string", "binary", "double", "float"):
        return Constant(value, kind)
    if kind == "decimal":
        # The server uses the declared type, and more digits where the value has them.
        found = Decimal(value.value)
        precision, scale = decimal_parts(of_python(found).type)
        scale = max(scale, value.scale)
        return Constant(found, f"decimal({max(precision, value.precision, scale)},{scale})")
    try:
        if kind == "date":
            return Constant(date(1970, 1, 1) + timedelta(days=value), "date")
        if kind in ("timestamp", "timestamp_ntz"):
            instant = _EPOCH + timedelta(microseconds=value)
            return Constant(instant.replace(tzinfo=None) if kind.endswith("ntz") else instant, kind)
    except OverflowError:
        raise refused("a timestamp beyond the years 1 to 9999", "pass one within them") from None
    if kind in ("array", "specialized_array"):
        raise refused("a literal of an array", "write F.array(F.lit(...), ...)")
    raise refused(f"a literal of type {kind}", AS_TEXT)


_READERS: dict[str | None, Callable[[Any], Node]] = {
    "unresolved_attribute": _name,
    "unresolved_function": _function,
    "literal": _constant,
    "cast": _cast,
    "unresolved_extract_value": _item,
    "alias": lambda alias: _node(alias.expr),
}
_BESIDE = {
    "expression_string": "SqlExpression",
    "sort_order": "SortOrder",
    "window": "Window",
    "lambda_function": "LambdaFunction",
    "unresolved_named_lambda_variable": "UnresolvedNamedLambdaVariable",
    "common_inline_user_defined_function": "PythonUDF",
    "unresolved_star": "UnresolvedStar",
    "unresolved_regex": "UnresolvedRegex",
    "update_fields": "UpdateFields",
    "subquery_expression": "SubqueryExpression",
    "call_function": "CallFunction",
}
