"""Data that callers pass is converted to a table's columns without loss."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakevilla.arrow import input
from lakevilla.arrow.opening import open_data
from lakevilla.errors import InvalidOperation
from tests.support.search import how_many

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("Name", pa.string()),
        pa.field("price", pa.decimal128(10, 2)),
    ]
)


def read(data: object, schema: pa.Schema = ORDERS, **options: Any) -> pa.Table:
    return input.to_reader(data, table="orders", schema=schema, **options).read_all()


def one(data: pa.Array, target: pa.DataType) -> list[Any]:
    """Convert one column with ``to_reader``."""
    table = read(pa.table({"x": data}), pa.schema([pa.field("x", target)]))
    table.validate(full=True)
    assert table.schema.field("x").type == target
    return table.column("x").to_pylist()


# ------------------------------------------------------------------- inputs


class ArrayCapsule:
    """An object that implements only the array half of the Arrow interface."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def iter_of(*parts: object) -> Iterator[object]:
    yield from parts


TABLE = pa.table({"NAME": ["a", None, "c"], "ID": [1, 2, 3]})
ROWS = [{"ID": 1, "NAME": "a"}, {"ID": 2}, {"ID": 3, "NAME": "c"}]

DUCKDB = duckdb.connect()

INPUTS = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "array capsule": lambda: ArrayCapsule(TABLE.to_batches()[0]),
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "pandas": lambda: pd.DataFrame({"NAME": ["a", None, "c"], "ID": [1, 2, 3]}),
    "polars": lambda: pl.DataFrame({"NAME": ["a", None, "c"], "ID": [1, 2, 3]}),
    "polars lazy": lambda: pl.LazyFrame({"NAME": ["a", None, "c"], "ID": [1, 2, 3]}),
    "duckdb": lambda: DUCKDB.sql(
        "SELECT * FROM (VALUES ('a', 1), (NULL, 2), ('c', 3)) t(NAME, ID)"
    ),
    "rows": lambda: ROWS,
    "generator of rows": lambda: (
        row for row in [{"ID": 1, "NAME": "a"}, {"ID": 2}, {"ID": 3, "NAME": "c"}]
    ),
    "generator of batches": lambda: (TABLE.slice(at, 1) for at in range(3)),
    "generator of frames": lambda: iter_of(
        pd.DataFrame({"ID": [1, 2], "NAME": ["a", None]}), pl.DataFrame({"NAME": ["c"], "ID": [3]})
    ),
    "list of batches": lambda: [TABLE.to_batches()[0]],
    "values of a dict": lambda: {
        1: {"ID": 1, "NAME": "a"},
        2: {"ID": 2},
        3: {"ID": 3, "NAME": "c"},
    }.values(),
    "columns": lambda: {"NAME": ["a", None, "c"], "ID": [1, 2, 3]},
    "columns of arrays": lambda: {"NAME": pa.array(["a", None, "c"]), "ID": [1, 2, 3]},
}
ONE_SHOT = {
    "reader",
    "dataset",
    "scanner",
    "duckdb",
    "generator of rows",
    "generator of batches",
    "generator of frames",
    "list of batches",
}
if hasattr(pl.LazyFrame, "collect_batches"):  # otherwise polars can only collect all rows
    ONE_SHOT.add("polars lazy")


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_input_gives_the_same_rows(kind: str) -> None:
    table = read(INPUTS[kind]())
    assert table.schema.equals(ORDERS, check_metadata=True)
    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "Name": "a", "price": None},
        {"id": 2, "Name": None, "price": None},
        {"id": 3, "Name": "c", "price": None},
    ]


@pytest.mark.parametrize("kind", INPUTS)
def test_one_shot_inputs_are_marked_and_refuse_a_second_read(kind: str) -> None:
    source = open_data(INPUTS[kind]())
    assert source.one_shot == (kind in ONE_SHOT)
    assert read(source).num_rows == 3
    if kind in ONE_SHOT:
        with pytest.raises(InvalidOperation, match="read already"):
            read(source)
    else:
        assert read(source).num_rows == 3


@pytest.mark.parametrize("data", [None, 7, "rows.parquet", [1, 2], [("a", 1)], object(), {1: [2]}])
def test_unsupported_input_is_refused(data: object) -> None:
    with pytest.raises(InvalidOperation):
        open_data(data)


# --------------------------------------------------------------- iterators


def test_rows_of_a_generator_are_released_batch_by_batch() -> None:
    alive: list[int] = []

    class Row(dict[str, object]):
        def __del__(self) -> None:
            alive.pop()

    def rows() -> Iterator[Row]:
        for number in range(45_000):
            alive.append(number)
            yield Row(id=number)

    reader = input.to_reader(rows(), table="orders", schema=ORDERS)
    held = [(len(alive), batch.num_rows) for batch in reader]
    assert 0 < max(rows for rows, _ in held) < 25_000
    assert sum(count for _, count in held) == 45_000


def test_a_column_that_appears_only_in_a_later_row_of_a_generator_is_kept_or_refused() -> None:
    def rows(late: str) -> Iterator[dict[str, object]]:
        for number in range(20_000):
            yield {"id": number} | ({late: "b"} if number == 19_999 else {})

    assert read(rows("name"))["Name"].null_count == 19_999
    with pytest.raises(InvalidOperation, match=r"no column 'other'.*pass schema_mode='merge'"):
        read(rows("other"))
    with pytest.raises(InvalidOperation, match=r"no column 'other'.*in the first of its rows"):
        read(rows("other"), schema_mode="merge")


def test_a_wrong_item_of_a_generator_is_reported_with_its_position() -> None:
    with pytest.raises(InvalidOperation, match="item 10000 of the data is of type int"):
        read(iter_of(*({"id": number} for number in range(10_000)), 5))
    with pytest.raises(InvalidOperation, match="row 10001 of the data is of type str"):
        read(iter_of(*({"id": number} for number in range(10_001)), "x"))
    with pytest.raises(InvalidOperation, match="item 0 of the data is of type tuple"):
        read(iter_of((1, "a")))
    with pytest.raises(InvalidOperation, match=r"'id'.*NOT NULL|'id'.*lacks"):
        read(iter_of(TABLE, TABLE.select(["NAME"])))


def test_objects_similar_to_iterators_are_refused_with_advice() -> None:
    async def later() -> AsyncIterator[dict[str, int]]:
        yield {"id": 1}

    with pytest.raises(InvalidOperation, match="collect it before"):
        read(later())
    with pytest.raises(InvalidOperation, match=r"call it, iter_of\(\)"):
        read(iter_of)
    with pytest.raises(InvalidOperation, match="pass a generator"):
        read(map(dict, [{"id": 1}]))


def test_an_exhausted_generator_is_refused_and_not_read_as_empty() -> None:
    rows = iter_of({"id": 1})
    assert read(rows).num_rows == 1
    with pytest.raises(InvalidOperation, match="read already"):
        read(rows)
    elsewhere = iter_of({"id": 1})
    list(elsewhere)
    with pytest.raises(InvalidOperation, match="read already"):
        read(elsewhere)
    assert read(iter_of()).num_rows == 0


def test_an_error_raised_by_a_generator_reaches_the_caller_unchanged() -> None:
    def failing(at: int) -> Iterator[dict[str, int]]:
        for number in range(30_000):
            if number == at:
                raise LookupError("the source is gone")
            yield {"id": number}

    for at in (0, 5, 25_000):
        with pytest.raises(LookupError, match="the source is gone"):
            read(failing(at))


def test_a_named_pandas_index_becomes_a_column_and_an_unnamed_one_does_not() -> None:
    frame = pd.DataFrame({"id": [1, 2], "Name": ["a", "b"]})
    assert read(frame.set_index("id")).column("id").to_pylist() == [1, 2]
    assert read(frame[frame["id"] > 1]).column("id").to_pylist() == [2]


def test_pandas_integer_columns_with_missing_values_are_read_as_integers() -> None:
    schema = pa.schema([pa.field("x", pa.int64())])
    assert read(pd.DataFrame({"x": [1, None]}), schema).column("x").to_pylist() == [1, None]


def test_a_key_that_appears_only_in_a_later_row_is_kept() -> None:
    assert read([{"id": 1}, {"id": 2, "name": "b"}]).column("Name").to_pylist() == [None, "b"]


def test_python_values_are_converted_to_the_type_of_the_column() -> None:
    schema = pa.schema(
        [
            ("small", pa.int8()),
            ("real", pa.float32()),
            ("tags", pa.map_(pa.string(), pa.int64())),
            ("money", pa.decimal128(10, 2)),
        ]
    )
    rows = [{"small": 1, "real": 0.1, "tags": {"a": 1}, "money": 3}, {"money": Decimal("1.5")}]
    table = read(rows, schema)
    assert table.column("small").to_pylist() == [1, None]
    assert table.column("real").to_pylist()[0] == pytest.approx(0.1)
    assert table.column("tags").to_pylist() == [[("a", 1)], None]
    assert table.column("money").to_pylist() == [Decimal("3.00"), Decimal("1.50")]
    with pytest.raises(InvalidOperation, match=r"small.*300"):
        read([{"small": 300}], schema)


def test_python_values_of_two_types_in_one_column_are_refused_with_the_columns_name() -> None:
    with pytest.raises(InvalidOperation, match="'x'"):
        open_data({"x": [1, "a"]})
    with pytest.raises(InvalidOperation, match="time zone"):
        open_data({"x": [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)]})
    with pytest.raises(InvalidOperation, match="length"):
        open_data({"x": [1], "y": []})


# ------------------------------------------------------------------ columns


def test_a_missing_required_column_is_refused() -> None:
    with pytest.raises(InvalidOperation, match=r"'id' of table 'orders' is NOT NULL") as caught:
        read({"name": ["a"]})
    assert caught.value.table == "orders"


def test_an_unknown_column_is_refused_unless_the_schema_may_grow() -> None:
    data = {"id": [1], "extra": [2]}
    with pytest.raises(InvalidOperation, match=r"table 'orders' has no column 'extra'"):
        read(data)
    grown = read(pa.table(data), schema_mode="merge")
    assert grown.schema.names == ["id", "Name", "price", "extra"]
    assert grown.schema.field("extra").nullable
    assert grown.to_pylist() == [{"id": 1, "Name": None, "price": None, "extra": 2}]
    with pytest.raises(InvalidOperation, match="schema_mode"):
        read(data, schema_mode="overwrite")


@pytest.mark.parametrize("names", [["id", "id"], ["id", "ID"], ["id", "name", "NAME"]])
def test_a_duplicate_column_name_is_refused(names: list[str]) -> None:
    columns = [pa.array([1])] + [pa.array(["a"])] * (len(names) - 1)
    data = pa.Table.from_arrays(columns, names=names)
    with pytest.raises(InvalidOperation, match="without regard to case"):
        read(data)


@pytest.mark.parametrize("data", [[], TABLE.slice(0, 0), TABLE.slice(0, 0).to_reader()])
def test_input_without_rows_is_accepted(data: object) -> None:
    table = read(data)
    assert table.num_rows == 0
    assert table.schema == ORDERS


def test_a_stream_is_read_lazily_and_a_large_batch_in_slices() -> None:
    produced = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            produced.append(number)
            yield pa.record_batch({"id": pa.array(range(1000))})

    schema = pa.schema([("id", pa.int64())])
    reader = input.to_reader(
        pa.RecordBatchReader.from_batches(schema, batches()), table="orders", schema=ORDERS
    )
    assert not produced
    reader.read_next_batch()
    assert len(produced) == 1
    whole = pa.record_batch({"id": pa.array(range(300_000), pa.int32())})
    sizes = [b.num_rows for b in input.to_reader(whole, table="orders", schema=ORDERS)]
    assert sum(sizes) == 300_000
    assert max(sizes) < 150_000


def test_an_error_in_the_callers_stream_is_reported_with_its_message() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise OSError("disk on fire")

    broken = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with pytest.raises(InvalidOperation, match="disk on fire"):
        read(broken)


# ------------------------------------------------------------------- schema


def test_an_inferred_schema_has_only_types_that_a_table_can_store() -> None:
    given_types = pa.schema(
        [
            ("a", pa.uint8()),
            ("b", pa.uint32()),
            ("c", pa.float16()),
            ("d", pa.large_string()),
            ("e", pa.string_view()),
            ("f", pa.dictionary(pa.int8(), pa.large_binary())),
            ("g", pa.timestamp("ns", "Europe/Paris")),
            ("h", pa.timestamp("ms")),
            ("i", pa.large_list(pa.struct([pa.field("x", pa.uint16(), nullable=False)]))),
            ("j", pa.map_(pa.large_string(), pa.date64())),
            ("k", pa.decimal256(20, 3)),
            ("l", pa.list_(pa.int8(), 3)),
            ("m", pa.uuid()),
        ]
    )
    assert input.schema_of(given_types) == pa.schema(
        [
            ("a", pa.int16()),
            ("b", pa.int64()),
            ("c", pa.float32()),
            ("d", pa.string()),
            ("e", pa.string()),
            ("f", pa.binary()),
            ("g", pa.timestamp("us", "UTC")),
            ("h", pa.timestamp("us")),
            ("i", pa.list_(pa.struct([pa.field("x", pa.int32(), nullable=False)]))),
            ("j", pa.map_(pa.string(), pa.date32())),
            ("k", pa.decimal128(20, 3)),
            ("l", pa.list_(pa.int8())),
            ("m", pa.binary()),
        ]
    )


@pytest.mark.parametrize(
    "unstorable",
    [
        pa.uint64(),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.decimal256(40, 2),
        pa.decimal128(5, -2),
        pa.dense_union([pa.field("x", pa.int8())]),
    ],
    ids=str,
)
def test_types_that_tables_cannot_store_are_refused_with_the_path_of_their_column(
    unstorable: pa.DataType,
) -> None:
    schema = pa.schema([("deep", pa.struct([("x", pa.list_(unstorable))]))])
    with pytest.raises(InvalidOperation, match=r"deep\.x\.element.*: .+"):
        input.schema_of(schema, table="orders")


def test_a_schema_without_columns_or_with_duplicate_names_is_refused() -> None:
    with pytest.raises(InvalidOperation, match=r"no columns"):
        input.schema_of([])
    with pytest.raises(InvalidOperation, match="rename one"):
        input.schema_of(pa.schema([("a", pa.int8()), ("A", pa.int8())]))


# -------------------------------------------------------------------- casts

REFUSED_BY_TYPE = [
    (pa.float64(), pa.float32()),
    (pa.string(), pa.int64()),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int32()),
    (pa.int32(), pa.bool_()),
    (pa.string(), pa.binary()),
    (pa.binary(), pa.string()),
    (pa.float64(), pa.decimal128(10, 2)),
    (pa.decimal128(10, 2), pa.float64()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (pa.timestamp("us", "UTC"), pa.date32()),
    (pa.date32(), pa.timestamp("us")),
    (pa.string(), pa.date32()),
    (pa.list_(pa.string()), pa.list_(pa.int64())),
    (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())])),
    (pa.int64(), pa.list_(pa.int64())),
    (pa.time32("s"), pa.int32()),
]


@pytest.mark.parametrize(("source", "target"), REFUSED_BY_TYPE, ids=str)
def test_types_that_can_not_be_cast_are_refused_before_a_row_is_read(
    source: pa.DataType, target: pa.DataType
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError("the data was read")
        yield

    reader = pa.RecordBatchReader.from_batches(pa.schema([("x", source)]), batches())
    with pytest.raises(InvalidOperation, match=r"column 'X.*' of table 'orders' has type"):
        input.to_reader(reader, table="orders", schema=pa.schema([("X", target)]))


LOSSY = [
    (pa.array([1, 2**31]), pa.int32(), "2147483648"),
    (pa.array([0, -1], pa.int8()), pa.int64(), None),
    (pa.array([1, 2**63], pa.uint64()), pa.int64(), str(2**63)),
    (pa.array([1, 2**53 + 1]), pa.float64(), str(2**53 + 1)),
    (pa.array([1.0, 1.5]), pa.int64(), "1.5"),
    (pa.array([1.0, math.nan]), pa.int64(), "nan"),
    (pa.array([1, 2**24 + 1]), pa.float32(), str(2**24 + 1)),
    (pa.array([99, 1000]), pa.decimal128(4, 2), "1000"),
    (pa.array([Decimal("1.25"), Decimal("1.255")]), pa.decimal128(9, 2), r"1\.255"),
    (pa.array([1000, 1001], pa.timestamp("ns")), pa.timestamp("us"), "1970"),
    (pa.array([0, 86_400_001], pa.date64()), pa.date32(), "1970-01-02"),
]


@pytest.mark.parametrize(("data", "target", "culprit"), LOSSY, ids=str)
def test_a_value_that_a_cast_would_change_is_named_in_the_error(
    data: pa.Array, target: pa.DataType, culprit: str | None
) -> None:
    if culprit is None:
        assert one(data, target) == data.to_pylist()
        return
    assert len(one(data.slice(0, 1), target)) == 1
    with pytest.raises(InvalidOperation, match=culprit) as caught:
        one(data, target)
    assert str(data.type) in str(caught.value)
    assert str(target) in str(caught.value)
    assert "'x'" in str(caught.value)


def test_timestamps_with_a_zone_keep_their_instant() -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    paris = pa.array([noon]).cast(pa.timestamp("ms", "Europe/Paris"))
    assert one(paris, pa.timestamp("us", "UTC")) == [noon]


NESTED = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("names", pa.list_(pa.string())),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def test_nested_columns_are_matched_and_cast_by_name() -> None:
    source = pa.struct(
        [
            ("COUNTS", pa.map_(pa.large_string(), pa.int16())),
            ("ID", pa.int8()),
            ("Names", pa.large_list(pa.string_view())),
        ]
    )
    rows = [
        {"COUNTS": [("a", 1), ("b", None)], "ID": 1, "Names": ["x", None, "y"]},
        None,
        {"COUNTS": None, "ID": 2, "Names": None},
        {"COUNTS": [], "ID": 3, "Names": []},
    ]
    data = pa.array(rows, source)
    expected = [
        {"id": 1, "names": ["x", None, "y"], "counts": [("a", 1), ("b", None)]},
        None,
        {"id": 2, "names": None, "counts": None},
        {"id": 3, "names": [], "counts": []},
    ]
    assert one(data, NESTED) == expected
    assert one(data.slice(1, 3), NESTED) == expected[1:]


def test_unknown_and_missing_nested_fields_are_refused() -> None:
    with pytest.raises(InvalidOperation, match="no field 'z'"):
        one(pa.array([{"id": 1, "z": 1}]), NESTED)
    with pytest.raises(InvalidOperation, match=r"x\.id.*NOT NULL"):
        one(pa.array([{"names": ["a"]}]), NESTED)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int16()),
        pa.large_list(pa.int16()),
        pa.list_view(pa.int16()),
        pa.large_list_view(pa.int16()),
    ],
    ids=str,
)
@given(rows=st.lists(st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=3), max_size=8))
def test_lists_large_lists_and_list_views_keep_their_rows(
    kind: pa.DataType, rows: list[list[int | None] | None]
) -> None:
    data = pa.array([None, [1], *rows], kind).slice(1)
    assert one(data, pa.list_(pa.int64())) == [[1], *rows]


def test_lists_of_fixed_size_keep_their_rows() -> None:
    data = pa.array([[0, 0], [1, 2], None, [3, None]], pa.list_(pa.int16(), 2)).slice(1)
    assert one(data, pa.list_(pa.int64())) == [[1, 2], None, [3, None]]


def test_dictionary_and_run_end_encodings_are_decoded() -> None:
    words = pa.array(["a", None, "a", "b"])
    assert one(words.dictionary_encode(), pa.string()) == words.to_pylist()
    assert one(pc.run_end_encode(words), pa.string()) == words.to_pylist()
    nested = pa.StructArray.from_arrays([words.dictionary_encode()], names=["w"])
    assert one(nested, pa.struct([("w", pa.string())])) == [{"w": w} for w in words.to_pylist()]


@pytest.mark.parametrize(
    ("views", "stored", "texts"),
    [
        (pa.string_view(), pa.string(), ["a", "b"]),
        (pa.binary_view(), pa.binary(), [b"a", b"b"]),
    ],
)
def test_encoded_views_are_decoded_at_every_depth(
    views: pa.DataType, stored: pa.DataType, texts: list[Any]
) -> None:
    values = pa.array(texts, views)
    words = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), values)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), values)
    plain = [texts[1], None, texts[0]]
    assert one(words, stored) == plain
    assert one(words.slice(1), stored) == plain[1:]
    assert one(runs.slice(1, 3), stored) == [texts[0], texts[1], texts[1]]
    nested = pa.StructArray.from_arrays([words], names=["w"])
    assert one(nested, pa.struct([("w", stored)])) == [{"w": w} for w in plain]
    lists = pa.ListArray.from_arrays([0, 2, 3], words)
    assert one(lists, pa.list_(stored)) == [plain[:2], plain[2:]]
    maps = pa.MapArray.from_arrays([0, 1, 3], pa.array(["x", "y", "z"]), words)
    expected = [[("x", plain[0])], [("y", plain[1]), ("z", plain[2])]]
    assert one(maps, pa.map_(pa.string(), stored)) == expected


def test_a_timestamp_is_cast_to_a_date_only_at_midnight_without_a_zone() -> None:
    days = [date(1969, 12, 31), None, date(2024, 2, 29)]
    instants = pa.array(days, pa.date32()).cast(pa.timestamp("us"))
    for unit in ("s", "ms", "us", "ns"):
        assert one(instants.cast(pa.timestamp(unit)), pa.date32()) == days
    noon = pa.array([datetime(2024, 2, 29, 12)], pa.timestamp("us"))
    with pytest.raises(InvalidOperation, match=r"2024-02-29 12:00.* by cast\(... as date\)"):
        one(noon, pa.date32())
    with pytest.raises(InvalidOperation, match=r"say which day it is, by cast\(... as date\)"):
        one(instants.cast(pa.timestamp("us", "UTC")), pa.date32())


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()]
DECIMALS = [pa.decimal128(5, 2), pa.decimal128(18, 0), pa.decimal128(38, 38), pa.decimal256(50, 4)]
TIMES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
TARGETS = [
    *INTEGERS[:4],
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(38, 10),
    pa.timestamp("us"),
    pa.date32(),
]


def values(kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
    types = pa.types
    value: st.SearchStrategy[Any]
    if types.is_integer(kind):
        low, high = (0, 2**kind.bit_width) if "uint" in str(kind) else (None, None)
        top = high or 2 ** (kind.bit_width - 1)
        value = st.integers(-top if low is None else 0, top - 1) | st.sampled_from([0, 1, 100])
    elif types.is_floating(kind):
        value = st.floats(width=kind.bit_width) | st.integers(-(2**20), 2**20).map(float)
    elif types.is_decimal(kind):
        digits = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1)
        near = st.integers(-200, 200).map(lambda n: n * 10**kind.scale)
        fits = near.filter(lambda n: abs(n) < 10**kind.precision)
        # Not by decimal arithmetic, which rounds to 28 digits.
        value = (digits | fits).map(
            lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale))
        )
    else:
        value = st.integers(-(2**30), 2**30) | st.integers(-100, 100).map(lambda n: n * 1000)
    return st.lists(st.none() | value, max_size=4).map(lambda v: pa.array(v, kind))


def meaning(array: pa.Array) -> list[Any]:
    """Return values as exact numbers, which a cast must not change."""
    if pa.types.is_timestamp(array.type):
        scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[array.type.unit]
        return [None if v is None else v * scale for v in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_date(array.type):
        days = array.cast(pa.date32()).cast(pa.int32())
        return days.to_pylist()
    exact = []
    for value in array.to_pylist():
        nan = isinstance(value, float) and math.isnan(value)
        exact.append("nan" if nan else value if value is None else Decimal(value))
    return exact


@settings(max_examples=how_many(66, whole=400))
@given(st.data())
def test_a_cast_keeps_every_value_exactly_or_is_refused(data: st.DataObject) -> None:
    kinds = [*INTEGERS, *DECIMALS, *TIMES, pa.float32(), pa.float64(), pa.date32()]
    source = data.draw(st.sampled_from(kinds))
    target = data.draw(st.sampled_from(TARGETS))
    array = data.draw(values(source))
    try:
        result = read(pa.table({"x": array}), pa.schema([pa.field("x", target)]))
    except InvalidOperation:
        return
    assert result.column("x").type == target
    assert meaning(result.column("x").combine_chunks()) == meaning(array)


WIDENINGS = [
    *((pa.int8(), wider) for wider in (pa.int16(), pa.int64(), pa.float32(), pa.decimal128(5, 2))),
    (pa.uint8(), pa.int16()),
    (pa.uint32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.int64(), pa.decimal128(38, 10)),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(38, 10)),
    (pa.timestamp("ms"), pa.timestamp("us")),
]


@pytest.mark.parametrize(("source", "target"), WIDENINGS, ids=str)
@given(data=st.data())
def test_a_widening_cast_never_fails(source: pa.DataType, target: pa.DataType, data: Any) -> None:
    array = data.draw(values(source))
    result = one(array, target)
    assert meaning(pa.array(result, target)) == meaning(array)


def test_a_time_beyond_the_supported_years_is_refused_and_not_wrapped() -> None:
    far = pa.array([2**60], pa.timestamp("s"))
    with pytest.raises(InvalidOperation, match=r"'x'"):
        one(far, pa.timestamp("us"))
    assert one(pa.array([timedelta(days=1) + datetime(1970, 1, 1)]), pa.timestamp("us"))
