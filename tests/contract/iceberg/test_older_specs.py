"""Files of an older partition spec keep it wherever a copy of their table names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

GERMAN = [{"id": 1, "country": "de"}]


def rows(*countries: str, first: int = 1) -> pa.Table:
    return pa.table({"id": range(first, first + len(countries)), "country": countries})


def partition(root: Path, table: str) -> None:
    """Have another client partition a table from now on."""
    found = ObjectStoreCatalog("c", warehouse=str(root)).load_table((table,))
    with found.update_spec() as spec:
        spec.add_field("country", IdentityTransform(), "country")


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    """A lake with table t: two rows without a partition, one in that of Italy."""
    made = lv.connect(str(tmp_path))
    made.create_table("t", rows("de", "fr"), format="iceberg")
    partition(tmp_path, "t")
    made.run(lambda txn: txn.append("t", rows("it", first=3)))
    return made


def exported(lake: lv.Lake) -> str:
    lake.export("t", f"{lake.root}/copy")
    return "copy"


def exported_with_files(lake: lv.Lake) -> str:
    lake.export("t", f"{lake.root}/copy", copy=True)
    return "copy"


def cloned_and_written(lake: lv.Lake) -> str:
    lake.clone("t", "copy")
    lake.run(lambda txn: txn.append("copy", rows("es", first=4)))
    return "copy"


def cloned_and_kept(lake: lv.Lake) -> str:
    cloned_and_written(lake)
    lake.keep("copy")
    return "copy"


def cloned_with_files(lake: lv.Lake) -> str:
    lake.clone("t", "copy", copy=True)
    return "copy"


def rolled_back(lake: lv.Lake) -> str:
    lake.tag("then")
    lake.run(lambda txn: txn.delete("t", where="id < 3"))
    lake.rollback("then")
    return "t"


@pytest.mark.parametrize(
    "copied",
    [
        exported,
        exported_with_files,
        cloned_and_written,
        cloned_and_kept,
        cloned_with_files,
        rolled_back,
    ],
    ids=lambda copied: copied.__name__,
)
def test_a_filter_on_the_partition_finds_the_older_rows(
    lake: lv.Lake, tmp_path: Path, copied: Callable[[lv.Lake], str]
) -> None:
    directory = tmp_path / copied(lake)
    hint = (directory / "metadata/version-hint.text").read_text()
    table = StaticTable.from_metadata(str(directory / f"metadata/v{hint}.metadata.json"))
    assert table.scan(row_filter="country = 'de'").to_arrow().to_pylist() == GERMAN
    with lv.connect(str(tmp_path)) as reader:
        if directory.name == "copy" and copied.__name__.startswith("exported"):
            reader.register("copy")
        assert reader.read(directory.name, where="country = 'de'").to_pylist() == GERMAN


def test_a_clone_that_was_partitioned_since_keeps_its_older_files(tmp_path: Path) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("t", rows("de", "fr"), format="iceberg")
    lake.clone("t", "copy")
    lake.run(lambda txn: txn.append("copy", rows("es", first=4)))
    partition(tmp_path, "copy")
    lake.absorb(["copy"])
    lake.keep("copy")
    assert lake.read("copy", where="country = 'de'").to_pylist() == GERMAN


def test_a_rollback_adds_files_of_an_older_spec_unread(lake: lv.Lake, tmp_path: Path) -> None:
    lake.tag("then")
    before = set((tmp_path / "t/data").rglob("*.parquet"))
    lake.run(lambda txn: txn.delete("t", where="id > 0"))
    lake.rollback("then")
    assert set((tmp_path / "t/data").rglob("*.parquet")) == before
    assert lake.read("t").num_rows == 3
