"""The contents of a deletion vector are checked against the row counts in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from lakevilla.engines import deletes
from lakevilla.engines.base import TableInput
from lakevilla.engines.deletes import read_deletes
from lakevilla.errors import CorruptObject
from lakevilla.formats.files import DataFile, DeleteFile, DeletionVector, files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.store.backends.local import LocalStore
from tests.support.delta_by_hand import Tables
from tests.support.iceberg_by_hand import puffin, vector_blob

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


def layout() -> Layout:
    schema = pa.schema([("k", pa.int64())])
    return Layout(
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


def deleted_rows(tables: Tables, file: DataFile) -> list[int]:
    found = tables.run(read_deletes(TableInput(layout(), files_from_structs([file]))))
    return list(found.few[0]) if found.positions is None else found.positions["row"].to_pylist()


@pytest.mark.parametrize("rows", [6, 10, None])
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


def test_a_vector_of_a_row_that_its_file_does_not_have_is_refused(tables: Tables) -> None:
    with pytest.raises(CorruptObject, match=r"is of another file: it deletes row 5, .* has 5 rows"):
        deleted_rows(tables, data_file(5, deletion_vector=VECTOR))


# ----------------------------------------------------------- vectors in Puffin files

BLOB = vector_blob(1, 3, 5)


def stored(tables: Tables, body: bytes) -> None:
    (tables.root / "t").mkdir(exist_ok=True)
    (tables.root / "t" / "v.puffin").write_bytes(body)


def vector_at(place: tuple[int, int], size: int, **more: object) -> DeleteFile:
    offset, length = place
    known = {"path": "v.puffin", "kind": "vector", "size": size, "rows": 3}
    return DeleteFile(**{**known, "offset": offset, "length": length, **more})  # type: ignore[arg-type]


def test_an_iceberg_deletion_vector_with_more_rows_than_its_data_file_is_refused(
    tables: Tables,
) -> None:
    body, (place,) = puffin((BLOB, "a.parquet"))
    stored(tables, body)
    vector = vector_at(place, len(body))
    assert deleted_rows(tables, data_file(6, deletes=(vector,))) == [1, 3, 5]
    match = "deletion vector v.puffin at 4 of table t .* more rows than the 2 that"
    with pytest.raises(CorruptObject, match=match) as caught:
        deleted_rows(tables, data_file(2, deletes=(vector,)))
    assert caught.value.key == "t/v.puffin"
    with pytest.raises(CorruptObject, match="deletes row 5 of a data file of 5 rows"):
        deleted_rows(tables, data_file(5, deletes=(vector,)))


LZ4 = pa.BufferOutputStream()
with pa.CompressedOutputStream(LZ4, "lz4") as _packed:
    _packed.write(
        json.dumps(
            {"blobs": [{"type": "deletion-vector-v1", "offset": 4, "length": len(BLOB)}]}
        ).encode()
    )


def test_a_footer_that_is_compressed_is_read(tables: Tables) -> None:
    body, (place,) = puffin((BLOB, "a.parquet"), footer=LZ4.getvalue().to_pybytes())
    body = body[:-8] + b"\x01" + body[-7:]
    stored(tables, body)
    assert deleted_rows(tables, data_file(9, deletes=(vector_at(place, len(body)),))) == [1, 3, 5]


def test_a_compressed_footer_that_does_not_unpack_is_refused(tables: Tables) -> None:
    body, (place,) = puffin((BLOB, "a.parquet"))
    body = body[:-8] + b"\x01" + body[-7:]
    stored(tables, body)
    with pytest.raises(CorruptObject, match="its footer is damaged"):
        deleted_rows(tables, data_file(9, deletes=(vector_at(place, len(body)),)))


def test_all_vectors_of_a_puffin_file_are_read_by_one_request(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = LocalStore.get
    monkeypatch.setattr(
        LocalStore, "get", lambda self, key, *rest: (asked.append(key), get(self, key, *rest))[1]
    )
    body, places = puffin((BLOB, "a.parquet"), (vector_blob(2), "b.parquet"))
    stored(tables, body)
    files = [
        data_file(9, deletes=(vector_at(places[0], len(body)),)),
        msgspec.structs.replace(
            data_file(9, deletes=(vector_at(places[1], len(body), rows=1),)), path="b.parquet"
        ),
    ]
    found = tables.run(read_deletes(TableInput(layout(), files_from_structs(files))))
    assert found.positions.to_pydict() == {"file": [0, 0, 0, 1], "row": [1, 3, 5, 2]}
    assert asked == ["t/v.puffin"]


@pytest.mark.parametrize("large", ["the file", "the footer too"])
def test_a_vector_of_a_large_puffin_file_is_read_alone(
    tables: Tables, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "_AT_ONCE", 0)
    monkeypatch.setattr(deletes, "_TAIL", 20 if large == "the footer too" else 1 << 10)
    rest = [(vector_blob(*range(200)), f"{n}.parquet") for n in range(3)]
    body, places = puffin((BLOB, "a.parquet"), *rest)
    stored(tables, body)
    vector = vector_at(places[0], len(body))
    assert deleted_rows(tables, data_file(9, deletes=(vector,))) == [1, 3, 5]


def _cut(body: bytes) -> bytes:
    return body[:-20]


def _flipped(body: bytes) -> bytes:
    return body[:20] + bytes([body[20] ^ 1]) + body[21:]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rows": 2}, "deletes 3 rows, and 2 by its manifest"),
        ({"offset": 5}, r"no vector of \d+ bytes at 5"),
        ({"length": 4}, "no vector of 4 bytes at 4"),
        ({"change": _cut}, r"has \d+ bytes, and \d+ by its manifest"),
        ({"change": lambda body: b""}, "has 0 bytes"),
        ({"change": _flipped}, "checksum"),
        ({"change": lambda body: body[:-4] + b"PAR1"}, "does not end as a Puffin file does"),
        ({"change": lambda body: body[:-16] + b"xxxx" + body[-12:]}, "its footer is damaged"),
        ({"change": lambda body: body[:-12] + b"\xff" * 4 + body[-8:]}, "does not end as a Puffin"),
        ({"of": "b.parquet"}, "is of data file b.parquet, and of a.parquet by its manifest"),
        ({"offset": None}, "does not say where"),
    ],
)
def test_a_vector_that_its_puffin_file_contradicts_is_refused(
    tables: Tables, wrong: dict[str, Any], match: str
) -> None:
    body, (place,) = puffin((BLOB, wrong.pop("of", "a.parquet")))
    stored(tables, wrong.pop("change", bytes)(body))
    vector = vector_at(place, len(body), **wrong)
    with pytest.raises(CorruptObject, match=match) as caught:
        deleted_rows(tables, data_file(9, deletes=(vector,)))
    assert (caught.value.table, caught.value.key) == ("t", "t/v.puffin")
