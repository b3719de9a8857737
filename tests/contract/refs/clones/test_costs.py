"""A clone costs the same number of requests, however many tables it shows."""

from __future__ import annotations

from pathlib import Path

import lakevilla as lv
from bench.size.many_tables import cost, lake_of, real_tables

COUNT = 10_000


def test_a_clone_of_ten_thousand_tables_costs_two_writes(tmp_path: Path) -> None:
    with lake_of(COUNT, str(tmp_path / "lake"), commits=1) as lake:
        table = real_tables(COUNT)[4]
        tables = len(lake.tables("sales/", details=False))
        requests = cost(lake, lambda: lake.clone("sales", "trial"))
        assert requests.put == 2, requests
        assert len(lake.tables("trial/", details=False)) == tables >= COUNT
        lake.run(lambda txn: txn.append(table.replace("sales", "trial"), lake.read(table)))
    with lv.connect(lake.root) as again:
        copied = again.read(table.replace("sales", "trial")).num_rows
        assert copied == 2 * again.read(table).num_rows > 0
