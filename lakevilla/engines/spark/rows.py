"""Spark DataFrames as rows: their columns in Arrow's types, and Arrow's in Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: How py4j begins an error of the JVM that PySpark has no kind for.
_OF_PY4J = "An error occurred while calling "


@dataclass(frozen=True, slots=True)
class SparkRows:
    """A DataFrame on its way into a table; ``schema`` are the columns that its rows will have."""

    frame: DataFrame
    schema: pa.Schema


def is_frame(data: object) -> bool:
    """Whether it is a DataFrame of Spark, classic or Connect."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(data).__mro__
    )


def arrow_schema(frame: Any, table: str) -> pa.Schema:
    """The columns of a DataFrame; Spark is asked to analyse it, and runs nothing.

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
    """The same columns, all of which take NULL, at any depth but for the keys of maps.

    Of rows Spark calls NOT NULL what merely happens to have none, such as a literal or a count.
    No table is to refuse NULL for ever because of that; one made of a ``StructType`` is.
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
    """Spark's columns in Arrow's types; raises ``InvalidOperation`` for one that has none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = []
    for column in columns.fields:
        try:
            if _becomes_another(column.dataType):
                raise NotImplementedError
            fields.append(to_arrow_schema(type(columns)([column])).field(0))
        except (PySparkException, pa.ArrowException, NotImplementedError) as error:
            raise InvalidOperation(
                f"column {column.name!r} for table {table!r} is of type "
                f"{column.dataType.simpleString()}, which no table stores: cast it",
                table=table,
            ) from error
    return pa.schema(fields)


#: Spark's types that it hands to Arrow as the structs of bytes that they are made of. The table
#: would have such a struct, and no reader would know what it was.
_OTHERS = ("variant", "geometry", "geography")


def _becomes_another(kind: Any) -> bool:
    """Whether a type, or one within it, is another one when it comes out of Arrow."""
    if kind.typeName() in _OTHERS:
        return True
    inner = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    inner += [field.dataType for field in getattr(kind, "fields", ())]
    return any(_becomes_another(one) for one in inner if one is not None)


def is_spark_schema(data: object) -> bool:
    """Whether it is a ``StructType``."""
    kind = type(data)
    return kind.__name__ == "StructType" and kind.__module__ == "pyspark.sql.types"


def spark_schema(schema: pa.Schema) -> StructType:
    """Columns as Spark declares them; all may be NULL, as in Spark's own readers.

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
    """The columns in those of Arrow's types that Spark reads.

    Raises ``InvalidOperation`` for timestamps with nanoseconds, which Spark would cut off.
    """
    return pa.schema([field.with_type(_spark_type(field.type, field.name)) for field in schema])


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in ``spark_types``."""
    wanted = spark_types(batch.schema)
    return batch if wanted.equals(batch.schema) else batch.cast(wanted)


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
    """What a Spark error says, without its stack traces."""
    text: Any = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(_OF_PY4J):
        # The bridge's own words, which say nothing of the reason; the last cause is the first.
        causes = [line.partition(": ")[2] for line in lines if line.startswith("Caused by: ")]
        lines = causes[-1:] or [line.removeprefix(": ") for line in lines[1:]] or lines
    return lines[0][:500] if lines else type(error).__name__
