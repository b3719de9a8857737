"""Foreign files with values that don't fit their column are refused; the error names both."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

import lakevilla as lv
from lakevilla.engines.duckdb import file_system
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.delta_by_hand import Tables, add, field, metadata, protocol
from tests.support.engine_lake import Lake


def delta_table(root: Path, kinds: Sequence[dict[str, Any]], *parts: pa.Table) -> None:
    """Create a table ``t`` of foreign files: ``f0.parquet`` and so on."""
    tables = Tables(root)
    tables.log().mkdir(parents=True)
    adds = []
    for number, rows in enumerate(parts):
        path = tables.log().parent / f"f{number}.parquet"
        pq.write_table(rows, path)
        adds.append(add(path.name, size=path.stat().st_size))
    tables.write_entry(0, protocol(), metadata(kinds), *adds)


def refused(lake: lv.Lake, *words: str) -> None:
    """Assert that every read of table ``t`` raises an error with all ``words``."""
    for read in (
        lambda: lake.snapshot().read("t"),
        lambda: lake.snapshot().sql("select * from t"),
        lambda: lake.run(lambda txn: txn.update("t", {"id": "id + 1"}, "true")),
    ):
        with pytest.raises(lv.UnsupportedTableFeature) as told:
            read()
        for word in words:
            assert word in str(told.value)
        assert "correct the statement" not in str(told.value)


def struct(kind: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [field("a", kind)]}


def array(kind: str) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


LARGE = 2**40
TOO_LARGE: dict[str, Any] = {
    "double in float": ("float", pa.array([1e300]), "1e+300"),
    "long in int": ("integer", pa.array([LARGE]), str(LARGE)),
    "long in int in a struct": (struct("integer"), pa.array([{"a": LARGE}]), str(LARGE)),
    "int in short in a list": (array("short"), pa.array([[70_000]], pa.list_(pa.int32())), "70000"),
    "unsigned": ("long", pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_file_with_a_number_too_large_for_its_column_is_refused(
    tmp_path: Path, case: str
) -> None:
    kind, values, shown = TOO_LARGE[case]
    sound = pa.table({"id": [1]})
    delta_table(
        tmp_path, [field("id"), field("v", kind)], sound, pa.table({"id": [2], "v": values})
    )
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column v of table t", "t/f1.parquet", shown)
        assert lake.snapshot().read("t", columns=["id"]).num_rows == 2


MANY_DIGITS = Decimal("1234567890123456.78")
ROUNDED: dict[str, Any] = {
    "more digits than a decimal has": ("decimal(38,2)", pa.decimal256(40, 2), MANY_DIGITS),
    "more digits after the point": ("decimal(20,1)", pa.decimal128(20, 2), MANY_DIGITS),
    "doubles": ("decimal(20,2)", pa.float64(), 0.125),
    "doubles in whole numbers": ("long", pa.float64(), 1.6),
}


HELD = {pa.decimal256(40, 2): "decimal(40,2)", pa.decimal128(20, 2): "decimal(20,2)"}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("case", ROUNDED)
def test_a_file_with_a_number_that_would_be_rounded_is_refused(
    tmp_path: Path, case: str, nested: bool
) -> None:
    wanted, held, value = ROUNDED[case]
    fields = [
        field("id"),
        field("v", struct(wanted) if nested else wanted),
        field("exact", "decimal(9,2)"),
    ]
    kind = pa.struct([("a", held)]) if nested else held
    rows = pa.table({"id": [1], "v": pa.array([{"a": value} if nested else value], kind)})
    delta_table(tmp_path, fields, pa.table({"id": [0]}), rows)
    words = ("column v of table t", "t/f1.parquet", HELD.get(held, str(held)))
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, *words)


def test_an_iceberg_file_with_decimals_of_more_digits_than_38_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.decimal128(38, 2))])
    table = ObjectStoreCatalog("c", warehouse=str(tmp_path)).create_table("t", schema)
    table.append(pa.table({"id": [1], "v": pa.array([MANY_DIGITS], pa.decimal128(38, 2))}))
    (file,) = tmp_path.rglob("*.parquet")
    rows = pq.read_table(file)
    wide = rows.schema.field("v").with_type(pa.decimal256(40, 2))
    pq.write_table(rows.cast(rows.schema.set(1, wide)), file)
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column v of table t", file.name, "decimal(40,2)")


def test_files_with_decimals_of_fewer_digits_or_whole_numbers_are_read(tmp_path: Path) -> None:
    rows = [
        pa.table({"id": [0], "v": pa.array([Decimal("1.5")], pa.decimal128(3, 1))}),
        pa.table({"id": [1], "v": pa.array([7], pa.int32())}),
        pa.table({"id": [2], "v": pa.array([MANY_DIGITS], pa.decimal128(38, 2))}),
    ]
    delta_table(tmp_path, [field("id"), field("v", "decimal(38,2)")], *rows)
    with lv.connect(str(tmp_path)) as lake:
        found = lake.snapshot().read("t").sort_by("id")["v"].to_pylist()
    assert found == [Decimal("1.50"), Decimal("7.00"), MANY_DIGITS]


def test_checking_the_decimals_of_a_file_costs_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = file_system._File.read

    def counted(file: Any, length: int = -1) -> bytes:
        reads.append(length)
        return read(file, length)

    monkeypatch.setattr(file_system._File, "read", counted)
    costs = []
    for kind, value in ((pa.float64(), 1.5), (pa.decimal128(9, 2), Decimal("1.5"))):
        lake = Lake(str(tmp_path / str(kind)), remote=True)
        count = 100_000
        lake.make("t", pa.table({"id": range(count), "v": pa.array([value] * count, kind)}))
        reads.clear()
        assert lake.scan("t").num_rows == count
        costs.append(len(reads))
    assert costs[1] == costs[0] > 0


@pytest.mark.parametrize("beside_bytes", [False, True])
@pytest.mark.parametrize("kind", ["plain", "struct", "list", "map"])
def test_a_file_with_nested_bytes_that_are_no_text_is_refused(
    tmp_path: Path, kind: str, beside_bytes: bool
) -> None:
    bad = b"\xff"
    of_map = {"type": "map", "keyType": "long", "valueType": "string", "valueContainsNull": True}
    wanted, values = {
        "plain": ("string", pa.array([bad])),
        "struct": (struct("string"), pa.array([{"a": bad}])),
        "list": (array("string"), pa.array([[bad]])),
        "map": (of_map, pa.array([[(1, bad)]], pa.map_(pa.int64(), pa.binary()))),
    }[kind]
    fields = [field("id"), field("v", wanted)]
    rows = pa.table({"id": [1], "v": values})
    if beside_bytes:
        fields.append(field("raw", "binary"))
        rows = rows.append_column("raw", pa.array([b"a"]))
    delta_table(tmp_path, fields, rows)
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column v of table t", "t/f0.parquet", "not UTF-8")


@pytest.mark.parametrize("nested", [False, True])
def test_bytes_that_are_no_text_in_a_renamed_iceberg_column_are_refused(
    tmp_path: Path, nested: bool
) -> None:
    values = pa.array([{"a": b"\xff"}]) if nested else pa.array([b"\xff"])
    rows = pa.table({"id": [1], "old": values})
    table = ObjectStoreCatalog("c", warehouse=str(tmp_path)).create_table("t", rows.schema)
    table.append(rows)
    with table.update_schema() as update:
        update.update_column("old.a" if nested else "old", StringType())
    with table.update_schema() as update:
        update.rename_column("old", "new")
        if nested:
            update.rename_column("old.a", "b")
    with lv.connect(str(tmp_path)) as lake:
        refused(lake, "column new of table t", ".parquet", "not UTF-8")
        assert lake.snapshot().read("t", columns=["id"])["id"].to_pylist() == [1]
