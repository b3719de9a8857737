"""Reading unchanged data through a connector of the session, at the bound version.

Spark prunes columns and pushes filters into its own reader as it does into no other reader. The
connector serves where the state of a table is a version of its log. Only LakeVilla's reader knows
the changes of a transaction, or a commit that is decided and not published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakevilla.engines.spark.rows import first_line
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.formats.delta.metadata.layout import CHAR_VARCHAR
from lakevilla.sql.expressions.bind import type_of
from lakevilla.sql.expressions.tree import Call, Column, Expr, columns
from lakevilla.sql.expressions.tree import Literal as Constant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHAR = re.compile(rf'"{CHAR_VARCHAR}"\s*:\s*"char\(')
#: The extension of a session that has a format's connector, and the connector's version option.
_CONNECTORS: dict[FormatName, tuple[str, str]] = {
    "delta": ("DeltaSparkSessionExtension", "versionAsOf"),
    "iceberg": ("IcebergSparkSessionExtensions", "versionAsOf"),
}
#: Settings with which Spark's own reader of files shows other rows than a table has, and the values
#: that do so: it skips files, or reads other timestamps and structs. Delta's connector uses this
#: reader, Iceberg's does not.
_SHOWS_OTHERS = {
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "legacy",
    "spark.sql.legacy.parquet.datetimeRebaseModeInRead": "legacy",
    "spark.sql.parquet.int96RebaseModeInRead": "legacy",
    "spark.sql.legacy.parquet.int96RebaseModeInRead": "legacy",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "true",
}
#: Characters that Hadoop reads as a pattern.
_PATTERN = re.compile(r"[{}\[\]*?\\]")


class NativeReader:
    """A reader that tries the session's connector, and stops using it once it has failed.

    Parameters
    ----------
    mode : {"auto", "native", "python"}
        ``native`` raises where ``auto`` falls back.
    place : callable
        Returns how the lake itself reaches the store.
    report : callable
        Called with table and reason if the connector could not read.
    """

    def __init__(
        self,
        mode: Literal["auto", "native", "python"],
        place: Callable[[], LakeAddress],
        report: Callable[[str, str], None],
    ) -> None:
        self._mode, self._place, self._report = mode, place, report
        self._failed: set[FormatName] = set()

    def frame(
        self,
        session: SparkSession,
        uri: str,
        format: FormatName,
        version: int | None,
        table: str,
        table_id: str,
        otherwise: bool,
        columns: Sequence[str] | None,
        where: Expr | None,
    ) -> DataFrame | None:
        """Return the rows at a version of the table; None if the connector can't read them.

        ``version`` is the value of ``Snapshot.time_travel``, or None.
        ``otherwise``: the result of ``reads_otherwise`` for the table.
        """
        if version is None or otherwise or not self._serves(session, uri, format, table):
            return None
        condition = None
        if where is not None:
            condition = _condition(where)
            if condition is None:
                return None
        try:
            option = _CONNECTORS[format][1]
            frame = session.read.format(format).option(option, version).load(uri)
            if format == "delta":  # all tables in the world have different Iceberg snapshot ids
                _check_identity(session, uri, table_id)
        except Exception as error:
            if self._mode == "native":
                raise InvalidOperation(
                    f"table {table}: Spark's {format.capitalize()} connector can't read version "
                    f"{version}: {first_line(error)}; give the session the connector and access "
                    "to the store, or connect with spark_reader='auto'",
                    table=table,
                ) from error
            self._failed.add(format)
            self._report(table, first_line(error))
            return None
        if condition is not None:
            frame = frame.where(condition)
        if columns is not None:
            frame = frame.select(*(_column(name) for name in columns))
        return frame

    def refuse_compared(self, table: str) -> None:
        """Refuse to compare files with their hashes where nothing but the connector may read."""
        if self._mode == "native":
            raise InvalidOperation(
                f"table {table}: with spark_reader='native' Spark's own connector reads, which "
                "compares no file with its hash: connect with spark_reader='auto' or 'python' to "
                "read with verify='on'",
                table=table,
            )

    def _serves(self, session: SparkSession, uri: str, format: FormatName, table: str) -> bool:
        if self._mode == "native":
            if setting := _that_shows_others(session, format):
                raise InvalidOperation(
                    f"table {table}: with {setting} Spark's own reader shows other rows than the "
                    "table has: unset it, or connect with spark_reader='auto'",
                    table=table,
                )
            return True
        if self._mode == "python" or format in self._failed or _PATTERN.search(uri):
            return False
        if not uri.startswith("/") and self._place().storage_options:
            # The store that serves this process may be another one than the one in Hadoop's
            # settings.
            return False
        if _CONNECTORS[format][0] not in str(session.conf.get("spark.sql.extensions", "")):
            return False
        return _that_shows_others(session, format) is None


def _that_shows_others(session: SparkSession, format: FormatName) -> str | None:
    """Return a setting of the session with which the connector shows other rows, with its value."""
    if format != "delta":
        return None
    # Request all settings of a server at once; one request for each to a JVM is quicker than for
    # all.
    served = type(session).__module__.startswith("pyspark.sql.connect.")
    read_conf: Callable[..., Any] = session.conf.getAll.get if served else session.conf.get
    for name, value in _SHOWS_OTHERS.items():
        found = str(read_conf(name, None))
        if found.lower() == value:
            return f"{name}={found}"
    return None


def reads_otherwise(
    metadata: Mapping[str, Any], schema: pa.Schema, where: Expr | None = None
) -> bool:
    """Return whether the connector shows values of a table as no other reader of the lake does.

    It pads columns of ``char(n)``, at any depth, with blanks, also where it compares them; it shows
    UUIDs as text and no times of day. If a Delta log has a partition's time without a zone, as
    deltalake writes it, the connector reads it in the session's zone instead of UTC. It does not
    compare maps, as ``where``, bound, may.
    """
    # https://github.com/delta-io/delta-kernel-rs/pull/2894 (times without a zone)
    padded = _CHAR.search(str(metadata.get("schemaString", ""))) is not None
    times = {field.name for field in schema if getattr(field.type, "tz", None) is not None}
    shifted = not times.isdisjoint(metadata.get("partitionColumns", ()))
    used = () if where is None else columns(where)
    maps = any("map<" in type_of(column, schema) for column in used)
    return padded or shifted or maps or any(map(_is_unlike, schema.types))


def _is_unlike(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_is_unlike(kind.field(i).type) for i in range(kind.num_fields))
    return bool(
        pa.types.is_fixed_size_binary(kind)
        or pa.types.is_time(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "ns")
    )


def _check_identity(session: SparkSession, uri: str, table_id: str) -> None:
    """Refuse a path that may name another table for Spark: a store's may be in another bucket
    there.
    """
    if uri.startswith("/"):
        return
    quoted = uri.replace("`", "``")
    row: Any = session.sql(f"DESCRIBE DETAIL delta.`{quoted}`").select("id").first()
    if row["id"] != table_id:
        raise ValueError("under this path Spark finds another table")


def _condition(where: Expr) -> Any:
    """Return a bound predicate as Spark's, where both engines agree on every value; else None."""
    if not isinstance(where, Call):
        return None
    name, args = where.name, where.args
    if name in ("and", "or"):
        parts = [_condition(arg) for arg in args]
        if any(part is None for part in parts):
            return None
        return reduce(and_ if name == "and" else or_, parts)
    if name == "not":
        inner = _condition(args[0])
        return None if inner is None else ~inner
    column = _operand(args[0])
    if name == "is_null":
        return None if column is None else column.isNull()
    if name not in _COMPARISONS and name != "in":
        return None
    others = [_operand(arg) for arg in args[1:]]
    if column is None or any(other is None for other in others):
        return None
    if name == "in":
        return column.isin(*others)
    return _COMPARISONS[name](column, others[0])


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
    "<=>": lambda left, right: left.eqNullSafe(right),
}


def _operand(expr: Expr) -> Any:
    from pyspark.sql import functions

    if isinstance(expr, Column) and len(expr.path) == 1 and expr.table is None:
        return _column(expr.path[0])
    if isinstance(expr, Constant) and expr.value is not None:
        if expr.type == "string":
            return functions.lit(expr.value)
        if expr.type in ("byte", "short", "integer", "long"):
            return functions.lit(int(expr.value)).cast("bigint")
        # years in which all calendars agree
        if expr.type == "date" and "1583" <= expr.value < "9999":
            return functions.lit(expr.value).cast("date")
        if expr.type.startswith("decimal"):
            return functions.lit(expr.value).cast(expr.type)
    return None


def _column(name: str) -> Any:
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")
