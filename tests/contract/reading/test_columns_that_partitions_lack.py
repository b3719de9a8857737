"""A column that was added after the rows of a partition is NULL in these rows, in SQL too."""

from __future__ import annotations

from tests.support.places import Place


def test_sql_reads_partitions_whose_files_all_lack_a_new_column(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", [{"p": 1, "x": 1}, {"p": 2, "x": 2}], partition_by="p")
        with lake.transaction() as txn:
            txn.alter("t", add_columns={"y": "long"})
        with lake.transaction() as txn:
            txn.append("t", [{"p": 2, "x": 3, "y": 4}])
        rows = lake.snapshot().sql("SELECT p, x, y FROM t ORDER BY x").to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, 1, None), (2, 2, None), (2, 3, 4)]
