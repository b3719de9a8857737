"""Rows put aside: as Arrow IPC streams, of which those on the store are read again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lakevilla.engines.base import DataAccess, StagedRows
from lakevilla.errors import CorruptObject


def read_staged(data: DataAccess, rows: StagedRows) -> pa.RecordBatchReader:
    """The rows, object by object, in bounded memory.

    Raises
    ------
    CorruptObject
        While it is read: an object is gone, or cut short.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for key in rows.keys:
            try:
                with data.open_input(key) as file, pa.ipc.open_stream(file) as stream:
                    yield from stream
            except (pa.ArrowException, OSError) as error:
                raise CorruptObject(
                    f"{key}, which holds rows of a transaction, can't be read: {error}; "
                    "run the transaction again",
                    key=key,
                ) from error

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def to_ipc(rows: pa.Table) -> bytes:
    """The rows as one Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
