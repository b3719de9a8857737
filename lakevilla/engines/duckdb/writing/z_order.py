"""A table's rows in the order of a Z curve, sorted by DuckDB, which spills what is too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakevilla.engines.duckdb.database import Database, stream
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.sqltext import name_list, quote_name
from lakevilla.engines.duckdb.writing.writer import Writer
from lakevilla.engines.zorder import SAMPLE_ROWS, boundaries, z_values

_Z = pa.field("__lakevilla_z", pa.uint64())


def in_z_order(
    database: Database, files: Files, writer: Writer, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of ``files``, all of one partition, in order; ``writer`` knows their columns.

    Two passes: a sample of the columns alone, then all rows with their place.
    """
    cursor = database.cursor()
    layout = files.layout
    keys = pa.schema([layout.schema.field(column) for column in columns])
    sample = stream(
        cursor,
        f"SELECT {name_list(columns)} FROM ({files.bind(cursor)}) "
        f"USING SAMPLE reservoir({SAMPLE_ROWS} ROWS) REPEATABLE (1)",
        keys,
        layout.table,
    )
    cuts = boundaries(pa.Table.from_batches(sample, keys))
    schema = pa.schema([*layout.schema, _Z])
    names = name_list(layout.schema.names)
    source = database.cursor()
    rows = writer.stream(source, f"SELECT {names} FROM ({files.bind(source)})")

    def placed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            z = z_values(batch.select(list(columns)), cuts)
            yield pa.RecordBatch.from_arrays([*batch.columns, z], schema=schema)

    sorter = database.cursor()
    writer.register(sorter, "__lakevilla_placed", placed(), schema)
    # Beside the curve the first column, so that one column alone sorts the rows whole.
    order = name_list([_Z.name]) + f", {quote_name(columns[0])}"
    return writer.stream(sorter, f"SELECT {names} FROM __lakevilla_placed ORDER BY {order}")
