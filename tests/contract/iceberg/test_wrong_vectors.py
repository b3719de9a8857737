"""Vectors of version 3 that are wrong: the table is refused where its rows would be guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
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
        tmp_path / "t",
        [column(1, "k", "long")],
        version=3,
        unknown={"r2": VECTOR_FIELDS},
        properties={
            "write.delete.mode": "merge-on-read",
            "write.avro.compression-codec": "uncompressed",
        },
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


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"referenced_data_file": None},
        r"at 4 of data/v\.puffin of table t .*roll the table back",
    ),
    ({"record_count": 3}, "deletes 2 rows, and 3 by its manifest; restore it, or roll"),
    ({"content_offset": 5}, r"no vector of \d+ bytes at 5"),
    ({"of": "/elsewhere/b.parquet"}, "is of data file /elsewhere/b.parquet, and of data/a"),
    ({"change": lambda body: body[:-9]}, r"has \d+ bytes, and \d+ by its manifest"),
    ({"change": lambda body: body[:30] + b"\x09" + body[31:]}, "checksum"),
]


@pytest.mark.parametrize(("wrong", "match"), WRONG)
def test_a_table_with_a_wrong_vector_is_refused_when_it_is_read(
    tmp_path: Path, wrong: dict[str, Any], match: str
) -> None:
    with pytest.raises(lv.CorruptObject, match=match) as caught:
        keys(vector(own(tmp_path), **wrong))
    assert "t" in str(caught.value.table)


TWO = r"data/a\.parquet of table t has two deletion vect"


def test_two_vectors_of_one_data_file_are_refused(tmp_path: Path) -> None:
    table = vector(vector(own(tmp_path)), "w.puffin")
    with pytest.raises(lv.CorruptObject, match=TWO):
        keys(table)


@pytest.mark.parametrize("statement", ["marks", "rewrites"])
@pytest.mark.parametrize(("wrong", "match"), [*WRONG, ({}, TWO)])
def test_no_statement_is_published_over_a_wrong_vector(
    tmp_path: Path,
    wrong: dict[str, Any],
    match: str,
    statement: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if statement == "marks":
        monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
    table = vector(own(tmp_path), **wrong)
    table = table if wrong else vector(table, "w.puffin")
    table.write()
    with lv.connect(tmp_path) as lake:
        with pytest.raises(lv.CorruptObject, match=match), lake.transaction() as txn:
            txn.delete("t", where="k = 2")
    assert [path.name for path in (tmp_path / "t").rglob("v*.metadata.json")] == [
        "v1.metadata.json"
    ]
    assert len(list((tmp_path / "t").rglob("*.puffin"))) == 1 + (not wrong)


def test_a_vector_names_its_file_as_the_files_own_entry_spells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
    table = own(tmp_path)
    rows = of_ids(pa.table({"k": [7, 8, 9]}), {"k": 1})
    other = f"file:{table.directory}/data/c.parquet"
    table.add(File("c.parquet", rows, says={"file_path": other}))
    table.write(change=lambda document: document.update({"next-row-id": 9}))
    with lv.connect(tmp_path) as lake:
        for k in (1, 7, 8):
            with lake.transaction() as txn:
                txn.delete("t", where=f"k = {k}")
        assert sorted(lake.read("t")["k"].to_pylist()) == [2, 3, 4, 5, 6, 9]
    newest = StaticTable.from_metadata(str(tmp_path / "t/metadata/v4.metadata.json"))
    made = [path.read_bytes() for path in (tmp_path / "t/metadata").glob("lv-*-m*.avro")]
    assert sum(other.encode() in body for body in made) == 3, "one adds it, one removes it too"
    found = newest.scan().to_arrow()
    assert sorted(found["k"].to_pylist()) == [2, 3, 4, 5, 6, 9]
