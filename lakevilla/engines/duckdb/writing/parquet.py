"""Options of Parquet files, and the order of rows within them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.engines.duckdb.sqltext import has_bytes, quote_name
from lakevilla.engines.partitions import transformed, transformed_type
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout

# -------------------- parquet
#
# The encoding of data files, by pyarrow and by DuckDB alike: codec, field ids, types.


_CODECS = ("snappy", "zstd", "gzip", "brotli", "lz4")


def encode(rows: pa.Table, layout: Layout) -> bytes:
    """Return a whole Parquet file, in memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=_codec(layout),
        # Types are read from the table's schema; the Arrow schema in each file would be dead
        # weight.
        store_schema=False,
        store_decimal_as_integer=True,
        write_statistics=_columns_with_statistics(rows),
        use_dictionary=_columns_in_dictionaries(rows),
        # Checksums cost a few per cent (bench/engines/page_checksums.py). A reader that verifies
        # them (pyarrow, Spark, LakeVilla's check of a file after a failure) finds a flipped bit.
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _columns_with_statistics(rows: pa.Table) -> bool | list[str]:
    """Return the columns of which the file has statistics.

    Statistics leave NaN out, and other readers, including Spark, then drop rows for which ``x > 5``
    is true. DuckDB writes none for a column with NaN either.
    """
    clean = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if not _has_nan(column)
    ]
    if len(clean) == rows.num_columns:
        return True
    # A nested column would be named by its leaves: it gets no statistics.
    return [name for name in clean if not pa.types.is_nested(rows.schema.field(name).type)]


def _has_nan(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_nan(column)).as_py())
    if pa.types.is_struct(kind):
        return any(_has_nan(part) for part in column.flatten())
    if pa.types.is_map(kind):
        parts = (part for chunk in column.chunks for part in (chunk.keys, chunk.items))
        return any(_has_nan(pa.chunked_array([part])) for part in parts)
    return bool(pa.types.is_nested(kind)) and _has_nan(pc.list_flatten(column))


#: The rows by which a column is judged; rows so few that no column is.
_SAMPLE_ROWS, _FEW_ROWS = 4096, 16_384


def _columns_in_dictionaries(rows: pa.Table) -> bool | list[str]:
    """Return the columns of which the writer tries to make a dictionary.

    It would collect all values of the others in vain, which takes half of the time. A column is
    left out if few of its values occur four times: the rows of a sample that have the value of
    another one tell how many different values there are. A sample at random finds values, too, that
    come again only after many rows.
    """
    count = rows.num_rows
    # A nested column would be named by its leaves.
    if count < _FEW_ROWS or any(map(pa.types.is_nested, rows.schema.types)):
        return True
    places = pa.array(np.sort(np.random.default_rng(0).choice(count, _SAMPLE_ROWS, replace=False)))
    least = _SAMPLE_ROWS**2 * 2 // count
    return [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if _SAMPLE_ROWS - len(column.take(places).unique()) > least
    ]


#: The number of distinct values at which DuckDB abandons a dictionary. It tries a dictionary for
#: each column of each row group of 122,880 rows. If values occur fewer than fifteen times each, a
#: dictionary saves little. By default DuckDB would collect a fifth of the rows; doing so in vain
#: took a sixth of the time of a COPY of ids and texts.
_MOST_IN_DICTIONARY = 8192


def copy_options(schema: pa.Schema, layout: Layout, *, dictionaries: bool = True) -> str:
    """Return options of DuckDB's COPY for one file of the physical ``schema``.

    ``dictionaries``: False for rows with negative zeros (`lakevilla.engines.duckdb.writing.zeros`).
    """
    options = ["FORMAT parquet", "RETURN_STATS", f"COMPRESSION {_duckdb_codec(layout)}"]
    options.append(f"DICTIONARY_SIZE_LIMIT {_MOST_IN_DICTIONARY if dictionaries else 0}")
    if any(map(has_bytes, schema.types)):
        # DuckDB itself does not find bytes by the Bloom filters that it writes (reading.above).
        # https://github.com/duckdb/duckdb/pull/23829
        options.append("WRITE_BLOOM_FILTER false")
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
    # By default DuckDB compresses harder than pyarrow, Spark and deltalake do: a merge of rows with
    # texts of random digits took a sixth more time for files that were no smaller, and TPC-H's
    # tables are written in a sixth less time at 1 to 2% more bytes.
    names = {"none": "uncompressed", "lz4": "lz4_raw", "zstd": "zstd, COMPRESSION_LEVEL 1"}
    return names.get(codec, codec)


def _field_identifiers(schema: pa.Schema) -> str:
    """Return DuckDB's FIELD_IDS for fields that have Parquet ids; "" for none."""
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


# -------------------- ordering
#
# The order of rows within a file, as the table defines it: the terms of ORDER BY.
#
# DuckDB compares strings and bytes by their bytes, as Iceberg does (spec, "Sorting"). Floats are
# sorted by their bits. DuckDB treats as equal what Iceberg distinguishes: zeros of either sign, and
# NaNs of either sign. If it sorts by the column itself, it returns another zero than it was given.
# https://github.com/duckdb/duckdb/issues/25417


class Order:
    """A table's sort order; without one, ``terms`` is empty.

    Terms are over the table's columns and the columns that ``derived`` adds to the rows:
    ``derived_fields``, the values of transforms.
    """

    def __init__(self, layout: Layout) -> None:
        self.terms: list[str] = []
        self.derived_fields: list[pa.Field] = []
        self._made: list[tuple[str, str]] = []
        for number, field in enumerate(layout.sort_by):
            kind, name = layout.schema.field(field.column).type, field.column
            if field.transform != "identity":
                kind = transformed_type(field.transform, kind)
                name = f"__lakevilla_sort_{number}"
                self.derived_fields.append(pa.field(name, kind))
                self._made.append((field.column, field.transform))
            self.terms.append(_term(name, kind, field.descending, field.nulls_first))

    def derived(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the values of transforms."""
        for added, (column, transform) in zip(self.derived_fields, self._made, strict=True):
            values = transformed(rows.column(column), transform)
            rows = rows.append_column(added, values.cast(added.type))
        return rows


def _term(name: str, kind: pa.DataType, descending: bool, nulls_first: bool) -> str:
    key = quote_name(name)
    if pa.types.is_floating(kind):
        integer = "INTEGER" if kind.bit_width == 32 else "BIGINT"
        bits, sign = f"CAST(CAST({key} AS BIT) AS {integer})", kind.bit_width - 1
        # For negative numbers, the larger bits are the smaller number.
        key = f"xor({bits}, ({bits} >> {sign}) & {(1 << sign) - 1})"
    return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
