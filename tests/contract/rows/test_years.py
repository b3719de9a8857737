"""Timestamps outside the years 1 to 9999, which other clients can't read, are refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place

ZONED, PLAIN, DAY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()
TOO_LATE, TOO_EARLY = 253_402_300_800_000_000, -62_135_596_800_000_001

BEYOND: dict[str, pa.Array] = {
    "zoned": pa.array([TOO_LATE], ZONED),
    "zoned, before": pa.array([TOO_EARLY], ZONED),
    "without a zone": pa.array([TOO_LATE], PLAIN),
    "of another unit": pa.array([TOO_LATE // 1_000_000], pa.timestamp("s")),
    "day": pa.array([2_932_897], DAY),
    "day, before": pa.array([-719_163], DAY),
    "in a struct": pa.array([{"a": TOO_LATE}], pa.struct([("a", ZONED)])),
    "in a list": pa.array([[0], [TOO_LATE]], pa.list_(PLAIN))[1:],
    "in a map": pa.array([[(1, 2_932_897)]], pa.map_(pa.int64(), DAY)),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_a_given_timestamp_beyond_the_years_is_refused(shop: Place, kind: str) -> None:
    data = pa.table({"id": [1], "v": BEYOND[kind]})
    with shop.connect() as lake:
        lake.create_table("t", data.schema)
        verbs: list[Callable[[lv.Transaction], Any]] = [
            lambda txn: txn.append("t", data),
            lambda txn: txn.append("t", data.to_reader()),
            lambda txn: txn.overwrite("t", data),
            lambda txn: txn.upsert("t", data, "id"),
            lambda txn: (
                txn.merge("t", data, on="target.id = source.id")
                .when_not_matched_insert_all()
                .execute()
            ),
            lambda txn: txn.sql("insert into t select * from w", views={"w": data}),
        ]
        for verb in verbs:
            with pytest.raises(lv.InvalidOperation, match=r"column 'v.*'[tw]'.* years 1 to 9999"):
                lake.run(verb)
        with pytest.raises(lv.InvalidOperation, match="years 1 to 9999"):
            lake.create_table("made", data)
        assert lake.snapshot().read("t").num_rows == 0


def test_a_datetime_whose_utc_year_is_beyond_9999_is_refused(shop: Place) -> None:
    late = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12)))
    with shop.connect() as lake:
        lake.create_table("t", pa.schema([("id", pa.int64()), ("v", ZONED)]))
        with pytest.raises(lv.InvalidOperation, match=r"column 'v' of table 't'.*in UTC"):
            lake.run(lambda txn: txn.append("t", [{"id": 1, "v": late}]))


def test_the_first_and_the_last_timestamp_are_stored(shop: Place) -> None:
    rows = pa.table(
        {
            "z": pa.array([TOO_EARLY + 1, TOO_LATE - 1, None], ZONED),
            "d": pa.array([-719_162, 2_932_896, None], DAY),
            "l": pa.array([[TOO_LATE - 1], [], None], pa.list_(ZONED)),
        }
    )
    with shop.connect() as lake:
        lake.create_table("t", rows)
        found = lake.snapshot().read("t")
        assert found["d"].to_pylist() == [date.min, date.max, None]
        assert found.cast(rows.schema) == rows


def test_timestamps_out_of_range_are_ignored_where_null_covers_them(shop: Place) -> None:
    hidden = pa.array(np.array([TOO_LATE, 0]), mask=np.array([True, False])).cast(PLAIN)
    inner = pa.array(np.array([TOO_LATE, 0])).cast(PLAIN)
    covered = pa.StructArray.from_arrays([inner], ["a"], mask=pa.array([True, False]))
    with shop.connect() as lake:
        lake.create_table("t", pa.table({"v": hidden, "s": covered}))
        assert lake.snapshot().read("t").num_rows == 2
