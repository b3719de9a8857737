"""Changes of commits with many rows, and with rows of every kind."""

from __future__ import annotations

import math
import time
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakevilla as lv


@pytest.mark.night
def test_the_changes_of_a_million_updated_rows_are_reported_in_seconds(tmp_path: Path) -> None:
    """A comparison of old and new rows one by one, or a bad join, would take minutes."""
    count = 1_000_000
    ids = pa.array(range(count))
    names = pc.binary_join_element_wise("name", pc.cast(ids, pa.string()), "of-some-length", "-")
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction() as txn:
            txn.create_table("t", pa.table({"id": ids, "v": pc.multiply(ids, 1.5), "name": names}))
        since = lake.history()[0].version
        with lake.transaction() as txn:
            txn.update("t", {"v": "v + 1"}, where="id % 2 = 0")
        started = time.monotonic()
        with lake.snapshot() as now:
            told = now.changes("t", since)
        assert time.monotonic() - started < 30
    kinds = {
        row["values"]: row["counts"] for row in told["_change_type"].value_counts().to_pylist()
    }
    assert kinds == {"delete": count // 2, "insert": count // 2}
    new = told.filter(pc.equal(told["_change_type"], "insert"))
    assert pc.sum(new["v"]).as_py() == sum(n * 1.5 + 1 for n in range(0, count, 2))


def test_equal_old_and_new_rows_of_any_type_cancel_each_other_pair_by_pair(tmp_path: Path) -> None:
    kinds = pa.schema(
        [
            ("id", pa.int64()),
            ("text", pa.string()),
            ("real", pa.float64()),
            ("exact", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("many", pa.list_(pa.int64())),
            ("both", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("named", pa.map_(pa.string(), pa.int64())),
        ]
    )
    full = {
        "id": 1,
        "text": "a",
        "real": math.nan,
        "exact": Decimal("1.50"),
        "day": date(2026, 1, 1),
        "raw": b"\x00\xff",
        "many": [1, None],
        "both": {"a": None, "b": "x"},
        "named": [("k", 1)],
    }
    bare = dict.fromkeys(kinds.names)
    old = pa.Table.from_pylist([full, full, full, bare, bare], kinds)
    new = pa.Table.from_pylist([full, bare, bare, bare, {**full, "many": [1, 2]}], kinds)
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction() as txn:
            txn.create_table("t", old)
        since = lake.history()[0].version
        with lake.transaction() as txn:
            txn.overwrite("t", new)
        told = lake.snapshot().changes("t", since)
    seen = [(row["_change_type"], row["id"], row["many"]) for row in told.to_pylist()]
    assert sorted(seen, key=repr) == [
        ("delete", 1, [1, None]),
        ("delete", 1, [1, None]),
        ("insert", 1, [1, 2]),
        ("insert", None, None),
    ]
