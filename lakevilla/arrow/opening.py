"""Rows as callers pass them: inspected once, and opened batch by batch.

`open_data` knows every kind of data that the library accepts. Nothing here holds more than
a batch of a stream.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import (
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass, field
from inspect import GEN_CLOSED, getgeneratorstate, isgenerator
from types import FunctionType
from typing import Any
from weakref import WeakSet

import pyarrow as pa

from lakevilla.arrow.cast import not_unicode, with_offsets
from lakevilla.arrow.plain_values import inferred
from lakevilla.arrow.unkept import as_in_duckdb, refuse_unkept_of_polars, refuse_zoned_times
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

_READ_ALREADY = (
    "the data is a stream and has been read already: pass a new reader, or a pyarrow.Table"
)
_ITERATED_ALREADY = (
    "the data is an iterator and has been read already: call the generator function again (in the "
    "function that is run again), or pass a list"
)

#: The readers and iterators that callers still hold and that this module has read.
_READ: WeakSet[Any] = WeakSet()

#: Rows of an iterator that are converted to Arrow together.
_ROWS_AT_ONCE = 10_000


class LiveRows:
    """Rows with the content that a table has at the time when they are read.

    A verb refuses them: it would read them outside of its transaction, which then could not
    know that it depends on them, and would write rows that no serial order could have had.
    """

    __slots__ = ()
    name: str


@dataclass(slots=True)
class Source:
    """Data from a caller, in its own types.

    Attributes
    ----------
    schema : pyarrow.Schema
        The data's own; `schema_of` returns the types that a table would store.
    one_shot : bool
        The data can be read only once: a caller that may need it again stores it first.
    values : Mapping or None
        Plain Python values by column. They have no type of their own and take
        that of their target column.
    parts : Parts or None
        Data that arrives part by part; any two parts may have different columns.
    """

    schema: pa.Schema
    one_shot: bool
    _open: Callable[[], Iterable[pa.RecordBatch]] = field(repr=False)
    values: Mapping[str, Sequence[object]] | None = field(default=None, repr=False)
    parts: Parts | None = field(default=None, repr=False)
    _spent: bool = field(default=False, repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the data's batches in its own types.

        Raises
        ------
        InvalidOperation
            It can be read only once and was, reading it failed, or it has text that is not
            UTF-8.
        """
        if self.one_shot and self._spent:
            raise InvalidOperation(_READ_ALREADY)
        self._spent = True
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._open():
                sound = with_offsets(batch)
                if (column := not_unicode(sound)) is not None:
                    raise InvalidOperation(
                        f"column {column!r} of the data has text that is not UTF-8, which no other "
                        "client could read: decode its bytes by the encoding that they have, or "
                        "store them in a binary column"
                    )
                yield sound
        except (pa.ArrowException, OSError) as error:
            raise InvalidOperation(f"the data could not be read: {error}") from error


@dataclass(slots=True)
class Parts:
    """The parts that an iterator yields; the first part is inspected already."""

    first: Source
    _rest: Iterator[Source]
    _spent: bool = False

    def rest(self) -> Iterator[Source]:
        """Return the parts after the first one, once.

        Raises
        ------
        InvalidOperation
            They were read already.
        """
        if self._spent:
            raise InvalidOperation(_ITERATED_ALREADY)
        self._spent = True
        return self._rest


def open_data(data: object) -> Source:
    """Inspect data of any kind that the library accepts.

    Parameters
    ----------
    data : object
        Anything Arrow (``__arrow_c_stream__`` or ``__arrow_c_array__``: tables,
        batches, readers, DuckDB relations), a pandas or polars frame, a polars
        lazy frame, a pyarrow dataset or scanner, a list of dicts, a dict of
        lists, an iterator of dicts or of frames and batches, or a `Source`. An exception of
        an iterator is passed on unchanged.

    Returns
    -------
    Source

    Raises
    ------
    InvalidOperation
        The data is of no such kind, is a `Table`, or its columns cannot become Arrow.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, LiveRows):
        raise InvalidOperation(
            f"the data is a table, {data.name!r}, which would be read outside of the transaction: "
            f"pass txn.read({data.name!r}) if the transaction's own lake has the table; for rows "
            "of another lake, or that may be out of date at the commit, pass what its read() gives",
            table=data.name,
        )
    if isinstance(data, Iterator) and not hasattr(data, "__arrow_c_stream__"):
        return _from_iterator(data)
    try:
        return _open(data)
    except InvalidOperation:
        raise
    except pa.ArrowException as error:
        text = "; ".join(map(str, error.args))
        is_column = type(data).__name__ == "Series"
        advice = "make a frame of it" if is_column else "give its columns types that Arrow has"
        raise InvalidOperation(
            f"data of type {_type_name(data)} cannot become Arrow: {text}: {advice}"
        ) from None
    except Exception as error:  # of any library from which the data comes
        raise InvalidOperation(
            f"data of type {_type_name(data)} cannot become Arrow: {error}"
        ) from error


def _open(data: Any) -> Source:
    if isinstance(data, pa.RecordBatchReader):
        if data in _READ:
            # A consumed reader would look like data without rows, as in a function that is run
            # again.
            raise InvalidOperation(_READ_ALREADY)
        return Source(data.schema, True, lambda: _read_now(data))
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _in_memory(data)
    if isinstance(data, Mapping):
        return _from_columns(data)
    if isinstance(data, list | tuple | deque | ValuesView):
        rows = list(data)
        if rows and _is_part(rows[0]):
            return _from_parts(rows)
        return _from_rows(rows)
    package = type(data).__module__.partition(".")[0]
    if package == "pandas" and type(data).__name__ == "DataFrame":
        return _from_pandas(data)
    if package == "polars" and type(data).__name__ == "LazyFrame":
        return _from_lazy(data)
    if package == "pyspark" and type(data).__name__ == "DataFrame":
        raise InvalidOperation(
            "a Spark DataFrame needs the Spark engine: connect with spark=..., or pass"
            " frame.toArrow()"
        )
    if package == "polars" and type(data).__name__ == "DataFrame":
        refuse_unkept_of_polars(data.schema)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        # A polars frame is in memory; of any other stream it is not known whether a second stream
        # would have the same rows.
        if package == "polars":
            return _in_memory(reader.read_all())
        schema = reader.schema
        if type(data).__name__ == "DuckDBPyRelation":
            schema = as_in_duckdb(schema, data.types)
        return Source(schema, True, lambda: reader)
    if hasattr(data, "__arrow_c_array__"):
        return _in_memory(pa.record_batch(data))
    if package == "pyarrow" and hasattr(data, "scanner"):
        return _stream(data.scanner().to_reader())
    if package == "pyarrow" and hasattr(data, "to_reader"):
        return _stream(data.to_reader())
    raise InvalidOperation(
        f"data of type {_type_name(data)} is not supported: pass anything Arrow, a pandas"
        " or polars frame, a DuckDB relation, a list of dicts, a dict of lists, or an iterator of"
        " dicts or batches" + _hint(data)
    )


def _hint(data: object) -> str:
    if isinstance(data, AsyncIterable):
        return "; an async iterator is none of these: collect it before"
    if isinstance(data, FunctionType):
        return f"; this is a function: call it, {data.__name__}()"
    if isinstance(data, str | os.PathLike):
        return (
            "; text is no data: read the file that it names by pyarrow.parquet.read_table(...), "
            "or the table by txn.read(...)"
        )
    if type(data).__module__ == "numpy":
        return '; name the columns of an array: {"column": values}'
    return ""


def _read_now(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    _READ.add(reader)
    return reader


def _stream(reader: pa.RecordBatchReader) -> Source:
    return Source(reader.schema, True, lambda: reader)


def _in_memory(data: pa.Table | pa.RecordBatch) -> Source:
    table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
    if table.num_rows and not table.num_columns:
        raise _without_columns(table.num_rows)
    return Source(table.schema, False, table.to_batches)


def _from_pandas(frame: Any) -> Source:
    # A named index is data (set_index and groupby leave one); an unnamed one
    # only counts rows.
    named = [name for name in frame.index.names if name is not None]
    if named:
        frame = frame.reset_index(level=named)
    _check_names(frame.columns)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        refuse_zoned_times(frame[name], kind, name)
    return _in_memory(table.replace_schema_metadata(None))


def _from_lazy(frame: Any) -> Source:
    columns = frame.collect_schema()
    refuse_unkept_of_polars(columns)
    schema = pa.RecordBatchReader.from_stream(columns.to_frame()).schema
    if not hasattr(frame, "collect_batches"):
        return _in_memory(pa.table(frame.collect()))

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.collect_batches(maintain_order=False):
            yield from pa.RecordBatchReader.from_stream(part)

    # Two evaluations of one lazy frame need not bring the same rows.
    return Source(schema, True, batches)


def _from_columns(columns: Mapping[Any, Any]) -> Source:
    _check_names(columns)
    if all(isinstance(values, list | tuple) for values in columns.values()):
        return _from_values({name: list(values) for name, values in columns.items()})
    for name, values in columns.items():
        # Text would be split into letters, and bytes into numbers.
        if isinstance(values, str | bytes | bytearray) or not hasattr(values, "__len__"):
            raise InvalidOperation(
                f"column {name!r} of a dict of columns is of type {_type_name(values)}, not a list "
                "of values; for one row pass a list of one dict, [{...}]"
            )
    table = pa.table(dict(columns))
    for kind, (name, values) in zip(table.schema.types, columns.items(), strict=True):
        if isinstance(values, list | tuple) or type(values).__module__ == "numpy":
            refuse_zoned_times(values, kind, name)
    return _in_memory(table)


def _from_iterator(items: Iterator[Any]) -> Source:
    """Open the items of a generator; only its first rows are requested of it."""
    try:
        if items in _READ or (isgenerator(items) and getgeneratorstate(items) == GEN_CLOSED):
            # Otherwise its remaining items would count as all, as in a function that is run again.
            raise InvalidOperation(_ITERATED_ALREADY)
        _READ.add(items)
    except TypeError:
        raise InvalidOperation(
            f"an iterator of type {_type_name(items)} does not show whether it was read before: "
            "pass a generator, (row for row in data), or a list"
        ) from None
    return _from_parts(items)


def _from_parts(items: Iterable[Any]) -> Source:
    parts = _parts(iter(items))
    first = next(parts, None)
    if first is None:
        return _from_values({})
    return Source(first.schema, True, first.batches, parts=Parts(first, parts))


def _parts(items: Iterator[Any]) -> Iterator[Source]:
    """Yield rows some thousands at a time, or frames and batches one by one."""
    taken = 0
    for item in items:
        if _is_part(item):
            yield open_data(item)
            taken += 1
        elif isinstance(item, Mapping):
            rows = [item, *itertools.islice(items, _ROWS_AT_ONCE - 1)]
            yield _from_rows(rows, taken)
            taken += len(rows)
        else:
            raise InvalidOperation(
                f"item {taken} of the data is of type {_type_name(item)}: an iterator or a list "
                "holds dicts, one a row, or frames and batches"
            )


def _is_part(item: object) -> bool:
    """Return whether an item has rows and columns of its own, and is no single row."""
    return (
        hasattr(item, "__arrow_c_stream__")
        or hasattr(item, "__arrow_c_array__")
        or isinstance(item, Source)
        or (type(item).__module__.startswith("pandas.") and type(item).__name__ == "DataFrame")
    )


def _from_rows(rows: Sequence[Any], start: int = 0) -> Source:
    names: dict[Any, None] = {}
    for position, row in enumerate(rows, start):
        if not isinstance(row, Mapping):
            raise InvalidOperation(
                f"row {position} of the data is of type {_type_name(row)}: a list holds dicts,"
                " one a row"
            )
        # Not only the keys of the first row: a key that first occurs later is a column too.
        names.update(dict.fromkeys(row))
    _check_names(names)
    if rows and not names:
        raise _without_columns(len(rows))
    return _from_values({name: [row.get(name) for row in rows] for name in names})


def _from_values(columns: dict[str, list[object]]) -> Source:
    if len({len(values) for values in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r} has {len(values)}" for name, values in columns.items())
        raise InvalidOperation(f"the columns of the data differ in length: {lengths}")
    table = pa.table({name: inferred(values, name) for name, values in columns.items()})
    return Source(table.schema, False, table.to_batches, values=columns)


def _without_columns(count: int) -> InvalidOperation:
    return InvalidOperation(
        f"the data has {count} rows and no column: give each row a value, or None, for at least "
        "one column"
    )


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise InvalidOperation(
                f"column name {shown(name)} is not a string: name columns by str"
            )


def _type_name(data: object) -> str:
    kind = type(data)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    # The modules within a library are internal: lakevilla.Table, duckdb.DuckDBPyConnection.
    package = kind.__module__.partition(".")[0].lstrip("_")
    return f"{package}.{kind.__qualname__}"
