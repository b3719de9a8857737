"""Files keep their older partition spec in every copy of their table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Have another client partition a table's new files from now on."""
    found = ObjectStoreCatalog("c", warehouse=str(root)).load_table((table,))
    with found.update_spec() as spec:
        spec.add_field("country", IdentityTransform(), "country")


def partition_under_a_used_id(root: Path, table: str) -> None:
    """Partition as an old writer of version 1 does: field ids start again at 1000."""
    hint = root / table / "metadata/version-hint.text"
    number = int(hint.read_text())
    document: dict[str, Any] = json.loads((hint.parent / f"v{number}.metadata.json").read_text())
    (first,) = document["partition-specs"]
    (field,) = first["fields"]
    (source,) = [f["id"] for f in document["schemas"][0]["fields"] if f["name"] == "country"]
    other = {**field, "source-id": source, "name": "country"}
    document["partition-specs"].append({"spec-id": 1, "fields": [other]})
    document["default-spec-id"] = 1
    (hint.parent / f"v{number + 1}.metadata.json").write_text(json.dumps(document))
    hint.write_text(str(number + 1))


@pytest.fixture(params=["no partitions", "other partitions", "other partitions under the same id"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> lv.Lake:
    """Make a lake with table t: two unpartitioned older rows, and one in Italy's partition."""
    made = lv.connect(str(tmp_path))
    by = () if request.param == "no partitions" else ("id",)
    made.create_table("t", rows("de", "fr"), format="iceberg", partition_by=by)
    if request.param == "other partitions under the same id":
        partition_under_a_used_id(tmp_path, "t")
    else:
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
def test_a_filter_on_a_copys_partition_column_finds_rows_of_the_older_spec(
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


def test_a_clone_that_is_partitioned_later_keeps_the_spec_of_its_older_files(
    tmp_path: Path,
) -> None:
    lake = lv.connect(str(tmp_path))
    lake.create_table("t", rows("de", "fr"), format="iceberg")
    lake.clone("t", "copy")
    lake.run(lambda txn: txn.append("copy", rows("es", first=4)))
    partition(tmp_path, "copy")
    lake.absorb(["copy"])
    lake.keep("copy")
    assert lake.read("copy", where="country = 'de'").to_pylist() == GERMAN


def test_a_rollback_restores_files_of_an_older_spec_without_rewriting_them(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.tag("then")
    before = set((tmp_path / "t/data").rglob("*.parquet"))
    lake.run(lambda txn: txn.delete("t", where="id > 0"))
    lake.rollback("then")
    assert set((tmp_path / "t/data").rglob("*.parquet")) == before
    assert lake.read("t").num_rows == 3
