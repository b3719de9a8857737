"""Read tables of LakeVilla by pyiceberg, DuckDB and Spark: each query returns the same rows."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakevilla as lv
from tests.interop.iceberg.beside import Beside, Where, bag

UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("flag", pa.bool_()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("small", pa.decimal128(9, 2)),
        ("large", pa.decimal128(38, 10)),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("items", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
#: Values of each column, lowest first; each file has some of them and a NULL.
VALUES: dict[str, list[Any]] = {
    "flag": [False, False, True],
    "i": [-(2**31), -1, 0, 7, 2**31 - 1],
    "l": [-(2**63), -(2**53) - 1, 0, 2**53 + 1, 2**63 - 1],
    "f": [float("-inf"), -1.5, -0.0, 0.0, 0.25, float("inf"), float("nan")],
    "d": [float("-inf"), -1e300, -0.0, 0.0, 5e-324, 1.5, float("inf"), float("nan")],
    "small": [Decimal("-9999999.99"), Decimal("-1.28"), Decimal("0.00"), Decimal("655.36")],
    "large": [
        Decimal("-" + "9" * 28 + ".9999999999"),
        Decimal("0.0000000001"),
        Decimal("1" + "0" * 27 + "." + "0" * 10),
    ],
    "s": ["", "a", "a" * 40 + "b", "a" * 40 + "c", "ÿ" * 20, "\uffff" * 20, "𝄞" * 40],
    "b": [b"", b"\x00", b"\x7f" * 20, b"\xff" * 40],
    "day": [
        datetime.date(1, 1, 1),
        datetime.date(1969, 12, 31),
        datetime.date(2024, 2, 29),
        datetime.date(9999, 12, 31),
    ],
    "ts": [
        datetime.datetime(1, 1, 1),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 3, 31, 1, 30, 0, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
}
VALUES["tz"] = [instant.replace(tzinfo=UTC) for instant in VALUES["ts"]]
FILES = 3


def part(number: int) -> pa.Table:
    """Return the rows of one file: a slice of each column's values, and a row of NULLs."""
    columns: dict[str, list[Any]] = {}
    for name, known in VALUES.items():
        size = -(-len(known) // FILES)
        columns[name] = known[number * size : (number + 1) * size]
    count = max(map(len, columns.values()))
    rows = []
    for place in range(count):
        row = {n: v[place] if place < len(v) else None for n, v in columns.items()}
        row["k"] = number * 10 + place
        row["st"] = {"a": number * 10 + place, "b": None if place else f"x{number}"}
        row["items"] = ["p", None][:place]
        row["m"] = [("one", number), ("none", None)][:place]
        rows.append(row)
    rows.append(dict.fromkeys(SCHEMA.names) | {"k": number * 10 + 9})
    return pa.Table.from_pylist(rows, SCHEMA)


#: Spark runs one of this many queries, because each takes it long.
ASKED_OF_SPARK = 12


def wheres() -> list[Where]:
    """Compare each column with each of its values, with its middle one, and with NULL."""
    found = []
    for name, known in VALUES.items():
        finite = [v for v in known if not isinstance(v, float) or math.isfinite(v)]
        found += [Where(name, "IS NULL"), Where(name, ">", middle(name)), *asked(name, *finite)]
    return found


def asked(column: str, *values: Any) -> list[Where]:
    return [Where(column, "=", value) for value in values]


def middle(column: str) -> Any:
    return VALUES[column][len(VALUES[column]) // 2]


def whole() -> pa.Table:
    return pa.concat_tables([part(number) for number in range(FILES)])


def test_all_readers_find_the_same_rows_by_filters_on_all_types(beside: Beside) -> None:
    """A wrong bound in a manifest would hide rows of one of the three files."""
    with beside.connect() as lake:
        lake.create_table("t", SCHEMA, format="iceberg")
        for number in range(FILES):
            with lake.transaction() as txn:
                txn.append("t", part(number))
    rows = whole()
    assert beside.agreed() == bag(rows)
    for name, read in beside.readers():
        for where in wheres()[:: ASKED_OF_SPARK if "Spark" in name else 1]:
            if where.value == 0 and isinstance(where.value, float) and "Spark" in name:
                continue  # Spark distinguishes 0.0 from -0.0 by the bounds, in its own tables too
            expected = where.of(rows, nan_is_largest="pyiceberg" not in name)
            assert bag(read("t", where)) == bag(expected), f"{name}: {where}"


STRANGE = ["", " ", "a b", "a/b=c%2F", "..", "ü𝄞", "x" * 60, "'\"", "a\nb", "#?&+", None]


def test_identity_partitions_with_strange_values_are_read_by_all_clients(beside: Beside) -> None:
    rows = pa.table({"k": range(len(STRANGE)), "p": pa.array(STRANGE, pa.string())})
    with beside.connect() as lake:
        lake.create_table("t", rows, format="iceberg", partition_by="p")
        with lake.transaction() as txn:
            txn.update("t", {"k": "k + 100"}, where="p IS NULL OR p = ''")
    seen = {p: k for k, p in beside.agreed()}
    assert seen == {p: k + (0 if p else 100) for k, p in enumerate(STRANGE)}
    for name, read in beside.readers():
        for k, p in enumerate(STRANGE):
            where = Where("p", "IS NULL") if p is None else Where("p", "=", p)
            assert read("t", where)["k"].to_pylist() == [k + (0 if p else 100)], f"{name}: {p!r}"
    files = beside.sql("SELECT partition.p, record_count FROM {t}.files")
    assert sorted(map(repr, STRANGE)) == sorted(repr(row[0]) for row in files)


#: For each type a column, and the transforms by which tables are partitioned.
PARTITIONINGS = [
    ("flag", "flag"),
    ("l", "l"),
    ("small", "small"),
    ("large", "bucket(3, large)"),
    ("b", "b"),
    ("day", "day"),
    ("ts", "ts"),
    ("tz", "tz"),
    ("i", "bucket(3, i)"),
    ("i", "truncate(10, i)"),
    ("l", "bucket(3, l)"),
    ("small", "bucket(3, small)"),
    ("small", "truncate(50, small)"),
    ("s", "bucket(3, s)"),
    ("s", "truncate(2, s)"),
    ("b", "bucket(3, b)"),
    ("b", "truncate(1, b)"),
    ("day", "year(day)"),
    ("day", "month(day)"),
    ("day", "day(day)"),
    ("day", "bucket(3, day)"),
    ("ts", "hour(ts)"),
    ("ts", "day(ts)"),
    ("ts", "month(ts)"),
    ("ts", "bucket(3, ts)"),
    ("tz", "year(tz)"),
    ("tz", "hour(tz)"),
    ("tz", "bucket(3, tz)"),
]


def test_tables_partitioned_by_every_transform_of_every_type_are_read_by_all_clients(
    beside: Beside,
) -> None:
    """A wrong partition value in a manifest would hide rows from a filter on its column."""
    tables = {f"t{n}": (column, by) for n, (column, by) in enumerate(PARTITIONINGS)}
    rows = {table: fitting(column, by) for table, (column, by) in tables.items()}
    with beside.connect() as lake, lake.transaction() as txn:
        for table, (_, by) in tables.items():
            txn.create_table(table, rows[table], format="iceberg", partition_by=by)
    readers = dict(beside.readers())
    for table, (column, by) in tables.items():
        mine = rows[table]
        for name in ("LakeVilla", "pyiceberg", "DuckDB"):
            read = readers[name]
            assert bag(read(table)) == bag(mine), f"{name}: {by}"
            for where in (*asked(column, middle(column)), Where(column, ">", middle(column))):
                found = read(table, where)
                assert bag(found) == bag(where.of(mine, nan_is_largest=True)), f"{name}: {by}"
    counts = " UNION ALL ".join(
        f"SELECT '{table}', count(*) FROM {beside.name(table)} WHERE {where.sql(spark=True)}"
        for table, (column, _) in tables.items()
        for where in asked(column, middle(column))
    )
    expected = {
        table: asked(column, middle(column))[0].of(rows[table], nan_is_largest=True).num_rows
        for table, (column, _) in tables.items()
    }
    assert {row[0]: row[1] for row in beside.sql(counts)} == expected


def fitting(column: str, by: str) -> pa.Table:
    """Return rows without the lowest value of a column if no multiple of the width is below it."""
    rows = whole().select(["k", column])
    if by.startswith("truncate") and column in ("i", "small"):
        lowest = pa.scalar(min(VALUES[column]), rows[column].type)
        rows = rows.filter(pc.not_equal(rows[column], lowest).fill_null(True))
    return rows


def test_a_value_whose_partition_value_does_not_fit_is_refused(beside: Beside) -> None:
    """Other clients let it overflow, and then lose the row."""
    with beside.connect() as lake:
        for table, column in (("t", "i"), ("u", "small")):
            rows = whole().select(["k", column])
            by = f"truncate(50, {column})"
            with pytest.raises(
                lv.InvalidOperation, match=r"can't be partitioned by truncate\[50\]"
            ):
                lake.create_table(table, rows, format="iceberg", partition_by=by)


def test_tables_are_read_by_all_clients_after_every_operation_and_change_of_schema(
    beside: Beside,
) -> None:
    with beside.connect() as lake:
        lake.create_table(
            "t",
            pa.table({"k": range(6), "v": ["a", "b", "c", "d", "e", None], "n": [1.5] * 6}),
            format="iceberg",
            partition_by="bucket(2, k)",
        )
        with lake.transaction() as txn:
            txn.append("t", [{"k": 6, "v": "g", "n": 2.5}])
            txn.update("t", {"v": "v || '+'"}, where="k < 2")
            txn.delete("t", where="k = 2")
        assert beside.agreed() == Counter(
            {(0, "a+", 1.5): 1, (1, "b+", 1.5): 1, (3, "d", 1.5): 1}
        ) + Counter({(4, "e", 1.5): 1, (5, None, 1.5): 1, (6, "g", 2.5): 1})
        with lake.transaction() as txn:
            txn.upsert("t", [{"k": 3, "v": "D", "n": 0.0}, {"k": 7, "v": "h", "n": 0.0}], "k")
            txn.overwrite("t", [{"k": 4, "v": "E", "n": None}], where="k = 4")
        with lake.transaction() as txn:
            txn.alter("t", add_columns=pa.schema([("extra", pa.int64())]))
            txn.alter("t", rename_columns={"v": "text"}, drop_columns=["n"])
        with lake.transaction() as txn:
            txn.append("t", [{"k": 8, "text": "i", "extra": 1}])
            txn.update("t", {"extra": "k * 10"}, where="k >= 7")
        with lake.transaction() as txn:  # a new column under the name of a dropped one
            txn.alter("t", add_columns=pa.schema([("n", pa.string())]))
        rows = [
            *[(0, "a+", None, None), (1, "b+", None, None), (3, "D", None, None)],
            *[(4, "E", None, None), (5, None, None, None), (6, "g", None, None)],
            *[(7, "h", 70, None), (8, "i", 80, None)],
        ]
        assert beside.agreed() == Counter(rows)
        assert beside.by_spark("t", Where("text", "=", "D"))["k"].to_pylist() == [3]
        with lake.transaction() as txn:
            txn.overwrite("t", [{"k": 1, "text": None, "extra": None, "n": "n"}])
    assert beside.agreed() == Counter([(1, None, None, "n")])
    assert [t.tableName for t in beside.sql(f"SHOW TABLES IN ice.{beside.namespace}")] == ["t"]
    operations = [row[0] for row in beside.sql("SELECT operation FROM {t}.snapshots")]
    assert operations[-1] == "overwrite"


def test_a_directory_of_the_lake_is_a_namespace_of_the_catalog(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("sales/eu/t", [{"k": 1}], format="iceberg")
        with lake.transaction() as txn:
            txn.append("sales/eu/t", [{"k": 2}])
    assert beside.agreed("sales/eu/t") == Counter([(1,), (2,)])
    assert [row[1] for row in beside.sql(f"SHOW TABLES IN ice.{beside.namespace}.sales.eu")] == [
        "t"
    ]
