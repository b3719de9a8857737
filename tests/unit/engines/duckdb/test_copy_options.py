"""The options of a COPY: repeated values get a Parquet dictionary, and others cost no search for
one.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.engines.duckdb.writing.parquet import copy_options
from lakevilla.formats.layout import Layout

ROWS = 122_880
DICTIONARY = {"PLAIN_DICTIONARY"}


def layout(schema: pa.Schema) -> Layout:
    return Layout(
        location="t",
        table="t",
        schema=schema,
        physical=schema,
        by_field_id=False,
        partition_by=(),
        statistics_columns=(),
        constraints=(),
        properties={},
    )


def encodings(tmp_path: Path, *, distinct: int) -> set[str]:
    """Return the encodings with which a COPY stores a column of one row group with so many
    values.
    """
    schema = pa.schema([("n", pa.int64())])
    options = copy_options(schema, layout(schema))
    target = tmp_path / "file.parquet"
    with duckdb.connect() as connection:
        rows = f"SELECT range * 7919 % {distinct} AS n FROM range({ROWS})"
        connection.execute(f"COPY ({rows}) TO '{target}' ({options})")
    return set(pq.ParquetFile(target).metadata.row_group(0).column(0).encodings)


def test_values_that_repeat_often_are_stored_with_a_dictionary(tmp_path: Path) -> None:
    assert encodings(tmp_path, distinct=ROWS // 20) >= DICTIONARY


def test_values_that_hardly_repeat_are_stored_without_a_dictionary(tmp_path: Path) -> None:
    assert not DICTIONARY & encodings(tmp_path, distinct=ROWS // 10)
