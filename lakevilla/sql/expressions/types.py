"""Delta type names, and Iceberg's ``time``, with their Arrow types; common types of several."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from lakevilla.errors import InvalidOperation

MAX_PRECISION = 38

#: Integer types from narrow to wide: bits, and the decimal digits that hold every value.
INTEGERS: dict[str, tuple[int, int]] = {
    "byte": (8, 3),
    "short": (16, 5),
    "integer": (32, 10),
    "long": (64, 19),
}

_SCALARS: dict[str, pa.DataType] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

# Arrow has types that Delta lacks; each maps to the narrowest Delta type that holds all its values.
_BY_ID: dict[int, str] = {
    pa.null().id: "void",
    pa.bool_().id: "boolean",
    pa.int8().id: "byte",
    pa.int16().id: "short",
    pa.int32().id: "integer",
    pa.int64().id: "long",
    pa.uint8().id: "short",
    pa.uint16().id: "integer",
    pa.uint32().id: "long",
    pa.uint64().id: "decimal(20,0)",
    pa.float16().id: "float",
    pa.float32().id: "float",
    pa.float64().id: "double",
    pa.string().id: "string",
    pa.large_string().id: "string",
    pa.string_view().id: "string",
    pa.binary().id: "binary",
    pa.large_binary().id: "binary",
    pa.binary_view().id: "binary",
    pa.binary(1).id: "binary",
    pa.date32().id: "date",
    pa.date64().id: "date",
    pa.time64("us").id: "time",
}

_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_PLAIN_NAME = re.compile(r"[^`,:<>()]+")
_QUOTED_FIELD = re.compile(r"`((?:[^`]|``)+)`:(.*)", re.DOTALL)


@lru_cache(maxsize=4096)
def type_name(type_: pa.DataType) -> str:
    """Return the Delta name of an Arrow type.

    Raises
    ------
    InvalidOperation
        Delta has no such type.
    """
    if (name := _BY_ID.get(type_.id)) is not None:
        return name
    if pa.types.is_decimal(type_):
        return decimal_type(type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.tz is None else "timestamp"
    if pa.types.is_dictionary(type_):
        return type_name(type_.value_type)
    if pa.types.is_map(type_):
        return f"map<{type_name(type_.key_type)},{type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        fields = ",".join(f"{_field_name(field.name)}:{type_name(field.type)}" for field in type_)
        return f"struct<{fields}>"
    if hasattr(type_, "value_type"):  # every kind of list
        return f"array<{type_name(type_.value_type)}>"
    raise InvalidOperation(
        f"there is no Delta type for the Arrow type {type_}: cast the column to another type first"
    )


@lru_cache(maxsize=4096)
def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a Delta type name.

    Raises
    ------
    InvalidOperation
        No such type.
    """
    if (scalar := _SCALARS.get(name)) is not None:
        return scalar
    if is_decimal(name):
        precision, scale = decimal_parts(name)
        return pa.decimal128(precision, scale)
    kind, _, inner = name.removesuffix(">").partition("<")
    parts = _split(inner)
    if kind == "array" and len(parts) == 1:
        return pa.list_(arrow_type(parts[0]))
    if kind == "map" and len(parts) == 2:
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    if kind == "struct" and parts:
        return pa.struct([(field, arrow_type(type_)) for field, type_ in map(_field, parts)])
    raise InvalidOperation(f"unknown type {name!r}: use one of {', '.join(_SCALARS)}, decimal(p,s)")


def _field_name(name: str) -> str:
    """Return a field's name in a struct's type name: in backticks where it could be misread."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _field(part: str) -> tuple[str, str]:
    """Split ``name:type``."""
    if not part.startswith("`"):
        name, _, type_ = part.partition(":")
        return name, type_
    match = _QUOTED_FIELD.fullmatch(part)
    if match is None:
        raise InvalidOperation(f"{part!r} is not the field of a struct: write `name`:type")
    return match[1].replace("``", "`"), match[2]


def _split(inner: str) -> list[str]:
    """Split at the commas of the outermost level."""
    parts, depth, start, is_quoted = [], 0, 0, False
    for at, char in enumerate(inner):
        is_quoted ^= char == "`"
        if is_quoted:
            continue
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return [*parts, inner[start:]] if inner else []


def decimal_type(precision: int, scale: int) -> str:
    """Return the name of a decimal type; refuse one that Delta lacks."""
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise InvalidOperation(
            f"decimal({precision},{scale}) is out of range: precision is 1 to {MAX_PRECISION}, "
            "scale 0 to the precision; cast an operand to a smaller decimal or to double"
        )
    return f"decimal({precision},{scale})"


@lru_cache(maxsize=1024)
def decimal_parts(name: str) -> tuple[int, int]:
    """Return precision and scale of ``decimal(p,s)``, or those that hold an integer type."""
    if name in INTEGERS:
        return INTEGERS[name][1], 0
    match = _DECIMAL.fullmatch(name)
    if match is None:
        raise InvalidOperation(f"{name!r} is not a decimal type: write decimal(precision,scale)")
    precision, scale = int(match[1]), int(match[2])
    decimal_type(precision, scale)
    return precision, scale


def is_decimal(name: str) -> bool:
    return name.startswith("decimal(")


def is_whole_decimal(name: str) -> bool:
    """Return whether it is a decimal without a fraction, as sums of integers are."""
    return is_decimal(name) and name.endswith(",0)")


def is_integer(name: str) -> bool:
    return name in INTEGERS


def is_fractional(name: str) -> bool:
    """Return whether it is a binary floating-point type."""
    return name in ("float", "double")


def is_numeric(name: str) -> bool:
    return is_integer(name) or is_fractional(name) or is_decimal(name)


def is_nested(name: str) -> bool:
    return name.startswith(("struct<", "array<", "map<"))


def element_type(name: str) -> str | None:
    """Return the element type of ``array<...>``; None for other types."""
    return name[6:-1] if name.startswith("array<") else None


def common_type(*names: str) -> str | None:
    """Return the type to which all types are converted in comparisons and arithmetic; None if none.

    Integers widen. Integers and decimals become a decimal that holds both. Either becomes
    ``double`` next to a floating-point number. A date becomes a timestamp at midnight (UTC). A
    timestamp with a zone and one without have no common type.
    """
    met: str | None = "void"
    for name in names:
        met = _common(met, name)
    return met


def _common(a: str | None, b: str) -> str | None:
    if a is None or a == b or b == "void":
        return a
    if a == "void":
        return b
    if is_numeric(a) and is_numeric(b):
        return _common_number(a, b)
    if {a, b} in ({"date", "timestamp"}, {"date", "timestamp_ntz"}):
        return b if a == "date" else a
    inner_a, inner_b = element_type(a), element_type(b)
    if inner_a is not None and inner_b is not None:
        inner = _common(inner_a, inner_b)
        return None if inner is None else f"array<{inner}>"
    return None


def _common_number(a: str, b: str) -> str | None:
    if is_integer(a) and is_integer(b):
        return max(a, b, key=lambda name: INTEGERS[name])
    if is_fractional(a) or is_fractional(b):
        return "double"
    (precision_a, scale_a), (precision_b, scale_b) = decimal_parts(a), decimal_parts(b)
    scale = max(scale_a, scale_b)
    precision = max(precision_a - scale_a, precision_b - scale_b) + scale
    return decimal_type(precision, scale) if precision <= MAX_PRECISION else None
