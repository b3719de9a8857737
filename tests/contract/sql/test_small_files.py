"""A SELECT that is repeated finds the rows of small files that it keeps as those of the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.reading import closed
from lakevilla.engines.duckdb.reading.closed import LoadedRows
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.formats.base import FormatName
from tests.support.places import Place

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(38, 9)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("many", pa.list_(pa.float64())),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.decimal128(9, 2))),
    ]
)
ALIKE = "SELECT * FROM t"
#: Conditions for which DuckDB reads statistics, of files or of its own tables.
CONDITIONS = (
    "f > 5",
    "f <= 5",
    "NOT f < 5",
    "f IS DISTINCT FROM 1 OR f = 2",
    "p IS NULL",
    "p = 'b'",
    "id % 2 = 0 AND d > 0",
    "raw = '\\x00\\xFF'::BLOB",
    "many[1] > 0",
    "s.x IS NULL",
)


def drawn(rng: Random, count: int) -> list[dict[str, Any]]:
    numbers = [float("nan"), float("inf"), -0.0, 1.0, 2.0, 7.5, None]
    return [
        {
            "id": rng.randrange(50),
            "p": rng.choice(["a", "b", " ", "%20", None]),
            "f": rng.choice(numbers),
            "d": rng.choice([Decimal("12345678901234567890.123456789"), Decimal(-1), None]),
            "at": rng.choice([datetime(1969, 7, 20, 20, 17, 40, 5, UTC), None]),
            "wall": rng.choice([datetime(2024, 2, 29, 1, 2, 3, 4), None]),
            "day": rng.choice([date(1, 1, 1), date(9999, 12, 31), None]),
            "raw": rng.choice([b"\x00\xff", b"", None]),
            "many": rng.choice([[], None, [float("nan"), None], [1.0]]),
            "s": rng.choice([None, {"x": None, "y": ["q", None]}, {"x": 1, "y": None}]),
            "m": rng.choice([None, [], [("k", Decimal("1.25"))]]),
        }
        for _ in range(count)
    ]


class Kept:
    """The files whose rows were kept, and those that were read, of each new SELECT."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    @property
    def some(self) -> int:
        """The number of SELECTs that had rows of kept files."""
        return sum(1 for kept, _ in self.calls if kept)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    found = Kept()
    take = LoadedRows.take

    def watched(self: LoadedRows, files: Files, has_room: Callable[[], bool]) -> tuple[Files, str]:
        rest, sql = take(self, files, has_room)
        found.calls.append((len(files.chosen) - len(rest.chosen), len(rest.chosen)))
        return rest, sql

    monkeypatch.setattr(LoadedRows, "take", watched)
    return found


def counted(rows: Any) -> Counter[str]:
    return Counter(map(repr, pa.table(rows).to_pylist()))


def same(txn: lv.Transaction, rng: Random) -> None:
    """Compare a SELECT with a read, which reads all files."""
    read = txn.read("t")
    found = pa.table(txn.sql(ALIKE))
    assert found.schema.equals(pa.table(read).schema)
    assert counted(found) == counted(read)
    one = rng.choice(CONDITIONS)
    told = txn.sql(f"SELECT * FROM t WHERE {one}", views={})
    truth = txn.sql(f"SELECT * FROM v WHERE {one}", views={"v": read})
    assert counted(told) == counted(truth), one


def step(txn: lv.Transaction, rng: Random, number: int) -> None:
    match rng.randrange(10):
        case 0:
            txn.delete("t", f"id % 7 = {rng.randrange(7)}")
        case 1:
            txn.update("t", {"d": "d + 1"}, where=f"id < {rng.randrange(20)}")
        case 2 if number > 5:
            txn.alter("t", add_columns=pa.schema([(f"new{number}", pa.int64())]))
        case 3:
            row = {**drawn(rng, 1)[0], "p": "a"}
            txn.overwrite("t", pa.Table.from_pylist([row], SCHEMA), where="p = 'a'")
        case _:
            txn.append("t", pa.Table.from_pylist(drawn(rng, rng.randrange(1, 4)), SCHEMA))


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("parted", [False, True], ids=["whole", "parted"])
@pytest.mark.parametrize("seed", range(2))
def test_a_transaction_selects_the_rows_that_it_reads_from_files(
    kept: Kept, format: FormatName, parted: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_PATIENCE", 2)
    rng = Random(f"{format} {parted} {seed}")
    properties = {"delta.enableDeletionVectors": "true"} if format == "delta" and seed % 2 else {}
    with lv.connect("memory://") as lake:
        lake.create_table(
            "t", SCHEMA, format=format, partition_by=["p"] if parted else [], properties=properties
        )
        for _ in range(2):
            with lake.transaction() as txn:
                for number in range(14):
                    step(txn, rng, number)
                    same(txn, rng)
        with lake.snapshot() as snapshot:
            assert counted(snapshot.sql(ALIKE)) == counted(lake.read("t"))
    assert kept.some > 10


def test_each_select_of_a_transaction_reads_the_new_file_alone(place: Place, kept: Kept) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        with lake.transaction() as txn:
            for number in range(1, 30):
                txn.append("t", [{"id": number}])
                found = pa.table(txn.sql("SELECT sum(id) AS s FROM t")).to_pylist()
                assert found == [{"s": number * (number + 1) // 2}]
    assert [read for _, read in kept.calls[4:]] == [0] * (len(kept.calls) - 4)


def test_a_select_that_prunes_files_keeps_the_rows_of_the_others(kept: Kept) -> None:
    with lv.connect("memory://") as lake:
        lake.create_table("t", pa.schema([("id", pa.int64())]))
        with lake.transaction() as txn:
            for number in range(12):
                txn.append("t", [{"id": number}])
            for _ in range(3):
                for where, count in (("id < 8", 8), ("id >= 2", 10), ("id = 5", 1), ("true", 12)):
                    told = txn.sql(f"SELECT count(*) AS n FROM t WHERE {where}")
                    assert pa.table(told).to_pylist() == [{"n": count}]
    assert all(read == 0 for _, read in kept.calls[3:])


def test_rows_of_larger_files_are_not_kept(kept: Kept) -> None:
    with lv.connect("memory://") as lake:
        lake.create_table("t", pa.schema([("id", pa.int64())]))
        with lake.transaction() as txn:
            for number in range(8):
                txn.append("t", pa.table({"id": range(number, number + 3000)}))
                txn.sql("SELECT count(*) FROM t")
    assert kept.some == 0


def test_rows_are_dropped_where_all_tables_together_take_much(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed, "_MOST_BYTES", 1 << 20)
    text = "x" * 100_000
    with lv.connect("memory://") as lake:
        for table in ("a", "b"):
            lake.create_table(table, pa.schema([("id", pa.int64()), ("s", pa.string())]))
        with lake.transaction() as txn:
            for number in range(40):
                for table in ("a", "b"):
                    txn.append(table, [{"id": number, "s": text}])
                    told = txn.sql(f"SELECT count(*) AS n, sum(length(s)) AS s FROM {table}")
                    count = number + 1
                    assert pa.table(told).to_pylist() == [{"n": count, "s": 100_000 * count}]
    assert kept.some
    assert max(held for held, _ in kept.calls) < 40


def test_files_of_which_rows_cannot_be_kept_are_read(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy fails as for want of memory; the statement itself goes on."""
    monkeypatch.setattr(closed, "_NUMBER", "no such column))")
    with lv.connect("memory://") as lake:
        lake.create_table("t", pa.schema([("id", pa.int64())]))
        with lake.transaction() as txn:
            for number in range(8):
                txn.append("t", [{"id": number}])
                told = pa.table(txn.sql("SELECT count(*) AS n FROM t")).to_pylist()
                assert told == [{"n": number + 1}]
    assert kept.some == 0
