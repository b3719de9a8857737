"""What the rows of a file have in columns that the file does not hold, as the log tells.

Partition values in a log are text: here they become keys to group files by, and SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.duckdb.sqltext import is_bytes, quote_text, sql_type

_ESCAPED = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")
#: Serialised partition values of one file, in the order of ``Layout.partition_by``.
PartitionKey = tuple[str | None, ...]
#: Columns that are not in a file, and the serialised value that all its rows have there.
Constants = tuple[tuple[str, str | None], ...]


def constants_of(table: TableInput, keys: Sequence[PartitionKey]) -> list[Constants]:
    """What the rows of each file have in columns that the file may lack.

    Delta's partition columns are in no file. An Iceberg table's are in all files but those
    that were taken over from elsewhere, as the files' footers tell.
    """
    layout = table.layout
    if not layout.constants:
        return [tuple(zip(layout.partition_by, key, strict=True)) for key in keys]
    found: list[Constants] = []
    for values in table.files.column("partition_values").to_pylist():
        known = dict(values or ())
        found.append(tuple((c, known[key]) for c, key in layout.constants if key in known))
    return found


def constants_within(table: TableInput) -> tuple[frozenset[int], ...]:
    """The fields within columns, by id, for which each file's partition has a value."""
    within = table.layout.constants_within
    if not within:
        count: int = table.files.num_rows
        return (frozenset(),) * count
    values = table.files.column("partition_values").to_pylist()
    known: list[dict[str, str | None]] = [dict(one or ()) for one in values]
    return tuple(frozenset(number for number, key in within if key in one) for one in known)


def partition_keys(table: TableInput) -> list[PartitionKey]:
    layout = table.layout
    if not layout.partition_by:
        return [()] * table.files.num_rows
    names = [
        layout.physical.field(layout.schema.get_field_index(column)).name
        for column in layout.partition_by
    ]
    # "" is Delta's NULL, and so is a value that the log lacks: one key for all.
    return [
        tuple(dict(values or ()).get(name) or None for name in names)
        for values in table.files.column("partition_values").to_pylist()
    ]


def written_keys(table: TableInput) -> list[PartitionKey | None]:
    """The partitions of files of the table's present spec; None for those of an older one."""
    keys = [field.key for field in table.layout.partition_fields]
    found: list[PartitionKey | None] = []
    for values in table.files.column("partition_values").to_pylist():
        known = dict(values or ())
        same = known.keys() == set(keys)
        found.append(tuple(known[key] for key in keys) if same else None)
    return found


def constant_sql(value: str | None, kind: pa.DataType) -> str:
    if value is None or (value == "" and not pa.types.is_string(kind)):
        return f"CAST(NULL AS {sql_type(kind)})"
    if pa.types.is_string(kind):
        return quote_text(value)
    if is_bytes(kind):
        return f"from_hex('{(binary_of(value) or b'').hex()}')"
    return f"CAST({quote_text(value)} AS {sql_type(kind)})"


def default_text(value: str | None, kind: pa.DataType) -> str:
    """A value for ``read_parquet``: as text, for all of its columns must give one type."""
    if value is None or (value == "" and not pa.types.is_string(kind)):
        return "CAST(NULL AS VARCHAR)"
    if isinstance(kind, pa.UuidType):
        return quote_text((binary_of(value) or b"").hex())
    if is_bytes(kind):
        return quote_text("".join(f"\\x{byte:02X}" for byte in binary_of(value) or b""))
    return quote_text(value)


def binary_of(value: str | None) -> bytes | None:
    r"""Bytes of a serialised binary value: ``\u0001\u0002``, or the characters themselves."""
    if not value:
        return None
    if _ESCAPED.fullmatch(value):
        return bytes(int(value[i + 2 : i + 6], 16) & 0xFF for i in range(0, len(value), 6))
    return value.encode()
