"""A log is listed only if entries that a client has cached may have been deleted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.support.inside import inside
from tests.support.places import Place, fill
from tests.support.tables import accounts


def test_a_log_with_a_retention_of_one_hour_is_listed_at_each_read(
    tmp_path: Path,
) -> None:
    place = Place(str(tmp_path))
    fill(place, {"bank": accounts(1)})
    lake = place.connect()
    lake.create_table(
        "short",
        pa.Table.from_pylist(accounts(1)),
        properties={"delta.logRetentionDuration": "interval 1 hours"},
    )
    for table, lists in (("bank", 0), ("short", 1)):
        lake.run(lambda txn, name=table: txn.read(name).num_rows, read_only=True)
        with inside(lake).requests.counting() as requests:
            lake.run(lambda txn, name=table: txn.read(name).num_rows, read_only=True)
        assert requests.list == lists, table
