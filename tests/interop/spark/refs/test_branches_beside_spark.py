"""Read merges by Spark with Delta, and run its VACUUM between them."""

from __future__ import annotations

from tests.interop.spark.beside import Beside
from tests.support.refs.merged import NOBODY_SEES, QUIET, rows_of, steps


def test_spark_reads_merged_rows_and_its_vacuum_deletes_no_file_of_a_branch(beside: Beside) -> None:
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    beside.spark.conf.set(key, "false")
    with beside.connect() as lake:
        for step in steps(lake, "delta"):
            for name in lake:
                expected = rows_of(lake.read(name))
                assert all(row[0] < NOBODY_SEES for row in expected), step
                assert rows_of(beside.arrow(name)) == expected, (step, name)
                hours = 0 if step in QUIET else 24
                beside.sql(f"VACUUM {{t}} RETAIN {hours} HOURS", name)
                assert rows_of(lake.read(name)) == expected, (step, name)
        beside.sql("INSERT INTO {t} VALUES (30, 0, 0)", "stock")
        assert (30, 0, 0) in rows_of(lake.read("stock"))
        assert lake.doctor(files=True).ok
    beside.spark.conf.unset(key)
