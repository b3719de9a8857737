"""A data file that is gone, or compressed in a way of its own, is told by its name."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from lakevilla.formats.iceberg.object_store_catalog import ObjectStoreCatalog

OPERATIONS: dict[str, Callable[[lv.Lake], object]] = {
    "read": lambda lake: lake.snapshot().read("t"),
    "where": lambda lake: lake.snapshot().read("t", where="st.a >= 1 and f > 1 and d > 1"),
    "scan": lambda lake: list(lake.snapshot().scan("t")),
    "sql": lambda lake: lake.snapshot().sql("select * from t"),
    "delete": lambda lake: lake.run(lambda txn: txn.delete("t", "st.a >= 1 and f > 1")),
    "update": lambda lake: lake.run(lambda txn: txn.update("t", {"id": "id + 1"}, "f > 1")),
    "upsert": lambda lake: lake.run(lambda txn: txn.upsert("t", [{"id": 1, "f": 2.5}], "id")),
    "insert": lambda lake: lake.run(lambda txn: txn.sql("insert into t select * from t")),
    "optimize": lambda lake: lake.table("t").optimize(z_order_by="id"),
}
FIRST = pa.table(
    {"id": [1], "st": [{"a": 1}], "l": [[{"x": 1}]], "f": [1.5], "d": [decimal.Decimal("1.5")]}
)
SECOND = pa.table({**FIRST.to_pydict(), "id": [2], "st": [{"a": 1, "b": "x"}]})


def evolved(root: Path, format: Literal["delta", "iceberg"]) -> list[Path]:
    """Data files of a table whose nested columns have other fields by now, or other names."""
    if format == "delta":
        for rows in (FIRST, SECOND):
            write_deltalake(str(root / "t"), rows, mode="append", schema_mode="merge")
    else:
        table = ObjectStoreCatalog("c", warehouse=str(root)).create_table("t", FIRST.schema)
        table.append(FIRST)
        with table.update_schema() as update:
            update.union_by_name(SECOND.schema)
        table.append(SECOND.cast(table.schema().as_arrow()))
        with table.update_schema() as update:
            update.rename_column("l.element.x", "y")
    return sorted((root / "t").rglob("*.parquet"))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_file_that_is_gone_is_a_store_error_that_names_it(tmp_path: Path, format: Any) -> None:
    for file in evolved(tmp_path, format):
        away = file.rename(file.with_suffix(".away"))
        for name, act in OPERATIONS.items():
            with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.StoreError) as told:
                act(lake)
            assert file.name in str(told.value), name
        away.rename(file)
    with lv.connect(str(tmp_path)) as lake:
        assert len(lake.snapshot().read("t")) == 2


#: In a footer: an integer field after another, its codec LZ4_RAW, then a 64-bit field.
LZ4_RAW, LZ4, LZO = b"\x15\x0e\x16", b"\x15\x0a\x16", b"\x15\x06\x16"


@pytest.mark.parametrize(("codec", "name"), [(LZ4, "LZ4"), (LZO, "LZO")])
def test_a_codec_that_is_not_read_is_refused_by_file_and_name(
    tmp_path: Path, codec: bytes, name: str
) -> None:
    """As Hadoop's writers leave them: the rows are the users' own, and nothing is wrong."""
    write_deltalake(str(tmp_path / "t"), FIRST)
    (file,) = (tmp_path / "t").rglob("*.parquet")
    (entry,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    before = file.stat().st_size
    pq.write_table(FIRST, file, compression="lz4")
    bytes_ = file.read_bytes()
    assert bytes_.count(LZ4_RAW) >= len(FIRST.schema)
    file.write_bytes(bytes_.replace(LZ4_RAW, codec))
    size = f'"size":{file.stat().st_size}'
    entry.write_text(entry.read_text().replace(f'"size":{before}', size))
    for act in OPERATIONS.values():
        with (
            lv.connect(str(tmp_path)) as lake,
            pytest.raises(lv.UnsupportedTableFeature, match=f"compressed by {name},") as told,
        ):
            act(lake)
        assert file.name in str(told.value)
