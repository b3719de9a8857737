"""Translate the parts of an Arrow filter that mean the same as a predicate of LakeVilla.

``columns_of`` returns the columns that a filter reads.

Only the pickled form of an Arrow expression shows its structure: an Arrow stream whose metadata has
the tree, from the root on, and whose columns have the constants. Parts that this module does not
know are not translated. That is safe because a reader that uses the translation filters by Arrow's
own expression afterwards.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal

__all__ = ["columns_of", "translated"]

# See docs/upstream.md, "An expression does not show its parts".

#: A call of an Arrow function with operands and options; the name of a column; or a constant.
_Node: TypeAlias = "tuple[str, list[Any], Any] | str | pa.Scalar | None"

_COMPARED = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_JOINED = {"and_kleene": "and", "or_kleene": "or"}
#: The keys of an expression's metadata; only the second and third name columns and fields.
_KEYS = {"call", "field_ref", "nested_field_ref", "literal", "options", "end"}


class _NotTranslated(Exception):
    """An error for an expression without an equivalent predicate of LakeVilla."""


def translated(expression: Any, schema: pa.Schema) -> Expr | None:
    """Return a predicate that is true for all rows for which Arrow's expression is true.

    Return None if no part of the expression can be translated.
    """
    try:
        root = _tree(expression)
    except (_NotTranslated, pa.ArrowException):
        return None
    found = []
    for part in _conjuncts(root):
        try:
            found.append(bind(_predicate(part), schema))
        except (_NotTranslated, InvalidOperation):
            continue
    return reduce(lambda left, right: Call("and", (left, right)), found) if found else None


def columns_of(expression: Any, schema: pa.Schema) -> list[str]:
    """Return the columns that Arrow's expression reads, in the schema's order, or more of them.

    A field of a struct that has a column's name counts as the column. If the expression has parts
    that this module does not know, all columns are returned.
    """
    try:
        entries = _entries(_batch(expression).schema)
    except (_NotTranslated, pa.ArrowException):
        return list(schema.names)
    if not {key for key, _ in entries} <= _KEYS:
        return list(schema.names)
    named = {value for key, value in entries if key == "field_ref"}
    return [name for name in schema.names if name in named]


def _conjuncts(node: _Node) -> Iterator[_Node]:
    match node:
        case ("and_kleene", [left, right], _):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield node


def _predicate(node: _Node) -> Expr:
    match node:
        case (str(name), [left, right], _) if name in _JOINED:
            return Call(_JOINED[name], (_predicate(left), _predicate(right)))
        case ("invert", [operand], _):
            return Call("not", (_predicate(operand),))
        case (str(name), [str(column), pa.Scalar() as value], _) if name in _COMPARED:
            return Call(_COMPARED[name], (Column((column,)), _constant(value)))
        case ("is_null", [str(column)], {"nan_is_null": False}):
            return Call("is_null", (Column((column,)),))
        case ("is_valid", [str(column)], _):
            return _is_valid(column)
        case ("is_in", [str(column)], {"value_set": [*values]}) if values:
            within = Call("in", (Column((column,)), *map(_literal, values)))
            # for NULL, Arrow's ``is_in`` is false, not unknown
            return Call("and", (within, _is_valid(column)))
        case str(column):
            return Column((column,))
    raise _NotTranslated


def _is_valid(column: str) -> Expr:
    return Call("not", (Call("is_null", (Column((column,)),)),))


def _constant(value: pa.Scalar) -> Expr:
    return _literal(value.as_py())


def _literal(value: object) -> Expr:
    """Translate a value, but neither None nor NaN, which compare differently in Arrow."""
    if value is None or isinstance(value, float):
        raise _NotTranslated
    return literal(value)


def _tree(expression: Any) -> _Node:
    batch = _batch(expression)
    entries = deque(_entries(batch.schema))
    node = _next(entries, [column[0] for column in batch.columns])
    if entries:
        raise _NotTranslated
    return node


def _batch(expression: Any) -> pa.RecordBatch:
    _, (stream,) = expression.__reduce__()
    return pa.ipc.open_file(stream).get_batch(0)


def _next(entries: deque[tuple[str, str]], constants: Sequence[pa.Scalar]) -> _Node:
    """Return the tree that begins at the next entry, and consume its entries."""
    if not entries:
        raise _NotTranslated
    key, value = entries.popleft()
    match key:
        case "field_ref":
            return value
        case "nested_field_ref":
            for _ in range(int(value)):
                _next(entries, constants)
            return None
        case "literal":
            return constants[int(value)]
        case "call":
            return _call(value, entries, constants)
    raise _NotTranslated


def _call(name: str, entries: deque[tuple[str, str]], constants: Sequence[pa.Scalar]) -> _Node:
    operands: list[_Node] = []
    options = None
    while entries and entries[0][0] not in ("end", "options"):
        operands.append(_next(entries, constants))
    if entries and entries[0][0] == "options":
        options = constants[int(entries.popleft()[1])].as_py()
    if not entries or entries.popleft() != ("end", name):
        raise _NotTranslated
    return name, operands, options


class _CSchema(ctypes.Structure):
    """The first fields of a schema in Arrow's C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _entries(schema: pa.Schema) -> list[tuple[str, str]]:
    """Return a schema's metadata in order, with repeated keys, which pyarrow's mapping drops."""
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = _CSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not address:
        raise _NotTranslated
    index = 0

    def number() -> int:
        nonlocal index
        (found,) = struct.unpack("=i", ctypes.string_at(address + index, 4))
        index += 4
        return int(found)

    def text() -> str:
        nonlocal index
        length = number()
        found = ctypes.string_at(address + index, length).decode()
        index += length
        return found

    return [(text(), text()) for _ in range(number())]
