"""Parts of a file: together they have each row once, and no deleted row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import WriterProperties

import lakevilla as lv
from lakevilla.engines.base import FilePart, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from tests.support.engine_lake import Lake, _Remote, predicate
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.inside import executor, inside

#: Rows 3, 4, 7, 11, 18 and 29: the inline example of Delta's PROTOCOL.md.
VECTOR = {
    "storage_type": "i",
    "path_or_inline": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "offset": None,
    "size_in_bytes": 44,
    "cardinality": 6,
}
DELETED = {3, 4, 7, 11, 18, 29}


@pytest.fixture(params=["here", "remote"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    return Lake(str(tmp_path), remote=request.param == "remote")


def delta(lake: Lake, rows: int = 40, group: int = 5) -> TableInput:
    """Make a table of one file with several row groups and a deletion vector."""
    small = WriterProperties(max_row_group_size=group)
    lake.make("t", pa.table({"k": list(range(rows))}), writer_properties=small)
    table = lake.input("t")
    place = table.files.schema.get_field_index("deletion_vector")
    vectors = pa.array([VECTOR], table.files.schema.field(place).type)
    return replace(table, files=table.files.set_column(place, "deletion_vector", vectors))


def of_parts(table: TableInput, count: int) -> Iterator[TableInput]:
    for number in range(count):
        yield replace(table, parts=(FilePart(number, count),))


def keys(found: pa.Table) -> list[int]:
    values: list[int] = found.column("k").to_pylist()
    return values


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_parts_of_a_file_together_have_all_rows_but_the_deleted_ones(
    lake: Lake, count: int
) -> None:
    table = delta(lake)

    def scan(table: TableInput, where: str | None = None) -> list[int]:
        condition = None if where is None else predicate(where, table.layout)
        return keys(lake.runner.run(lake.engine.scan(table, None, condition)).read_all())

    found = [scan(part) for part in of_parts(table, count)]
    assert Counter(chain.from_iterable(found)) == Counter(set(range(40)) - DELETED)
    assert len([part for part in found if part]) == min(count, 8)
    some = [scan(part, "k IN (7, 8, 33)") for part in of_parts(table, count)]
    assert sorted(chain.from_iterable(some)) == [8, 33]


def test_a_delete_on_parts_rewrites_only_the_rows_of_its_part(lake: Lake) -> None:
    table = delta(lake)
    done = [
        lake.runner.run(lake.engine.delete(part, predicate("k < 8", table.layout), lake.name))
        for part in of_parts(table, 4)
    ]
    assert [(one.rows_deleted, one.rows_copied, len(one.removed)) for one in done] == [
        (5, 2, 1),  # the vector had already deleted three of the part's ten rows
        (0, 0, 0),
        (0, 0, 0),
        (0, 0, 0),
    ]


def test_iceberg_position_deletes_apply_to_parts_of_a_file(tmp_path: Path) -> None:
    own = Table(tmp_path / "t", [column(1, "k", "long")])
    rows = of_ids(pa.table({"k": pa.array(range(40), pa.int64())}), {"k": 1})
    (tmp_path / "t/data").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "t/data/a.parquet", row_group_size=5)
    own.add(File("a.parquet", rows, store=False))
    deleted = {"file_path": [f"{own.directory}/data/a.parquet"] * 3, "pos": [0, 17, 39]}
    positions = pa.table(deleted, pa.schema([("file_path", pa.string()), ("pos", pa.int64())]))
    delete = of_ids(positions, {"file_path": 2147483546, "pos": 2147483545})
    own.add(File("d.parquet", delete, content=1), sequence=2).write()
    with lv.connect(str(tmp_path)) as lake, lake.transaction() as txn:
        snapshot = executor(txn).look("t").snapshot
        table = TableInput(snapshot.layout, executor(txn).run(snapshot.files()))
        engine = inside(lake).engine
        found = [
            keys(executor(txn).run(engine.scan(part, None, None)).read_all())
            for part in of_parts(table, 4)
        ]
    assert sorted(chain.from_iterable(found)) == sorted(set(range(40)) - {0, 17, 39})
    assert [len(part) for part in found] == [9, 9, 10, 9]


def test_reading_a_part_requests_its_row_groups_and_the_footer_once(tmp_path: Path) -> None:
    """The store is asked for the footer only once, and for no other part of the file."""
    lake = Lake(str(tmp_path), remote=True)
    noise = pa.table({"k": list(range(200_000)), "text": [f"{n * 7919:x}" for n in range(200_000)]})
    lake.make("t", noise, writer_properties=WriterProperties(max_row_group_size=20_000))
    table = lake.input("t")
    (size,) = table.files["size"].to_pylist()
    counted = _Counted(lake.engine._data._data)
    engine = DuckDBEngine(counted, lake.settings, lake.engine._ids, threads=1)  # type: ignore[arg-type]
    part = replace(table, parts=(FilePart(4, 10),))
    found = lake.runner.run(engine.scan(part, None, None)).read_all()
    assert keys(found) == list(range(80_000, 100_000))
    assert len(counted.asked) <= 3
    assert sum(counted.asked) < size / 5


class _Counted(_Remote):
    """Data access that counts the bytes of each request."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.asked: list[int] = []

    def open_input(self, key: str, size: int | None = None) -> Any:
        source, asked = super().open_input(key, size), self.asked

        class Source:
            def read_at(self, length: int, offset: int) -> bytes:
                asked.append(length)
                return bytes(source.read_at(length, offset))

            def close(self) -> None:
                source.close()

        return Source()
