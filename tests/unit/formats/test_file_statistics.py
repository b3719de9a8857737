"""Partition values are read once, however many batches of files they come in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakevilla.formats import file_statistics
from lakevilla.formats.file_statistics import partition_column


def maps(texts: list[str | None]) -> pa.Array:
    kind = pa.map_(pa.string(), pa.string())
    return pa.array([[("p", text)] for text in texts], kind)


def test_each_text_is_cast_once_and_an_unreadable_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_text_means_another_value_in_another_type() -> None:
    for kind, value in (("integer", 1), ("string", "1"), ("integer", 1)):
        column = partition_column(maps(["1"]), "p", kind)
        assert column.values == [value]
        assert type(column.values[0]) is type(value)
