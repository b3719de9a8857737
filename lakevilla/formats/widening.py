"""Which type a column may get in place of its own: one that holds all its values, and that readers
of the format know how to read old files as.
"""

from __future__ import annotations

from collections.abc import Callable

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.types import INTEGERS, decimal_parts, is_decimal

Widens = Callable[[str, str], bool]

#: What may become of a type, for messages.
_DELTA = {
    **dict.fromkeys(
        ("byte", "short", "integer"), "a wider integer, double or decimal(p,s) with p - s >= 10"
    ),
    "long": "decimal(p,s) with p - s >= 20",
    "float": "double",
    "date": "timestamp_ntz",
    "decimal": "a decimal with as many digits before the point, or more, and after it",
}
_ICEBERG = {
    "integer": "long",
    "float": "double",
    "decimal": "a decimal of greater precision and the same scale",
}


def in_delta(old: str, new: str) -> bool:
    """Delta's table feature typeWidening: https://github.com/delta-io/delta/blob/master/PROTOCOL.md."""
    if old in INTEGERS and new in INTEGERS:
        return INTEGERS[old] < INTEGERS[new]
    if is_decimal(new) and (old in INTEGERS or is_decimal(old)):
        precision, scale = decimal_parts(new)
        digits, places = decimal_parts(old)
        if old in INTEGERS:
            digits = 20 if old == "long" else 10
        return old != new and scale >= places and precision - scale >= digits - places
    return (old, new) in {
        ("byte", "double"),
        ("short", "double"),
        ("integer", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
    }


def in_iceberg(old: str, new: str) -> bool:
    """Iceberg's schema evolution: https://iceberg.apache.org/spec/#schema-evolution."""
    if is_decimal(old) and is_decimal(new):
        (digits, places), (precision, scale) = decimal_parts(old), decimal_parts(new)
        return scale == places and precision > digits
    return (old, new) in {("integer", "long"), ("float", "double")}


def check_widens(table: str, column: str, old: str, new: str, widens: Widens) -> None:
    """Refuse a type that does not hold what the column has, or that the format can't widen to.

    Raises
    ------
    InvalidOperation
    """
    if widens(old, new):
        return
    if old == new:
        raise InvalidOperation(
            f"column {column!r} of table {table} is {old} already: leave it out", table=table
        )
    known = _DELTA if widens is in_delta else _ICEBERG
    may = known.get("decimal" if is_decimal(old) else old)
    format_ = "Delta" if widens is in_delta else "Iceberg"
    raise InvalidOperation(
        f"column {column!r} of table {table} is {old} and can't become {new}: "
        + (f"in {format_} it may become {may}" if may else f"{format_} widens no {old}")
        + "; to change what is stored, add a column of the new type and `update` it",
        table=table,
    )
