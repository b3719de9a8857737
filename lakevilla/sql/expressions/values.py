"""Constants: from Python values to ``Literal`` and back, and the effect of a cast on a value.

Values in Python: None, bool, int, float, Decimal (its exponent is the type's scale), str, bytes,
date, time, aware datetime in UTC (``timestamp``), naive datetime (``timestamp_ntz``), list, dict. A
UUID is its bytes.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from decimal import InvalidOperation as _DecimalError
from uuid import UUID  # noqa: TID251 (the type alone: none is made here)

from lakevilla.arrow.scalars import plain
from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode, shown
from lakevilla.sql.expressions.tree import Call, Expr, Literal
from lakevilla.sql.expressions.types import (
    INTEGERS,
    MAX_PRECISION,
    arrow_type,
    decimal_parts,
    decimal_type,
    element_type,
    is_decimal,
    is_fractional,
    is_nested,
    is_numeric,
    type_name,
)

#: Exact for every product of two decimals that Delta can hold.
DECIMAL_CONTEXT = Context(prec=120, Emin=-999_999, Emax=999_999)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity")
#: Dates from year 1, which is the first.
_DAY = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-[0-9]{2}-[0-9]{2}"
_DATE = re.compile(_DAY)
_TIMESTAMP = re.compile(
    rf"(?P<date>{_DAY})"
    r"([ T](?P<time>(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2})(\.(?P<fraction>[0-9]{1,6}))?"
    r"(?P<zone>Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)?)?"
)

#: The form that a string must have to be cast to a type: the strictest one, so that no engine's
#: leniency has an effect.
STRING_FORMS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(INTEGERS, _INTEGER),
    "decimal": _DECIMAL,
    "float": _DOUBLE,
    "double": _DOUBLE,
    "boolean": re.compile(r"true|false"),
    "date": _DATE,
    "time": re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
    "timestamp": _TIMESTAMP,
    "timestamp_ntz": re.compile(re.sub(r"\(\?P<zone>.*?\)\?", "", _TIMESTAMP.pattern)),
}


def literal(value: object, what: str = "a value") -> Expr:
    """Return a value as a constant.

    It is a ``Literal``, an ``array`` call for several values, ``struct`` or ``map`` for a mapping.

    Parameters
    ----------
    value : object
        A value that ``arrow.scalars.plain`` accepts.
    what : str
        The name of the value, for messages.

    Raises
    ------
    InvalidOperation
        A value of another type, or one that no column could hold.
    """
    value = plain(value, what, nested=True)
    if isinstance(value, dict):
        return _mapping(value, what)
    if isinstance(value, list):
        return Call("array", tuple(literal(item, what) for item in value))
    if isinstance(value, bool):
        return literal_of("boolean", value)
    if isinstance(value, int):
        return _integer_literal(int(value), what)
    if isinstance(value, Decimal):
        return _decimal_literal(value, what)
    if isinstance(value, datetime):
        return literal_of("timestamp_ntz" if value.tzinfo is None else "timestamp", value)
    if isinstance(value, time) and value.tzinfo is None:
        return literal_of("time", value)
    if isinstance(value, str) and not is_unicode(value):
        raise InvalidOperation(
            f"{what} is {shown(value)}, which has half of a surrogate pair: take it out"
        )
    for class_, name in ((float, "double"), (date, "date"), (str, "string")):
        if isinstance(value, class_):
            return literal_of(name, value)
    if isinstance(value, UUID):
        return literal_of("binary", value.bytes)
    if isinstance(value, bytes):
        return literal_of("binary", value)
    if value is None:
        return Literal("void")
    raise InvalidOperation(
        f"{what} is a {type(value).__name__} with a zone, which no column holds: remove the zone"
    )


#: The tree of a mapping without entries: it names no field and has no type.
EMPTY_MAP = Call("map", (Call("array", ()), Call("array", ())))


def _mapping(value: dict[object, object], what: str) -> Expr:
    """Return a struct, if each key may be the name of a field; else a map."""
    names = {key.lower() for key in value if isinstance(key, str) and key}
    if 0 < len(value) == len(names):
        pairs = [(literal(key, what), literal(one, what)) for key, one in value.items()]
        return Call("struct", tuple(part for pair in pairs for part in pair))
    sides = (value.keys(), value.values())
    return Call(
        "map", tuple(Call("array", tuple(literal(one, what) for one in side)) for side in sides)
    )


def _integer_literal(value: int, what: str) -> Literal:
    if -(2**63) <= value < 2**63:
        return Literal("long", str(value))
    return _decimal_literal(Decimal(value), what)


def _decimal_literal(value: Decimal, what: str) -> Literal:
    if not value.is_finite():
        raise InvalidOperation(
            f"{what} is {value!r}, which no decimal column holds: pass "
            f"float({str(value).lower()!r}), or None"
        )
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > MAX_PRECISION:
        raise InvalidOperation(
            f"{what} is {shown(value)}, which has more than {MAX_PRECISION} digits: round it, or "
            "pass a float"
        )
    return literal_of(decimal_type(precision, scale), value)


def literal_of(type_: str, value: object) -> Literal:
    """Return a value, already of the type, as a literal with the type's canonical text."""
    if value is None:
        return Literal(type_)
    if isinstance(value, bool):
        return Literal(type_, "true" if value else "false")
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return Literal(type_, _text(value.astimezone(UTC).replace(tzinfo=None)) + "Z")
        return Literal(type_, _text(value))
    if isinstance(value, float):
        return Literal(type_, _float_text(value))
    if isinstance(value, Decimal):
        return Literal(type_, format(_rescaled(value, decimal_parts(type_)[1]), "f"))
    if isinstance(value, bytes):
        return Literal(type_, value.hex())
    return Literal(type_, str(value))


def _text(value: datetime) -> str:
    return value.isoformat(sep=" ")


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def value_of(constant: Literal) -> object:
    """Return the Python value of a literal."""
    text, type_ = constant.value, constant.type
    if text is None:
        return None
    if type_ == "string":
        return text
    if type_ == "binary":
        return bytes.fromhex(text)
    return cast_value(text, type_)


def adapt(constant: Literal, type_: str) -> Literal | None:
    """Return the literal as one of ``type_`` with the same meaning; None if there is none.

    Numbers must be representable, except that a decimal constant becomes the nearest number of a
    floating-point column's type. Strings become dates and timestamps.

    Raises
    ------
    InvalidOperation
        A string that is no date or timestamp.
    """
    if constant.value is None:
        return Literal(type_) if constant.type in ("void", type_) else None
    source = constant.type
    if source == type_ and source != "timestamp":
        return constant
    value = value_of(constant)
    if is_numeric(source) and is_numeric(type_):
        return _adapt_number(value, source, type_)
    instants = ("date", "timestamp", "timestamp_ntz")
    if source == "timestamp" and type_ == "timestamp_ntz":
        # Text without a zone means UTC for a column with a zone, and itself for a column without
        # one.
        return None if constant.value.endswith("Z") else Literal(type_, constant.value)
    if type_ in instants and source in ("string", "date", type_):
        return literal_of(type_, cast_value(value, type_))
    if type_ == "time" and source == "string":
        return literal_of(type_, cast_value(value, type_))
    return None


def _adapt_number(value: object, source: str, type_: str) -> Literal | None:
    try:
        adapted = cast_value(value, type_)
    except InvalidOperation:
        return None
    nearest = is_fractional(type_) and is_decimal(source)
    return literal_of(type_, adapted) if nearest or _same_number(value, adapted) else None


def _same_number(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return a == b  # Python compares int, float and Decimal exactly


def name_of_value(value: object) -> str:
    """Return the kind of a value, for messages."""
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo else "timestamp_ntz"
    names = {bool: "boolean", int: "long", float: "double", Decimal: "decimal", str: "string"}
    return names.get(type(value), type(value).__name__)


def cast_value(value: object, type_: str) -> object:
    """Return a value cast to a type: the meaning of ``cast(... as type)``.

    In a cast to an integer the fraction is cut off; to a decimal it is rounded half away from zero;
    a string must have the strict form of the type.

    Raises
    ------
    InvalidOperation
        The value does not fit, or the string is malformed.
    """
    if value is None or type_ == "void":
        return None
    if (element := element_type(type_)) is not None and isinstance(value, list):
        return [cast_value(item, element) for item in value]
    if is_nested(type_):
        return _cast_nested(value, type_)
    kind = "decimal" if is_decimal(type_) else type_
    if isinstance(value, str) and kind in STRING_FORMS and not STRING_FORMS[kind].fullmatch(value):
        raise _cannot_cast(value, type_)
    try:
        return _CASTS[kind](value, type_)
    except (ValueError, OverflowError, TypeError, KeyError, _DecimalError):
        raise _cannot_cast(value, type_) from None


def _cast_nested(value: object, type_: str) -> object:
    to = arrow_type(type_)
    if isinstance(value, dict) and type_.startswith("struct<"):
        known = {name.lower(): item for name, item in value.items()}
        return {
            field.name: cast_value(known.get(field.name.lower()), type_name(field.type))
            for field in to
        }
    if isinstance(value, list) and type_.startswith("map<"):
        key, item = type_name(to.key_type), type_name(to.item_type)
        return [(cast_value(k, key), cast_value(v, item)) for k, v in value]
    raise _cannot_cast(value, type_)


def _cannot_cast(value: object, type_: str) -> InvalidOperation:
    shown = repr(value) if len(repr(value)) < 100 else repr(value)[:97] + "..."
    return InvalidOperation(
        f"cannot cast {name_of_value(value)} {shown} to {type_}: correct the value, or leave such "
        "rows out with a case expression"
    )


def _to_boolean(value: object, type_: str) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value == "true"
    raise TypeError


def _to_integer(value: object, type_: str) -> object:
    if not isinstance(value, bool | int | float | Decimal | str):
        raise TypeError
    number = int(value)  # cuts towards zero; NaN and infinity raise
    if not -(2 ** (INTEGERS[type_][0] - 1)) <= number < 2 ** (INTEGERS[type_][0] - 1):
        raise OverflowError
    return number


def _to_decimal(value: object, type_: str) -> object:
    if isinstance(value, float):
        number = Decimal(repr(value))
    elif isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        number = Decimal(value)
    else:
        raise TypeError
    precision, scale = decimal_parts(type_)
    number = _rescaled(number, scale)
    if number.is_nan() or number.scaleb(scale, DECIMAL_CONTEXT).copy_abs() >= 10**precision:
        raise OverflowError
    return number


def _rescaled(value: Decimal, scale: int) -> Decimal:
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, DECIMAL_CONTEXT)
    return rounded if rounded else rounded.copy_abs()  # decimals have no negative zero


def _to_float(value: object, type_: str) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError
    number = float(value)
    if type_ == "double":
        return number
    narrow = ctypes.c_float(number).value
    if math.isinf(narrow) and not math.isinf(number):
        raise OverflowError
    return narrow


def _to_string(value: object, type_: str) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str | int) or (
        isinstance(value, date) and not isinstance(value, datetime)
    ):
        return str(value)
    raise TypeError


def _to_binary(value: object, type_: str) -> object:
    if isinstance(value, bytes):
        return value
    raise TypeError


def _to_date(value: object, type_: str) -> object:
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).date()
    return value if isinstance(value, date) else date.fromisoformat(_as_string(value))


def _to_time(value: object, type_: str) -> object:
    return value if isinstance(value, time) else time.fromisoformat(_as_string(value))


def _to_timestamp(value: object, type_: str) -> object:
    zoned = type_ == "timestamp"
    if isinstance(value, str):
        value = parse_timestamp(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise TypeError
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC) if zoned else value
    value = value.astimezone(UTC)
    return value if zoned else value.replace(tzinfo=None)


def _as_string(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError


def parse_timestamp(text: str) -> datetime:
    """Return an ISO 8601 date or time with up to six decimals; aware if a zone is written.

    Raises
    ------
    ValueError
        It does not have that form.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    instant = datetime.fromisoformat(f"{match['date']}T{match['time'] or '00:00:00'}")
    instant += timedelta(microseconds=int((match["fraction"] or "").ljust(6, "0") or 0))
    zone = match["zone"]
    if zone is None:
        return instant
    return datetime.fromisoformat(
        instant.isoformat() + ("+00:00" if zone == "Z" else zone)
    ).astimezone(UTC)


_CASTS: dict[str, Callable[[object, str], object]] = {
    "boolean": _to_boolean,
    **dict.fromkeys(INTEGERS, _to_integer),
    "decimal": _to_decimal,
    "float": _to_float,
    "double": _to_float,
    "string": _to_string,
    "binary": _to_binary,
    "date": _to_date,
    "time": _to_time,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp,
}
