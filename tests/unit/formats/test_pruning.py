"""Pruning excludes a file only if no row of it can match; in the plain cases it does exclude it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import FILES_SCHEMA, DataFile
from lakevilla.formats.layout import Layout
from lakevilla.formats.pruning import always_true, may_match
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import compare, evaluate
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr, children, columns
from tests.support.search import how_many
from tests.support.trees import ROWS, SCHEMA, trees

PARTITIONS = ("b", "t", "d", "ts", "bo", "x", "dec")


def physical(field: pa.Field, prefix: str = "col-") -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        type_ = pa.struct([physical(inner, prefix + "in-") for inner in type_])
    return pa.field(prefix + field.name, type_)


def layout(schema: pa.Schema = SCHEMA, partition_by: tuple[str, ...] = ()) -> Layout:
    mapped = pa.schema([physical(field) for field in schema])
    return Layout("lake/t", "t", schema, mapped, False, partition_by, (), (), {})


def partition_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
    if isinstance(value, float):
        special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return special.get(repr(value), repr(value))
    return str(value)


def stat_value(value: Any, *, high: bool) -> Any:
    """Return a bound as Delta writers store it: text and timestamps truncated, NaN left out."""
    if isinstance(value, str):
        return value[:2] + (chr(0x10FFFF) if high and len(value) > 2 else "")
    if isinstance(value, datetime):
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=None)
        return cut.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return value


class Encoder(json.JSONEncoder):
    def default(self, value: Any) -> Any:
        if isinstance(value, Decimal):
            return float(value)
        return super().default(value)


def leaves(row: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    nested = row["st"] or {"n": None, "Name": None}
    flat = {("col-" + name,): value for name, value in row.items() if name != "st"}
    return flat | {("col-st", "col-in-" + name): value for name, value in nested.items()}


def statistics(rows: list[dict[str, Any]], skip: set[str]) -> str:
    stats: dict[str, Any] = {
        "numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}
    }  # fmt: skip

    def put(part: str, path: tuple[str, ...], value: Any) -> None:
        node = stats[part]
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value

    flat = [leaves(row) for row in rows]
    for path in flat[0]:
        if path[-1] in skip:
            continue
        values = [row[path] for row in flat]
        put("nullCount", path, sum(value is None for value in values))
        known = [
            v for v in values
            if v is not None and not isinstance(v, bytes) and not (isinstance(v, float) and v != v)
        ]  # fmt: skip
        if known and not any(isinstance(v, float) and abs(v) == float("inf") for v in known):
            put("minValues", path, stat_value(min(known), high=False))
            put("maxValues", path, stat_value(max(known), high=True))
    return json.dumps(stats, cls=Encoder)


def one_file(rows: list[dict[str, Any]], partition_by: tuple[str, ...], skip: set[str]) -> DataFile:
    values = {"col-" + name: partition_text(rows[0][name]) for name in partition_by}
    stats = statistics(rows, skip | set(values))
    return DataFile("f", 1, 1, values, stats)


def holds(where: Expr, row: dict[str, Any]) -> Any:
    try:
        return evaluate(where, row)
    except InvalidOperation:
        return "raised"


def meets_nan(where: Expr, row: dict[str, Any]) -> bool:
    """Return whether any subexpression is NaN: bounds do not show NaN, so no result is certain."""
    value = holds(where, row)
    is_nan = isinstance(value, float) and value != value
    return is_nan or any(meets_nan(part, row) for part in children(where))


SETTINGS = settings(
    max_examples=how_many(66, whole=400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@SETTINGS
@given(
    tree=trees(),
    rows=st.lists(ROWS, min_size=1, max_size=3),
    partition_by=st.lists(st.sampled_from(PARTITIONS), unique=True, max_size=3).map(tuple),
    skip=st.sets(st.sampled_from(["col-l", "col-s", "col-x"])),
)
def test_pruning_keeps_every_file_with_a_matching_row(
    tree: Expr, rows: list[dict[str, Any]], partition_by: tuple[str, ...], skip: set[str]
) -> None:
    try:
        where = bind(tree, SCHEMA)
    except InvalidOperation:
        assume(False)
    for row in rows:
        row |= {name: rows[0][name] for name in partition_by}
        if "t" in partition_by:
            row["t"] = row["t"] or None  # an empty text is NULL in a partition
    table = layout(partition_by=partition_by)
    file = one_file(rows, partition_by, skip)
    results = [holds(where, row) for row in rows]
    kept = file_may_match(file, table, tree)
    assert kept or True not in results
    if always_true(listed(file), table, tree)[0].as_py():
        # An operand that fails next to one that decides may stay uncomputed, as in the engine:
        # there never is a row for which the whole is false or NULL.
        assert set(results) <= {True, "raised"}
    elif partition_only(where, table) and not meets_nan(where, rows[0]):
        assert set(results) != {True}


def listed(file: DataFile) -> pa.Table:
    return pa.table(
        {
            "partition_values": pa.array(
                [list(file.partition_values.items())], pa.map_(pa.string(), pa.string())
            ),
            "stats": pa.array([file.stats], pa.string()),
        }
    )


def file_may_match(file: DataFile, layout: Layout, where: Expr) -> bool:
    return bool(may_match(listed(file), layout, where)[0].as_py())


def partition_only(expr: Expr, layout: Layout) -> bool:
    partitions = {name.lower() for name in layout.partition_by}
    return all(c.path[0].lower() in partitions and len(c.path) == 1 for c in columns(expr))


SIMPLE = pa.schema(
    [
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("price", pa.decimal128(20, 2)),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("st", pa.struct([("n", pa.int64())])),
    ]
)


def simple(stats: str | None = None, day: str | None = "2024-05-06") -> DataFile:
    return DataFile("f", 1, 1, {"day": day, "at": "2024-05-06 01:02:03"}, stats)


def kept(where: str, file: DataFile) -> bool:
    table = Layout("l/t", "t", SIMPLE, SIMPLE, False, ("day", "at"), (), (), {})
    return file_may_match(file, table, parse_predicate(where))


FULL = json.dumps(
    {
        "numRecords": 10,
        "minValues": {
            "id": 10, "x": 1.5, "name": "ab", "price": 10.25, "st": {"n": 1},
            "seen": "2024-01-01T00:00:00.123Z",
        },
        "maxValues": {
            "id": 20, "x": 2.5, "name": "ad", "price": 20.5, "st": {"n": 5},
            "seen": "2024-01-02T00:00:00.123Z",
        },
        "nullCount": {"id": 0, "x": 0, "name": 10, "price": 0, "st": {"n": 2}, "seen": 0},
    }
)  # fmt: skip
NAMED = FULL.replace('"name": 10', '"name": 3')


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("day = '2024-05-06'", True),
        ("day <> '2024-05-06'", False),
        ("day is null", False),
        ("day in ('2024-05-05', '2024-05-06')", True),
        ("day not in ('2024-05-05', null)", False),
        ("year(day) = 2024 and month(day) = 4", False),
        ("case when day > '2024-01-01' then false else true end", False),
        ("at = timestamp '2024-05-06T03:02:03+02:00'", True),
        ("at > timestamp '2024-05-06T01:02:03Z'", False),
        ("id = 9", False),
        ("id = 10", True),
        ("id > 20", False),
        ("id >= 20", True),
        ("id + 1 > 21", False),
        ("id in (1, 2, 3)", False),
        ("id in (1, 15)", True),
        ("id in (1,2,3,4,5,6,7,8,9,21,22,23)", False),
        ("id in (1,2,3,4,5,6,7,8,9,12,22,23)", True),
        ("not (id between 10 and 20)", False),
        ("id is null", False),
        ("id <=> null", False),
        ("id = 1 or x < 1", False),
        ("id = 15 and st.n = 6", False),
        ("st.n is null", True),
        ("x > 3", True),  # NaN is greater than every number, and no statistic shows it
        ("x = 3", False),
        ("x < 1.5", False),
        ("name = 'ac'", False),  # all NULL
        ("name is null", True),
        ("price > 20.50", False),
        ("price > 20.49", True),
        ("seen > timestamp '2024-01-02 00:00:00.123999'", True),  # truncated to milliseconds
        ("seen > timestamp '2024-01-02 00:00:00.125'", False),
        ("cast(seen as date) = date '2024-01-03'", False),
        ("date_trunc('month', seen) = timestamp '2024-02-01'", False),
        ("false", False),
        ("true", True),
        ("null", False),
    ],
)
def test_pruning_by_simple_predicates_keeps_the_expected_files(where: str, keep: bool) -> None:
    assert kept(where, simple(FULL)) is keep


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("name like 'ac%'", True),
        ("name like 'b%'", False),
        ("name like 'ac_d'", True),
        ("name like 'aa!%%' escape '!'", False),
        ("starts_with(name, 'ae')", False),
        ("starts_with(name, 'adzzz')", False),
        ("name = 'ab'", True),
        ("coalesce(name, 'zz') = 'zz'", True),
    ],
)
def test_pruning_by_text_predicates_keeps_the_expected_files(where: str, keep: bool) -> None:
    assert kept(where, simple(NAMED)) is keep


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '{"numRecords": "10"}',
        '{"minValues": {"id": 10}}',
        '{"minValues": {"id": "10"}, "maxValues": {"id": [20]}, "nullCount": {"id": {"a": 1}}}',
        '{"numRecords": 1, "minValues": [], "maxValues": 5, "nullCount": null}',
        '{"maxValues": {"id": 99999999999999999999}}',
        '{"minValues": {"id": 10, "seen": "yesterday", "price": "x", "st": 7}}',
    ],
)
def test_unreadable_statistics_keep_the_file(stats: str | None) -> None:
    assert kept("id = 15 and price = 3 and seen > timestamp '2024-01-01'", simple(stats))


def test_unreadable_partition_values_keep_the_file() -> None:
    assert kept("day = '2024-05-06'", simple(None, day="06/05/2024"))
    assert not kept("day = '2024-05-06'", simple(None, day=""))
    assert kept("day is null", simple(None, day=None))


def test_a_listing_of_200_000_files_is_pruned_in_one_pass() -> None:
    start, count = date(2024, 1, 1), 200_000
    days = pa.array([str(start + timedelta(days=n)) for n in range(100)])
    texts = days.take(pa.array([n % 100 for n in range(count)]))
    keys = pa.repeat(pa.scalar("day"), count)
    maps = pa.MapArray.from_arrays(pa.array(range(count + 1), pa.int32()), keys, texts)
    stats = pa.array([f'{{"numRecords":1,"minValues":{{"id":{n}}}}}' for n in range(count)])
    columns = {field.name: pa.nulls(count, field.type) for field in FILES_SCHEMA}
    files = pa.table(columns | {"partition_values": maps, "stats": stats})
    table = Layout("l/t", "t", SIMPLE, SIMPLE, False, ("day",), (), (), {})
    keep = may_match(files, table, parse_predicate("day = '2024-01-05' and id < 504"))
    assert pa.compute.indices_nonzero(keep).to_pylist() == [4, 104, 204, 304, 404]
    every = always_true(files, table, parse_predicate("day < '2024-01-03'"))
    assert every.true_count == 2 * count // 100
    assert len(may_match(files.slice(0, 0), table, parse_predicate("id = 1"))) == 0


def test_nan_is_greater_than_every_number() -> None:
    assert compare(float("nan"), float("inf")) == 1
    where = bind(parse_predicate("x > 100"), SIMPLE)
    assert evaluate(where, {"x": float("nan")}) is True


def test_timestamp_literals_without_a_zone_are_utc() -> None:
    where = bind(parse_predicate("at >= timestamp '2024-05-06 01:02:03'"), SIMPLE)
    assert evaluate(where, {"at": datetime(2024, 5, 6, 1, 2, 3, tzinfo=UTC)}) is True


@pytest.mark.parametrize("type_", ["timestamp", "timestamp_ntz"])
def test_bounds_at_the_limits_of_the_timestamp_range_keep_the_file(type_: str) -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC" if type_ == "timestamp" else None))])
    zone = "Z" if type_ == "timestamp" else ""
    stats = {
        "numRecords": 2,
        "minValues": {"col-t": f"0001-01-01T00:00:00.000{zone}"},
        "maxValues": {"col-t": f"9999-12-31T23:59:59.999{zone}"},
        "nullCount": {"col-t": 0},
    }
    file = DataFile("f", size=1, modification_time=1, stats=json.dumps(stats))
    for where in ("t + interval '1' day = :p", "date_trunc('year', t) < :p", "t >= :p"):
        value = datetime(2024, 2, 29, tzinfo=UTC if type_ == "timestamp" else None)
        assert file_may_match(file, layout(schema), parse_predicate(where, {"p": value}))


def file_of(low: Any, high: Any, *, rows: int = 2) -> DataFile:
    """Return a file with bounds for ``x`` and no NULL."""
    stats = {"numRecords": rows, "minValues": {"col-x": low}, "maxValues": {"col-x": high},
             "nullCount": {"col-x": 0}}  # fmt: skip
    return DataFile("f", 1, 1, {}, json.dumps(stats))


def stays(file: DataFile, kind: pa.DataType, where: str, **params: object) -> bool:
    schema = pa.schema([("x", kind), ("y", pa.float64())])
    predicate = bind(parse_predicate(where, params), schema)
    return file_may_match(file, layout(schema), predicate)


def test_adding_months_to_timestamps_is_not_monotone() -> None:
    """Hazard 34: adding a month to January 30, 23:00 and January 31, 01:00 reverses their order."""
    where = "x + interval '1' month > timestamp '2023-02-28 12:00:00'"
    file = file_of("2023-01-30T23:00:00.000", "2023-01-31T01:00:00.000")
    assert stays(file, pa.timestamp("us"), where)
    assert stays(file, pa.timestamp("us"), where.replace("month", "year").replace("2023", "2020"))
    days = file_of("2023-01-30", "2023-01-31")
    assert not stays(days, pa.date32(), "x + interval '1' month > date '2023-02-28'")
    assert stays(days, pa.date32(), "x + interval '1' month >= date '2023-02-28'")
    assert not stays(file, pa.timestamp("us"), where.replace("month", "day"))


@pytest.mark.parametrize(
    "where",
    [
        "cast(x as double) <= :f",
        "x = :f",
        "x in (:f, 1e300)",
        "x = y",
        "cast(x as float) = cast(:f as float)",
    ],
)
def test_pruning_compares_a_decimal_with_a_double_as_the_evaluator_does(where: str) -> None:
    """Hazard 34: Arrow's cast of a decimal to a double is off by one unit in the last place."""
    value = Decimal("9025684103.8753")
    file = file_of(float(value), float(value))
    params = {"f": float(value)} if ":f" in where else {}
    assert stays(file, pa.decimal128(18, 4), where, **params)


def test_pruning_compares_a_long_with_a_double_as_the_evaluator_does() -> None:
    held = 2**53 + 1
    for number in (held, held + 2, -held, 2**63 - 1):
        file = file_of(number, number)
        assert stays(file, pa.int64(), "cast(x as double) = :f", f=float(number))
        assert not stays(file, pa.int64(), "cast(x as double) = :f", f=float(number) * 1.001)


def test_a_function_with_a_null_operand_is_null_though_another_operand_is_not() -> None:
    assert stays(file_of(1, 2), pa.int64(), "(x + cast(null as long)) is null")


@pytest.mark.parametrize("where", ["x + cast('-Infinity' as double) in (:nan)", "not x + :inf > 5"])
def test_a_predicate_on_a_sum_that_may_be_nan_keeps_the_file(where: str) -> None:
    params = {"nan": float("nan")} if ":nan" in where else {"inf": float("inf")}
    nothing = DataFile("f", 1, 1, {}, json.dumps({"numRecords": 1}))
    assert stays(nothing, pa.float64(), where, **params)


def test_float_bounds_of_a_column_widened_to_double_keep_matching_files() -> None:
    """The shortest texts of the floats 0.1 and 0.7 are doubles slightly below and above these
    floats.
    """
    for text, value in ((0.1, 0.10000000149011612), (0.7, 0.699999988079071)):
        file = file_of(text, text)
        for held in (text, value):
            assert stays(file, pa.float64(), "x = :f", f=held)
            assert stays(file, pa.float64(), "x in (:f, 1e300)", f=held)
        assert not stays(file, pa.float64(), "x = :f", f=text + 1e-6)
    assert stays(file_of(0.7, 0.8), pa.float64(), "x < 0.7e0")
    assert not stays(file_of(0.7, 0.8), pa.float64(), "x < 0.6999999e0")


def test_a_greatest_text_that_ends_in_the_replacement_character_bounds_nothing() -> None:
    """Spark's Delta before 3.3 appends it to a text that it cuts; it is below an emoji."""
    flowers = "\U0001f33c" * 20
    for cut in (flowers[:16] + "\ufffd", "a?\ufffd"):
        for where in ("x = :s", "x >= :s", "x in (:s, '')"):
            assert stays(file_of("a", cut), pa.string(), where, s=flowers)
    assert not stays(file_of("a", "b"), pa.string(), "x = :s", s=flowers)
    assert not stays(file_of("b", "b\ufffd"), pa.string(), "x = 'a'")


def test_positive_and_negative_zero_are_equal_in_pruning() -> None:
    for zero in (0.0, -0.0):
        assert not stays(file_of(zero, zero), pa.float64(), "x < 0e0")
        for where in ("x = 0e0", "x = :z", "x >= :z and x <= :z", "x in (:z, 7)"):
            params = {"z": -0.0} if ":z" in where else {}
            assert stays(file_of(zero, zero), pa.float64(), where, **params), (zero, where)


def test_functions_of_bounds_at_the_limits_of_the_timestamp_range_keep_the_file() -> None:
    file = file_of("0001-01-01T00:00:00.000", "9999-12-31T23:59:59.999")
    for where in ("date_trunc('day', x) > timestamp '9999-12-01 00:00:00'", "year(x) < 2"):
        assert stays(file, pa.timestamp("us"), where)
    listed = ", ".join(f"timestamp '2020-01-{day:02} 00:00:00'" for day in range(1, 12))
    assert stays(file, pa.timestamp("us"), f"x in ({listed})")


def test_bounds_that_may_omit_infinities_keep_the_file() -> None:
    for low, high in (("-Infinity", "Infinity"), (None, None)):
        file = file_of(low, high)
        assert stays(file, pa.float64(), "x > 1e308")
        assert stays(file, pa.float64(), "x = :inf", inf=float("inf"))


@pytest.mark.parametrize("where", ["{} in (1, 2)", "{} in (1, null)", "not {} in (1, 2)"])
@pytest.mark.parametrize("null", ["nullif(1, 1)", "case when false then 1 end"])
def test_a_constant_that_evaluates_to_null_is_in_no_list(where: str, null: str) -> None:
    assert not stays(file_of(1, 2), pa.int64(), where.format(null))
    assert stays(file_of(1, 2), pa.int64(), f"({where.format(null)}) is null")


@pytest.mark.parametrize(
    ("where", "keep"),
    [
        ("null < null", False),
        ("not (null = null)", False),
        ("(null >= null) is null", True),
        ("null <=> null", True),
        ("null <=> null and x = 1", True),
        ("null in (null) or x = 9", False),
        ("case when null = null then null else null end = null", False),
    ],
)
def test_untyped_nulls_can_be_compared(where: str, keep: bool) -> None:
    assert stays(file_of(1, 2), pa.int64(), where) is keep
