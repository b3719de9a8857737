"""Text with a NUL is stored like any text, in partitions too; text must be UTF-8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import contents

ODD = "a\0'b\0"


def test_a_partition_value_with_a_nul_is_read_and_changed(shop: Place) -> None:
    schema = pa.schema([("part", pa.string()), ("id", pa.int64())])
    with shop.connect() as lake:
        lake.create_table("t", schema, partition_by=["part"])

        def rows() -> list[tuple[str, int]]:
            found = lake.snapshot().read("t").to_pylist()
            return sorted((row["part"], row["id"]) for row in found)

        for number, part in enumerate(("a", ODD)):
            with lake.transaction() as txn:
                txn.append("t", [{"part": part, "id": number}])
        assert rows() == [("a", 0), (ODD, 1)]
        lake.run(lambda txn: txn.update("t", {"id": "id + 10"}, "part = :p", params={"p": ODD}))
        lake.run(lambda txn: txn.update("t", {"part": ":p"}, "id = 0", params={"p": ODD}))
        assert rows() == [(ODD, 0), (ODD, 11)]
        lake.run(lambda txn: txn.upsert("t", [{"part": ODD, "id": 11}], ["part", "id"]))
        lake.run(lambda txn: txn.upsert("t", [{"part": ODD + "c", "id": 11}], "id"))
        assert rows() == [(ODD, 0), (ODD + "c", 11)]
        lake.run(lambda txn: txn.delete("t", "part = :p", params={"p": ODD}))
        assert rows() == [(ODD + "c", 11)]
        assert lake.snapshot().sql("select part from t")["part"].to_pylist() == [ODD + "c"]


def broken() -> pa.StringArray:
    """Return text of one byte that is not UTF-8, as pyarrow reads it from foreign files."""
    offsets = pa.py_buffer(np.array([0, 1], np.int32))
    return pa.StringArray.from_buffers(1, offsets, pa.py_buffer(b"\xff"))


NOT_UTF8: dict[str, Any] = {
    "plain": broken,
    "struct": lambda: pa.StructArray.from_arrays([broken()], ["a"]),
    "list": lambda: pa.ListArray.from_arrays([0, 1], broken()),
    "dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([0]), broken()),
}


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("kind", NOT_UTF8)
def test_text_that_is_not_utf8_is_refused_and_its_column_named(
    shop: Place, kind: str, partitioned: bool
) -> None:
    if partitioned and kind in ("struct", "list"):
        pytest.skip("no partition has such a type")
    data = pa.table({"id": [2], "s": NOT_UTF8[kind]()})
    sound = "a" if kind in ("plain", "dictionary") else {"a": "a"} if kind == "struct" else ["a"]
    with shop.connect() as lake:
        first = pa.table({"id": [1], "s": [sound]})
        lake.create_table("t", first, partition_by=["s"] if partitioned else [])
        before = contents(lake.root)
        for verb in (
            lambda txn: txn.append("t", data),
            lambda txn: txn.append("t", data.to_reader()),
            lambda txn: txn.overwrite("t", data),
            lambda txn: txn.upsert("t", data, "id"),
            lambda txn: txn.upsert("t", data, ["id", "s"]),
            lambda txn: txn.sql("insert into t select * from v", views={"v": data}),
        ):
            with pytest.raises(lv.InvalidOperation, match=r"column 's' .* not UTF-8"):
                lake.run(verb)
        assert {n: b for n, b in contents(lake.root).items() if "/s=" in n or ".parquet" in n} == {
            n: b for n, b in before.items() if ".parquet" in n
        }
        assert lake.snapshot().read("t").num_rows == 1


@pytest.mark.parametrize("annotated", [True, False])
def test_a_foreign_file_with_text_that_is_not_utf8_is_reported(
    tmp_path: Path, annotated: bool
) -> None:
    """Spark writes such text for ``cast(X'ff61' as string)``; the file is not damaged."""
    rows = pa.table({"id": [1], "s": ["a"], "raw": [b"a"]})
    write_deltalake(str(tmp_path / "t"), rows)
    (file,) = (tmp_path / "t").glob("*.parquet")
    bad = broken() if annotated else pa.array([b"\xff"])
    pq.write_table(pa.table({"id": [1], "s": bad, "raw": [b"a"]}), file)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    size = DeltaTable(str(tmp_path / "t")).get_add_actions()["size_bytes"][0].as_py()
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    with lv.connect(str(tmp_path)) as lake:
        for read in (
            lambda: lake.snapshot().read("t"),
            lambda: lake.snapshot().sql("select * from t"),
            lambda: lake.run(lambda txn: txn.update("t", {"id": "id + 1"}, "true")),
        ):
            with pytest.raises(lv.UnsupportedTableFeature) as told:
                read()
            for word in ("column s of table t", file.name, "not UTF-8"):
                assert word in str(told.value)
            assert "backup" not in str(told.value)
        assert lake.snapshot().read("t", columns=["id"])["id"].to_pylist() == [1]
