"""The engine on a real server: the same verbs, files larger than memory allows included."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakevilla.settings import Settings
from tests.fixtures.servers import Server
from tests.support.engine_lake import Lake, ordered


@pytest.mark.parametrize("limit_bytes", [8 << 20, 0])
def test_the_verbs_work_on_a_server(server: Server, limit_bytes: int) -> None:
    lake = Lake(
        server.new_root(),
        {**server.storage_options, "aws_conditional_put": "etag"},
        settings=Settings(in_memory_file_limit_bytes=limit_bytes),
    )
    rows = pa.table({"k": np.arange(50_000), "p": np.arange(50_000) % 3, "s": ["é"] * 50_000})
    lake.make("a b/t", rows, partition_by=["p"])
    lake.append("a b/t", pa.table({"k": [-1], "p": [9], "s": ["new"]}))
    assert lake.update("a b/t", {"s": "'seen'"}, "k < 2").rows_updated == 3
    assert lake.delete("a b/t", "p = 1 AND k > 1").rows_deleted == 16_666
    assert (
        lake.merge(
            "a b/t",
            pa.table({"k": [0, 77_777]}),
            "source.k = target.k",
            {"kind": "matched_delete"},
            {"kind": "not_matched_insert", "set": {"k": "source.k"}},
        ).rows_inserted
        == 1
    )
    found = lake.scan("a b/t", where="k < 2 OR k > 77000").to_pylist()
    assert ordered(found) == ordered(
        [
            {"k": -1, "p": 9, "s": "seen"},
            {"k": 1, "p": 1, "s": "seen"},
            {"k": 77_777, "p": None, "s": None},
        ]
    )
    assert len(lake.rows("a b/t")) == 50_000 + 1 - 16_666 - 1 + 1
    table = lake.input("a b/t")
    sql = 'SELECT count(*) AS n FROM "a b/t" WHERE p = :p'
    counted = lake.runner.run(lake.engine.query(sql, {"a b/t": table}, {}, {"p": 2}))
    assert counted.to_pylist() == [{"n": 16_666}]
