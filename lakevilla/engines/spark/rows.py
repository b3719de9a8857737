"""Spark DataFrames as rows: their columns in Arrow's types, and Arrow's types in Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The beginning of py4j's message for an error of the JVM for which PySpark has no kind.
_OF_PY4J = "An error occurred while calling "


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A DataFrame to be written to a table; ``schema`` are the columns that its rows will have."""

    frame: DataFrame
    schema: pa.Schema


def is_frame(data: object) -> bool:
    """Return whether it is a DataFrame of Spark, classic or Connect."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(data).__mro__
    )


def arrow_schema(frame: Any, table: str) -> pa.Schema:
    """Return the columns of a DataFrame; Spark only analyses it, and runs nothing.

    Raises
    ------
    InvalidOperation
        Spark can't analyse it, or a column has a type that Arrow lacks.
    """
    from pyspark.errors import PySparkException

    if frame.isStreaming:
        raise InvalidOperation(
            f"the DataFrame for table {table!r} is a stream: write it in "
            "`writeStream.foreachBatch(lake.foreach_batch(...))`",
            table=table,
        )
    try:
        columns = frame.schema
    except (PySparkException, AttributeError) as error:
        raise InvalidOperation(
            f"the DataFrame for table {table!r} can't be written: {first_line(error)}", table=table
        ) from error
    return may_be_null(arrow_types(columns, table))


def may_be_null(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, all of which allow NULL, at any depth except for the keys of maps.

    Spark declares columns of rows NOT NULL that merely happen to have no NULL, such as a literal or
    a count. No table must refuse NULL for ever because of that; one made of a ``StructType`` does.
    """
    return pa.schema([_field_of_null(field) for field in schema])


def _field_of_null(field: pa.Field) -> pa.Field:
    return field.with_type(_type_of_null(field.type)).with_nullable(True)


def _type_of_null(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_field_of_null(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _field_of_null(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_field_of_null(kind.value_field))
    return kind


def arrow_types(columns: Any, table: str) -> pa.Schema:
    """Return Spark's columns in Arrow's types; raise ``InvalidOperation`` for one that has none."""
    from pyspark.errors import PySparkException

    fields = []
    for column in columns.fields:
        try:
            fields.append(_arrow_field(column.name, column.dataType, column.nullable))
        except (PySparkException, pa.ArrowException, NotImplementedError) as error:
            raise InvalidOperation(
                f"column {column.name!r} for table {table!r} is of type "
                f"{column.dataType.simpleString()}, which no table stores: cast it",
                table=table,
            ) from error
    return pa.schema(fields)


def _arrow_type(kind: Any) -> pa.DataType:
    """Return one of Spark's types as Arrow's; Spark itself converts types that are not nested.

    For nested types each release gives another result: from 4.2 on it needs a time zone, and passes
    on its own notes about fields, which a table must not keep.
    """
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_type

    if isinstance(kind, types.StructType):
        return pa.struct([_arrow_field(f.name, f.dataType, f.nullable) for f in kind.fields])
    if isinstance(kind, types.ArrayType):
        return pa.list_(_arrow_field("element", kind.elementType, kind.containsNull))
    if isinstance(kind, types.MapType):
        if isinstance(kind.keyType, types.NullType):  # map(), which Arrow can't hold
            raise NotImplementedError(kind.simpleString())
        value = _arrow_field("value", kind.valueType, kind.valueContainsNull)
        return pa.map_(_arrow_field("key", kind.keyType, False), value)
    if isinstance(kind, types.UserDefinedType):
        return _arrow_type(kind.sqlType())
    if "collate" in kind.simpleString():
        raise NotImplementedError(kind.simpleString())  # Arrow has no collations
    if isinstance(kind, types.TimestampType):
        return pa.timestamp("us", "UTC")
    found = to_arrow_type(kind)
    if pa.types.is_struct(found):  # a variant, or a geographic place, as only Spark understands it
        raise NotImplementedError(kind.simpleString())
    return found


def _arrow_field(name: str, kind: Any, nullable: bool) -> pa.Field:
    # For void, as in array(), Spark may declare that it is never NULL; Arrow has no such void.
    found = _arrow_type(kind)
    return pa.field(name, found, nullable or pa.types.is_null(found))


def is_spark_schema(data: object) -> bool:
    """Return whether an object is a ``StructType``."""
    kind = type(data)
    return kind.__name__ == "StructType" and kind.__module__ == "pyspark.sql.types"


def spark_schema(schema: pa.Schema) -> StructType:
    """Return columns as Spark declares them; all may be NULL, as in Spark's own readers.

    Raises ``InvalidOperation`` for one that Spark can't hold.
    """
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), True)
            for field in spark_types(schema)
        ]
    )


def spark_types(schema: pa.Schema) -> pa.Schema:
    """Return the columns in those of Arrow's types that Spark reads.

    Raises ``InvalidOperation`` for timestamps with nanoseconds, which Spark would cut off.
    """
    return pa.schema([field.with_type(_spark_type(field.type, field.name)) for field in schema])


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows in ``spark_types``."""
    return as_declared(batch, spark_types(batch.schema))


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows in exactly the columns declared to Spark; missing ones are NULL.

    Spark from 4.2 on refuses rows that declare a column as never NULL, if it was not declared so to
    Spark.
    """
    if batch.schema.equals(schema):
        return batch
    present = batch.schema.names
    columns = [
        _as_type(batch.column(field.name), field.type)
        if field.name in present
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow refuses to cast a NULL struct with a field that is never NULL, even to its own type.
    # https://github.com/apache/arrow/issues/37072
    return values if values.type.equals(kind) else values.cast(kind)


def may_be_null_beyond(declared: pa.Field, actual: pa.Field) -> bool:
    """Return whether a column may have NULL, at any depth, where ``declared`` declares none.

    The types are equal except for that.
    """
    if actual.nullable and not declared.nullable:
        return True
    kinds = zip(_fields_of(declared.type), _fields_of(actual.type), strict=True)
    return any(may_be_null_beyond(*pair) for pair in kinds)


def _fields_of(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return list(kind) if pa.types.is_struct(kind) else []


def _spark_type(kind: pa.DataType, column: str) -> pa.DataType:
    types = pa.types
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_time64(kind):
        return pa.time64("ns")
    if types.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", kind.tz)
    if types.is_timestamp(kind) and kind.unit == "ns":
        raise InvalidOperation(
            f"column {column} has nanoseconds, which Spark's timestamps have not: read the other "
            "columns, or read it without Spark"
        )
    if types.is_struct(kind):
        return pa.struct([f.with_type(_spark_type(f.type, f"{column}.{f.name}")) for f in kind])
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(
            key.with_type(_spark_type(key.type, f"{column}.key")),
            item.with_type(_spark_type(item.type, f"{column}.value")),
        )
    if types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_spark_type(item.type, f"{column}.element")))
    return kind


def first_line(error: BaseException) -> str:
    """Return the message of a Spark error, without its stack traces."""
    text: Any = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(_OF_PY4J):
        # These are py4j's own words, which don't contain the reason; the last cause is the first
        # error.
        causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
        lines = causes[-1:] or [line.removeprefix(": ") for line in lines[1:]] or lines
    return lines[0][:500] if lines else type(error).__name__
