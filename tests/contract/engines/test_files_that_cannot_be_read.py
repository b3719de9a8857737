"""The error for a missing or undecodable data file names that file, and no other."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from lakevilla.engines.duckdb.database import is_duckdb_1
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

OPERATIONS: dict[str, Callable[[lv.Lake], object]] = {
    "read": lambda lake: lake.snapshot().read("t"),
    "where": lambda lake: lake.snapshot().read("t", where="st.a >= 1 and f > 1 and d > 1"),
    "scan": lambda lake: list(lake.snapshot().scan("t")),
    "sql": lambda lake: lake.snapshot().sql("select * from t"),
    "delete": lambda lake: lake.run(lambda txn: txn.delete("t", "st.a >= 1 and f > 1")),
    "update": lambda lake: lake.run(lambda txn: txn.update("t", {"id": "id + 1"}, "f > 1")),
    "upsert": lambda lake: lake.run(
        lambda txn: txn.upsert("t", [{"id": 1, "f": 2.5}, {"id": 2, "f": 2.5}], "id")
    ),
    "insert": lambda lake: lake.run(lambda txn: txn.sql("insert into t select * from t")),
    "optimize": lambda lake: lake.table("t").optimize(z_order_by="id"),
}
FIRST = pa.table(
    {"id": [1], "st": [{"a": 1}], "l": [[{"x": 1}]], "f": [1.5], "d": [decimal.Decimal("1.5")]}
)
SECOND = pa.table({**FIRST.to_pydict(), "id": [2], "st": [{"a": 1, "b": "x"}]})


def evolved(root: Path, format: Literal["delta", "iceberg"]) -> list[Path]:
    """Create a table whose nested columns have changed since; return its data files."""
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
def test_the_store_error_for_a_missing_file_names_it(tmp_path: Path, format: Any) -> None:
    for file in evolved(tmp_path, format):
        away = file.rename(file.with_suffix(".away"))
        for name, act in OPERATIONS.items():
            with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.StoreError) as told:
                act(lake)
            assert file.name in str(told.value), name
        away.rename(file)
    with lv.connect(str(tmp_path)) as lake:
        assert len(lake.snapshot().read("t")) == 2


#: The bytes of codec LZ4_RAW in a footer, between two other fields.
LZ4_RAW, LZ4, LZO = b"\x15\x0e\x16", b"\x15\x0a\x16", b"\x15\x06\x16"


@pytest.mark.parametrize(("codec", "name"), [(LZ4, "LZ4"), (LZO, "LZO")])
def test_the_error_for_an_unsupported_codec_names_file_and_codec(
    tmp_path: Path, codec: bytes, name: str
) -> None:
    """Hadoop's writers use such codecs; the files are not damaged."""
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
    if name == "LZ4" and not is_duckdb_1():  # DuckDB 2 reads this codec
        with lv.connect(str(tmp_path)) as lake:
            assert lake.snapshot().read("t").to_pylist() == FIRST.to_pylist()
        return
    for act in OPERATIONS.values():
        with (
            lv.connect(str(tmp_path)) as lake,
            pytest.raises(lv.UnsupportedTableFeature, match=f"compressed by {name},") as told,
        ):
            act(lake)
        assert file.name in str(told.value)


def as_others_write(root: Path, rows: pa.Table, plain: pa.Table, **how: Any) -> Path:
    """Append a file of ``rows`` to table ``t``; the log describes it as a file of ``plain``."""
    before = set((root / "t").rglob("*.parquet"))
    write_deltalake(str(root / "t"), plain, mode="append")
    (file,) = set((root / "t").rglob("*.parquet")) - before
    entry = max((root / "t" / "_delta_log").glob("*.json"))
    size = file.stat().st_size
    pq.write_table(rows, file, use_dictionary=False, **how)
    text = entry.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}')
    entry.write_text(text)
    return file


#: Types that pyarrow can write with BYTE_STREAM_SPLIT. DuckDB 1 reads none of them so; DuckDB 2
#: reads all except the last.
SPLIT = {
    "int": pa.array([1, 2], pa.int32()),
    "long": pa.array([1, 2], pa.int64()),
    "date": pa.array([1, 2], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([1, 2], pa.timestamp("us", "UTC")),
    "struct": pa.array([{"x": 1}, {"x": 2}]),
    "decimal": pa.array([decimal.Decimal("1.5"), None], pa.decimal128(9, 2)),
}


@pytest.mark.parametrize("kind", SPLIT)
def test_the_error_for_an_unsupported_encoding_names_file_column_and_encoding(
    tmp_path: Path, kind: str
) -> None:
    rows = pa.table({"k": SPLIT[kind], "f": [1.0, 2.0]})
    leaf = "k.x" if kind == "struct" else "k"
    split = {leaf: "BYTE_STREAM_SPLIT", "f": "BYTE_STREAM_SPLIT"}
    file = as_others_write(tmp_path, rows, rows, column_encoding=split)
    assert pq.read_table(file).equals(rows)
    where = f"{leaf} IS NOT NULL"
    verbs: list[Callable[[lv.Lake], object]] = [
        lambda lake: lake.snapshot().read("t"),
        lambda lake: lake.snapshot().sql("select * from t"),
        lambda lake: lake.run(lambda txn: txn.update("t", {"f": "f + 1"}, where)),
        lambda lake: lake.table("t").optimize(z_order_by="f"),
    ]
    with lv.connect(str(tmp_path)) as lake:
        if kind != "decimal" and not is_duckdb_1():
            assert lake.snapshot().read("t").equals(rows)
            return
        for act in verbs:
            with pytest.raises(lv.UnsupportedTableFeature, match="BYTE_STREAM_SPLIT") as told:
                act(lake)
            assert file.name in str(told.value)
            assert "column k of table t" in str(told.value)
            assert "restore" not in str(told.value)
        assert lake.snapshot().read("t", columns=["f"])["f"].to_pylist() == [1.0, 2.0]


READ = [
    ("DELTA_BINARY_PACKED", SPLIT["int"]),
    ("DELTA_BINARY_PACKED", SPLIT["timestamp"]),
    ("DELTA_BYTE_ARRAY", pa.array(["aa", "ab"])),
    ("DELTA_BYTE_ARRAY", SPLIT["decimal"]),
    ("DELTA_LENGTH_BYTE_ARRAY", pa.array([b"a", b""])),
    ("RLE", pa.array([True, False])),
    ("BYTE_STREAM_SPLIT", pa.array([1.5, 2.5])),
    ("PLAIN", pa.array([1.5, 2.5], pa.float32())),
]


@pytest.mark.parametrize(("encoding", "values"), READ)
def test_files_in_every_other_encoding_are_read(
    tmp_path: Path, encoding: str, values: pa.Array
) -> None:
    rows = pa.table({"k": values})
    file = as_others_write(tmp_path, rows, rows, column_encoding={"k": encoding})
    assert encoding in pq.read_metadata(file).row_group(0).column(0).encodings
    with lv.connect(str(tmp_path)) as lake:
        assert lake.snapshot().read("t")["k"].to_pylist() == values.to_pylist()


def beyond_pyarrow(root: Path) -> Path:
    """Add an undamaged file that DuckDB can read and pyarrow can't."""
    plain = pa.table({"k": ["a", "b", "a"]})
    rows = pa.table({"k": plain["k"].combine_chunks().dictionary_encode()})
    file = as_others_write(root, rows, plain, column_encoding={"k": "DELTA_BYTE_ARRAY"})
    with pytest.raises((pa.ArrowException, OSError), match="ot yet implemented"):
        pq.read_table(file)
    return file


def test_an_error_in_a_statement_is_not_blamed_on_a_file_that_pyarrow_cannot_decode(
    tmp_path: Path,
) -> None:
    beyond_pyarrow(tmp_path)
    with lv.connect(str(tmp_path)) as lake:
        assert lake.snapshot().read("t", where="k = 'a'").num_rows == 2
        with pytest.raises(lv.InvalidOperation, match="cannot cast to integer"):
            lake.run(lambda txn: txn.update("t", {"k": "cast(cast(k as int) as string)"}, "true"))


def test_the_error_names_the_damaged_file_and_not_one_that_pyarrow_cannot_decode(
    tmp_path: Path,
) -> None:
    sound = beyond_pyarrow(tmp_path)
    many = pa.table({"k": ["x"] * 100})
    bad = as_others_write(tmp_path, many, many, compression="snappy")
    body = bytearray(bad.read_bytes())
    body[4:60] = b"\xff" * 56
    bad.write_bytes(body)
    with lv.connect(str(tmp_path)) as lake:
        for act in (
            lambda: lake.snapshot().read("t"),
            lambda: lake.run(lambda txn: txn.update("t", {"k": "k || 'x'"}, "true")),
        ):
            with pytest.raises(lv.CorruptObject) as told:
                act()
            assert bad.name in str(told.value.key)
            assert sound.name not in str(told.value)


def beyond_pyarrow_s_footers(root: Path) -> Path:
    """Add an undamaged file with Hive's annotation of maps, whose footer pyarrow can't read."""
    rows = pa.table({"k": ["abc"], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))})
    with lv.connect(str(root)) as lake:
        lake.create_table("t", rows, format="iceberg")
    (file,) = (root / "t").rglob("*.parquet")
    held = file.read_bytes()
    start = len(held) - 8 - int.from_bytes(held[-8:-4], "little")
    footer, name = held[start:-8], b"key_value\x15\x04"  # with two children
    end = footer.index(name) + len(name)
    there = 2 if footer[end : end + 2] == b"\x15\x02" else 0  # bytes of a converted type
    odd = footer[:end] + b"\x15\x04\x4c\xbc\x00\x00" + footer[end + there :]
    # The file keeps its size: the writer's name is shortened by the annotation's bytes.
    by = re.search(rb"(.)(DuckDB version [^\x19]*|parquet-cpp-arrow version [0-9.]+)", odd, re.S)
    assert by is not None
    more = len(odd) - len(footer)
    odd = odd.replace(by[0], bytes([by[1][0] - more]) + by[2][:-more], 1)
    file.write_bytes(held[:start] + odd + held[-8:])
    with pytest.raises((pa.ArrowException, OSError)):
        pq.read_metadata(file)
    return file


def test_an_error_in_a_statement_is_not_blamed_on_a_file_whose_footer_pyarrow_refuses(
    tmp_path: Path,
) -> None:
    beyond_pyarrow_s_footers(tmp_path)
    with lv.connect(str(tmp_path)) as lake:
        assert lake.snapshot().read("t").to_pylist() == [{"k": "abc", "m": [("k", 1)]}]
        with pytest.raises(lv.InvalidOperation, match="cannot cast to integer"):
            lake.snapshot().read("t", where="cast(k as int) = 1")


def test_a_damaged_file_whose_footer_pyarrow_refuses_is_reported(tmp_path: Path) -> None:
    file = beyond_pyarrow_s_footers(tmp_path)
    body = bytearray(file.read_bytes())
    body[4:40] = b"\xff" * 36
    file.write_bytes(body)
    with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.CorruptObject) as raised:
        lake.snapshot().read("t")
    assert file.name in str(raised.value.key)
