"""Databases of one lake that spill at the same time keep their rows apart."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pyarrow as pa

import lakevilla as lv

#: DuckDB keeps the rows of ``x``, 24 MB of them, for more than one use.
_SPILLS = """
    WITH x AS MATERIALIZED (
        SELECT a.n * 600 + b.n AS k, repeat('{mark}', 40) || (a.n * 600 + b.n) AS s
        FROM {table} a, {table} b
    )
    SELECT (SELECT count(*) FROM x WHERE s <> repeat('{mark}', 40) || k) AS wrong,
        (SELECT sum(k)::BIGINT FROM x) AS total
"""
_RIGHT = [{"wrong": 0, "total": sum(range(360_000))}]


def spill(root: str) -> None:
    """Run two statements at once, one in the kept database and one in a database of its own."""
    settings = lv.Settings(memory_limit_bytes=16 * 2**20, durable_files=False)
    with lv.connect(root, settings=settings) as lake:
        for table in ("t", "prod/ns/t"):  # a name of three parts is in a database of its own
            lake.create_table(table, {"n": list(range(600))})
        begin, found = threading.Barrier(2), []

        def ask(mark: str, table: str) -> None:
            sql = _SPILLS.format(mark=mark, table=table)
            begin.wait()
            found.append(pa.table(lake.sql(sql)).to_pylist())

        threads = [
            threading.Thread(target=ask, args=case) for case in (("A", "t"), ("B", "prod.ns.t"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [_RIGHT, _RIGHT]


def test_statements_that_spill_at_once_in_two_databases_get_their_own_rows(tmp_path: Path) -> None:
    """Run them in another process, which wrong rows of DuckDB's own would end."""
    process = multiprocessing.get_context("spawn").Process(target=spill, args=(str(tmp_path),))
    process.start()
    process.join(120)
    assert process.exitcode == 0
