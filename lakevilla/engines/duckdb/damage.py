"""Which data file, or its entry in the log, is damaged: once a statement over several has failed.

DuckDB says what it could not decode, and mostly not in which file; and what it reads out of a
damaged one may look like a mistake of whoever wrote the statement. So each file is read
alone, after the failure: nothing is asked where nothing fails (hazard 41).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.casting import not_unicode
from lakevilla.engines.base import DataAccess, TableInput
from lakevilla.engines.duckdb.database import BATCH_ROWS, Database
from lakevilla.engines.duckdb.failures import doubt_of, translated
from lakevilla.engines.duckdb.files import readable_path
from lakevilla.engines.duckdb.sqltext import is_bytes, is_text, quote_text, sql_type
from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedTableFeature
from lakevilla.formats.base import Layout
from lakevilla.formats.paths import file_key

__all__ = ["looked_into", "watched"]

#: What is read again where the error does not say that a file could not be decoded.
_LOOK_BYTES = 256 * 1024 * 1024


@contextmanager
def looked_into(
    data: DataAccess, database: Database, tables: Iterable[TableInput], name: str | None
) -> Iterator[None]:
    """Raise ``CorruptObject`` for an error inside the block that a damaged file has caused.

    ``UnsupportedTableFeature`` where the file has text that is not UTF-8, as Spark may write it.
    ``name`` is the table's in messages, None where there may be several.
    """
    try:
        with translated(name):
            yield
    except LakeVillaError as error:
        doubt = doubt_of(error)
        if doubt is None:
            raise
        limit = None if doubt == "decoding" else _LOOK_BYTES
        found: LakeVillaError | None = _first_unreadable(database, tables)
        found = found or _first_damaged(data, database, tables, limit)
        if found is None:
            raise
        raise found from error


def watched(
    data: DataAccess, database: Database, table: TableInput, rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows as they come, with the same care."""
    with looked_into(data, database, [table], table.layout.table):
        yield from rows


def _first_unreadable(database: Database, tables: Iterable[TableInput]) -> CorruptObject | None:
    """The first partition value of Delta's that is not of its column's type."""
    for table in tables:
        layout = table.layout
        for name in layout.partition_by:
            place = layout.schema.get_field_index(name)
            kind = sql_type(layout.schema.field(place).type)
            if kind in ("VARCHAR", "BLOB"):
                continue  # any text is one
            values = pc.map_lookup(
                table.files["partition_values"].combine_chunks(),
                query_key=layout.physical.field(place).name,
                occurrence="first",
            )
            with closing(database.cursor()) as cursor:
                texts = pa.table({"v": values.unique()})
                cursor.register("__lakevilla_texts", texts)
                bad = cursor.execute(
                    f"SELECT v FROM __lakevilla_texts WHERE v <> '' "
                    f"AND TRY_CAST(v AS {kind}) IS NULL LIMIT 1"
                ).fetchone()
            if bad is None:
                continue
            path = table.files["path"][values.index(bad[0]).as_py()].as_py()
            return CorruptObject(
                f"table {layout.table}: the log gives data file {path} the value {bad[0]!r} for "
                f"partition column {name}, which is no {kind.lower()}: restore the table to a "
                "version without the file, or mend the log with the client that wrote it",
                key=file_key(layout.location, path),
                table=layout.table,
            )
    return None


def _first_damaged(
    data: DataAccess, database: Database, tables: Iterable[TableInput], limit: int | None
) -> LakeVillaError | None:
    looked = 0
    for table in tables:
        columns = (table.files[name].to_pylist() for name in ("path", "size"))
        for path, size in zip(*columns, strict=True):
            looked += size
            if limit is not None and looked > limit:
                return None
            key = file_key(table.layout.location, path)
            column = _broken_text(data, table.layout, key, size)
            if column is not None:
                return UnsupportedTableFeature(
                    f"column {column} of table {table.layout.table} has text that is not UTF-8 in "
                    f"data file {key}, which LakeVilla does not read: write it anew with a client "
                    "that reads it, as a binary column or as UTF-8; if it was UTF-8 once, the file "
                    "was damaged since",
                    table=table.layout.table,
                )
            try:
                why = _damage(data, database, key, size)
            except CorruptObject as error:  # it is gone, or shorter than the log says
                why = error.message
            if why is not None:
                return CorruptObject(
                    f"data file {key} of table {table.layout.table} can't be decoded "
                    f"({why}): restore it from a backup, or restore the table to a version "
                    "without it; `lakevilla doctor ROOT --files` looks at all files",
                    key=key,
                    table=table.layout.table,
                )
    return None


def _broken_text(data: DataAccess, layout: Layout, key: str, size: int) -> str | None:
    """The column of a file that can be decoded, but for text that is not UTF-8; None if none is.

    Also one that the file calls bytes, and the table text.
    """
    texts = {field.name for field in layout.physical if is_text(field.type)}
    found = None
    try:
        with (
            data.open_input(key, size) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            for batch in file.iter_batches():
                found = found or not_unicode(batch) or _not_text(batch, texts)
    except (pa.ArrowException, OSError, CorruptObject):
        return None  # which is told for itself
    return found


def _not_text(batch: pa.RecordBatch, texts: set[str]) -> str | None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in texts and is_bytes(column.type):
            try:
                column.cast(pa.string())
            except pa.ArrowInvalid:
                return str(name)
    return None


def _damage(data: DataAccess, database: Database, key: str, size: int) -> str | None:
    """What is wrong with a file, read whole; None if it can be decoded.

    By pyarrow, which verifies the checksums of pages that have some, and by DuckDB, which
    checks text.
    """
    try:
        with (
            data.open_input(key, size) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            for _ in file.iter_batches():
                pass
    except pa.ArrowNotImplementedError:
        pass  # sound, and of a kind that pyarrow lacks
    except (pa.ArrowException, OSError) as error:
        return str(error).strip().splitlines()[0]
    try:
        with closing(database.cursor()) as cursor:
            path = quote_text(readable_path(data, key, size))
            rows = cursor.execute(f"SELECT * FROM read_parquet({path})")
            for _ in rows.to_arrow_reader(BATCH_ROWS):
                pass
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        return str(error).strip().splitlines()[0]
    return None
