"""Single values of callers, including those of NumPy, pandas and Arrow, as plain Python ones.

Those libraries' values look like Python's own, and are not: ``numpy.float64`` is a ``float``
that prints itself as ``np.float64(1.5)``, ``pandas.NaT`` a ``datetime``. They are recognised by
the package of their types, so that nothing need be installed that a caller doesn't use.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import ItemsView, Iterable, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID  # noqa: TID251 (the type alone: none is made here)

import pyarrow as pa

from lakevilla.errors import InvalidOperation

_PLAIN = frozenset({type(None), bool, int, float, str, bytes, date, datetime, time, Decimal, UUID})
_TAKEN = (
    "pass None, bool, int, float, Decimal, date, datetime, time without a zone, str, bytes, UUID, "
    "a scalar of NumPy, pandas or pyarrow, or a list of these"
)


def plain(value: Any, what: str = "a value", *, nested: bool = False) -> object:
    """Return a value as a plain Python value.

    That is None, bool, int, float, Decimal, str, bytes, date, datetime, time, UUID, or a
    list of these.

    Parameters
    ----------
    value : object
        Of Python, NumPy, pandas or pyarrow; or several of them: a list, tuple, set, range,
        array or series. A value that is missing for its library (``NaT``, ``NA``, NaN in a pandas
        series) becomes None.
    what : str
        The name of the value, for messages.
    nested : bool
        Accept mappings too, as dicts of such values.

    Raises
    ------
    InvalidOperation
        It is of another kind, has digits that Python's type lacks, or is a timestamp
        beyond the years 1 to 9999 of UTC.
    """
    if isinstance(value, datetime) and value.tzinfo is not None:
        _check_in_years(value, what)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, list | tuple | deque | AbstractSet | range | KeysView | ValuesView):
        if isinstance(value, ItemsView):
            raise _refused(value, what, "pass its keys or its values")
        return [plain(item, what, nested=nested) for item in value]
    if isinstance(value, Mapping):
        if not nested:
            raise _refused(value, what, _NO_STRUCT, "no expression takes")
        return {key: plain(item, what, nested=True) for key, item in value.items()}
    package = type(value).__module__.partition(".")[0]
    if package == "pandas":
        return _of_pandas(value, what)
    if package == "numpy":
        return _of_numpy(value, what)
    if package == "pyarrow":
        return _of_arrow(value, what)
    if package == "polars" and hasattr(value, "to_list"):
        return [plain(item, what) for item in value.to_list()]
    return _of_subclass(value, what)


def _check_in_years(value: datetime, what: str) -> None:
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise InvalidOperation(
            f"{what} is {value.isoformat()}, which is beyond the years 1 to 9999 in UTC: pass a "
            "timestamp within them"
        ) from None


def _of_subclass(value: Any, what: str) -> object:
    """Return a value of a caller's subclass of one of Python's classes."""
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Decimal | date | time | UUID):
        return value
    if isinstance(value, Enum):
        raise _refused(value, what, "pass its .value")
    if isinstance(value, timedelta):
        raise _refused(value, what, _NO_DURATION)
    if isinstance(value, PurePath):
        raise _refused(value, what, "pass str(path)")
    raise _refused(value, what, _TAKEN)


_NO_DURATION = "compute the timestamp that is meant, or pass a number of seconds"


# -- pandas ------------------------------------------------------------------


def _of_pandas(value: Any, what: str) -> object:
    kind = type(value).__name__
    if kind in ("NaTType", "NAType"):
        return None
    if kind == "Timestamp":
        if value.nanosecond:
            raise _finer(value, what)
        return value.to_pydatetime()
    if kind == "Timedelta":
        raise _refused(value, what, _NO_DURATION)
    if hasattr(value, "columns"):
        raise _refused(value, what, "pass one of its columns")
    if hasattr(value, "tolist") and isinstance(value, Iterable):
        # As in a frame of pandas, NaN means a missing value.
        return [None if _is_nan(item) else plain(item, what) for item in value]
    raise _refused(value, what, _TAKEN)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


# -- NumPy -------------------------------------------------------------------


def _of_numpy(value: Any, what: str) -> object:
    if hasattr(value, "ndim") and value.ndim > 1:
        raise _refused(value, what, "pass one of its rows")
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "V":
        raise _refused(value, what, "pass one of its fields")
    if type(value).__name__ == "ndarray":
        return plain(value[()], what) if value.ndim == 0 else [plain(item, what) for item in value]
    if kind == "b":
        return bool(value)
    if kind in ("i", "u"):
        return int(value)
    if kind == "f":
        number = float(value)
        if not math.isnan(number) and type(value)(number) != value:
            raise _finer(value, what)
        return number
    if kind in ("U", "S"):
        return str.__str__(value) if kind == "U" else bytes(value)
    if kind == "M":
        return _datetime64(value, what)
    if kind == "m":
        raise _refused(value, what, _NO_DURATION)
    raise _refused(value, what, _TAKEN)


def _datetime64(value: Any, what: str) -> date | datetime | None:
    """Return a ``datetime64``, which has no zone; a day or a month is a date."""
    if str(value) == "NaT":
        return None
    unit = value.dtype.str.partition("[")[2].rstrip("]")
    target = "datetime64[D]" if unit in ("Y", "M", "W", "D") else "datetime64[us]"
    instant = value.astype(target)
    found = instant.item()
    if not isinstance(found, date):
        raise InvalidOperation(f"{what} is {value}, which is beyond the years 1 to 9999")
    if instant != value:
        raise _finer(value, what)
    return found


# -- Arrow -------------------------------------------------------------------


def _of_arrow(value: Any, what: str) -> object:
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return [_of_arrow(item, what) for item in value]
    if not isinstance(value, pa.Scalar):
        raise _refused(value, what, _TAKEN)
    if not value.is_valid:
        return None
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return plain(value.as_py(), what)
    if pa.types.is_dictionary(kind):
        return _of_arrow(value.value, what)
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise _refused(value, what, _NO_DURATION)
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        raise _refused(value, what, _TAKEN)
    try:
        if pa.types.is_timestamp(kind):
            value = value.cast(pa.timestamp("us", kind.tz))
        elif pa.types.is_time(kind):
            value = value.cast(pa.time64("us"))
        found = value.as_py()
    except (pa.ArrowException, ValueError, OverflowError):
        raise _finer(value, what) from None
    return plain(found, what)


def _finer(value: object, what: str) -> InvalidOperation:
    try:
        text = str(value)
    except (OverflowError, ValueError):  # Python has no type for the value
        text = f"of type {type(value).__name__}"
    return InvalidOperation(
        f"{what} is {text}, which is finer or larger than what columns hold: round it first"
    )


_NO_STRUCT = (
    "a SELECT, an INSERT and the values of an UPDATE or a MERGE do, or name its fields one by one"
)


def _refused(
    value: object, what: str, advice: str, why: str = "no column holds"
) -> InvalidOperation:
    kind = type(value)
    name = kind.__name__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__.partition('.')[0]}.{name}"
    return InvalidOperation(f"{what} is of type {name}, which {why}: {advice}")
