"""Compaction writes the same rows to new files, also in z order, and leaves no file if it fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.engines.base import Rewrite, TableInput, Written
from lakevilla.engines.spark import tasks as bins
from lakevilla.errors import LakeVillaError
from lakevilla.formats.files import data_files, removal
from tests.support.engine_lake import Lake, ordered

SIDE = 120


def squares(first: int = 0, count: int = SIDE * SIDE) -> pa.Table:
    """Return points of a square in a mixed order, with values of all kinds."""
    numbers = range(first, first + count)
    x = pa.array([i * 7919 % SIDE for i in numbers], pa.int32())
    return pa.table(
        {
            "x": x,
            "y": [None if i % 997 == 0 else f"{i // SIDE:05}" for i in numbers],
            "p": ["a" if i % 3 else "b" for i in numbers],
            "list": [[i, None] for i in numbers],
            "bytes": [bytes([i % 256]) for i in numbers],
        }
    )


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each task only a few rows, so that a part needs several tasks."""
    monkeypatch.setattr(bins, "_LEAST_BYTES", 1)
    monkeypatch.setattr(bins, "_MOST_BYTES", 20_000)


def parts_of(table: TableInput) -> list[TableInput]:
    """Return the files by partition."""
    members: dict[str, list[int]] = {}
    for number, file in enumerate(data_files(table.files)):
        members.setdefault(repr(file.partition_values), []).append(number)
    return [replace(table, files=table.files.take(pa.array(some))) for some in members.values()]


def compacted(
    lake: Lake, parts: list[TableInput], z_order_by: tuple[str, ...] = ()
) -> tuple[tuple[Written, ...], ...]:
    made: tuple[tuple[Written, ...], ...] = lake.runner.run(
        lake.engine.compact(parts, z_order_by, lake.name)
    )
    written = tuple(one for some in made for one in some)
    removed = tuple(removal(file) for part in parts for file in data_files(part.files))
    lake.commit("t", Rewrite(written=written, removed=removed), "OPTIMIZE")
    return made


def test_each_part_is_compacted_into_one_file_of_its_partition(
    lake: Lake, small_shares: None
) -> None:
    lake.make("t", squares(count=300), partition_by=["p"])
    for start in (300, 600):
        lake.append("t", squares(start, 300))
    lake.delete("t", "x < 3")
    before = ordered(lake.rows("t"))
    parts = parts_of(lake.input("t"))
    made = compacted(lake, parts)
    assert [len(some) for some in made] == [1, 1]
    for part, (one,) in zip(parts, made, strict=True):
        assert one.file.partition_values == data_files(part.files)[0].partition_values
    assert ordered(lake.rows("t")) == before
    assert len(lake.input("t").files) == 2


def test_a_compaction_in_z_order_keeps_the_rows_and_narrows_the_range_of_each_column(
    lake: Lake, small_shares: None
) -> None:
    lake.make("t", squares(count=7000), partition_by=["p"])
    lake.append("t", squares(7000, SIDE * SIDE - 7000))
    lake.delete("t", "x = 5 AND p = 'a'")
    before = ordered(lake.rows("t"))
    table = lake.input("t")
    target = sum(table.files["size"].to_pylist()) // 12
    sized = replace(table, layout=replace(table.layout, target_file_size_bytes=target))
    made = compacted(lake, parts_of(sized), ("x", "y"))
    assert all(len(some) > 2 for some in made)
    assert ordered(lake.rows("t")) == before
    # On average, a file has less than the whole range of either column.
    files = [one.file for some in made for one in some]
    for column in ("x", "y"):
        spans = [span(Path(lake.root) / "t" / file.path, column) for file in files]
        assert sum(spans) / len(spans) < 0.9 * SIDE


def span(path: Path, column: str) -> float:
    values = [
        v for v in pq.read_table(path, partitioning=None)[column].to_pylist() if v is not None
    ]
    low, high = int(min(values)), int(max(values))
    return float(high - low)


def test_a_failed_compaction_leaves_no_file(lake: Lake, small_shares: None) -> None:
    lake.make("t", squares(count=2000))
    lake.append("t", squares(2000, 2000))
    table = lake.input("t")
    lost = data_files(table.files)[1].path
    (Path(lake.root) / "t" / lost).unlink()
    before = lake.files()
    each = [replace(table, files=table.files.slice(n, 1)) for n in range(2)]
    for parts, order in ((each, ()), ([table], ("x",))):
        with pytest.raises(LakeVillaError, match=r"parquet|gone"):
            lake.runner.run(lake.engine.compact(parts, order, lake.name))
        assert lake.files() == before


def test_few_rows_and_no_rows_can_be_compacted_in_z_order(lake: Lake, small_shares: None) -> None:
    lake.make("t", squares(count=3))
    lake.append("t", squares(3, 2000))
    table = lake.input("t")
    lake.delete("t", "true")
    lake.append("t", squares(0, 1))
    for parts in ([lake.input("t")], []):
        made: Any = lake.runner.run(lake.engine.compact(parts, ("y",), lake.name))
        assert len(made) == len(parts)
    assert table.files.num_rows == 2
