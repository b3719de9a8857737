"""Rows of every type are read as they were written, by the engine and by deltalake."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.base import CommitInfo
from lakevilla.formats.layout import Constraint, Layout
from lakevilla.settings import Settings
from lakevilla.store.effects import put
from tests.support.engine_lake import Lake, ordered, predicate

UTC = datetime.UTC
EVERY_TYPE = pa.table(
    {
        "boolean": pa.array([True, None, False]),
        "byte": pa.array([-128, None, 127], pa.int8()),
        "short": pa.array([-32768, None, 32767], pa.int16()),
        "integer": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
        "long": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
        "float": pa.array([1.5, None, -2.25], pa.float32()),
        "double": pa.array([1e300, None, -0.1], pa.float64()),
        "small decimal": pa.array([Decimal("1.23"), None, Decimal("-9.99")], pa.decimal128(5, 2)),
        "decimal": pa.array([Decimal(10**20), None, Decimal("-0.5")], pa.decimal128(38, 10)),
        "string": ["", None, "naïve 🎉"],
        "binary": pa.array([b"", None, b"\x00\xff"]),
        "date": pa.array([datetime.date(1900, 1, 1), None, datetime.date(2999, 12, 31)]),
        "timestamp": pa.array(
            [
                datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
                None,
                datetime.datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
            ],
            pa.timestamp("us", "UTC"),
        ),
        "timestamp_ntz": pa.array(
            [datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None, datetime.datetime(1, 1, 1)],
            pa.timestamp("us"),
        ),
        "struct": pa.array(
            [{"x": 1, "y": {"z": "q"}}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))]),
        ),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int32())),
        "list of structs": pa.array(
            [[{"a": 1}, None], None, []], pa.list_(pa.struct([("a", pa.int64())]))
        ),
    }
)


def test_values_of_every_type_are_read_unchanged_by_the_engine_and_deltalake(lake: Lake) -> None:
    lake.make("t", EVERY_TYPE.slice(0, 0))
    lake.append("t", EVERY_TYPE)
    expected = ordered(EVERY_TYPE.to_pylist())
    assert ordered(lake.rows("t")) == expected
    found = lake.scan("t")
    assert found.schema.types == lake.open("t").layout.schema.types
    assert ordered(found.to_pylist()) == expected


def test_values_of_every_type_are_unchanged_by_a_rewrite(lake: Lake) -> None:
    lake.make("t", EVERY_TYPE)
    assert lake.update("t", {"short": "7"}, "short < 0").rows_updated == 1
    expected = EVERY_TYPE.to_pylist()
    expected[0]["short"] = 7
    assert ordered(lake.rows("t")) == ordered(expected)


def test_statistics_agree_with_the_rows(lake: Lake) -> None:
    lake.make("t", EVERY_TYPE.slice(0, 0))
    (written,) = lake.append("t", EVERY_TYPE)
    stats = json.loads(written.file.stats or "", parse_float=Decimal)
    low, high, nulls = stats["minValues"], stats["maxValues"], stats["nullCount"]
    assert stats["numRecords"] == 3
    assert (low["long"], high["long"]) == (-(2**63), 2**63 - 1)
    assert (low["small decimal"], high["small decimal"]) == (Decimal("-9.99"), Decimal("1.23"))
    assert (low["decimal"], high["decimal"]) == (Decimal("-0.5"), Decimal(10**20))
    assert (low["string"], high["string"]) == ("", "naïve 🎉")
    assert (low["date"], high["date"]) == ("1900-01-01", "2999-12-31")
    assert low["timestamp"] == "1969-12-31T23:59:59.999999Z"
    assert high["timestamp"] == "2024-02-29T01:02:03.000004Z"
    assert low["timestamp_ntz"] == "0001-01-01T00:00:00.000"
    assert (low["struct"], high["struct"]) == ({"x": 1, "y": {"z": "q"}},) * 2
    assert (low["boolean"], high["boolean"]) == (False, True)
    assert {"binary", "list", "map"}.isdisjoint(low)
    assert nulls["struct"] == {"x": 2, "y": {"z": 2}}
    assert all(nulls[c] == 1 for c in ("boolean", "binary", "byte", "string", "timestamp"))


def test_floats_that_readers_order_differently_get_no_misleading_bounds(lake: Lake) -> None:
    rows = pa.table(
        {
            "nan": [1.0, math.nan],
            "inf": [1.0, -math.inf],
            "zero": [0.0, -0.0],
            "nulls": pa.array([None, None], pa.float64()),
        }
    )
    for name in ("nan", "inf"):
        # Readers take a missing bound next to others for NULL, so no column has bounds.
        some = rows.select([name, "zero"])
        lake.make(name, some.slice(0, 0))
        (written,) = lake.append(name, some)
        assert {"minValues", "maxValues"}.isdisjoint(json.loads(written.file.stats or ""))
    rows = rows.select(["zero", "nulls"])
    lake.make("t", rows.slice(0, 0))
    (written,) = lake.append("t", rows)
    stats = json.loads(written.file.stats or "")
    assert stats["minValues"] == {"zero": 0.0}
    assert math.copysign(1, stats["minValues"]["zero"]) == -1
    assert math.copysign(1, stats["maxValues"]["zero"]) == 1
    assert stats["nullCount"]["nulls"] == 2


def test_bounds_of_long_strings_are_truncated_and_the_maximum_is_rounded_up(lake: Lake) -> None:
    long = "z" * 31 + "é" + "tail"
    lake.make("t", pa.table({"s": [long]}).slice(0, 0))
    (written,) = lake.append("t", pa.table({"s": [long]}))
    stats = json.loads(written.file.stats or "")
    assert stats["minValues"]["s"] == "z" * 31 + "é"
    assert len(stats["maxValues"]["s"]) == 32
    assert stats["maxValues"]["s"] > long


PARTITIONED = pa.table(
    {
        "v": [1, 2, 3, 4],
        "s": ["a b/=%é:'", "", None, "{[*?#"],
        "i": pa.array([1, None, -3, 1], pa.int32()),
        "d": pa.array([datetime.date(2024, 1, 1)] * 3 + [None]),
        "b": [True, False, None, True],
        "t": pa.array(
            [datetime.datetime(2024, 1, 1, 0, 0, 0, 5, UTC)] * 4, pa.timestamp("us", "UTC")
        ),
        "n": pa.array([datetime.datetime(2024, 1, 1, 0, 0, 0, 5)] * 4, pa.timestamp("us")),
        "e": pa.array([Decimal("1.50")] * 4, pa.decimal128(10, 2)),
        "f": [0.1, 1e20, math.inf, 1.0],
        "y": [b"a", b"\xff\x00", None, b"a"],
    }
)


def test_partition_values_of_every_type_are_read_unchanged(lake: Lake) -> None:
    by = PARTITIONED.column_names[1:]
    lake.make("t", PARTITIONED.slice(0, 0), partition_by=by)
    rows = PARTITIONED.set_column(1, "s", pa.array(["a b/=%é:'", " ", None, "{[*?#"]))
    lake.append("t", rows)
    expected = rows.to_pylist()
    assert ordered(lake.scan("t").to_pylist()) == ordered(expected)
    # deltalake reads the same, except that it reads bytes as their text.
    for row in [*expected, *(theirs := lake.rows("t"))]:
        del row["y"]
    assert ordered(theirs) == ordered(expected)


def test_partition_values_that_deltalake_wrote_are_read_unchanged(lake: Lake) -> None:
    by = PARTITIONED.column_names[1:]
    lake.make("t", PARTITIONED, partition_by=by)
    expected = PARTITIONED.to_pylist()
    expected[1]["s"] = None  # Delta reads an empty partition value as NULL
    assert ordered(lake.scan("t").to_pylist()) == ordered(expected)
    assert lake.delete("t", "v = 3").rows_deleted == 1


def test_a_table_with_150_partitions_can_be_filtered_and_changed(lake: Lake) -> None:
    rows = pa.table({"k": range(150), "p": [str(i) for i in range(150)], "q": [1] * 150})
    lake.make("t", rows, partition_by=["p", "q"])
    found = lake.scan("t", ["p", "k"], "p IN ('7', '149') OR k = 3")
    assert sorted(found.to_pylist(), key=str) == [
        {"p": "149", "k": 149},
        {"p": "3", "k": 3},
        {"p": "7", "k": 7},
    ]
    assert lake.delete("t", "k % 2 = 0").rows_deleted == 75


def test_projection_keeps_its_order_and_unknown_columns_are_refused(lake: Lake) -> None:
    lake.make("t", pa.table({"a": [1], "b": [2], "c": [3]}))
    assert lake.scan("t", ["c", "a"]).to_pylist() == [{"c": 3, "a": 1}]
    with pytest.raises(InvalidOperation, match="no column z"):
        lake.scan("t", ["z"])


def test_columns_named_like_internal_ones_of_duckdb_can_be_read(lake: Lake) -> None:
    rows = pa.table({"filename": ["f"], "file_index": [9], "file_row_number": [8], "rowid": [7]})
    lake.make("t", rows)
    assert lake.scan("t").to_pylist() == rows.to_pylist()
    assert lake.delete("t", "file_index = 9").rows_deleted == 1


def test_a_table_without_files_has_no_rows(lake: Lake) -> None:
    lake.make("t", EVERY_TYPE.slice(0, 0))
    assert lake.scan("t").num_rows == 0
    assert lake.append("t", EVERY_TYPE.slice(0, 0)) == ()
    assert lake.delete("t", "true").rows_deleted == 0


def test_columns_added_later_are_null_in_old_files(lake: Lake) -> None:
    nested = pa.struct([("x", pa.int64()), ("y", pa.string())])
    lake.make("t", pa.table({"a": [1], "s": [{"x": 1}]}))
    lake.make(
        "t",
        pa.table({"a": [2], "b": ["new"], "s": pa.array([{"x": 2, "y": "deep"}], nested)}),
        mode="append",
        schema_mode="merge",
    )
    expected = [
        {"a": 1, "s": {"x": 1, "y": None}, "b": None},
        {"a": 2, "s": {"x": 2, "y": "deep"}, "b": "new"},
    ]
    assert ordered(lake.scan("t").to_pylist()) == ordered(expected)
    assert lake.update("t", {"b": "'filled'"}, "b IS NULL").rows_updated == 1
    expected[0]["b"] = "filled"
    assert ordered(lake.rows("t")) == ordered(expected)


def test_values_of_widened_columns_are_cast_to_the_present_type(lake: Lake) -> None:
    lake.make("t", pa.table({"i": pa.array([1], pa.int32()), "f": pa.array([0.5], pa.float32())}))
    table = lake.input("t")
    wide = pa.schema([("i", pa.int64()), ("f", pa.float64())])
    layout = replaced(table.layout, schema=wide, physical=wide)
    reader = lake.runner.run(lake.engine.scan(type(table)(layout, table.files), None, None))
    assert reader.read_all() == pa.table({"i": [1], "f": [0.5]}, wide)


def replaced(layout: Layout, **changes: Any) -> Layout:
    import dataclasses

    return dataclasses.replace(layout, **changes)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_works_in_both_modes(lake: Lake, mode: str) -> None:
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct([("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.string())])))])),
            ("p", pa.string()),
        ]
    )
    create_table(lake, "t", schema, ["p"], {"delta.columnMapping.mode": mode})
    rows = pa.table(
        {
            "a": [1, 2],
            "s": [{"x": 1, "l": [{"y": "q"}, None]}, None],
            "p": ["u", "v"],
        },
        schema,
    )
    written = lake.append("t", rows)
    layout = lake.open("t").layout
    assert layout.physical.names != layout.schema.names
    for one in written:
        path = f"{lake.root}/t/{one.file.path}"
        assert pq.read_schema(path).names == layout.physical.names[:2]
        ids = [f.metadata[b"PARQUET:field_id"] for f in pq.read_schema(path)]
        assert ids == [f.metadata[b"PARQUET:field_id"] for f in layout.physical][:2]
        assert list(one.file.partition_values) == layout.physical.names[2:]
    assert ordered(lake.scan("t", where="p = 'u'").to_pylist()) == ordered(rows.to_pylist()[:1])
    assert lake.update("t", {"a": "a + 1"}, "a = 1").rows_updated == 1
    expected = rows.to_pylist()
    expected[0]["a"] = 2
    assert ordered(lake.scan("t").to_pylist()) == ordered(expected)


def create_table(
    lake: Lake, name: str, schema: pa.Schema, by: list[str], properties: dict[str, str]
) -> None:
    blank = lake.format.blank(name, name)
    change = lake.format.create(
        blank,
        schema,
        table_id="8f6b2f0e-0000-4000-8000-000000000000",
        partition_by=by,
        properties=properties,
        created_ms=0,
    )
    ready = lake.runner.run(lake.format.prepare(blank, change, CommitInfo("CREATE TABLE"), 0))
    lake.runner.run(put(ready.key, ready.body, ready.condition))


def test_deletion_vectors_are_applied_to_reads_and_rewrites(lake: Lake) -> None:
    lake.make("t", pa.table({"k": list(range(30))}))
    lake.make("t", pa.table({"k": list(range(30, 60))}), mode="append")
    table = lake.input("t")
    vector = {
        # Rows 3, 4, 7, 11, 18 and 29: the inline example of Delta's PROTOCOL.md.
        "storage_type": "i",
        "path_or_inline": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "offset": None,
        "size_in_bytes": 44,
        "cardinality": 6,
    }
    vectors = pa.array([vector, None], table.files.schema.field("deletion_vector").type)
    files = table.files.set_column(
        table.files.schema.get_field_index("deletion_vector"), "deletion_vector", vectors
    )
    first = int(files.column("stats")[0].as_py().split('"minValues":{"k":')[1].split("}")[0])
    table = type(table)(table.layout, files)
    gone = {first + row for row in (3, 4, 7, 11, 18, 29)}
    rows = lake.runner.run(lake.engine.scan(table, None, None)).read_all()
    assert set(rows.column("k").to_pylist()) == set(range(60)) - gone
    where = predicate(f"k IN ({first + 3}, {first + 5})", table.layout)
    result = lake.runner.run(lake.engine.delete(table, where, lake.name))
    assert (result.rows_deleted, result.rows_copied) == (1, 23)
    assert result.removed[0].deletion_vector is not None


def test_null_in_a_not_null_column_is_refused_before_a_file_is_stored(lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    lake.make("t", pa.table({"id": [1], "v": ["x"]}, schema))
    files = lake.files()
    rows = pa.table({"id": [2, None], "v": ["y", "bad row"]})
    layout = lake.open("t").layout
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    with pytest.raises(InvalidOperation, match=r"column id must not be null.*bad row"):
        lake.runner.run(lake.engine.write(layout, reader, lake.name))
    with pytest.raises(InvalidOperation, match="column id must not be null"):
        lake.update("t", {"id": "nullif(id, 1)"}, "true")
    assert lake.files() == files


def test_a_nested_not_null_field_is_checked_only_if_its_parent_is_not_null(lake: Lake) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    strict = pa.schema([("s", inner), ("l", pa.list_(pa.field("element", inner)))])
    loose = pa.struct([("x", pa.int64())])
    layout = plain_layout("t", strict)
    fine = pa.table(
        {
            "s": pa.array([None, {"x": 1}], loose),
            "l": pa.array([[None, {"x": 1}], None], pa.list_(loose)),
        }
    )
    assert write(lake, layout, fine)
    for bad in (
        {"s": pa.array([{"x": None}], loose), "l": pa.array([None], pa.list_(loose))},
        {"s": pa.array([None], loose), "l": pa.array([[{"x": None}]], pa.list_(loose))},
    ):
        with pytest.raises(InvalidOperation, match=r"\.x must not be null"):
            write(lake, layout, pa.table(bad))


def write(lake: Lake, layout: Layout, rows: pa.Table) -> tuple[Any, ...]:
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    return lake.runner.run(lake.engine.write(layout, reader, lake.name))


def plain_layout(name: str, schema: pa.Schema, **changes: Any) -> Layout:
    layout = Layout(
        location=name,
        table=name,
        schema=schema,
        physical=schema,
        by_field_id=False,
        partition_by=(),
        statistics_columns=tuple(schema.names),
        constraints=(),
        properties={},
    )
    return replaced(layout, **changes)


@pytest.mark.parametrize("value", [0, None])
def test_a_check_that_is_false_or_null_refuses_the_row(lake: Lake, value: int | None) -> None:
    schema = pa.schema([("q", pa.int64()), ("note", pa.string())])
    bare = plain_layout("t", schema)
    check = Constraint("some", predicate("q > 0", bare), "q > 0")
    layout = replaced(bare, constraints=(check,))
    with pytest.raises(InvalidOperation, match=r"constraint some \(q > 0\).*spoiled"):
        write(lake, layout, pa.table({"q": [1, value], "note": ["fine", "spoiled"]}, schema))
    assert not lake.files()
    assert write(lake, layout, pa.table({"q": [1], "note": ["fine"]}, schema))


def test_files_are_cut_at_the_target_size(tmp_path: Any) -> None:
    settings = Settings(in_memory_file_limit_bytes=1 << 16, target_file_size_bytes=1 << 19)
    lake = Lake(str(tmp_path), settings=settings)
    rows = pa.table({"x": np.random.default_rng(1).random(400_000)})
    lake.make("t", rows.slice(0, 0))
    written = lake.append("t", rows)
    assert len(written) >= 4
    assert all((1 << 17) < w.file.size < (1 << 21) for w in written[:-1])
    assert sum(json.loads(w.file.stats or "")["numRecords"] for w in written) == rows.num_rows
    assert len(lake.rows("t")) == rows.num_rows


def test_a_large_input_writes_one_file_for_each_of_many_partitions(tmp_path: Any) -> None:
    lake = Lake(str(tmp_path), settings=Settings(in_memory_file_limit_bytes=1 << 12))
    numbers = np.random.default_rng(2).integers(0, 50, 50_000)
    rows = pa.table({"p": numbers, "v": np.arange(50_000)})
    lake.make("t", rows.slice(0, 0), partition_by=["p"])
    written = lake.append("t", rows)
    assert len(written) == 50
    assert ordered(lake.rows("t")) == ordered(rows.to_pylist())


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "none", "lz4", "brotli"])
def test_files_are_written_by_each_codec(lake: Lake, codec: str) -> None:
    layout = plain_layout("t", pa.schema([("a", pa.int64())]), compression=codec)
    (written,) = write(lake, layout, pa.table({"a": [1]}))
    body = written.body or Path(lake.root, "t", written.file.path).read_bytes()
    column = pq.read_metadata(pa.BufferReader(body)).row_group(0).column(0)
    expected = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert column.compression == expected


def test_a_damaged_file_raises_an_error_that_names_it(lake: Lake) -> None:
    lake.make("t", pa.table({"a": [1]}))
    (path,) = lake.input("t").files.column("path").to_pylist()
    size = lake.input("t").files.column("size")[0].as_py()
    with open(f"{lake.root}/t/{path}", "wb") as file:
        file.write(b"x" * size)
    with pytest.raises(CorruptObject):
        lake.scan("t")


def test_a_missing_file_raises_an_error_of_lakevilla(lake: Lake) -> None:
    import os

    from lakevilla.errors import LakeVillaError

    lake.make("t", pa.table({"a": [1]}))
    (path,) = lake.input("t").files.column("path").to_pylist()
    os.unlink(f"{lake.root}/t/{path}")
    with pytest.raises(LakeVillaError):
        lake.scan("t")


def test_equal_multisets_have_equal_digests_and_others_do_not(lake: Lake) -> None:
    counter = itertools.count()

    def digest(*tables: pa.Table, where: str = "true") -> str:
        name = f"d{next(counter)}"
        for number, rows in enumerate(tables):
            lake.make(name, rows, mode="append" if number else "error")
        table = lake.input(name)
        return lake.runner.run(lake.engine.matching_rows(table, predicate(where, table.layout)))

    a = pa.table({"a": ["1", None, "x"], "b": ["2", "", "y"], "n": [[1], None, [None]]})
    assert digest(a) == digest(a.slice(2), a.slice(0, 2))
    assert digest(a, a) != digest(a)
    assert digest(a, a, a) != digest(a)
    assert digest(a, where="a = 'x'") == digest(a.slice(2))
    # Values whose texts join to the same text, NULL and 'NULL', NULL and the empty text.
    left = pa.table({"a": ["12", "NULL", ""], "b": ["3", "x", "y"]})
    right = pa.table({"a": ["1", None, None], "b": ["23", "x", "y"]})
    digests = {digest(t.slice(i, 1)) for t in (left, right) for i in range(3)}
    assert len(digests) == 6
