"""Rows to tiny Parquet files and back: the contents of simulated tables."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, Any]


def encode_rows(rows: Sequence[Row], schema: pa.Schema) -> bytes:
    """Return the rows as one Parquet file; equal rows give equal bytes."""
    return encode_table(pa.Table.from_pylist([dict(row) for row in rows], schema=schema))


def encode_table(table: pa.Table) -> bytes:
    """Return a table as one Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue()


@lru_cache(maxsize=8192)
def decode_rows(body: bytes) -> tuple[Row, ...]:
    """Return the rows of a Parquet file. All readers share them: do not change them.

    It is safe to cache rows by content: a file's bytes determine its rows.
    """
    table = pq.read_table(pa.BufferReader(body), use_threads=False)
    return tuple(table.to_pylist(maps_as_pydicts="strict"))


@lru_cache(maxsize=8192)
def decode_by_id(body: bytes) -> tuple[Mapping[int, Any], ...]:
    """Return a Parquet file's rows by field ids of columns; columns without an id are left out."""
    schema = pq.read_schema(pa.BufferReader(body))
    ids = {f.name: int(f.metadata[_ID]) for f in schema if f.metadata and _ID in f.metadata}
    return tuple({ids[name]: row[name] for name in ids} for row in decode_rows(body))


_ID = b"PARQUET:field_id"
