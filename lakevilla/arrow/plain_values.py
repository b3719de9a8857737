"""Plain Python values as Arrow arrays: all values of a column must be of one kind.

Arrow infers the type from the first values and forces the others into it: a datetime after a date
loses its time of day, ``True`` after ``1.5`` becomes 1.0, a number after a date becomes a day of
1970. So the kinds are compared first, also within lists and dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.unkept import refuse_zoned_times
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

AnyArray = TypeVar("AnyArray", pa.Array, pa.ChunkedArray)

# docs/upstream.md, "The first value of a column decides what the others become"
#: Kinds of values by their types: of a subclass before its base.
_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("timedelta", (timedelta, np.timedelta64)),
    ("int", (int, np.integer)),
    ("float", (float, np.floating)),
    ("Decimal", (Decimal,)),
    ("str", (str,)),
    ("bytes", (bytes, bytearray, memoryview)),
    ("datetime", (datetime,)),
    ("datetime64", (np.datetime64,)),
    ("date", (date,)),
    ("time", (time,)),
    ("dict", (Mapping,)),
    ("list", (list, tuple, np.ndarray)),
)
#: Kinds that one column may have: Arrow converts whole numbers without loss, or raises.
_TOGETHER = ({"int", "float"}, {"int", "Decimal"})


def inferred(values: Sequence[object], name: str) -> pa.Array:
    """Return plain Python values in the one type that they have; NaT and NA of pandas are NULL.

    Raises
    ------
    InvalidOperation
        They have none, or one has a zone or nanoseconds that would be lost.
    """
    return _array(of_one_kind(values, name), name)


def single_precision(found: AnyArray, target: pa.DataType) -> AnyArray:
    """Return numbers in single precision where ``target`` has it at the same place.

    They are unchanged if one is beyond its range.
    """
    wanted = _of_single_precision(found.type, target)
    if wanted.equals(found.type):
        return found
    single = found.cast(wanted, safe=False)
    return found if _has_overflowed(found, single) else single


def with_floats_of(
    values: Sequence[object], target: pa.DataType, name: str
) -> tuple[Sequence[object], pa.Array]:
    """Return values of one kind, and the array of them, in ``target``'s precision of floats.

    A Python float is a number without a declared precision. One that is beyond the range of a
    column of single precision keeps the double one, which no column of single precision takes.
    """
    values = of_one_kind(values, name)
    return values, single_precision(_array(values, name), target)


def _array(values: Sequence[object], name: str) -> pa.Array:
    try:
        array = pa.array(values)
    except OverflowError:
        raise InvalidOperation(
            f"column {name!r} of the data has a whole number of more than 64 bits: pass it as a "
            "decimal.Decimal, or as text"
        ) from None
    except (pa.ArrowException, ValueError, TypeError) as error:
        text = str(error)
        raise _not_alike(name, f"{text[:1].lower()}{text[1:]}") from None
    refuse_zoned_times(values, array.type, name)
    return array


def _not_alike(name: str, why: str) -> InvalidOperation:
    return InvalidOperation(
        f"column {name!r} of the data has values of no single type: {why}: convert them first"
    )


# -------------------- kinds
#
# The kinds of values, at any depth.


def of_one_kind(values: Sequence[object], name: str) -> Sequence[object]:
    """Return the values, with None in the place of pandas' NaT and NA.

    Raises ``InvalidOperation`` as ``inferred``.
    """
    types = set(map(type, values))
    absent = {one for one in types if _is_absent(one)}
    kinds = {_kind(one) for one in types - absent}
    if absent - {type(None)}:
        values = [None if type(value) in absent else value for value in values]
    if len(kinds) > 1 and kinds not in _TOGETHER:
        first = {_kind(type(v)): v for v in reversed(values) if type(v) not in absent}
        named = [f"{kind} ({shown(value)})" for kind, value in reversed(first.items())]
        raise _not_alike(name, " and ".join(named))
    if "datetime" in kinds:
        _check_datetimes([value for value in values if value is not None], name)
    elif "list" in kinds:
        return _lists(values, name)
    elif "dict" in kinds:
        return _dicts(values, name)
    return values


def _lists(values: Sequence[Any], name: str) -> Sequence[object]:
    inner = list(chain.from_iterable(value for value in values if isinstance(value, list | tuple)))
    of_kind = of_one_kind(inner, name)
    if of_kind is inner:
        return values
    rest = iter(of_kind)
    return [
        [next(rest) for _ in value] if isinstance(value, list | tuple) else value
        for value in values
    ]


def _dicts(values: Sequence[Any], name: str) -> Sequence[object]:
    by_key: dict[object, list[object]] = {}
    for value in values:
        for key, inner in (value or {}).items():
            by_key.setdefault(key, []).append(inner)
    of_kind = {key: of_one_kind(inner, f"{name}.{key}") for key, inner in by_key.items()}
    if all(of_kind[key] is inner for key, inner in by_key.items()):
        return values
    rest: dict[object, Iterator[object]] = {key: iter(inner) for key, inner in of_kind.items()}
    return [value if value is None else {key: next(rest[key]) for key in value} for value in values]


def _kind(type_: type) -> str:
    return next((kind for kind, types in _KINDS if issubclass(type_, types)), type_.__name__)


def _is_absent(type_: type) -> bool:
    """Return whether values of a type are no values: None, and pandas' NaT and NA."""
    of_pandas = type_.__module__.startswith("pandas.") and type_.__name__ in ("NaTType", "NAType")
    return type_ is type(None) or of_pandas


def _check_datetimes(values: Sequence[Any], name: str) -> None:
    # Arrow silently takes a naive datetime next to an aware one for UTC.
    # https://github.com/apache/arrow/issues/34412
    if len({value.tzinfo is not None for value in values}) > 1:
        raise InvalidOperation(
            f"column {name!r} of the data mixes datetimes with and without a time zone:"
            " give all of them a zone, or none"
        )
    # A Timestamp of pandas is a datetime that may have nanoseconds.
    has_nanoseconds = any(hasattr(type_, "nanosecond") for type_ in set(map(type, values)))
    if has_nanoseconds and any(getattr(value, "nanosecond", 0) for value in values):
        raise InvalidOperation(
            f"column {name!r} of the data has nanoseconds, which no table can keep: round them to "
            "microseconds, or store text"
        )


# -------------------- precision
#
# Floats of Python for columns of single precision.


def _of_single_precision(found: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Return a type with single precision where ``target`` has it at the same place."""
    types = pa.types
    if types.is_float64(found) and types.is_float32(target):
        return target
    if types.is_list(found) and (types.is_list(target) or types.is_large_list(target)):
        return pa.list_(_of_single_precision(found.value_type, target.value_type))
    if types.is_struct(found) and types.is_struct(target):
        wanted = {field.name.lower(): field.type for field in target}
        return pa.struct(
            [
                field.with_type(
                    _of_single_precision(field.type, wanted.get(field.name.lower(), field.type))
                )
                for field in found
            ]
        )
    return found


def _has_overflowed(doubles: AnyArray, singles: AnyArray) -> bool:
    """Return whether a finite number is infinite in single precision."""
    types = pa.types
    if types.is_float32(singles.type):
        infinite = pc.and_(pc.is_inf(singles), pc.invert(pc.is_inf(doubles)))
        return bool(pc.any(infinite).as_py())
    if types.is_list(singles.type):
        return _has_overflowed(doubles.flatten(), singles.flatten())
    if types.is_struct(singles.type):
        return any(map(_has_overflowed, doubles.flatten(), singles.flatten()))
    return False
