"""Partition values, and Iceberg's transforms of them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout

# -------------------- partitions
#
# Partitions of rows: by columns as in Delta, or by Iceberg's transforms of columns.


#: Bytes of a directory's name; file systems allow up to 255.
_LONGEST_NAME = 200
_NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
# The characters that Hive and Spark escape in a directory name, and a dot at its end, which Azure
# would drop.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]|\.\Z")
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)


def partition_columns(layout: Layout) -> frozenset[str]:
    """Return the columns that decide which partition a row belongs to."""
    made_of = {field.column for field in layout.partition_fields}
    return frozenset({*layout.partition_by, *made_of})


class Partitioning:
    """The rule that assigns rows of a table to partitions.

    ``columns`` are the columns that rows are split by: the table's own in Delta, and in Iceberg
    columns that ``derived`` adds to the rows. A partition's key is their values as text.
    """

    def __init__(self, layout: Layout) -> None:
        self._table = layout.table
        self._fields = layout.partition_fields
        places = [layout.schema.get_field_index(column) for column in layout.partition_by]
        self._names = [layout.physical.field(index).name for index in places]
        self.columns = layout.partition_by or tuple(
            f"__lakevilla_partition_{number}" for number in range(len(self._fields))
        )
        self._sources = [_type_at(layout.schema, field.path) for field in self._fields]

    @property
    def derived_fields(self) -> list[pa.Field]:
        """Return the columns that ``derived`` adds."""
        kinds = [
            transformed_type(field.transform, source)
            for field, source in zip(self._fields, self._sources, strict=True)
        ]
        pairs = zip(self.columns, kinds, strict=True) if kinds else ()
        return [pa.field(name, kind) for name, kind in pairs]

    def derived(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns that partitions are made of, if the table has none."""
        for field, added in zip(self._fields, self.derived_fields, strict=False):
            values = partition_values(_values_at(rows, field.path), field.transform)
            rows = rows.append_column(added, values.cast(added.type))
        return rows

    def split(self, rows: pa.Table) -> list[pa.Table]:
        """Return the rows of each partition, with the derived columns, in no order."""
        return split_by_partition(self.derived(rows), self.columns)

    def key_of(self, rows: pa.Table | pa.RecordBatch) -> tuple[str | None, ...]:
        """Return the key of rows of one partition, which ``split`` or ``derived`` has returned."""
        return tuple(self._text(rows.column(column)[0], column) for column in self.columns)

    def values(self, key: tuple[str | None, ...]) -> dict[str, str | None]:
        """Return the value of ``DataFile.partition_values`` for a partition."""
        names = [field.key for field in self._fields] or self._names
        return dict(zip(names, key, strict=True))

    def key_in(self, values: Mapping[str, str | None]) -> tuple[str | None, ...]:
        """Return the key of a partition of a table that is partitioned by columns of its own."""
        return tuple(values[name] for name in self._names)

    def directory(self, key: tuple[str | None, ...]) -> str:
        """Return the directory of a partition's files; "" for a table without partitions."""
        names = [field.name for field in self._fields] or self._names
        found = partition_directory(list(zip(names, key, strict=True)))
        if not self._fields:
            return found
        # Iceberg reads nothing from a path, so the path need not contain the whole of a long value.
        return "/".join(_cut(part) for part in found.split("/"))

    def _text(self, scalar: pa.Scalar, column: str) -> str | None:
        text = serialise_partition_value(scalar, column, self._table)
        if text == "" and not self._fields:
            # Iceberg distinguishes it from NULL; rows for Delta were checked (``constraints``).
            raise InvalidOperation(
                f"table {self._table}: partition column {column} must not be empty, which delta "
                "cannot distinguish from NULL",
                table=self._table,
            )
        return text


def serialise_partition_value(scalar: pa.Scalar, column: str, table: str) -> str | None:
    """Return the string of a log's ``partitionValues``; None for NULL.

    Zoned timestamps are written with ``Z``; without it, Spark would read them in its session's time
    zone.
    """
    # https://github.com/delta-io/delta-kernel-rs/pull/2894
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_boolean(kind):
        return "true" if scalar.as_py() else "false"
    if pa.types.is_timestamp(kind):
        instant = _EPOCH + datetime.timedelta(microseconds=scalar.value)
        if kind.tz is not None:
            return instant.isoformat("T", "microseconds") + "Z"
        return instant.isoformat(" ", "microseconds")
    if pa.types.is_date(kind):
        return str(scalar.as_py().isoformat())
    if pa.types.is_decimal(kind):
        return format(scalar.as_py(), "f")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "".join(f"\\u{byte:04X}" for byte in scalar.as_py())
    if pa.types.is_nested(kind):
        raise InvalidOperation(
            f"table {table}: column {column} of type {kind} cannot be a partition column; "
            "partition by a column of a simple type",
            table=table,
        )
    return str(scalar.as_py())


def partition_directory(values: list[tuple[str, str | None]]) -> str:
    """Return a file's directory: ``column=value`` parts, escaped as Hive does; "" for none."""
    return "/".join(
        f"{_escape(name)}={_NULL_DIRECTORY if value is None else _escape(value)}"
        for name, value in values
    )


def split_by_partition(rows: pa.Table, columns: tuple[str, ...]) -> list[pa.Table]:
    """Return the rows of each distinct combination of values of ``columns``, in no order."""
    if not columns or rows.num_rows == 0:
        return [rows] if rows.num_rows else []
    codes = None
    for column in columns:
        encoded = rows.column(column).combine_chunks().dictionary_encode(null_encoding="encode")
        code = encoded.indices.cast(pa.int64())
        # Multiply the codes of the columns so far by this column's count: each pair gets its own
        # number, and re-encoding keeps it below the number of rows.
        codes = code if codes is None else _combine(codes, code, len(encoded.dictionary))
    order = pc.array_sort_indices(codes)
    ends = _run_ends(pc.take(codes, order))
    ordered = rows.take(order)
    return [ordered.slice(start, end - start) for start, end in ends]


def _combine(left: pa.Array, right: pa.Array, right_count: int) -> pa.Array:
    both = pc.add(pc.multiply(left, right_count), right)
    return both.dictionary_encode().indices.cast(pa.int64())


def _run_ends(codes: pa.Array) -> list[tuple[int, int]]:
    encoded = pc.run_end_encode(codes)
    ends = encoded.run_ends.to_pylist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def _values_at(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    """Return a column, or a field within it; NULL where the struct that contains it is NULL."""
    values = rows.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    return values


def _cut(name: str) -> str:
    return name.encode()[:_LONGEST_NAME].decode(errors="ignore").rstrip(".")


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match.group()):02X}", text)


# -------------------- transforms
#
# Iceberg's partition transforms over Arrow columns, computed by pyiceberg's core.


def transformed_type(transform: str, source: pa.DataType) -> pa.DataType:
    """Return the type of a transform's values: a day is a date, other times and buckets ints."""
    if transform == "identity" or transform.startswith("truncate"):
        return source
    return pa.date32() if transform == "day" else pa.int32()


def partition_values(column: pa.ChunkedArray, transform: str) -> pa.Array:
    """Return the values of ``transformed``, to partition by.

    Raises ``InvalidOperation`` for a value whose transform is beyond its type.
    """
    values = transformed(column, transform)
    if transform.startswith("truncate"):
        _check_fits(_joined(column), values, transform)
    return values


def transformed(column: pa.ChunkedArray, transform: str) -> pa.Array:
    """Return the values of a transform; NULL stays NULL (Iceberg spec, "Partition Transforms")."""
    array = _joined(column)
    if transform == "identity":
        return array
    from pyiceberg_core import transform as core

    name, _, width = transform.removesuffix("]").partition("[")
    arguments = (int(width),) if width else ()
    return getattr(core, name)(array, *arguments)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    return array


def _check_fits(array: pa.Array, values: pa.Array, transform: str) -> None:
    """Refuse a truncated value that the type can't hold, near its lowest value.

    Other clients wrap an integer around, and then no filter finds the row. Java and pyiceberg
    refuse a decimal when they write the manifest: by then the files exist.
    """
    # https://github.com/apache/iceberg/issues/13105 (integers)
    # https://github.com/apache/iceberg/issues/17027 (decimals)
    lost = False
    if pa.types.is_integer(array.type):
        lost = pc.any(pc.greater(values, array)).as_py() is True
    elif pa.types.is_decimal(array.type):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            lost = True
    if lost:
        raise InvalidOperation(
            f"the rows have a value that can't be partitioned by {transform}: truncated to a "
            f"multiple of the width it is no {array.type} any more (lowest value: "
            f"{pc.min(array).as_py()}); leave it out, or write it to a table without this "
            "partition"
        )
