"""Functions of arrays and maps.

A field of a struct is a column (``a.b``) and follows its field through renames. One of an
array's element would go by its name alone, and find another field once names have changed
places: there is no function for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lakevilla.sql.expressions.functions.declaring import Function, Resolution, WrongTypes
from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.types import (
    arrow_type,
    common_type,
    element_type,
    is_integer,
    is_nested,
    type_name,
)
from lakevilla.sql.expressions.values import adapt


def _met(arg: Expr, type_: str, element: str) -> str:
    """The type in which an operand meets the elements; a constant takes theirs if it can."""
    if isinstance(arg, Literal) and adapt(arg, element) is not None:
        return element
    met = common_type(type_, element)
    if met is None or is_nested(met):
        raise WrongTypes(f"{element} beside array<{element}>")
    return met


def _item(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    element = element_type(types[0])
    if element is not None:
        if not is_integer(types[1]) and types[1] != "void":
            raise WrongTypes("an array and an integer, or a map and a key")
        return [types[0], "long"], element
    if not types[0].startswith("map<"):
        raise WrongTypes("an array and an integer, or a map and a key")
    map_type = arrow_type(types[0])
    key = type_name(map_type.key_type)
    if _met(args[1], types[1], key) != key:
        raise WrongTypes(f"a key of type {key}")
    return [types[0], key], type_name(map_type.item_type)


def _contains(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    element = element_type(types[0])
    if types[0] == "void":
        return [f"array<{types[1]}>", types[1]], "boolean"
    if element is None or is_nested(element):
        raise WrongTypes("an array of values that have an order, and a value")
    met = _met(args[1], types[1], element)
    return [f"array<{met}>", met], "boolean"


def _counted(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if not types[0].startswith(("array<", "map<")):
        raise WrongTypes("an array or a map")
    return types, "long"


NESTED: dict[str, Function] = {
    "get": Function("a[i]", "element", "also get(a, i): of an array the element at i, counted "
                    "from 0; of a map the value of a key; NULL if there is none", 2, 2, _item,
                    spark="get(a, i); a[i] raises if there is none",
                    duckdb="a[i + 1]; of a map a[i]"),
    "element_at": Function("element_at(a, i)", "element", "of an array counted from 1, from the "
                           "end if i < 0 (0 raises); of a map the value of a key; NULL if there is "
                           "none", 2, 2, _item, raises=True,
                           spark="try_element_at(a, i)", duckdb="a[i]"),
    "size": Function("size(a)", "long", "of an array or map; NULL for NULL; also array_size, "
                     "array_length, cardinality", 1, 1, _counted, spark="array_size(a)",
                     duckdb="len(a)"),
    "array_contains": Function("array_contains(a, b)", "boolean", "NULL if b is nowhere and some "
                               "element is NULL; also list_contains", 2, 2, _contains,
                               duckdb="list_contains(a, b)"),
}  # fmt: skip


def _is_map(value: list[Any]) -> bool:
    return bool(value) and isinstance(value[0], tuple)


def _of_key(value: list[Any], key: Any) -> Any:
    return next((item for own, item in value if own == key), None)


def _got(value: list[Any], at: Any) -> Any:
    if _is_map(value):
        return _of_key(value, at)
    return value[at] if isinstance(at, int) and 0 <= at < len(value) else None


def _element(value: list[Any], at: Any) -> Any:
    if not value or _is_map(value):
        return _of_key(value, at)
    if at == 0:
        raise ValueError
    return _got(value, at - 1 if at > 0 else len(value) + at)


def _holds(value: list[Any], wanted: Any) -> bool | None:
    if any(item is not None and (item == wanted or _both_nan(item, wanted)) for item in value):
        return True
    return None if None in value else False


def _both_nan(a: Any, b: Any) -> bool:
    return bool(a != a and b != b)


#: What each means for operands that are not NULL.
NESTED_MEANINGS: dict[str, Callable[..., Any]] = {
    "get": _got,
    "element_at": _element,
    "size": len,
    "array_contains": _holds,
}
