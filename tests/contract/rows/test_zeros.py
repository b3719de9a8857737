"""Zeros keep their signs in files that DuckDB writes: its dictionaries take both for one value."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing import writer
from lakevilla.engines.duckdb.writing.parquet import copy_options
from lakevilla.engines.duckdb.writing.zeros import negative_zeros
from tests.support.places import Place

#: Nothing is held in memory, so DuckDB's COPY writes each file.
BY_COPY = lv.Settings(in_memory_file_limit_bytes=0)
COUNT = 4000


def rows(*, negative: bool = True) -> pa.Table:
    """Return zeros of both signs, also within structs, lists and maps."""
    zeros = [-0.0 if negative and at % 3 == 0 else 0.0 for at in range(COUNT)]
    return pa.table(
        {
            "k": pa.array(range(COUNT), pa.int64()),
            "f": pa.array(zeros, pa.float32()),
            "d": pa.array(zeros, pa.float64()),
            "s": [{"x": zero, "t": "a"} for zero in zeros],
            "l": [[zero, None, zero] for zero in zeros],
            "m": pa.array([[("k", zero)] for zero in zeros], pa.map_(pa.string(), pa.float64())),
            "t": ["red" if at % 2 else "blue" for at in range(COUNT)],
        }
    )


def signs(found: pa.Table) -> Counter[Any]:
    """Return how many zeros of each sign the columns have, down to their leaves."""
    counted: Counter[Any] = Counter()
    for name in ("f", "d", "s", "l", "m"):
        for value in found[name].to_pylist():
            inner = value if isinstance(value, float) else _inner(value)
            counted[name, math.copysign(1, inner)] += 1
    return counted


def _inner(value: Any) -> float:
    if isinstance(value, dict):
        return float(value["x"])
    return float(value[0][1] if isinstance(value[0], tuple) else value[0])


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_zeros_keep_their_signs_in_each_file_that_is_written(
    local_place: Place, format: Any
) -> None:
    with local_place.connect(settings=BY_COPY) as lake:
        lake.create_table("t", rows(), format=format)
        wanted = signs(rows())
        assert signs(lake.read("t")) == wanted
        lake.run(lambda txn: txn.update("t", {"t": "'green'"}, where="k < 100"))
        assert signs(lake.read("t")) == wanted
        lake.run(lambda txn: txn.upsert("t", rows().slice(0, 50), "k"))
        assert signs(lake.read("t")) == wanted
        lake.table("t").optimize(z_order_by=["k"])
        assert signs(lake.read("t")) == wanted


def test_only_rows_with_negative_zeros_have_files_without_dictionaries(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noted(*given: Any, dictionaries: bool) -> str:
        asked.append(dictionaries)
        return copy_options(*given, dictionaries=dictionaries)

    monkeypatch.setattr(writer, "copy_options", noted)
    with local_place.connect(settings=BY_COPY) as lake:
        lake.create_table("t", rows(negative=False))
        lake.run(lambda txn: txn.update("t", {"t": "'green'"}, where="k < 100"))
        assert asked
        assert all(asked)
        lake.run(lambda txn: txn.append("t", rows()))
        assert asked[-1] is False


def test_a_file_of_rows_without_negative_zeros_is_not_read_again(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("the file was read")

    monkeypatch.setattr(writer, "negative_zeros_of_file", never)
    with local_place.connect(settings=BY_COPY) as lake:
        lake.create_table("t", rows(negative=False))
        lake.run(lambda txn: txn.update("t", {"t": "'green'"}, where="k < 100"))
        assert signs(lake.read("t")) == signs(rows(negative=False))


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_negative_zeros_are_counted_among_other_numbers(kind: pa.DataType) -> None:
    values = pa.array([0.0, -0.0, None, -1.0, math.nan, -math.nan, -0.0, -math.inf]).cast(kind)
    assert negative_zeros([pa.record_batch({"d": values})]) == {"d": 2}
    assert negative_zeros([pa.record_batch({"d": values.slice(2, 4)})]) == {"d": 0}


def test_a_refresh_writes_one_file_of_the_rows_that_it_compares(local_place: Place) -> None:
    """Its files are known by their rows: of two files of the same rows it would keep one."""
    keys = pa.array(range(COUNT), pa.int64())
    zeros = [-0.0 if at > COUNT - 9 else 0.0 for at in range(COUNT)]
    data = pa.table({"k": keys, "d": zeros})
    with local_place.connect(settings=BY_COPY) as lake:
        lake.create_table("t", data.schema)
        for _ in range(3):
            lake.run(lambda txn: txn.overwrite("t", data, reuse_by=["k"]))
            found = lake.read("t").sort_by("k")
            assert found["k"].to_pylist() == keys.to_pylist()
            assert list(map(str, found["d"].to_pylist())) == list(map(str, zeros))
