"""Rows are fetched in order, as tuples or as Arrow, and fetched chunks are freed."""

from __future__ import annotations

import pyarrow as pa

from lakevilla.dbapi.types import Rows

_CHUNKS, _OF = 8, 10_000


def _rows() -> Rows:
    parts = [
        pa.table({"n": pa.array(range(first * _OF, (first + 1) * _OF), pa.int64())})
        for first in range(_CHUNKS)
    ]
    return Rows(pa.concat_tables(parts))


def test_rows_are_fetched_once_and_in_order_by_any_fetch_method() -> None:
    rows = _rows()
    assert rows.take(3) == [(0,), (1,), (2,)]
    assert rows.take(4_094)[-1] == (4_096,)
    assert rows.take(_OF)[0] == (4_097,)
    rest = rows.rest()
    assert rest["n"][0].as_py() == 4_097 + _OF
    assert len(rest) == _CHUNKS * _OF - 4_097 - _OF
    assert (rows.take(None), len(rows.rest()), rows.count) == ([], 0, _CHUNKS * _OF)


def test_all_rows_are_fetched_in_one_call() -> None:
    assert _rows().take(None) == [(n,) for n in range(_CHUNKS * _OF)]


def test_chunks_that_were_fetched_are_freed() -> None:
    before = pa.total_allocated_bytes()
    rows = _rows()
    held = pa.total_allocated_bytes() - before
    rows.take(_CHUNKS // 2 * _OF + 5_000)
    assert pa.total_allocated_bytes() - before < held * 0.6
    rows.rest()
    assert pa.total_allocated_bytes() - before < held * 0.1
