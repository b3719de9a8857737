"""Parameters in every verb: they are named, and can have values of any library."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import is_true
from lakevilla.sql.expressions.parse import parse_predicate
from tests.contract.arguments import odd_parameters
from tests.support.tables import contents, values

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "f": pa.array([0.5, 1.5, 2.5]),
        "b": pa.array([True, False, None]),
        "s": ["a", "b", "c"],
        "moment": pa.array([datetime(2020, 1, day) for day in (1, 2, 3)], pa.timestamp("us")),
        "zoned": pa.array([datetime(2020, 1, d, tzinfo=UTC) for d in (1, 2, 3)]),
        "d": pa.array([Decimal("1.10"), Decimal("2.20"), None], pa.decimal128(9, 2)),
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", ROWS)
        yield lake


VALUES: list[tuple[str, Any]] = [
    ("f = :v", np.float64(1.5)),
    ("f = :v", np.float32(1.5)),
    ("f = :v", pa.scalar(1.5)),
    ("id = :v", np.int64(2)),
    ("b = :v", np.bool_(False)),
    ("s = :v", np.str_("b")),
    ("moment = :v", np.datetime64("2020-01-02")),
    ("moment = :v", np.datetime64("2020-01-02T00:00:00", "ns")),
    ("moment = :v", pd.Timestamp("2020-01-02")),
    ("zoned = :v", pd.Timestamp("2020-01-02T01:00", tz="Europe/Berlin")),
    ("d = :v", pa.scalar(Decimal("2.20"))),
    ("id in :v", np.array([2, 9])),
    ("id in :v", pd.Series([2, None])),
    ("id in :v", {2}),
    ("id in :v", range(2, 3)),
    ("id in :v", (2, 9)),
    ("id in :v", pa.array([2])),
    ("f in :v", np.array([1.5], dtype="float32")),
]


@pytest.mark.parametrize(("where", "value"), VALUES, ids=lambda value: type(value).__name__)
def test_a_parameter_with_a_value_of_another_library_finds_its_row(
    lake: lv.Lake, where: str, value: Any
) -> None:
    params = {"v": value}
    now = lake.snapshot()
    assert values(now.read("t", where=where, params=params)) == [2]
    assert values(now.sql(f"select id from t where {where}", params)) == [2]
    with lake.transaction() as txn:
        assert txn.update("t", {"s": "s"}, where, params=params).rows_updated == 1
        assert txn.sql(f"delete from t where {where}", params).rows_deleted == 1
        txn.abort()


def test_a_parameter_with_a_value_of_another_library_is_stored(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        new = {
            "f": np.float64(9.5),
            "moment": pd.Timestamp("2021-01-01"),
            "b": pd.NA,
            "d": np.int8(7),
        }
        txn.update("t", new, "id = :id", params={"id": np.int64(2)})
    row = lake.snapshot().read("t", where="id = 2").to_pylist()[0]
    assert (row["f"], row["moment"], row["b"]) == (9.5, datetime(2021, 1, 1), None)
    assert row["d"] == Decimal("7.00")


Call = Callable[[lv.Transaction, str, Any], object]
CALLS: dict[str, Call] = {
    "read": lambda txn, mark, given: txn.read("t", where=f"id = {mark}", params=given),
    "scan": lambda txn, mark, given: txn.scan("t", where=f"id = {mark}", params=given),
    "select": lambda txn, mark, given: txn.sql(f"select * from t where id = {mark}", given),
    "insert": lambda txn, mark, given: txn.sql(
        f"insert into t select * from t where id = {mark}", given
    ),
    "update": lambda txn, mark, given: txn.update("t", {"f": "1"}, f"id = {mark}", params=given),
    "set": lambda txn, mark, given: txn.update("t", {"f": mark}, "true", params=given),
    "sql update": lambda txn, mark, given: txn.sql(f"update t set f = 1 where id = {mark}", given),
    "delete": lambda txn, mark, given: txn.delete("t", f"id = {mark}", params=given),
    "sql delete": lambda txn, mark, given: txn.sql(f"delete from t where id = {mark}", given),
    "overwrite": lambda txn, mark, given: txn.overwrite("t", ROWS, f"id = {mark}", params=given),
    "merge": lambda txn, mark, given: txn.merge(
        "t", ROWS, f"target.id = {mark}", params=given
    ).when_matched_delete().execute(),
    "changes": lambda txn, mark, given: txn.changes("t", 0, where=f"id = {mark}", params=given),
}  # fmt: skip


MARKS = ["?", "$1", "$n", "%s", ":1", "%(n)s", "{n}"]
GIVEN: list[Any] = [None, [1], (1,), {"n": 1}, {"1": 1}, {1: 1}, "1", 1]


@pytest.mark.parametrize("name", CALLS)
def test_a_positional_parameter_is_refused_with_a_hint_of_named_ones(
    lake: lv.Lake, tmp_path: Path, name: str
) -> None:
    before = contents(tmp_path)
    with lake.transaction() as txn:
        for mark, given in itertools.product(MARKS, GIVEN):
            with pytest.raises(lv.InvalidOperation) as raised:
                CALLS[name](txn, mark, given)
            if mark in ("?", "$1", "$n") or not isinstance(given, dict | None):
                assert re.search("in the text|:name|which no text", str(raised.value))
        txn.abort()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", CALLS)
def test_the_error_for_a_parameter_of_an_unsupported_type_names_the_parameter(
    lake: lv.Lake, name: str
) -> None:
    with lake.transaction() as txn:
        for value in (pd.Timedelta("1s"), Path("x"), object(), float):
            with pytest.raises(lv.InvalidOperation, match="parameter :day is of type"):
                CALLS[name](txn, ":day", {"day": value})
        txn.abort()


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path_factory.mktemp("odd")) as lake:
        lake.create_table("delta", odd_parameters.ROWS)
        lake.create_table("iceberg", odd_parameters.ROWS, format="iceberg")
        yield lake


@pytest.mark.parametrize(("where", "value", "found"), odd_parameters.FOUND, ids=repr)
def test_nan_infinities_and_times_mean_the_same_to_every_verb(
    odd: lv.Lake, where: str, value: Any, found: list[int]
) -> None:
    params = {"v": value}
    predicate = bind(parse_predicate(where, params), odd.table("delta").schema)
    rows = odd.snapshot().read("delta").to_pylist()
    assert sorted(row["id"] for row in rows if is_true(predicate, row)) == found
    for table in ("delta", "iceberg"):
        assert values(odd.snapshot().read(table, where=where, params=params)) == found
        with odd.transaction() as txn:
            assert txn.delete(table, where, params=params).rows_deleted == len(found)
            assert txn.read(table).num_rows == 5 - len(found)
            txn.abort()


@pytest.mark.parametrize(("where", "value", "message"), odd_parameters.REFUSED, ids=repr)
def test_parameter_values_without_a_single_meaning_are_refused(
    odd: lv.Lake, where: str, value: Any, message: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=re.escape(message)):
        odd.snapshot().read("delta", where=where, params={"v": value})


def test_nan_and_infinities_are_stored_in_columns_that_can_have_them(odd: lv.Lake) -> None:
    with odd.transaction() as txn:
        txn.update("delta", {"f": float("nan"), "g": float("-inf")}, "id = 1")
        assert values(txn.read("delta", where="isnan(f)")) == [1, 2]
        assert values(txn.read("delta", where="g = :v", params={"v": float("-inf")})) == [1, 4]
        for column in ("n", "d"):
            with pytest.raises(lv.InvalidOperation, match=r"NaN|nan"):
                txn.update("delta", {column: float("nan")}, "id = 1")
        txn.abort()
