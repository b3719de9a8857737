"""Vectors of version 3 that are wrong: the table is refused where its rows would be guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.iceberg_by_hand import (
    VECTOR_FIELDS,
    File,
    Table,
    column,
    of_ids,
    puffin,
    vector_blob,
)


def own(tmp_path: Path) -> Table:
    table = Table(
        tmp_path / "t", [column(1, "k", "long")], version=3, unknown={"r2": VECTOR_FIELDS}
    )
    for name, ks in (("a", [1, 2, 3]), ("b", [4, 5, 6])):
        table.add(File(f"{name}.parquet", of_ids(pa.table({"k": ks}), {"k": 1})))
    return table


def vector(table: Table, name: str = "v.puffin", **wrong: Any) -> Table:
    """Add a vector that deletes rows 0 and 2 of the first data file."""
    path = f"{table.directory}/data/a.parquet"
    body, ((offset, length),) = puffin((vector_blob(0, 2), wrong.pop("of", path)))
    (table.directory / "data" / name).write_bytes(wrong.pop("change", bytes)(body))
    says = {
        "file_format": "PUFFIN",
        "record_count": 2,
        "file_size_in_bytes": len(body),
        "referenced_data_file": path,
        "content_offset": offset,
        "content_size_in_bytes": length,
        **wrong,
    }
    none = pa.table({"k": pa.array([], pa.int64())})
    return table.add(File(name, none, content=1, says=says, store=False), sequence=2)


def keys(table: Table) -> list[int]:
    table.write()
    with lv.connect(table.directory.parent) as lake:
        return sorted(lake.read("t")["k"].to_pylist())


def test_a_right_vector_hides_its_rows(tmp_path: Path) -> None:
    assert keys(vector(own(tmp_path))) == [2, 4, 5, 6]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (
            {"referenced_data_file": None},
            r"at 4 of data/v\.puffin of table t .*roll the table back",
        ),
        ({"record_count": 3}, "deletes 2 rows, and 3 by its manifest; restore it, or roll"),
        ({"content_offset": 5}, r"no vector of \d+ bytes at 5"),
        ({"of": "/elsewhere/b.parquet"}, "is of data file /elsewhere/b.parquet, and of data/a"),
        ({"change": lambda body: body[:-9]}, r"has \d+ bytes, and \d+ by its manifest"),
        ({"change": lambda body: body[:30] + b"\x09" + body[31:]}, "checksum"),
    ],
)
def test_a_table_with_a_wrong_vector_is_refused_when_it_is_read(
    tmp_path: Path, wrong: dict[str, Any], match: str
) -> None:
    with pytest.raises(lv.CorruptObject, match=match) as caught:
        keys(vector(own(tmp_path), **wrong))
    assert "t" in str(caught.value.table)


def test_two_vectors_of_one_data_file_are_refused(tmp_path: Path) -> None:
    table = vector(vector(own(tmp_path)), "w.puffin")
    with pytest.raises(lv.CorruptObject, match=r"data/a\.parquet of table t has two deletion vect"):
        keys(table)
