"""Tables that another client drops or damages while a client has their state in its cache."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.places import Place

ENTRY, HEAD = lv.Feature.R, lv.Feature.R | lv.Feature.I


def rows(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64())})


def make_anew(root: Path, commits: int) -> None:
    """Drop and recreate the table as a client without LakeVilla does."""
    shutil.rmtree(root / "t")
    table = ObjectStoreCatalog("other", warehouse=str(root)).create_table("t", rows().schema)
    for number in range(commits):
        table.append(rows(500 + number))


def seen(root: Path) -> list[int]:
    table = ObjectStoreCatalog("reader", warehouse=str(root)).load_table("t")
    return sorted(table.scan().to_arrow()["k"].to_pylist())


@pytest.mark.parametrize("features", [ENTRY, HEAD], ids=["entry", "head"])
@pytest.mark.parametrize("commits", [0, 1, 3])
def test_a_table_that_another_client_recreated_is_not_overwritten(
    tmp_path: Path, features: lv.Feature, commits: int
) -> None:
    """The new table has fewer versions than the old one, as many, or more."""
    catalog = ObjectStoreCatalog("c", warehouse=str(tmp_path))
    catalog.create_table("t", rows().schema).append(rows(1))
    with lv.connect(str(tmp_path)) as lake:
        assert lake.snapshot().read("t").num_rows == 1
        with pytest.raises(lv.LakeVillaError), lake.transaction(features=features) as txn:
            total = sum(txn.read("t")["k"].to_pylist())
            txn.append("t", rows(total))
            make_anew(tmp_path, commits)
    assert seen(tmp_path) == [500 + number for number in range(commits)]


@pytest.mark.parametrize("features", [ENTRY, HEAD], ids=["entry", "head"])
def test_a_blind_append_to_a_recreated_table_is_published_there_or_fails(
    tmp_path: Path, features: lv.Feature
) -> None:
    catalog = ObjectStoreCatalog("c", warehouse=str(tmp_path))
    catalog.create_table("t", rows().schema).append(rows(1))
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction(features=features) as txn:
            txn.append("t", rows(2))
        make_anew(tmp_path, 1)
        try:
            with lake.transaction(features=features) as txn:
                txn.append("t", rows(3))
        except lv.LakeVillaError:
            assert seen(tmp_path) == [500]
        else:
            assert seen(tmp_path) == [3, 500]


@pytest.mark.parametrize("damage", ["list", "snapshot"])
def test_a_transaction_over_a_damaged_table_commits_to_none_of_its_tables(
    tmp_path: Path, damage: str
) -> None:
    place = Place(str(tmp_path), format="iceberg")
    with place.connect() as lake:
        lake.create_table("t", rows(1), format="iceberg")
        lake.create_table("d", rows(1))
    (newest,) = (tmp_path / "t" / "metadata").glob("v1.metadata.json")
    if damage == "list":
        for path in (tmp_path / "t" / "metadata").glob("snap-*.avro"):
            path.unlink()
    else:
        text = newest.read_text()
        current = text.partition('"current-snapshot-id":')[2].partition(",")[0]
        newest.write_text(
            text.replace(f'"current-snapshot-id":{current}', '"current-snapshot-id":7')
        )
    with place.connect() as lake:
        with pytest.raises(lv.CorruptObject), lake.transaction() as txn:
            txn.append("d", rows(2))
            txn.append("t", rows(2))
        assert lake.snapshot().read("d")["k"].to_pylist() == [1]
