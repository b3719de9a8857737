"""Partition values are parsed once for all batches of files; unsafe bounds are left out."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lakevilla.formats import file_statistics
from lakevilla.formats.file_statistics import partition_column, read_statistics


def maps(texts: list[str | None]) -> pa.Array:
    kind = pa.map_(pa.string(), pa.string())
    return pa.array([[("p", text)] for text in texts], kind)


def test_each_partition_text_is_cast_only_once_even_if_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_statistics._read_partition_value.cache_clear()
    cast: list[str] = []
    original = file_statistics.cast_value

    def counted(text: str, type_: str) -> object:
        cast.append(text)
        return original(text, type_)

    monkeypatch.setattr(file_statistics, "cast_value", counted)
    texts = ["1", "x", None, "2", "1"]
    columns = [partition_column(maps(texts), "p", "integer") for _ in range(3)]
    assert sorted(cast) == ["1", "2", "x"]
    for column in columns:
        places = column.indices.to_pylist()
        found = [None if i is None else (column.values[i], column.readable[i]) for i in places]
        assert found == [(1, True), (None, False), None, (2, True), (1, True)]


def test_a_partition_text_is_cast_separately_for_each_type() -> None:
    for kind, value in (("integer", 1), ("string", "1"), ("integer", 1)):
        column = partition_column(maps(["1"]), "p", kind)
        assert column.values == [value]
        assert type(column.values[0]) is type(value)


@pytest.mark.parametrize(
    ("least", "most", "is_bounded"),
    [
        (-(2**63), 2**63 - 1, (False, False)),
        (2**63 - 1, 2**63 - 1, (True, False)),
        (-(2**63), -(2**63), (False, True)),
        (-(10**19), 10**19, (True, True)),
    ],
)
def test_a_decimal_bound_equal_to_the_limit_of_a_long_is_left_out(
    least: int, most: int, is_bounded: tuple[bool, bool]
) -> None:
    """deltalake writes bounds of decimals without a fraction as longs: the limit may stand for
    any number beyond it.
    """
    text = json.dumps({"numRecords": 1, "minValues": {"x": least}, "maxValues": {"x": most}})
    read = read_statistics(pa.array([text]), {("x",): "decimal(20,0)"})[("x",)]
    assert (read.low[0].is_valid, read.high[0].is_valid) == is_bounded
