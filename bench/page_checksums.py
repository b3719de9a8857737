"""What checksums of Parquet pages cost: to write, and to verify beside a scan by DuckDB.

``python bench/page_checksums.py``. Processor time, the least of five. The floor of any
verification beside DuckDB's scan is the checksum of the file's bytes alone: headers of pages
are not even parsed for it.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 2_000_000


def least(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of processor time."""
    took = []
    for _ in range(times):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def main() -> None:
    draw = np.random.default_rng(1)
    rows = pa.table(
        {
            "id": np.arange(ROWS),
            "x": draw.random(ROWS),
            "k": draw.integers(0, 1000, ROWS),
            "s": [f"name {n % 5000}" for n in range(ROWS)],
        }
    )
    few = rows.slice(0, 100)

    def written(table: pa.Table, checksums: bool) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=checksums, store_schema=False)
        return bytes(sink.getvalue())

    for name, table, times in (("100 rows", few, 200), (f"{ROWS:,} rows", rows, 1)):
        plain, summed = (
            least(lambda c=c, t=table, n=times: [written(t, c) for _ in range(n)])
            for c in (False, True)
        )
        print(f"write {name}: {100 * (summed / plain - 1):+.1f}% with checksums")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "rows.parquet")
        path.write_bytes(written(rows, True))
        body = path.read_bytes()
        connection = duckdb.connect(config={"threads": 1})
        whole = f"SELECT * FROM '{path}'"
        part = f"SELECT sum(x), count(*) FROM '{path}' WHERE k < 500"
        scan = least(lambda: connection.execute(whole).to_arrow_table())
        query = least(lambda: connection.execute(part).fetchall())
        checksum = least(lambda: zlib.crc32(body))
        verified = least(lambda: pq.read_table(path, page_checksum_verification=True))
        print(
            f"DuckDB: whole table {1000 * scan:.0f} ms, two of four columns {1000 * query:.0f} ms"
        )
        print(
            f"checksum of all {len(body) / 1e6:.0f} MB alone: {1000 * checksum:.1f} ms, "
            f"{100 * checksum / scan:.1f}% of the whole scan"
        )
        print(
            f"read once more by pyarrow, which verifies: {1000 * verified:.0f} ms, "
            f"{100 * verified / scan:.0f}%"
        )


if __name__ == "__main__":
    main()
