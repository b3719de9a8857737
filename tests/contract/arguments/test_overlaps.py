"""Directories of new tables: a VACUUM of one table must not delete the files of another
(note 22).
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv

ROWS = [{"id": 1}, {"id": 2}]


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    return lv.connect(str(tmp_path))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_is_not_created_around_another_table_of_the_lake(
    lake: lv.Lake, format: str
) -> None:
    lake.create_table("sales/orders", ROWS, format=format)
    with pytest.raises(lv.InvalidOperation, match="would contain table sales/orders"):
        lake.create_table("sales", ROWS)
    assert lake.snapshot().read("sales/orders").num_rows == 2


def test_a_table_can_be_created_around_a_table_that_was_dropped_with_its_data(
    lake: lv.Lake,
) -> None:
    lake.create_table("sales/orders", ROWS)
    lake.drop_table("sales/orders")
    with pytest.raises(lv.InvalidOperation, match="files of table sales/orders, which was dropped"):
        lake.create_table("sales", ROWS)
    lake.register("sales/orders")
    lake.drop_table("sales/orders", delete_data=True)
    lake.create_table("sales", ROWS)


def test_a_table_is_not_created_around_or_within_a_foreign_table(
    lake: lv.Lake, tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path / "hr/people"), pa.table({"a": [1]}))
    with pytest.raises(
        lv.InvalidOperation, match="would contain a table outside of this lake, hr/people"
    ):
        lake.create_table("hr", ROWS)
    with pytest.raises(
        lv.InvalidOperation, match="inside the directory of a table outside of this lake"
    ):
        lake.create_table("hr/people/new", ROWS)
    lake.create_table("hr/teams", ROWS)
    DeltaTable(str(tmp_path / "hr/people")).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )
    assert lake.snapshot().read("hr/teams").num_rows == 2


def test_a_table_is_not_created_in_a_directory_with_foreign_files(
    lake: lv.Lake, tmp_path: Path
) -> None:
    (tmp_path / "raw/2024").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "raw/2024/part-0.PARQUET")
    with pytest.raises(lv.InvalidOperation, match=r"raw/2024/part-0\.PARQUET"):
        lake.create_table("raw", ROWS)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_is_not_created_within_a_table_that_the_lake_does_not_have(
    tmp_path: Path, format: str
) -> None:
    lv.connect(str(tmp_path / "a")).create_table("stock", ROWS, format=format)
    shutil.copytree(tmp_path / "a/stock", tmp_path / "b/stock")
    shutil.rmtree(tmp_path / "b/stock/_lakevilla")
    with pytest.raises(
        lv.InvalidOperation, match="inside the directory of a table outside of this lake"
    ):
        lv.connect(str(tmp_path / "b")).create_table("stock/sub", ROWS)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_is_not_created_in_a_lake_whose_root_is_a_table(
    tmp_path: Path, format: str
) -> None:
    lv.connect(str(tmp_path)).create_table("stock", ROWS, format=format)
    with pytest.warns(lv.LakeVillaWarning, match="connect to"):
        inside = lv.connect(tmp_path / "stock")
    with pytest.raises(lv.InvalidOperation, match="connect to the directory above"):
        inside.create_table("new", ROWS)


def test_a_table_is_not_created_in_the_directory_of_another_lake(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lv.connect(str(tmp_path / "inner")).create_table("z", ROWS)
    with pytest.raises(lv.InvalidOperation, match="inside another lake, inner"):
        lake.create_table("inner/new", ROWS)


@pytest.mark.parametrize("first", ["p", "p/q"])
def test_one_transaction_does_not_create_a_table_within_another(lake: lv.Lake, first: str) -> None:
    second = {"p": "p/q", "p/q": "p"}[first]
    with lake.transaction() as txn:
        txn.create_table(first, ROWS)
        with pytest.raises(lv.InvalidOperation, match="would be inside the other"):
            txn.create_table(second, ROWS)
    assert [table.name for table in lake.tables()] == [first]


@pytest.mark.parametrize("first", ["p", "p/q"])
def test_the_second_of_two_overlapping_concurrent_creates_is_refused_at_the_commit(
    lake: lv.Lake, tmp_path: Path, first: str
) -> None:
    second = {"p": "p/q", "p/q": "p"}[first]
    txn = lake.transaction()
    txn.create_table(second, ROWS)
    lv.connect(str(tmp_path)).run(lambda other: other.create_table(first, ROWS))
    with pytest.raises(lv.LakeVillaError, match="directory of"):
        txn.commit()
    assert [table.name for table in lake.tables()] == [first]


def test_files_of_an_unfinished_create_do_not_block_creating_the_table(
    lake: lv.Lake, tmp_path: Path
) -> None:
    txn = lake.transaction()
    txn.create_table("t", ROWS)
    txn.save()  # stores its files; the transaction is never ended
    assert list((tmp_path / "t").rglob("*.parquet"))
    lv.connect(str(tmp_path)).create_table("t", ROWS)
    assert lake.snapshot().read("t").num_rows == 2


@pytest.mark.parametrize(
    "row", [{"kind": "tea", "user": "bob"}, {"kind": b"log"}, {"sku": "x", "qty": 1}]
)
def test_one_row_as_a_dict_is_refused_with_a_hint(lake: lv.Lake, row: dict) -> None:
    lake.create_table("t", [row])
    verbs = [
        lambda txn: txn.append("t", row),
        lambda txn: txn.upsert("t", row, keys=next(iter(row))),
        lambda txn: txn.overwrite("t", row),
    ]
    for verb in verbs:
        with pytest.raises(lv.InvalidOperation, match=r"for one row pass a list of one dict"):
            lake.run(verb)
    assert lake.snapshot().read("t").num_rows == 1


def test_connect_warns_of_a_root_below_a_table(tmp_path: Path) -> None:
    lv.connect(tmp_path).create_table("stock", ROWS)
    with pytest.warns(lv.LakeVillaWarning, match=f"directory of the table {tmp_path}/stock"):
        lv.connect(tmp_path / "stock" / "below")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lv.connect(tmp_path / "beside")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("outer", ["metadata", "_delta_log.old"])
def test_a_directory_of_tables_may_have_a_name_that_tables_use_for_subdirectories(
    lake: lv.Lake, outer: str, format: str
) -> None:
    for name in (f"{outer}/first", f"{outer}/second", "beside"):
        lake.create_table(name, [{"id": 1}], format=format)
    assert len(lake.tables()) == 3


def test_a_table_is_not_created_in_the_directory_of_a_catalogs_table(
    tmp_path: Path,
) -> None:
    metadata = tmp_path / "theirs" / "metadata"
    metadata.mkdir(parents=True)
    (metadata / "00000-6f1c2a6e-1f6e-4a51-8d5c-0f7b7a3f7f10.metadata.json").write_text("{}")
    with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.InvalidOperation) as raised:
        lake.create_table("theirs", [{"id": 1}])
    assert "the directory of an Iceberg table" in raised.value.message
    assert not (tmp_path / "theirs" / "_delta_log").exists()
