"""INT96 timestamps, as Spark writes them, are read as UTC if the column's type has a time zone."""

from __future__ import annotations

import struct
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
def test_int96_timestamps_are_read_as_utc_in_columns_and_nested_values(
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


def test_bounds_of_int96_timestamps_in_a_footer_hide_no_row(tmp_path: Path) -> None:
    """Writers don't agree on the order of INT96 values in bounds: some compare the bytes."""
    tables = Tables(tmp_path)
    log = tables.log()
    log.mkdir(parents=True)
    path = log.parent / "f.parquet"
    days = {1: datetime(2024, 1, 2, 3), 2: datetime(1999, 1, 1, 20), 3: datetime(9999, 12, 31)}
    raw = [_of_96_bits(day) for day in days.values()]
    rows = pa.table({"id": list(days), "v": pa.array(raw, pa.binary(12))})
    pq.write_table(rows, path, store_schema=False)
    held = path.read_bytes()
    start = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
    # Change the column's type from fixed-length bytes to INT96.
    footer = held[start:].replace(b"\x15\x0e", b"\x15\x06")
    path.write_bytes(held[:start] + footer)
    assert pq.read_metadata(path).row_group(0).column(1).physical_type == "INT96"
    kinds = [field("id"), field("v", "timestamp")]
    stats = '{"numRecords":3}'
    action = add("f.parquet", size=path.stat().st_size, stats=stats)
    tables.write_entry(0, protocol(), metadata(kinds), action)
    lake = lv.connect(str(tmp_path))
    for where, ids in (
        ("v > '9000-01-01'", [3]),
        ("v < '2000-01-01'", [2]),
        ("v >= '2024-01-01'", [1, 3]),
    ):
        assert sorted(lake.read("t", where=where)["id"].to_pylist()) == ids
    assert lake.sql("SELECT min(v) AS v FROM t")["v"].to_pylist() == [days[2].replace(tzinfo=UTC)]


def _of_96_bits(instant: datetime) -> bytes:
    since = instant - datetime(1970, 1, 1)
    nanoseconds = since.seconds * 10**9 + since.microseconds * 1000
    return struct.pack("<qi", nanoseconds, since.days + 2_440_588)
