"""Filter tables of LakeVilla by deltalake, which takes a missing bound for NULL: it finds every
row.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import lakevilla as lv

UTC = datetime.UTC
TOP = chr(0x10FFFF)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "one boolean": (pa.bool_(), [True, True]),
    "long": (pa.int64(), [2**63 - 1, -(2**63), None]),
    "byte": (pa.int8(), [-128, 127]),
    "double": (pa.float64(), [0.1, -0.0, 1e300, 5e-324, None]),
    "float": (pa.float32(), [0.5, 16777216.0]),
    "double with NaN": (pa.float64(), [1.0, math.nan, 10.0]),
    "double, all NaN": (pa.float64(), [math.nan, math.nan]),
    "double with infinity": (pa.float64(), [1.0, math.inf]),
    "double with both infinities": (pa.float64(), [-math.inf, math.inf, 2.0]),
    "float with infinity and NaN": (pa.float32(), [-math.inf, math.nan, 3.0]),
    "small decimal": (pa.decimal128(18, 8), [Decimal(0), Decimal("0.00000001"), Decimal(5)]),
    "large decimal": (
        pa.decimal128(38, 10),
        [Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10")],
    ),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
            datetime.datetime(2020, 1, 1, tzinfo=UTC),
        ],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [
            datetime.datetime(2020, 1, 1, 0, 0, 0, 1),
            datetime.datetime(2020, 1, 1, 0, 0, 0, 999_001),
        ],
    ),
    "string": (pa.string(), ["", "é" * 40, "a" * 31 + TOP, "a" * 32, "z" * 33, None]),
    "string that has no ceiling": (pa.string(), ["a", TOP * 40]),
    "all null": (pa.float64(), [None, None]),
    "binary": (pa.binary(), [b"", b"\xff" * 40]),
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "==": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@pytest.fixture(params=["in memory", "copied"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> lv.Lake:
    """Write files in both ways: by Arrow's writer, and by DuckDB's, which writes large ones."""
    copied = lv.Settings(in_memory_file_limit_bytes=0) if request.param == "copied" else None
    return lv.connect(str(tmp_path), settings=copied or lv.Settings())


def rewritten(lake: lv.Lake, rows: pa.Table) -> None:
    """Write a table of these rows by an append, and rewrite it by an update."""
    with lake.transaction() as txn:
        txn.create_table("t", rows)
    with lake.transaction() as txn:
        txn.update("t", {"k": "k + 0"}, where="true")


def found(path: Path, column: str, operation: str, value: Any) -> set[int]:
    rows = DeltaTable(path).to_pyarrow_table(filters=[(column, operation, value)])
    return set(rows["k"].to_pylist())


@pytest.mark.parametrize("case", VALUES)
def test_filters_of_deltalake_find_every_row(lake: lv.Lake, tmp_path: Path, case: str) -> None:
    kind, values = VALUES[case]
    rows = pa.table({"k": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, kind)})
    rewritten(lake, rows)
    for constant in values:
        if constant is None or constant != constant:
            continue
        for name, compare in COMPARISONS.items():
            arrow = pa.scalar(constant, kind)
            true = pc.fill_null(compare(rows["v"], arrow), False)
            expected = set(rows.filter(true)["k"].to_pylist())
            assert found(tmp_path / "t", "v", name, arrow) == expected, (name, constant)
    missing = set(rows.filter(pc.is_null(rows["v"]))["k"].to_pylist())
    held = DeltaTable(tmp_path / "t").to_pyarrow_dataset().to_table(filter=pc.field("v").is_null())
    assert set(held["k"].to_pylist()) == missing
    assert found(tmp_path / "t", "k", ">=", 0) == set(range(len(values)))


def test_a_column_without_bounds_does_not_hide_rows_from_filters_of_other_columns(
    lake: lv.Lake, tmp_path: Path
) -> None:
    columns: dict[str, Any] = {
        "k": [1, 2],
        "x": [1.0, math.nan],
        "s": [{"f": math.nan, "b": True, "n": 1}, {"f": 1.0, "b": False, "n": 2}],
        "l": [[1], [2]],
        "bin": [b"a", b"b"],
    }
    columns |= {f"c{number}": [number, number] for number in range(40)}
    rewritten(lake, pa.table(columns))
    for name in ("k", "x", "c0", "c26", "c27", "c31", "c39"):
        least = columns[name][0]
        assert 1 in found(tmp_path / "t", name, "==", least), name


def test_bounds_in_checkpoints_find_every_row(lake: lv.Lake, tmp_path: Path) -> None:
    properties = {
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpointInterval": "1",
    }
    rows = pa.table(
        {
            "k": [1, 2],
            "b": [True, False],
            "x": [1.0, math.inf],
            "d": pa.array([Decimal(0), Decimal("0.00000001")], pa.decimal128(18, 8)),
        }
    )
    lake.create_table("t", rows.schema, properties=properties)
    for number in range(3):
        with lake.transaction() as txn:
            txn.append("t", rows if number else rows.set_column(2, "x", [pa.array([1.0, 2.0])]))
    lake.close()  # close waits for checkpoints, which are written in the background
    assert list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    for name, operation, value in (
        ("b", "==", True),
        ("x", "<=", 1.0),
        ("x", "==", 2.0),
        ("x", ">", 1e300),
        ("d", "<", Decimal(9)),
        ("d", "==", Decimal("0.00000001")),
    ):
        assert found(tmp_path / "t", name, operation, value), (name, operation, value)


def test_a_file_with_nan_has_no_bounds_for_that_column_and_other_files_have_all_bounds(
    lake: lv.Lake, tmp_path: Path
) -> None:
    rewritten(lake, pa.table({"k": [1, 2], "x": [1.0, 2.0], "b": [True, True]}))
    with lake.transaction() as txn:
        txn.append("t", pa.table({"k": [3], "x": [math.nan], "b": [True]}))
    fragments = (
        DeltaTable(tmp_path / "t").to_pyarrow_dataset().get_fragments(filter=pc.field("k") == 100)
    )
    assert len(list(fragments)) == 1  # deltalake reads the file with NaN, and skips the other one
