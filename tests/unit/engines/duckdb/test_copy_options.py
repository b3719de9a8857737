"""The options of a COPY: a dictionary for values that repeat, and no search for one."""

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
    """How a COPY stores a column of one row group with so many values."""
    schema = pa.schema([("n", pa.int64())])
    options = copy_options(schema, layout(schema))
    target = tmp_path / "file.parquet"
    with duckdb.connect() as connection:
        rows = f"SELECT range * 7919 % {distinct} AS n FROM range({ROWS})"
        connection.execute(f"COPY ({rows}) TO '{target}' ({options})")
    return set(pq.ParquetFile(target).metadata.row_group(0).column(0).encodings)


def test_values_that_come_back_often_are_in_a_dictionary(tmp_path: Path) -> None:
    assert encodings(tmp_path, distinct=ROWS // 20) >= DICTIONARY


def test_for_values_that_hardly_come_back_none_is_collected(tmp_path: Path) -> None:
    assert not DICTIONARY & encodings(tmp_path, distinct=ROWS // 10)
