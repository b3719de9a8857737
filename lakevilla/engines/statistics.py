"""Statistics of the columns of a file, and their limits in length."""

from __future__ import annotations

import datetime
import math
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation

# -------------------- statistics
#
# Statistics of a data file, as the JSON text of Delta's ``stats``.
#
# Two sources give the same text: an Arrow table that is about to be written, and the summary that
# DuckDB's ``COPY ... RETURN_STATS`` returns. A bound is written only where every reader's
# comparison agrees with it: none for binary and nested lists, none for floats with a NaN or an
# infinity among them.
#
# The Delta protocol calls an absent bound unknown. delta-rs takes it for NULL instead, and finds no
# row of a file that bounds some columns and not others. So a file where one of the table's own
# columns can't be bounded gets no bounds at all (``all_or_none``): it is read more often than
# necessary, and never missed. docs/upstream.md, "An absent bound counts as NULL"


#: Strings are cut to this many characters, as Delta's other writers do.
STRING_PREFIX_LENGTH = 32

_ENCODER = msgspec.json.Encoder()
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)
_Path = tuple[str, ...]


def statistics_of_table(
    rows: pa.Table,
    columns: Collection[str],
    known_as: pa.Schema | None = None,
    all_or_none: bool = False,
) -> str:
    """Return statistics of the leaves named in ``columns`` (dotted names).

    ``known_as``: the columns under the names that statistics use for them, if not their own;
    columns beyond it have no statistics.
    ``all_or_none``: no bounds if one column can't be bounded, as Delta's readers need.
    """
    wanted = frozenset(columns)
    result = _Statistics(rows.num_rows, all_or_none)
    for field, column in zip(known_as or rows.schema, rows.columns, strict=False):
        for path, leaf in _leaves_of_array((field.name,), column, field.type):
            if ".".join(path) in wanted:
                low, high = _bounds_of_array(leaf)
                result.put(path, leaf.type, leaf.null_count, low, high)
    return result.encode()


def statistics_of_copy(
    schema: pa.Schema,
    rows: int,
    summary: Mapping[str, Mapping[str, str]],
    columns: Collection[str],
    known_as: pa.Schema | None = None,
    all_or_none: bool = False,
) -> str:
    """Return statistics from DuckDB's summary of a file with the physical ``schema``.

    ``known_as`` and ``all_or_none`` as in ``statistics_of_table``.
    """
    wanted = frozenset(columns)
    result = _Statistics(rows, all_or_none)
    for field, known in zip(schema, known_as or schema, strict=False):
        known_leaves = _leaves_of_type((known.name,), known.type)
        for (own, kind), (path, _) in zip(
            _leaves_of_type((field.name,), field.type), known_leaves, strict=True
        ):
            name = ".".join('"' + part.replace('"', '""') + '"' for part in own)
            if ".".join(path) not in wanted:
                continue
            values = summary.get(name, {})
            nulls = None if "null_count" not in values else int(values["null_count"])
            low, high = (None, None) if nulls == rows else _bounds_of_summary(kind, values)
            result.put(path, kind, nulls, low, high)
    return result.encode()


def string_ceiling(text: str) -> str:
    """Return a string of at most ``STRING_PREFIX_LENGTH`` characters that is not below ``text``.

    Readers compare code points (UTF-8 bytes), so the last character of the prefix that has a
    successor is raised by one. If there is no such string, return ``text``.
    """
    if len(text) <= STRING_PREFIX_LENGTH:
        return text
    prefix = text[:STRING_PREFIX_LENGTH]
    while prefix:
        point = ord(prefix[-1]) + 1
        if 0xD800 <= point <= 0xDFFF:  # surrogates are no characters
            point = 0xE000
        if point <= 0x10FFFF:
            return prefix[:-1] + chr(point)
        prefix = prefix[:-1]
    return text


class _Statistics:
    def __init__(self, rows: int, all_or_none: bool) -> None:
        self._rows = rows
        self._all_or_none = all_or_none
        self._unbounded = False
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls: dict[str, Any] = {}

    def put(
        self, path: _Path, kind: pa.DataType, nulls: int | None, low: object, high: object
    ) -> None:
        # Leave out fields of structs: readers that misread a missing bound use none of their
        # bounds.
        if len(path) == 1 and _has_bounds(kind) and nulls != self._rows:
            self._unbounded |= low is None or high is None
        for tree, value in ((self._nulls, nulls), (self._low, low), (self._high, high)):
            if value is None:
                continue
            for part in path[:-1]:
                tree = tree.setdefault(part, {})
            tree[path[-1]] = value

    def encode(self) -> str:
        document: dict[str, object] = {"numRecords": self._rows}
        if not (self._all_or_none and self._unbounded):
            document |= {"minValues": self._low, "maxValues": self._high}
        document["nullCount"] = self._nulls
        return _ENCODER.encode(document).decode()


def _leaves_of_array(
    path: _Path, array: pa.ChunkedArray, known: pa.DataType
) -> Iterator[tuple[_Path, Any]]:
    if pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            # struct_field makes a child NULL where its parent is NULL: nullCount counts these too.
            child, field = pc.struct_field(array, index), known.field(index)
            yield from _leaves_of_array((*path, field.name), child, field.type)
    else:
        yield path, array


def _leaves_of_type(path: _Path, kind: pa.DataType) -> Iterator[tuple[_Path, pa.DataType]]:
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield from _leaves_of_type((*path, field.name), field.type)
    else:
        yield path, kind


def _bounds_of_array(array: pa.ChunkedArray) -> tuple[object, object]:
    kind = array.type
    if not _has_bounds(kind) or array.null_count == len(array):
        return None, None
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        return None, None
    both = pc.min_max(array)
    low, high = both["min"], both["max"]
    if not low.is_valid:
        return None, None
    if pa.types.is_timestamp(kind):
        return _timestamp(low.value, kind), _timestamp(high.value, kind)
    try:
        return _bounds(kind, low.as_py(), high.as_py())
    except (ValueError, OverflowError):
        return None, None  # a date that Python can't represent: to have no bound is always right


def _bounds_of_summary(kind: pa.DataType, values: Mapping[str, str]) -> tuple[object, object]:
    if pa.types.is_boolean(kind):
        return False, True  # the summary has no bounds of booleans, and these always hold
    low, high = values.get("min"), values.get("max")
    if not _has_bounds(kind) or low is None or high is None:
        return None, None
    if pa.types.is_floating(kind) and values.get("has_nan") != "false":
        return None, None
    try:
        return _bounds(kind, _parse(kind, low), _parse(kind, high))
    except (ValueError, OverflowError, ArithmeticError):
        return None, None


def _parse(kind: pa.DataType, text: str) -> object:
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        instant = datetime.datetime.fromisoformat(text.removesuffix("+00"))
        return _timestamp((instant - _EPOCH) // datetime.timedelta(microseconds=1), kind)
    return text


def _bounds(kind: pa.DataType, low: object, high: object) -> tuple[object, object]:
    if isinstance(low, float) and isinstance(high, float):
        if not math.isfinite(low) or not math.isfinite(high):
            return None, None
        # Zeros compare equal whatever their sign. A reader that orders them (Java's Double.compare)
        # must find both within the bounds.
        return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    if isinstance(low, Decimal) and isinstance(high, Decimal):
        return _decimal(low), _decimal(high)
    if pa.types.is_string(kind) and isinstance(low, str) and isinstance(high, str):
        return low[:STRING_PREFIX_LENGTH], string_ceiling(high)
    if isinstance(low, datetime.date) and isinstance(high, datetime.date):
        return low.isoformat(), high.isoformat()
    return low, high


def _decimal(value: Decimal) -> msgspec.Raw:
    """Return all digits and no exponent: delta-rs reads no number from one in decimal bounds."""
    # docs/upstream.md, "A bound with an exponent is not read"
    return msgspec.Raw(format(value, "f").encode())


def _timestamp(microseconds: int, kind: pa.DataType) -> str | None:
    # Other writers cut to milliseconds, and their readers widen the maximum by one. The exact value
    # is right both for readers that widen and for readers that don't.
    try:
        instant = _EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    digits = "milliseconds" if instant.microsecond % 1000 == 0 else "microseconds"
    return instant.isoformat(timespec=digits) + ("Z" if kind.tz is not None else "")


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
        or pa.types.is_boolean(kind)
    )


# -------------------- limits
#
# Limits of a statement: the rows and bytes that a query finds, and its time.
#
# The limits hold for everything that an engine does within a block of the thread that runs the
# statement, so no function between has to pass them on. The time is measured by the engine's
# machine, and only ends a statement: nothing of the protocol depends on it.


__all__ = ["LIMITS", "StatementLimits", "limited", "running"]

#: Interrupt again after this time: a query does not notice an interrupt from before it began.
_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """The limits of rows and bytes of a query, and of seconds of a statement; None: no limit."""

    max_rows: int | None = None
    max_bytes: int | None = None
    timeout_seconds: float | None = None

    def __bool__(self) -> bool:
        return self != _NONE


#: The names of the limits in settings and arguments.
LIMITS = ("max_rows", "max_bytes", "timeout_seconds")
_NONE = StatementLimits()


class _Interruptible(Protocol):
    def interrupt(self) -> None: ...


class Running:
    """A statement that runs within its limits."""

    def __init__(self, limits: StatementLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._expired = False
        self._connections: list[_Interruptible] = []

    def watch(self, connection: _Interruptible) -> None:
        """Interrupt this connection when the time is over."""
        with self._lock:
            self._connections.append(connection)

    def leave(self, connection: _Interruptible) -> None:
        """Stop watching this connection: from here on other statements may use it."""
        with self._lock:
            self._connections = [one for one in self._connections if one is not connection]

    def check(self, rows: int = 0, size: int = 0) -> None:
        """Raise ``InvalidOperation`` if a query has found more than it may, or the time is over."""
        limits = self._limits
        if limits.max_rows is not None and rows > limits.max_rows:
            raise _beyond("max_rows", limits.max_rows, "the query finds more rows than that")
        if limits.max_bytes is not None and size > limits.max_bytes:
            raise _beyond("max_bytes", limits.max_bytes, "the rows of the query take more bytes")
        if (error := self.expiry()) is not None:
            raise error

    def expiry(self) -> InvalidOperation | None:
        """Return the error of a statement whose time is over; None if it is not."""
        if not self._expired:
            return None
        seconds = self._limits.timeout_seconds
        return InvalidOperation(
            f"the statement has taken longer than timeout_seconds = {seconds:g} and was stopped; "
            "read less, or raise the limit",
            reason="limit",
        )

    def wait(self) -> None:
        """Interrupt everything when the time is over, until the statement has ended."""
        self._ended.wait(self._limits.timeout_seconds)
        while not self._ended.is_set():
            with self._lock:
                self._expired = True
                for connection in self._connections:
                    with suppress(Exception):  # its owner has closed the connection
                        connection.interrupt()
            self._ended.wait(_AGAIN_SECONDS)

    def end(self) -> None:
        """End the statement: nothing is interrupted any more when this returns."""
        self._ended.set()
        with self._lock:
            self._connections = []


def _beyond(name: str, limit: int, what: str) -> InvalidOperation:
    return InvalidOperation(
        f"{name} = {limit}: {what}; narrow it by WHERE or LIMIT, or raise the limit",
        reason="limit",
    )


_running: ContextVar[Running | None] = ContextVar("lakevilla_running", default=None)


def running() -> Running | None:
    """Return the statement of this thread that has limits; None if there is none."""
    return _running.get()


@contextmanager
def limited(limits: StatementLimits) -> Iterator[None]:
    """Return a block in which a statement runs within its limits.

    Raises
    ------
    InvalidOperation
        The statement has exceeded one (``reason`` is ``limit``).
    """
    if not limits:
        yield
        return
    one = Running(limits)
    token = _running.set(one)
    if limits.timeout_seconds is not None:
        threading.Thread(target=one.wait, name="lakevilla-timeout", daemon=True).start()
    try:
        yield
    finally:
        one.end()
        _running.reset(token)
