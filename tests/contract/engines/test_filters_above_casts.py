"""A filter is never pushed into a file below the cast of its column.

Hazard 33: a reader that casts a file's column narrows the filter's constant to the file's
type. Hazard 34: statistics of a file leave NaN out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.engines.base import TableInput
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.parse import parse_predicate
from tests.support.engine_lake import Lake
from tests.support.search import how_many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN = math.nan

#: An old file's values, the table's present type, and constants between the values.
WIDENED: dict[str, tuple[pa.Array, pa.DataType, list[str]]] = {
    "int to double": (
        pa.array([-2, 1, 2, None], pa.int32()),
        pa.float64(),
        ["1.6", "1.4", "1.5", "-1.6", "3e9"],
    ),
    "int to long": (
        pa.array([1, 2**31 - 1, None], pa.int32()),
        pa.int64(),
        ["3000000000", "1", "-3000000000"],
    ),
    "float to double": (
        pa.array([0.05, 0.1, NAN, None], pa.float32()),
        pa.float64(),
        ["0.1", "0.05", "1e300", "1e-320"],
    ),
    "int to decimal": (
        pa.array([1, 2, None], pa.int16()),
        pa.decimal128(12, 2),
        ["1.60", "1.40", "1.50", "99999999.99"],
    ),
    "decimal to decimal": (
        pa.array([Decimal("1.1"), Decimal("1.2"), None], pa.decimal128(4, 1)),
        pa.decimal128(12, 3),
        ["1.149", "1.151", "1.100", "123456789.123"],
    ),
    "date to timestamp_ntz": (
        pa.array([date(1960, 1, 1), date(2020, 1, 1), date(2020, 1, 2), None]),
        pa.timestamp("us"),
        [
            "timestamp '2020-01-01 12:00:00'",
            "timestamp '2020-01-02 00:00:00'",
            "timestamp '1960-01-01 00:00:01'",
            "timestamp '1959-12-31 12:00:00'",
        ],
    ),
}
COMPARED = ("<", "<=", "=", ">=", ">", "<>", "<=>")


@pytest.fixture(params=["local", "remote"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Return a lake whose engine reads files by local paths, or through the store."""
    return Lake(str(tmp_path), remote=request.param == "remote")


def asked(column: str, constants: list[str]) -> list[str]:
    """Return predicates of every kind that an engine may push into a file."""
    found = [f"{column} {operator} {c}" for c in constants for operator in COMPARED]
    found += [f"not {column} {operator} {c}" for c in constants[:2] for operator in ("<", "=")]
    pair = f"{constants[0]}, {constants[1]}"
    found += [
        f"{column} in ({pair})",
        f"{column} not in ({pair})",
        f"{column} between {constants[0]} and {constants[1]}",
        f"{column} between {constants[1]} and {constants[0]}",
        f"{column} < {constants[0]} or {column} > {constants[1]}",
        f"{column} < {constants[0]} or number = 1",
        f"{column} > {constants[0]} and number < 3",
        f"{column} is null",
        f"{column} is not null",
    ]
    return found


def checked(lake: Lake, table: TableInput, wheres: list[str]) -> None:
    """Assert that ``scan`` and SELECT find exactly the rows for which each predicate is true."""
    schema, wheres = table.layout.schema, wheres[:: how_many(3, whole=1)]
    every = rows(lake, table, None)
    bound = {text: bind(parse_predicate(text), schema) for text in wheres}
    wanted = {
        text: sorted(row["number"] for row in every if is_true(where, row))
        for text, where in bound.items()
    }
    found = {
        text: sorted(row["number"] for row in rows(lake, table, where))
        for text, where in bound.items()
    }
    assert different(found, wanted) == {}
    plain = [text for text in wheres if "<=>" not in text]
    parts = (f"SELECT {n} AS at, number FROM t WHERE {text}" for n, text in enumerate(plain))
    answer = lake.engine.query(" UNION ALL ".join(parts), {"t": table}, {}, {})
    selected: dict[str, list[int]] = {text: [] for text in plain}
    for row in lake.runner.run(answer).sort_by("number").to_pylist():
        selected[plain[row["at"]]].append(row["number"])
    assert different(selected, {text: wanted[text] for text in plain}) == {}


def different(found: dict[str, list[int]], wanted: dict[str, list[int]]) -> dict[str, Any]:
    return {text: (found[text], wanted[text]) for text in wanted if found[text] != wanted[text]}


def rows(lake: Lake, table: TableInput, where: Any) -> list[dict[str, Any]]:
    return list(lake.runner.run(lake.engine.scan(table, None, where)).read_all().to_pylist())


def two_files(lake: Lake, old: pa.Array, wide: pa.DataType) -> TableInput:
    """Return a table with a file from before a column was widened, and one from after."""
    numbers = pa.array(range(len(old)), pa.int64())
    lake.make("t", pa.table({"number": numbers, "x": old}))
    table = lake.input("t")
    new = pa.table({"number": pa.array([100], pa.int64()), "x": old.slice(0, 1).cast(wide)})
    schema = new.schema
    layout = dataclasses.replace(table.layout, schema=schema, physical=schema)
    (written,) = lake.runner.run(lake.engine.write(layout, new.to_reader(), lake.name))
    lake._store("t", written.file.path, written.body)
    added = table.files.slice(0, 1).to_pylist()
    added[0] |= {"path": written.file.path, "size": written.file.size, "stats": written.file.stats}
    files = pa.concat_tables([table.files, pa.Table.from_pylist(added, table.files.schema)])
    return TableInput(layout, files)


@pytest.mark.cases(1)
@pytest.mark.parametrize("case", WIDENED)
def test_filters_on_a_widened_column_are_applied_after_the_cast(lake: Lake, case: str) -> None:
    """Hazard 33: a reader narrows the constant to the file's old type."""
    old, wide, constants = WIDENED[case]
    checked(lake, two_files(lake, old, wide), asked("x", constants))


@pytest.mark.parametrize("case", ["int to double", "date to timestamp_ntz"])
def test_a_delete_by_a_widened_column_deletes_matching_rows_of_an_old_file(
    lake: Lake, case: str
) -> None:
    old, wide, constants = WIDENED[case]
    table = two_files(lake, old, wide)
    where = bind(parse_predicate(f"x <= {constants[0]}"), table.layout.schema)
    matching = sum(is_true(where, row) for row in rows(lake, table, None))
    assert 0 < matching < 4
    rewrite = lake.runner.run(lake.engine.delete(table, where, lake.name))
    assert rewrite.rows_deleted == matching


def rewritten(lake: Lake, table: TableInput, how: Callable[[str], None]) -> TableInput:
    """Return the table after ``how`` has overwritten its one file as another writer."""
    (file,) = (file for file in lake.files() if file.endswith(".parquet"))
    how(file)
    place = table.files.schema.get_field_index("size")
    sizes = pa.array([Path(file).stat().st_size], pa.int64())
    return TableInput(table.layout, table.files.set_column(place, "size", sizes))


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_nan_is_greater_than_every_number_whatever_the_statistics(
    lake: Lake, kind: pa.DataType
) -> None:
    """Hazard 34: statistics in a file leave NaN out."""
    values = [1.0, NAN, -0.0, math.inf, None, 1.0]
    data = pa.table(
        {
            "number": pa.array(range(6), pa.int64()),
            "x": pa.array(values, kind),
            "s": pa.array(
                [None if v is None else {"y": v} for v in values], pa.struct([("y", kind)])
            ),
            "l": pa.array([[v] for v in values], pa.list_(kind)),
        }
    )
    lake.make("t", data)
    table = rewritten(
        lake, lake.input("t"), lambda file: pq.write_table(data, file, row_group_size=2)
    )
    nan, infinite = "cast('NaN' as double)", "cast('Infinity' as double)"
    wheres = asked("x", ["5", "1.0", "0.0", nan, infinite, "-1e300"])
    checked(lake, table, wheres + asked("s.y", ["5", nan]))
    answer = lake.engine.query("SELECT number FROM t WHERE l[1] > 5", {"t": table}, {}, {})
    assert sorted(lake.runner.run(answer)["number"].to_pylist()) == [1, 3]
    answer = lake.engine.query("SELECT max(x), max(s.y) FROM t", {"t": table}, {}, {})
    assert all(math.isnan(value) for value in lake.runner.run(answer).to_pylist()[0].values())


def test_a_timestamp_stored_with_nanoseconds_is_found_by_its_microseconds(lake: Lake) -> None:
    number = pa.array(range(5), pa.int64())
    instants = pa.array([1500, 1000, 2000, -1500, None], pa.int64()).cast(pa.timestamp("ns"))
    lake.make("t", pa.table({"number": number, "x": instants.cast(pa.timestamp("us"), safe=False)}))
    held = pa.table({"number": number, "x": instants})
    table = rewritten(lake, lake.input("t"), lambda file: pq.write_table(held, file))
    instant = "timestamp '{}'".format
    constants = ["1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.000002", "9000-01-01 00:00:00"]
    checked(lake, table, asked("x", list(map(instant, constants))))


def test_tasks_of_a_spark_job_find_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(str(tmp_path), spark=spark)
    old, wide, _ = WIDENED["int to double"]
    table = two_files(lake, old, wide)
    where = bind(parse_predicate("x <= 1.6"), table.layout.schema)
    found = lake.engine.frame(table, ["x"], where).toArrow()["x"].to_pylist()
    assert sorted(found) == [-2.0, -2.0, 1.0]
    rewrite = lake.runner.run(lake.engine.delete(table, where, lake.name))
    assert rewrite.rows_deleted == 3


def test_files_of_lakevilla_have_no_statistics_of_columns_with_nan(tmp_path: Path) -> None:
    """Other readers, such as Spark, assume that statistics include all values."""
    lake = Lake(str(tmp_path))
    data = pa.table(
        {
            "number": [1, 2],
            "x": [1.0, NAN],
            "y": [1.0, 2.0],
            "s": [{"z": 1.0}, {"z": NAN}],
            "l": [[1.0], [NAN]],
            "m": pa.array([[("a", 1.0)], [("b", NAN)]], pa.map_(pa.string(), pa.float64())),
        }
    )
    lake.make("t", data.slice(0, 0))
    (written,) = lake.append("t", data)
    group = pq.ParquetFile(f"{lake.root}/t/{written.file.path}").metadata.row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    assert {c.path_in_schema for c in columns if c.is_stats_set} == {"number", "y"}


@pytest.mark.cases(1)
def test_filters_on_fields_and_columns_that_old_files_lack_or_have_narrower_are_right(
    lake: Lake,
) -> None:
    """Fields of structs too; a column that a file lacks has its default value or NULL there."""
    old = pa.table(
        {
            "number": pa.array([0, 1, 2, 3], pa.int64()),
            "s": pa.array(
                [{"y": 1, "t": {"z": 1}}, {"y": 2, "t": {"z": 2}}, {"y": None, "t": None}, None],
                pa.struct([("y", pa.int32()), ("t", pa.struct([("z", pa.float32())]))]),
            ),
        }
    )
    lake.make("t", old)
    within = pa.struct([("z", pa.float64()), ("new", pa.float64())])
    schema = pa.schema(
        [
            ("number", pa.int64()),
            ("s", pa.struct([("y", pa.decimal128(12, 2)), ("t", within), ("new", pa.int64())])),
            ("absent", pa.float64()),
            ("half", pa.decimal128(5, 2)),
            ("nan", pa.float64()),
            ("seen", pa.timestamp("us")),
        ]
    )
    table = lake.input("t")
    defaults = (("half", "0.50"), ("nan", "NaN"), ("seen", "2020-01-01 00:00:00.5"))
    layout = dataclasses.replace(table.layout, schema=schema, physical=schema, defaults=defaults)
    wheres = asked("s.y", ["1.60", "1.40"]) + asked("s.t.z", ["1.6", "1e300"])
    wheres += asked("s.t.new", ["1.6", "2.0"]) + asked("s.new", ["1", "2"])
    wheres += asked("absent", ["1.6", "2.0"]) + asked("half", ["0.50", "0.49"])
    wheres += asked("nan", ["1.6", "cast('NaN' as double)"])
    wheres += asked("seen", [f"timestamp '2020-01-01 00:00:00{part}'" for part in ("", ".5")])
    wheres += ["cast(number as double) <= 1.6", "cast(number as double) > 1.6", "s is null"]
    checked(lake, TableInput(layout, table.files), wheres)


def test_filters_on_a_table_with_many_partitions_are_right(lake: Lake) -> None:
    count = 70
    data = pa.table(
        {
            "number": pa.array(range(count), pa.int64()),
            "p": pa.array(range(count), pa.int64()),
            "x": pa.array([n if n % 7 else None for n in range(count)], pa.int32()),
        }
    )
    lake.make("t", data, partition_by=["p"])
    table = lake.input("t")
    schema = table.layout.schema
    at = schema.get_field_index("x")
    wide = schema.set(at, pa.field("x", pa.float64()))
    layout = dataclasses.replace(table.layout, schema=wide, physical=wide)
    wheres = [
        "x <= 1.6",
        "x > 67.5",
        "x = 3e0 or p = 5",
        "x < 9.5e0 and p > 4",
        "p = 3 and x > 2.5",
    ]
    checked(lake, TableInput(layout, table.files), wheres)


def test_a_text_column_that_a_file_does_not_mark_as_text_is_read_as_text(lake: Lake) -> None:
    texts = ["é", "A", "\\x41", None]
    number = pa.array(range(4), pa.int64())
    lake.make("t", pa.table({"number": number, "x": texts}))
    held = pa.table({"number": number, "x": pa.array(texts).cast(pa.binary())})
    table = rewritten(
        lake, lake.input("t"), lambda file: pq.write_table(held, file, store_schema=False)
    )
    assert [row["x"] for row in rows(lake, table, None)] == texts
    checked(lake, table, asked("x", ["'A'", "'é'", "'\\x41'"]))
