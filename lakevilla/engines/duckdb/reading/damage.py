"""The search for a damaged data file, or its log entry, after a statement over several has failed.

DuckDB reports what it could not decode, and mostly not in which file; and the values that it reads
out of a damaged file may look like a mistake in the user's statement. So each file is read alone,
after the failure: nothing is requested where nothing fails (hazard 41).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.engines.base import DataAccess, TableInput
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database, arrow_reader
from lakevilla.engines.duckdb.failures import (
    doubt_of,
    is_lacking,
    is_no_text,
    of_disk,
    said,
    translated,
)
from lakevilla.engines.duckdb.file_system import readable_path
from lakevilla.engines.duckdb.reading.relation import Files, data_columns, whole_files
from lakevilla.engines.duckdb.sqltext import name_list, quote_text, sql_type
from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedTableFeature
from lakevilla.formats.files import file_key

#: The most bytes that are read again if the error does not say that DuckDB could not decode a file.
_LOOK_BYTES = 256 * 1024 * 1024
#: DuckDB's message about a value that the table's type can't hold.
_MISFIT = re.compile(r"failed to cast column .* from type (?P<held>.*) to .*?: :? ?(?P<why>[^\n]*)")


@contextmanager
def looked_into(
    data: DataAccess, database: Database, tables: Iterable[TableInput], name: str | None
) -> Iterator[None]:
    """Raise ``CorruptObject`` for an error inside the block that a damaged file has caused.

    ``UnsupportedTableFeature`` where the file has text that is not UTF-8, as Spark may write it,
    a value that the column's type can't hold, or an encoding that DuckDB does not know.
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
    """Yield the rows as they are read; errors are raised as by ``looked_into``."""
    with looked_into(data, database, [table], table.layout.table):
        yield from rows


def _first_unreadable(database: Database, tables: Iterable[TableInput]) -> CorruptObject | None:
    """Return an error for the first partition value of Delta's that is not of its column's type."""
    for table in tables:
        layout = table.layout
        for name in layout.partition_by:
            index = layout.schema.get_field_index(name)
            kind = sql_type(layout.schema.field(index).type)
            if kind in ("VARCHAR", "BLOB"):
                continue  # any text is valid
            values = pc.map_lookup(
                table.files["partition_values"].combine_chunks(),
                query_key=layout.physical.field(index).name,
                occurrence="first",
            )
            with closing(database.cursor(watched=False)) as cursor:
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
        files = whole_files(data, table, "damaged")
        for index, (path, size) in enumerate(zip(table.files["path"], files.sizes, strict=True)):
            looked += size
            if limit is not None and looked > limit:
                return None
            key = file_key(table.layout.location, path.as_py())
            try:
                why = _damage(data, key, size)
            except CorruptObject as error:  # the file is missing, or shorter than the log says
                why = error.message
            found = None if why is not None else _unfit(database, files.only([index]), key)
            if found is not None:
                return found
            why = why or _damage_to_duckdb(data, database, key, size)
            if why is not None:
                return CorruptObject(
                    f"data file {key} of table {table.layout.table} can't be decoded ({why}): "
                    "restore it from a backup, or restore the table to a version without it; "
                    "`lakevilla doctor ROOT --files` checks all files",
                    key=key,
                    table=table.layout.table,
                )
    return None


def _unfit(database: Database, file: Files, key: str) -> UnsupportedTableFeature | None:
    """Return an error if a sound file has a value that the table's column can't hold.

    Such values are bytes that are no text, or a number that is too large. The error may also be an
    encoding that DuckDB does not know. The file is read as the table reads it: so a column is found
    under any name or number that the file has for it.
    """
    layout = file.layout
    fields = [layout.schema.field(place) for place in data_columns(layout)]
    for field, text in _unread(database, file, fields):
        column = f"column {field.name} of table {layout.table}"
        misfit = _MISFIT.search(text)
        if misfit is not None:
            return UnsupportedTableFeature(
                f"{column} has type {field.type}, and in data file {key} it is "
                f"{misfit['held'].lower()} with a value that does not fit "
                f"({misfit['why'].strip()}), which LakeVilla does not read: widen the column, "
                "or write the file again with a client that reads it",
                table=layout.table,
            )
        if is_lacking(text):
            return UnsupportedTableFeature(
                f"{column} is stored in data file {key} as LakeVilla does not read it "
                f"({text.strip().splitlines()[0]}): write the file again with a client that "
                "reads it, by another encoding",
                table=layout.table,
            )
        if is_no_text(text):
            return UnsupportedTableFeature(
                f"{column} has text that is not UTF-8 in data file {key}, which LakeVilla "
                "does not read: write it again with a client that reads it, as a binary column "
                "or as UTF-8; if it was UTF-8 once, the file was damaged since",
                table=layout.table,
            )
    return None


def _unread(
    database: Database, file: Files, fields: Sequence[pa.Field]
) -> Iterator[tuple[pa.Field, str]]:
    """Yield the columns that DuckDB can't read, with its message; the search halves the columns."""
    if not fields:
        return
    try:
        with closing(database.cursor(watched=False)) as cursor:
            names = name_list(field.name for field in fields)
            for _ in arrow_reader(cursor, f"SELECT {names} FROM ({file.bind(cursor)})"):
                pass
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if len(fields) == 1:
            yield fields[0], said(error)
            return
        half = len(fields) // 2
        yield from _unread(database, file, fields[:half])
        yield from _unread(database, file, fields[half:])


def _damage(data: DataAccess, key: str, size: int) -> str | None:
    """Return the error for a damaged file; None if the file can be decoded.

    The file is read whole by pyarrow, which verifies the checksums of pages that have some. A
    feature that pyarrow lacks is no damage: then the file's other columns are read one by one, and
    DuckDB reads all. A footer that pyarrow refuses is no damage either, such as one with types as
    Hive annotates them: DuckDB decides whether it is whole.
    """
    with data.open_input(key, size) as source:
        try:
            file = pq.ParquetFile(source, page_checksum_verification=True)
        except (pa.ArrowException, OSError):
            return None
        try:
            with file:
                if not _decodes(file, None):
                    for name in file.schema_arrow.names:
                        _decodes(file, [name])
        except pa.ArrowNotImplementedError:
            pass
        except (pa.ArrowException, OSError) as error:
            return str(error).strip().splitlines()[0]
    return None


def _decodes(file: pq.ParquetFile, columns: list[str] | None) -> bool:
    """Return whether pyarrow has the features to decode the columns; raise if they are damaged."""
    try:
        for _ in file.iter_batches(columns=columns):
            pass
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, pa.ArrowNotImplementedError) or is_lacking(str(error)):
            return False
        raise
    return True


def _damage_to_duckdb(data: DataAccess, database: Database, key: str, size: int) -> str | None:
    """Return the damage of a file as DuckDB finds it, which reads what pyarrow can't decode."""
    try:
        with closing(database.cursor(watched=False)) as cursor:
            path = quote_text(readable_path(data, key, size))
            for _ in arrow_reader(cursor, f"SELECT * FROM read_parquet({path})"):
                pass
    except duckdb.OutOfMemoryException:
        return None  # pyarrow has read the file: the memory, or the disk, did not suffice
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        text = said(error)
        return None if of_disk(text) else text.strip().splitlines()[0]
    return None
