"""Flipped bits in data files, and truncated files (hazard 41), of two writers.

The result is rows, or ``CorruptObject`` with the file's key: never another error, and
never one that blames the statement. Rows may be wrong only where no checksum is checked.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.support.places import Place, make_place
from tests.support.search import first_seed, how_many

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Trials for each writer.
TRIALS = how_many(16, whole=48)
Verb = Callable[[lv.Lake], object]


def rows(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    day = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"name {n * 7 % 1000}" for n in numbers],
            "x": [n * 1.5 for n in numbers],
            "day": [day + datetime.timedelta(days=n % 900) for n in numbers],
            "list": [[n, n + 1] for n in numbers],
        }
    )


def filled(place: Place, writer: str) -> pa.Table:
    """Create a table of two files, written by pyarrow or by DuckDB's COPY."""
    settings = lv.Settings(in_memory_file_limit_bytes=1) if writer == "DuckDB" else lv.Settings()
    with place.connect(settings=settings) as lake:
        lake.create_table("t", rows(1500))
        lake.run(lambda txn: txn.append("t", rows(500, 1500)))
        if writer == "DuckDB":
            lake.run(lambda txn: txn.update("t", {"x": "x"}, where="true"))
        return lake.snapshot().read("t").sort_by("id")


def live_files(place: Place) -> list[Path]:
    return [Path(path.removeprefix("file://")) for path in place.delta("t").file_uris()]


def undone(verb: Callable[[lv.Transaction], lv.OperationResult]) -> Verb:
    def run(lake: lv.Lake) -> None:
        txn = lake.transaction()
        try:
            assert verb(txn).rows_matched >= 0
        finally:
            txn.abort()

    return run


VERBS: dict[str, Verb] = {
    "read": lambda lake: lake.snapshot().read("t").sort_by("id"),
    "where": lambda lake: lake.snapshot().read("t", where="x > 100 AND name <> 'name 7'"),
    "sql": lambda lake: lake.snapshot().sql("SELECT sum(x), max(name), min(day) FROM t"),
    "update": undone(lambda txn: txn.update("t", {"x": "x * 2"}, where="id % 3 = 0")),
    "delete": undone(lambda txn: txn.delete("t", where="id % 3 = 0")),
}


@contextmanager
def damaged(path: Path, draw: random.Random) -> Iterator[str]:
    """Flip one bit or (one time in five) truncate the file; restore it after the block."""
    body = path.read_bytes()
    bad = bytearray(body)
    cut = draw.random() < 0.2
    if cut:
        del bad[draw.randrange(len(bad)) :]
    else:
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
    path.write_bytes(bad)
    try:
        yield "cut" if cut else "flip"
    finally:
        path.write_bytes(body)


@pytest.mark.cases(1)
@pytest.mark.parametrize("writer", ["parquet-cpp-arrow", "DuckDB"])
def test_a_damaged_file_is_reported_or_its_rows_are_read(
    request: pytest.FixtureRequest, writer: str
) -> None:
    place = make_place("local", request)
    good = filled(place, writer)
    files = live_files(place)
    assert all(pq.read_metadata(path).created_by.startswith(writer) for path in files)
    seed = first_seed()
    draw, ended = random.Random(seed), Counter[str]()
    for trial in range(TRIALS):
        verb, path = draw.choice(list(VERBS)), draw.choice(files)
        with damaged(path, draw) as how, place.connect() as lake:
            where = f"seed {seed}, trial {trial}: {how} of {path.name}, {verb}"
            try:
                found = VERBS[verb](lake)
            except lv.CorruptObject as error:
                blamed = path.name in str(error.key) and error.table == "t"
                ended["named" if blamed else f"unnamed: {where}: {error}"] += 1
            except lv.UnsupportedTableFeature:
                ended["named"] += 1  # the flipped bit is in the codec's number
            except BaseException as error:
                raise AssertionError(where) from error
            else:
                ended["wrong" if verb == "read" and found != good else "rows"] += 1
    assert not [end for end in ended if end.startswith("unnamed")], ended
    assert ended["named"] > TRIALS // 5, (seed, ended)
    assert VERBS["read"](place.connect()) == good


def test_page_checksums_of_pyarrow_detect_a_flipped_bit_within_a_page(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("local", request)
    filled(place, "parquet-cpp-arrow")
    path = live_files(place)[0]
    body = path.read_bytes()
    # The column holds doubles: every bit pattern is a valid value.
    column = pq.read_metadata(path).row_group(0).column(2)
    # The middle of the column's pages: within a page, not in a header.
    place_of_it = column.data_page_offset + column.total_compressed_size // 2
    path.write_bytes(body[:place_of_it] + bytes([body[place_of_it] ^ 1]) + body[place_of_it + 1 :])
    with pytest.raises(OSError, match=r"CRC|checksum|orrupt"):
        pq.read_table(path, page_checksum_verification=True)


def test_an_error_in_a_statement_is_not_blamed_on_a_file(request: pytest.FixtureRequest) -> None:
    place = make_place("local", request)
    filled(place, "DuckDB")
    with place.connect() as lake:
        for where in ("1 / (id - id) > 1", "cast(name AS bigint) > 1"):
            with pytest.raises(lv.InvalidOperation):
                lake.snapshot().read("t", where=where)


def test_spark_jobs_report_a_damaged_file(
    request: pytest.FixtureRequest, spark: SparkSession
) -> None:
    place = make_place("local", request)
    filled(place, "parquet-cpp-arrow")
    path = live_files(place)[0]
    path.write_bytes(path.read_bytes()[:200])
    with place.connect(spark=spark, spark_reader="python") as lake:
        with pytest.raises(lv.CorruptObject) as caught:
            lake.run(lambda txn: txn.update("t", {"x": "x * 2"}, where="id % 3 = 0"))
        assert path.name in str(caught.value.key)
