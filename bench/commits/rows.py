"""The rows of 100 that the benchmarks of commits append, and how many a table has in the end."""

from __future__ import annotations

from collections.abc import Mapping

import deltalake
import pyarrow as pa

ROWS = pa.table(
    {
        "id": pa.array(range(100), pa.int64()),
        "name": [f"name {number}" for number in range(100)],
        "price": [number / 7 for number in range(100)],
    }
)


def rows_in(uri: str, options: Mapping[str, str]) -> int:
    """Rows of a Delta table that was only appended to, as every reader of its log counts them."""
    table = deltalake.DeltaTable(uri, storage_options=dict(options) or None)
    found = pa.table(table.get_add_actions(flatten=True))["num_records"]
    return sum(found.to_pylist())
