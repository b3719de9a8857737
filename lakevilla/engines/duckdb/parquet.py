"""How data files are encoded, by pyarrow and by DuckDB alike: codec, field ids, types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.engines.duckdb.sqltext import quote_name
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Layout

__all__ = ["copy_options", "encode"]

_CODECS = ("snappy", "zstd", "gzip", "brotli", "lz4")


def encode(rows: pa.Table, layout: Layout) -> bytes:
    """A whole Parquet file, in memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=_codec(layout),
        # Types come from the table's schema; the Arrow schema in each file
        # would be dead weight.
        store_schema=False,
        store_decimal_as_integer=True,
    )
    return bytes(sink.getvalue())


def copy_options(schema: pa.Schema, layout: Layout) -> str:
    """Options of DuckDB's COPY for one file of the physical ``schema``."""
    options = ["FORMAT parquet", "RETURN_STATS", f"COMPRESSION {_duckdb_codec(layout)}"]
    identifiers = _field_identifiers(schema)
    if identifiers:
        options.append(f"FIELD_IDS {identifiers}")
    return ", ".join(options)


def _codec(layout: Layout) -> str:
    codec = layout.compression.lower()
    if codec in ("none", "uncompressed"):
        return "none"
    if codec not in _CODECS:
        raise InvalidOperation(
            f"table {layout.table}: compression {layout.compression} is not supported; "
            f"use one of {', '.join(_CODECS)} or none",
            table=layout.table,
        )
    return codec


def _duckdb_codec(layout: Layout) -> str:
    codec = _codec(layout)
    return {"none": "uncompressed", "lz4": "lz4_raw"}.get(codec, codec)


def _field_identifiers(schema: pa.Schema) -> str:
    """DuckDB's FIELD_IDS for fields that carry Parquet ids; "" for none."""
    entries = [_identifier_entry(field) for field in schema]
    found = [entry for entry in entries if entry]
    return "{" + ", ".join(found) + "}" if found else ""


def _identifier_entry(field: pa.Field, name: str | None = None) -> str:
    identifier = (field.metadata or {}).get(b"PARQUET:field_id")
    if identifier is None:
        return ""
    kind, inner = field.type, []
    if pa.types.is_struct(kind):
        inner = [_identifier_entry(kind.field(i)) for i in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [
            _identifier_entry(kind.key_field, "key"),
            _identifier_entry(kind.item_field, "value"),
        ]
    elif pa.types.is_list(kind):
        inner = [_identifier_entry(kind.value_field, "element")]
    parts = [entry for entry in inner if entry]
    label = quote_name(name or field.name)
    if not parts:
        return f"{label}: {int(identifier)}"
    return f"{label}: {{__duckdb_field_id: {int(identifier)}, {', '.join(parts)}}}"
