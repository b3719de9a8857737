"""Functions of lists, structs and maps, and of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.functions.declaring import (
    Function,
    Resolution,
    WrongTypes,
    constant_text,
)
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

# -------------------- nested
#
# Functions of arrays and maps.
#
# A field of a struct is a column (``a.b``) and follows its field through renames. A field of an
# array's element would be found by its name alone, and would be another field once two fields have
# swapped their names: there is no function for it.


def _met(arg: Expr, type_: str, element: str) -> str:
    """Return the common type of an operand and the elements; a constant takes theirs if it can."""
    if isinstance(arg, Literal) and adapt(arg, element) is not None:
        return element
    met = common_type(type_, element)
    if met is None or is_nested(met):
        raise WrongTypes(f"{element} with array<{element}>")
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


#: The meaning of each function for operands that are not NULL.
NESTED_MEANINGS: dict[str, Callable[..., Any]] = {
    "get": _got,
    "element_at": _element,
    "size": len,
    "array_contains": _holds,
}


# -------------------- json text
#
# JSON as text: the text of a struct, and one value of a document.


_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]{1,6}\])*")
_STEP = re.compile(r"\.(\w+)|\[([0-9]+)\]")
_PLAIN_NAME = re.compile(r"\w+")
_WRITTEN = "a struct or an array of strings, booleans, whole numbers, dates, and of such"


def _check_written(type_: str) -> None:
    """Refuse types that engines write in several ways."""
    if (element := element_type(type_)) is not None:
        _check_written(element)
    elif type_.startswith("struct<"):
        for field in arrow_type(type_):
            if not _PLAIN_NAME.fullmatch(field.name):
                raise WrongTypes(f"fields with plain names, not {field.name!r}")
            _check_written(type_name(field.type))
    elif type_ not in ("string", "boolean", "date") and not is_integer(type_):
        raise WrongTypes(f"{_WRITTEN}; engines write {type_} in several ways")


def _to_json(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if not types[0].startswith(("struct<", "array<")):
        raise WrongTypes(_WRITTEN)
    _check_written(types[0])
    return types, "string"


def _get(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    if types[0] not in ("string", "void"):
        raise WrongTypes("a string")
    path = constant_text(args[1], "a constant path")
    if not _PATH.fullmatch(path) or path == "$":
        raise WrongTypes(f"a path of plain names and numbers, such as '$.a.b[0]', not {path!r}")
    return ["string", "string"], "string"


JSON: dict[str, Function] = {
    "to_json": Function("to_json(a)", "string", "without spaces, and without fields that are NULL; "
                        f"of {_WRITTEN}", 1, 1, _to_json,
                        duckdb="to_json(a), with fields that are NULL"),
    "get_json_object": Function("get_json_object(a, '$.b[0]')", "string", "a string as its text, a "
                                "number as the shortest (raises for one with a fraction below "
                                "0.001 or from 10,000,000 on); NULL if there is none, and if a is "
                                "no JSON; raises for an object or array", 2, 2, _get, raises=True,
                                duckdb="json_extract_string(a, '$.b[0]')"),
}  # fmt: skip


def _written(value: Any) -> str:
    if isinstance(value, dict):
        fields = (f'"{name}":{_written(item)}' for name, item in value.items() if item is not None)
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    if isinstance(value, date):
        return f'"{value}"'
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"\\u00([0-9a-f]{2})|\\.", lambda m: m[0][:2] + m[0][2:].upper(), text)


#: Pairs of surrogates, and escapes that are no character's number.
_PAIRS = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[^u]")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")


def _document(text: str) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        It is no JSON.
    """
    if _HALVES.search(_PAIRS.sub("", text)):
        raise ValueError

    def number(digits: str) -> int | float:
        if len(digits) < 21 and -(2**63) <= int(digits) < 2**64:
            return int(digits)
        return float(digits)

    def first(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            found.setdefault(name, value)
        return found

    def refused(_: str) -> Any:
        raise ValueError

    return json.loads(text, parse_int=number, object_pairs_hook=first, parse_constant=refused)


def _got_of_json(text: str, path: str) -> str | None:
    try:
        value = _document(text)
    except ValueError:
        return None
    except RecursionError:
        raise InvalidOperation(f"{text[:100]!r}... is nested too deeply: leave it out") from None
    for name, at in _STEP.findall(path):
        if name:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            inside = isinstance(value, list) and int(at) < len(value)
            value = value[int(at)] if inside else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (value == 0 or 0.001 <= abs(value) < 10_000_000):
        return repr(value)
    if value is None or isinstance(value, str | int):
        return None if value is None else str(value)
    raise InvalidOperation(
        f"{path} of {text[:100]!r} is an object, an array or a number with an exponent: name one "
        "of its parts, or leave such rows out with a case expression"
    )


#: The meaning of each function for operands that are not NULL.
JSON_MEANINGS: dict[str, Callable[..., Any]] = {
    "to_json": _written,
    "get_json_object": _got_of_json,
}
