"""A table that is loaded whole again and again, as a process of its own loads it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

import lakevilla as lv

ROWS_PER_BATCH = 100_000
#: Of the rows, how many a refresh has changed: one in so many.
ONE_IN = 1000
SCHEMA = pa.schema(
    [
        ("sku", pa.string()),
        ("qty", pa.int64()),
        ("price", pa.float64()),
        ("shop", pa.int32()),
        ("note", pa.string()),
    ]
)
KEPT, PLAIN = "kept", "plain"


def changed(edit: str, rows: int) -> np.ndarray:
    """The numbers of the rows that an edit changes."""
    count = max(1, rows // ONE_IN)
    if edit == "region":
        return np.arange(rows // 2, rows // 2 + count)
    if edit == "scattered":
        return np.arange(count) * ONE_IN
    if edit == "few scattered":
        return np.arange(max(1, count // 1000)) * ONE_IN * 1000
    return np.arange(0)


def batches(edit: str, rows: int) -> Iterator[pa.RecordBatch]:
    """All rows as they are after an edit, in no order of the key."""
    edited = changed(edit, rows)
    parts = np.random.default_rng(1).permutation(range(0, rows, ROWS_PER_BATCH))
    for start in parts.tolist():
        drawn = np.random.default_rng((7, start))
        numbers = drawn.permutation(np.arange(start, min(start + ROWS_PER_BATCH, rows)))
        count = len(numbers)
        text = pc.cast(pa.array(numbers), pa.string())
        quantity = drawn.integers(0, 1 << 20, count)
        quantity[np.isin(numbers, edited)] += 1
        yield pa.record_batch(
            [
                pc.binary_join_element_wise("sku", pc.utf8_lpad(text, 9, "0"), "-"),
                pa.array(quantity),
                pa.array(drawn.random(count)),
                pa.array(drawn.integers(0, 1000, count), pa.int32()),
                pc.cast(pa.array(drawn.integers(0, 1 << 60, count)), pa.string()),
            ],
            schema=SCHEMA,
        )


def read_through(edit: str, rows: int) -> dict[str, float]:
    """Make the rows, and do nothing with them: that much of each other step is not its own."""
    return {"rows": float(sum(batch.num_rows for batch in batches(edit, rows)))}


def load(root: str, table: str, edit: str, rows: int, memory_bytes: int) -> dict[str, float]:
    """Overwrite a table with all rows; how many files and bytes that added."""
    settings = lv.Settings(memory_limit_bytes=memory_bytes)
    with lv.connect(root, settings=settings) as lake:
        if table not in lake:
            lake.create_table(table, SCHEMA)
        before = lake.history(1)[0].version
        reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(edit, rows))
        with lake.transaction() as txn:
            keys = ("sku",) if table == KEPT else None
            done = txn.overwrite(table, reader, reuse_by=keys)
            added, removed = done.files_added, done.files_removed
        live = _files(lake, table)
        own = {path: size for path, size in live.items() if txn.id in path}
        assert len(own) == added
    return {
        "files": added,
        "files_removed": removed,
        "files_live": len(live),
        "bytes": sum(own.values()),
        "bytes_live": sum(live.values()),
        "since": before,
    }


def shown(root: str, table: str, since: float) -> dict[str, float]:
    """How many rows ``changes`` shows."""
    with lv.connect(root) as lake, lake.snapshot() as now:
        return {"rows": now.changes(table, since=int(since)).num_rows}


def _files(lake: lv.Lake, table: str) -> dict[str, int]:
    """The live files and their sizes, as deltalake tells them."""
    actions = pa.table(DeltaTable(lake.table(table).uri).get_add_actions())
    paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
    return dict(zip(paths, sizes, strict=True))
