"""The rows of a large table, which compress little, and those of a statement that changes 1%."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

ROWS_PER_BATCH = 100_000
ROW_BYTES = 115  # of a stored row, about
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("quantity", pa.int32()),
        ("price", pa.float64()),
        ("discount", pa.float64()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("code", pa.string()),
    ]
)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows that compress little, so that the size on disk is about the size of the data."""
    generator = np.random.default_rng(7)
    for start in range(0, rows, ROWS_PER_BATCH):
        count = min(ROWS_PER_BATCH, rows - start)
        text = generator.bytes(count * 24).hex()
        notes = pa.array([text[i * 48 : i * 48 + 48] for i in range(count)])
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count)),
                pa.array(generator.integers(0, 1 << 40, count)),
                pa.array(generator.integers(0, 1 << 20, count), pa.int32()),
                pa.array(generator.random(count)),
                pa.array(generator.random(count)),
                pa.array(generator.integers(0, 20_000, count).astype(np.int32), pa.date32()),
                notes,
                pa.array([f"{n:x}" for n in generator.integers(0, 1 << 60, count)]),
            ],
            schema=SCHEMA,
        )


def source(rows: int) -> pa.RecordBatchReader:
    """1% of the rows, with new values."""

    def some() -> Iterator[pa.RecordBatch]:
        for batch in batches(rows // 100):
            numbers = np.asarray(batch.column(0)) * 100 + 7
            yield batch.set_column(0, SCHEMA.field(0), pa.array(numbers))

    return pa.RecordBatchReader.from_batches(SCHEMA, some())
