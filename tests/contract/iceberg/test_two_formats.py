"""A directory with a Delta log and Iceberg metadata: two tables, or one table in both formats."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

ROWS = pa.table({"k": [1, 2]})
UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}


def delta_table(root: Path, properties: dict[str, str] | None = None) -> None:
    write_deltalake(str(root / "t"), ROWS)
    if properties:
        # Written by hand, as deltalake refuses to set properties that it doesn't know.
        log = root / "t/_delta_log/00000000000000000000.json"
        named = ", ".join(f'"{name}":"{value}"' for name, value in properties.items())
        text = log.read_text()
        assert '"configuration":{}' in text
        log.write_text(text.replace('"configuration":{}', f'"configuration":{{{named}}}'))


def iceberg_table(root: Path) -> Path:
    catalog = ObjectStoreCatalog("tests", warehouse=str(root))
    catalog.create_table(("t",), ROWS.schema).append(ROWS)
    return root / "t/metadata"


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_directory_that_is_two_tables_is_refused_when_it_is_first_opened(tmp_path: Path) -> None:
    delta_table(tmp_path)
    iceberg_table(tmp_path)
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.InvalidOperation, match=r"two tables.*v2\.metadata\.json"):
            lake.register("t")
        with pytest.raises(lv.InvalidOperation, match=r"two tables.*v2\.metadata\.json"):
            with lake.transaction() as txn:
                txn.append("t", ROWS)
        assert "t" not in {table.name for table in lake.tables()}
    catalog = ObjectStoreCatalog("tests", warehouse=str(tmp_path))
    assert catalog.load_table(("t",)).scan().to_arrow().num_rows == 2
    assert [name for name in names(tmp_path) if "_delta_log/" in name] == [
        "t/_delta_log/00000000000000000000.json"
    ]


@pytest.mark.parametrize("first", ["register", "append"])
@pytest.mark.parametrize("kind", ["uniform", "numbered by a catalog"])
def test_a_delta_table_with_iceberg_metadata_of_uniform_or_a_catalog_is_opened(
    tmp_path: Path, kind: str, first: str
) -> None:
    delta_table(tmp_path, UNIFORM if kind == "uniform" else None)
    metadata = iceberg_table(tmp_path)
    if kind != "uniform":
        for number, path in enumerate(sorted(metadata.glob("v*.metadata.json"))):
            path.rename(
                metadata / f"{number:05}-8f9a2f1e-0000-4000-8000-000000000000.metadata.json"
            )
        (metadata / "version-hint.text").unlink()
    with lv.connect(str(tmp_path)) as lake:
        if first == "register":
            lake.register("t")
        with lake.transaction() as txn:
            txn.append("t", ROWS)
        assert lake.table("t").format == "delta"
        assert lake.snapshot().read("t").num_rows == 4


def test_a_registered_delta_table_is_not_searched_for_iceberg_metadata(tmp_path: Path) -> None:
    """Otherwise every opening of a Delta table would cost a LIST request."""
    delta_table(tmp_path)
    with lv.connect(str(tmp_path)) as lake:
        lake.register("t")
    iceberg_table(tmp_path)
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction() as txn:
            txn.append("t", ROWS)
        assert lake.snapshot().read("t").num_rows == 4
