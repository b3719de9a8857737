"""Read merges by Spark with Iceberg, pyiceberg and DuckDB, with clean-ups between them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.interop.iceberg.beside import Beside
from tests.support.refs.merged import NOBODY_SEES, QUIET, rows_of, steps

DAYS = 3 * 24 * 3600


def age(root: str) -> None:
    """Make all files old enough for a removal of orphans."""
    for path in Path(root).rglob("*.parquet"):
        then = path.stat().st_mtime - DAYS
        os.utime(path, (then, then))


def test_all_clients_read_merged_rows_and_no_file_of_a_branch_is_removed_as_an_orphan(
    beside: Beside,
) -> None:
    with beside.connect() as lake:
        for step in steps(lake, "iceberg"):
            for name in lake:
                expected = rows_of(lake.read(name))
                assert all(row[0] < NOBODY_SEES for row in expected), step
                for reader, read in beside.readers():
                    assert rows_of(read(name)) == expected, (step, name, reader)
                if step in QUIET:
                    age(lake.root)
                    beside.call("remove_orphan_files", table=name.replace("/", "."))
                    assert rows_of(lake.read(name)) == expected, (step, name)
        assert lake.doctor(files=True).ok
