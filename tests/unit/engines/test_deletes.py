"""The contents of a deletion vector are checked against the row counts in the log."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from lakevilla.engines.base import TableInput
from lakevilla.engines.deletes import read_deletes
from lakevilla.errors import CorruptObject
from lakevilla.formats.files import DataFile, DeleteFile, DeletionVector, files_from_structs
from lakevilla.formats.layout import Layout
from tests.support.delta_by_hand import Tables

# Rows 1, 3 and 5, written by Delta on Spark: inline.
VECTOR = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rri41POJ5", 38, 3)
# Rows 3, 4, 7, 11, 18 and 29: the example of Delta's PROTOCOL.md.
LONGER = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44, 6)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def data_file(rows: int | None, **deleted: object) -> DataFile:
    stats = None if rows is None else f'{{"numRecords":{rows}}}'
    return DataFile("a.parquet", 100, 0, stats=stats, **deleted)  # type: ignore[arg-type]


def deleted_rows(tables: Tables, file: DataFile) -> list[int]:
    schema = pa.schema([("k", pa.int64())])
    layout = Layout(
        location="t",
        table="t",
        schema=schema,
        physical=schema,
        by_field_id=False,
        partition_by=(),
        statistics_columns=("k",),
        constraints=(),
        properties={},
    )
    found = tables.run(read_deletes(TableInput(layout, files_from_structs([file]))))
    return list(found.few[0]) if found.positions is None else found.positions["row"].to_pylist()


@pytest.mark.parametrize("rows", [3, 10, None])
def test_a_vector_that_deletes_no_more_rows_than_its_file_has_is_read(
    tables: Tables, rows: int | None
) -> None:
    assert deleted_rows(tables, data_file(rows, deletion_vector=VECTOR)) == [1, 3, 5]


def test_deleted_rows_of_a_longer_vector_are_all_found(tables: Tables) -> None:
    file = data_file(100, deletion_vector=LONGER)
    assert deleted_rows(tables, file) == [3, 4, 7, 11, 18, 29]


def test_a_vector_that_deletes_more_rows_than_its_file_has_is_refused(tables: Tables) -> None:
    match = "deletion vector of a.parquet of table t .* deletes 3 rows, .* the file has 2"
    with pytest.raises(CorruptObject, match=match) as caught:
        deleted_rows(tables, data_file(2, deletion_vector=VECTOR))
    assert (caught.value.table, caught.value.key) == ("t", "t/a.parquet")


def test_an_iceberg_deletion_vector_with_more_rows_than_its_data_file_is_refused(
    tables: Tables,
) -> None:
    bitmap = _bitmap()
    body = len(bitmap).to_bytes(4, "big") + bitmap + zlib.crc32(bitmap).to_bytes(4, "big")
    (tables.root / "t").mkdir()
    (tables.root / "t" / "v.puffin").write_bytes(body)
    vector = DeleteFile("v.puffin", "vector", len(body), offset=0, length=len(body))
    assert deleted_rows(tables, data_file(3, deletes=(vector,))) == [1, 3, 5]
    match = "deletion vector v.puffin at 0 of table t .* more rows than the 2 that"
    with pytest.raises(CorruptObject, match=match) as caught:
        deleted_rows(tables, data_file(2, deletes=(vector,)))
    assert caught.value.key == "t/v.puffin"


def _bitmap() -> bytes:
    """Rows 1, 3 and 5 as one block of an array."""
    rows = b"".join(n.to_bytes(2, "little") for n in (1, 3, 5))
    block = (12346).to_bytes(4, "little") + (1).to_bytes(4, "little") + b"\x00\x00\x02\x00"
    head = (1681511377).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(4)
    return head + block + (16).to_bytes(4, "little") + rows
