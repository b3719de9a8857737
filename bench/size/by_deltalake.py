"""What deltalake does to a large table, as a process of its own calls it."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.size.wide_rows import ROW_BYTES, SCHEMA, batches, source


def prune(root: str, table: str) -> dict[str, float]:
    """Open and prune to one partition; how many files are left."""
    found = DeltaTable(f"{root}/{table}").file_uris(file_pruning_predicate="part = 7")
    return {"files": len(found)}


def create(path: str, gigabytes: float) -> dict[str, float]:
    """A Delta table of about that size in files of some 100 MB; how many rows it has."""
    rows = int(gigabytes * 1e9 / ROW_BYTES) // 100 * 100
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(rows))
    write_deltalake(path, reader, target_file_size=100_000_000)
    return {"rows": rows}


def rewrite(root: str, statement: str, rows: int) -> dict[str, float]:
    """Update, or merge into, 1% of the rows."""
    table = DeltaTable(f"{root}/t")
    if statement == "update":
        table.update(updates={"quantity": "quantity + 1"}, predicate="id % 100 = 7")
        return {}
    (
        table.merge(
            source(rows), "source.id = target.id", source_alias="source", target_alias="target"
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    return {}
