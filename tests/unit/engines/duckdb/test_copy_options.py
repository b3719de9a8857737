"""The options of Parquet files: repeated values get a dictionary, and others cost no search for
one.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.engines.duckdb.writing.parquet import copy_options, encode
from lakevilla.formats.layout import Layout

ROWS = 122_880
DICTIONARY = {"PLAIN_DICTIONARY"}
#: A value of each type that is not nested.
VALUES = [
    (pa.bool_(), True),
    (pa.int8(), 1),
    (pa.float32(), math.nan),
    (pa.decimal128(5, 2), Decimal("1.50")),
    (pa.decimal128(38, 10), Decimal("1.5000000000")),
    (pa.string(), "a"),
    (pa.binary(), b"a"),
    (pa.binary(3), b"abc"),
    (pa.date32(), datetime.date(2024, 1, 1)),
    (pa.timestamp("us"), datetime.datetime(2024, 1, 1)),
    (pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
]


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


def in_dictionaries(rows: pa.Table) -> list[str]:
    """Return the columns of a file, encoded in memory, that have a dictionary."""
    body = encode(rows, layout(rows.schema))
    group = pq.ParquetFile(pa.BufferReader(body)).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    return [one.path_in_schema for one in columns if one.has_dictionary_page]


def test_a_file_in_memory_has_dictionaries_of_the_columns_whose_values_come_again() -> None:
    numbers = np.arange(ROWS)
    columns = {
        "all different": pa.array(numbers),
        "twice": pa.array(numbers // 2),
        "ten times, far apart": pa.array(numbers % (ROWS // 10)),
        "ten times, in runs": pa.array(numbers // 10),
        "words": pa.array(np.array(["a", "b"])[numbers % 2]),
        "null": pa.nulls(ROWS, pa.string()),
    }
    found = in_dictionaries(pa.table(columns))
    assert found == [name for name in columns if name not in ("all different", "twice")]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_a_file_in_memory_has_any_types(kind: pa.DataType, value: object) -> None:
    rows = pa.table({"a": pa.array([value, None] * 10_000, kind)})
    found = pq.read_table(pa.BufferReader(encode(rows, layout(rows.schema))))
    assert found["a"].null_count == 10_000
    assert str(found["a"][0].as_py()) == str(value)


def test_few_rows_and_nested_ones_are_not_judged() -> None:
    few = pa.table({"n": pa.array(np.arange(1000))})
    nested = pa.table({"n": np.arange(20_000), "l": pa.array([[n] for n in range(20_000)])})
    assert in_dictionaries(few) == ["n"]
    assert "n" in in_dictionaries(nested)
