"""Times of 96 bits, as Spark writes them, are times in UTC where a table has these."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.reading import footers
from tests.contract.engines.test_text_and_bytes import delta_kinds, nested
from tests.support.delta_by_hand import Tables, add, field, metadata, protocol

TIMES = [
    datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    None,
    datetime(2024, 2, 29, 12, tzinfo=UTC),
]


@pytest.mark.parametrize("asked", [True, False], ids=["footers asked", "too many files"])
def test_they_are_read_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    if not asked:
        monkeypatch.setattr(footers, "_MANY_FILES", 0)
    kind = pa.timestamp("us")
    times = [None if one is None else one.replace(tzinfo=None) for one in TIMES]
    rows = {"id": range(4), "v": pa.array(times, kind), **nested(times, kind)}
    tables = Tables(tmp_path)
    log = tables.log()
    log.mkdir(parents=True)
    path = log.parent / "f.parquet"
    pq.write_table(pa.table(rows), path, use_deprecated_int96_timestamps=True)
    kinds = [field("id"), *delta_kinds("timestamp")]
    tables.write_entry(0, protocol(), metadata(kinds), add("f.parquet", size=path.stat().st_size))

    lake = lv.connect(str(tmp_path))
    everything: list[tuple[Any, ...]] = [(one, {"a": one}, [one], [(1, one)]) for one in TIMES]
    for found in (lake.read("t"), lake.sql("SELECT * FROM t")):
        assert found.schema.field("v").type == pa.timestamp("us", "UTC")
        ordered = found.sort_by("id").select(["v", "st", "li", "ma"])
        assert [tuple(row.values()) for row in ordered.to_pylist()] == everything
    later = lake.read("t", where="v >= :t and st.a >= :t", params={"t": TIMES[1]})
    assert sorted(later["id"].to_pylist()) == [1, 3]
    lake.run(lambda txn: txn.update("t", {"id": "id + 4"}, where="v is null"))
    left = lake.read("t", columns=["id", "v"]).sort_by("id").to_pydict()
    assert left == {"id": [0, 1, 3, 6], "v": [TIMES[0], TIMES[1], TIMES[3], None]}
