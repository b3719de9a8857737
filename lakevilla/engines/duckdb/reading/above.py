"""Which columns meet filters above what the reader makes of them, and not in the file.

DuckDB pushes a filter into ``read_parquet``, through the cast from the file's type to the
table's, and compares there; it also asks the file's statistics first, which leave NaN out.
The one makes ``x <= 1.6`` of whole numbers ``x <= 2``, the other makes ``x > 5`` of NaN false
and ``x <= 5`` true. So no filter gets to a column that a file may hold in a type to which a
constant must be rounded, or that may hold NaN; ``expressions.loosen`` says what may.

Nor to a column of bytes: DuckDB (1.5.5) asks a file's Bloom filter for bytes as it would print
them, with a backslash, and passes over all files that hold the value.

Nor to any column where a statement has ``x IS DISTINCT FROM c`` beside another comparison of ``x``
(duckdb#25992). Of an OR of comparisons of one column with constants DuckDB (1.5.5) asks
statistics, a row group's in a file as well as those of its own tables, and these take the one for
``x <> c``: it passes over row groups whose values are all NULL, or ``c`` and NULL. See
``admission.Admission``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.reading.footers import field_id
from lakevilla.engines.duckdb.sqltext import any_of, quote_name, quote_text, sql_type
from lakevilla.formats.iceberg.metadata.name_mapping import names_of
from lakevilla.formats.layout import Layout


def above(sql: str) -> str:
    """The same value, which no filter or statistic passes: NULL has bounds that nobody knows."""
    return f"CASE WHEN {sql} IS NULL THEN NULL ELSE {sql} END"


def above_lists(sql: str) -> str:
    """The same value, of whose lists and maps no statistic is known either.

    In DuckDB 2 those of what is within lists pass ``above``. The greatest of one value is that
    value, and a function of which DuckDB knows no bounds.
    """
    return f"greatest({sql})"


def all_above(sql: str, names: Iterable[str]) -> str:
    """The same rows, of which no filter or statistic meets a value below."""
    columns = (f"{above(quote_name(name))} AS {quote_name(name)}" for name in names)
    return f"SELECT {', '.join(columns)} FROM ({sql})"


def may_be_narrower(kind: pa.DataType) -> bool:
    """Whether files may hold the type, or one within it, as one that lacks some constants.

    Not so for whole numbers: a constant beyond the file's type is not cast.
    """
    return any_of(kind, lambda leaf: pa.types.is_decimal(leaf) or pa.types.is_timestamp(leaf))


def may_have_nan(kind: pa.DataType) -> bool:
    """Whether the type, or one within it, has NaN; a file may hold it narrower as well."""
    return any_of(kind, pa.types.is_floating)


def nan_within_lists(kind: pa.DataType) -> bool:
    """Whether NaN may be in a list or a map, whose statistics pass ``above``."""
    if pa.types.is_struct(kind):
        return any(nan_within_lists(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_nested(kind)) and may_have_nan(kind)


def stored_as(
    cursor: duckdb.DuckDBPyConnection, layout: Layout, paths: Iterable[str], places: Sequence[int]
) -> list[int]:
    """Those of some columns, none nested, that each file lacks or has in the table's type."""
    if layout.by_field_id and names_of(layout.properties, layout.table) is not None:
        return []  # a file may call them by any name
    listed = ", ".join(map(quote_text, paths))
    key = "field_id" if layout.by_field_id else "name"
    types = ", ".join(
        f"(SELECT typeof(CAST(NULL AS {sql_type(layout.physical.field(i).type)})))" for i in places
    )
    (wanted,) = cursor.execute(f"SELECT {types}").fetchall()
    held: dict[int | str, set[str]] = {}
    query = f"SELECT DISTINCT {key}, duckdb_type FROM parquet_schema([{listed}])"
    for name, type_ in cursor.execute(query).fetchall():
        held.setdefault(name, set()).add(type_)
    # By name, a field of a struct is taken for the column: at worst its filters stay above.
    fields = [layout.physical.field(i) for i in places]
    own = [field_id(field) if layout.by_field_id else field.name for field in fields]
    return [
        place
        for place, name, type_ in zip(places, own, wanted, strict=True)
        if held.get(name, set()) <= {type_}
    ]
