"""Delete rows by their values: Spark's connector reads such deletes, and writers like Flink make
them.

Here the connector's own API commits a delete file made by hand.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.interop.iceberg.beside import Beside, Where, bag

#: pyiceberg refuses tables with equality deletes.
PYICEBERG = ("pyiceberg", "pyiceberg's catalog")
#: DuckDB fails on them where a partition is NULL.
NULLS = (*PYICEBERG, "DuckDB")


def delete_equal(beside: Beside, rows: pa.Table, partition: str = "") -> None:
    """Delete all rows that equal one of ``rows`` in all its columns, and commit."""
    ids = {field.name: field.field_id for field in beside.loaded().schema().fields}
    fields = [
        field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in rows.schema
    ]
    count = len(list((beside.path() / "data").rglob("equal-*")))
    path = beside.path() / "data" / f"equal-{count}.parquet"
    pq.write_table(rows.cast(pa.schema(fields)), path)
    jvm, gateway = beside.spark._jvm, beside.spark._sc._gateway
    assert jvm is not None
    assert gateway is not None
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(beside.spark._jsparkSession, beside.name())
    numbers = gateway.new_array(jvm.int, rows.num_columns)
    for place, name in enumerate(rows.column_names):
        numbers[place] = ids[name]
    builder = iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(numbers)
    builder = builder.withPath(str(path)).withFormat("parquet").withRecordCount(rows.num_rows)
    builder = builder.withFileSizeInBytes(path.stat().st_size)
    if partition:
        builder = builder.withPartitionPath(partition)
    table.newRowDelta().addDeletes(builder.build()).commit()


def test_rows_deleted_by_their_values_are_hidden_and_later_rows_are_not(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table(
            "t",
            pa.table({"k": [1, 2, 3, 4], "v": ["a", "b", None, "a"], "n": [1.5, 2.5, 3.5, 4.5]}),
            format="iceberg",
        )
    delete_equal(beside, pa.table({"v": pa.array(["a", None], pa.string())}))
    delete_equal(beside, pa.table({"k": [2, 9], "v": ["x", "b"]}))  # both columns must agree
    assert beside.agreed(without=PYICEBERG) == Counter([(2, "b", 2.5)])
    with beside.connect() as lake:
        with lake.transaction() as txn:  # later rows are not deleted
            txn.append("t", [{"k": 5, "v": "a", "n": 5.5}])
        assert beside.agreed(without=PYICEBERG) == Counter([(2, "b", 2.5), (5, "a", 5.5)])
        assert bag(beside.ours("t", Where("k", ">", 0))) == Counter([(2, "b", 2.5), (5, "a", 5.5)])
        delete_equal(beside, pa.table({"n": [5.5]}))
        with lake.transaction() as txn:
            txn.update("t", {"v": "v || '+'"}, where="k > 0")
            txn.append("t", [{"k": 6, "v": "a", "n": 5.5}])
        assert beside.agreed(without=PYICEBERG) == Counter([(2, "b+", 2.5), (6, "a", 5.5)])
        with lake.transaction() as txn:
            assert txn.read("t", where="v = 'a'").num_rows == 1
            txn.alter("t", rename_columns={"v": "text"})
    assert beside.agreed(without=PYICEBERG) == Counter([(2, "b+", 2.5), (6, "a", 5.5)])


def test_rows_deleted_by_their_values_in_one_partition_stay_in_the_other_partitions(
    beside: Beside,
) -> None:
    with beside.connect() as lake:
        rows = pa.table({"k": [1, 1, 2, 2], "p": ["x", "y", "x", None]})
        lake.create_table("t", rows, format="iceberg", partition_by="p")
    delete_equal(beside, pa.table({"k": [1, 2]}), "p=x")
    expected = Counter([(1, "y"), (2, None)])
    assert beside.agreed(without=NULLS) == expected
    beside.sql("ALTER TABLE {t} DROP PARTITION FIELD p")
    # without a partition the delete applies to all of them
    delete_equal(beside, pa.table({"k": [2]}))
    assert beside.agreed(without=NULLS) == Counter([(1, "y")])
    with beside.connect() as lake, lake.transaction() as txn:
        txn.upsert("t", [{"k": 1, "p": "z"}, {"k": 2, "p": "w"}], "k")
    assert beside.agreed(without=NULLS) == Counter([(1, "z"), (2, "w")])


def test_an_equality_delete_conflicts_with_an_open_transaction_that_has_used_the_row(
    beside: Beside,
) -> None:
    """The transaction conflicts if it has read or changed the deleted row."""
    with beside.connect() as lake:
        lake.create_table("t", [{"k": 1, "v": 0}, {"k": 2, "v": 0}], format="iceberg")
        txn = lake.transaction()
        assert txn.read("t", where="k = 1").num_rows == 1
        txn.append("t", [{"k": 3, "v": 1}])
        delete_equal(beside, pa.table({"k": [1]}))
        with pytest.raises(lv.ConflictError):
            txn.commit()
        txn = lake.transaction()
        txn.update("t", {"v": "v + 1"}, where="k >= 2")
        delete_equal(beside, pa.table({"k": [2]}))
        txn.commit()
        assert beside.agreed(without=PYICEBERG) == Counter()
