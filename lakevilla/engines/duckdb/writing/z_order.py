"""A table's rows in the order of a Z curve, sorted by DuckDB, which spills what exceeds memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from lakevilla.engines.duckdb.database import Database, stream
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.sqltext import name_list, quote_name
from lakevilla.engines.duckdb.writing.writer import Writer
from lakevilla.engines.zorder import SAMPLE_ROWS, boundaries, z_values
from lakevilla.formats.layout import Layout

#: A row's place on the curve.
Z = pa.field("__lakevilla_z", pa.uint64())


def in_z_order(
    database: Database, files: Files, writer: Writer, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return the rows of ``files``, all of one partition, in order; ``writer`` knows their columns.

    It takes two passes: a sample of the columns alone, then all rows with their place.
    """
    layout = files.layout
    cuts = boundaries(sampled(database, files, columns, SAMPLE_ROWS))
    schema = placed_schema(layout)
    source = database.cursor()
    names = name_list(writer.schema.names)
    rows = writer.stream(source, f"SELECT {names} FROM ({files.bind(source, lineage=True)})")

    def placed() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            z = z_values(batch.select(list(columns)), cuts)
            yield pa.RecordBatch.from_arrays([*batch.columns, z], schema=schema)

    return sorted_along(database, placed(), writer, columns)


def placed_schema(layout: Layout) -> pa.Schema:
    """Return the columns of rows on their way into other files, with their place on the curve."""
    return pa.schema([*layout.moved_schema, Z])


def sampled(database: Database, files: Files, columns: Sequence[str], rows: int) -> pa.Table:
    """Return so many rows of some columns, the same rows each time."""
    cursor = database.cursor()
    layout = files.layout
    schema = pa.schema([layout.schema.field(column) for column in columns])
    sql = (
        f"SELECT {name_list(columns)} FROM ({files.bind(cursor)}) "
        f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE (1)"
    )
    return pa.Table.from_batches(stream(cursor, sql, schema, layout.table), schema)


def sorted_along(
    database: Database, placed: Iterable[pa.RecordBatch], writer: Writer, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return rows that have their place ``Z`` on the curve, sorted by it."""
    sorter = database.cursor()
    writer.register(sorter, "__lakevilla_placed", placed, placed_schema(writer.layout))
    # Sort by the first column after the curve, so that for one column alone the rows are sorted
    # fully.
    order = name_list([Z.name]) + f", {quote_name(columns[0])}"
    names = name_list(writer.schema.names)
    return writer.stream(sorter, f"SELECT {names} FROM __lakevilla_placed ORDER BY {order}")
