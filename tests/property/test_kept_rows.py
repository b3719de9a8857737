"""Random programs of one transaction, with the rows of small files kept in memory and without.

Each statement has the same counts or the same error, each read the same rows, and so has the state
that is committed, whether or not another client has changed rows of the same files meanwhile.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.engine import DuckDBEngine
from lakevilla.engines.duckdb.writing.rewrite import Kept
from lakevilla.transaction.commit.together.combine import Combining
from tests.support.inside import executor, inside
from tests.support.search import first_seed, how_many

PROGRAMS = how_many(6, whole=30, soak=2000)
#: Programs of transactions, which take longer.
LONG_PROGRAMS = how_many(2, whole=10, soak=1000)
STEPS = 14
NAN = float("nan")

TYPES = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(12, 2)),
        ("b", pa.binary()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("x", pa.struct([("a", pa.int64()), ("w", pa.string())])),
        ("l", pa.list_(pa.int32())),
    ]
)
ICEBERG = {"format-version": "3"}


@dataclass(frozen=True)
class Kind:
    """A kind of table, and whether rows of it are kept."""

    format: str = "delta"
    properties: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()
    constraint: str = ""
    keeps: bool = True
    lineage: bool = False


KINDS = {
    "delta": Kind(),
    "constraint": Kind(constraint="v IS NULL OR v < 60"),
    "mapped": Kind(properties=(("delta.columnMapping.mode", "name"),)),
    "tracked": Kind(properties=(("delta.enableRowTracking", "true"),), lineage=True),
    "marked": Kind(properties=(("delta.enableDeletionVectors", "true"),)),
    "feed": Kind(properties=(("delta.enableChangeDataFeed", "true"),), keeps=False),
    "partitioned": Kind(partition_by=("v",)),
    "partitioned iceberg": Kind(format="iceberg", partition_by=("v",), keeps=False),
    "iceberg": Kind(format="iceberg"),
    "iceberg3": Kind(format="iceberg", properties=(("format-version", "3"),), lineage=True),
}

CONDITIONS = (
    "true",
    "k % 3 = 1",
    "k = {one}",
    "k IN ({one}, {other})",
    "k >= {one} AND k < {other}",
    "v > 5 OR v IS NULL",
    "NOT (v > 5)",
    "f > 1",
    "f <= 1.5",
    "f IS DISTINCT FROM 2.5 AND f > 0",
    "s LIKE 'a%'",
    "s IS NULL",
    "d > 1.5",
    "x.a = 2",
    "x IS NULL",
    "b = X'00ff'",
    "t < TIMESTAMP '2024-01-02 00:00:00'",
    "day = DATE '2024-01-03'",
    "k = -99",
)
ASSIGNMENTS: tuple[dict[str, str], ...] = (
    {"v": "v + 1"},
    {"v": "CAST(k AS INT)"},
    {"v": "CAST(k AS INT)", "k": "k + 1000"},
    {"v": "NULL", "s": "CAST(v AS STRING)"},
    {"v": "v * 7"},
    {"v": "v * 1000000"},
    {"s": "concat(coalesce(s, 'a'), '!')"},
    {"f": "f * 2", "d": "d + 1"},
    {"f": "CAST(v AS DOUBLE)", "v": "CAST(f AS INT)"},
    {"k": "NULL"},
    {"b": "X'0102'", "t": "TIMESTAMP '2025-05-05 05:05:05'"},
    {"x": "NULL"},
    {"l": "NULL", "day": "DATE '2025-01-01'"},
    {"v": "CAST(s AS INT)"},
)

#: A statement of a program: what it does to a transaction, and what its caller sees.
Statement = Callable[[lv.Transaction], Any]


class Program:
    """A random program, which may be run on any number of equal tables."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.random = Random(seed)
        self.kind = kind
        self.fresh = count(100)
        self.first = [self.rows(4 + 3 * n, start=10 * n) for n in range(self.random.randint(1, 3))]
        self.statements = [self.statement() for _ in range(self.random.randint(2, STEPS))]
        self.races = self.random.random() < 0.5
        self.defers = self.random.random() < 0.3

    def rows(self, number: int, start: int) -> pa.Table:
        pick = self.random.choice
        day = datetime.date(2024, 1, 1)
        moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
        return pa.Table.from_pylist(
            [
                {
                    "k": start + n,
                    "v": pick([None, 0, 3, 7, 50]),
                    "s": pick([None, "", "a", "ab", "7", "zz"]),
                    "f": pick([None, 0.0, -0.0, 1.5, 2.5, NAN, float("inf")]),
                    "d": pick([None, Decimal("1.50"), Decimal("-3.25")]),
                    "b": pick([None, b"", b"\x00\xff"]),
                    "t": pick([None, moment, moment + datetime.timedelta(days=3, microseconds=1)]),
                    "day": pick([None, day, day + datetime.timedelta(days=2)]),
                    "x": pick([None, {"a": None, "w": "q"}, {"a": 2, "w": None}]),
                    "l": pick([None, [], [1, None], [5]]),
                }
                for n in range(number)
            ],
            TYPES,
        )

    def condition(self) -> str:
        one = self.random.randint(0, 25)
        text = self.random.choice(CONDITIONS)
        return text.format(one=one, other=one + self.random.randint(1, 10))

    def statement(self) -> Statement:
        where = self.condition()
        draw = self.random.random()
        if draw < 0.55:
            new = self.random.choice(ASSIGNMENTS)
            return lambda txn: txn.update("t", new, where=where)
        if draw < 0.7:
            return lambda txn: txn.delete("t", where=where)
        if draw < 0.8:
            return lambda txn: seen(txn.read("t", where=where))
        if draw < 0.85:
            return lambda txn: seen(
                txn.sql("SELECT count(*) AS c, sum(v) AS v, max(k) AS k FROM t")
            )
        data = self.rows(2, start=next(self.fresh) * 10)
        if draw < 0.92:
            return lambda txn: txn.append("t", data)
        return lambda txn: txn.upsert("t", data.slice(0, 1), keys="k")

    def make(self, lake: lv.Lake) -> None:
        options: dict[str, Any] = {"properties": dict(self.kind.properties)}
        if self.kind.partition_by:
            options["partition_by"] = list(self.kind.partition_by)
        lake.create_table("t", TYPES, format=self.kind.format, **options)
        if self.kind.constraint:
            lake.run(lambda txn: txn.alter("t", add_constraints={"small": self.kind.constraint}))
        for part in self.first:
            lake.run(lambda txn, part=part: txn.append("t", part))

    def run_reading(self, lake: lv.Lake, other: lv.Lake) -> list[Any]:
        """Run the program as a chain does, whose reads load rows, too."""
        return self.run(lake, other, keeps_first=True)

    def run(self, lake: lv.Lake, other: lv.Lake, *, keeps_first: bool = False) -> list[Any]:
        """Run the program; return what its caller has seen."""
        self.make(lake)
        observed: list[Any] = []
        try:
            with lake.transaction(defer=self.defers) as txn:
                executor(txn).state.work.keeps_first = keeps_first
                for statement in self.statements:
                    try:
                        result = statement(txn)
                        # Deferred statements are performed once their counts are looked at.
                        observed.append(result if self.defers else counts(result))
                    except lv.InvalidOperation as error:
                        observed.append(told(error))
                if self.races:
                    other.run(lambda txn: txn.update("t", {"day": "NULL"}, where="k % 5 = 4"))
        except lv.LakeVillaError as error:
            observed = [one for one in observed if not isinstance(one, lv.OperationResult)]
            observed.append(type(error))
        observed = list(map(counts, observed))
        observed += [seen(lake.read("t")), seen(other.read("t"))]
        return observed

    def run_one_by_one(self, lake: lv.Lake, other: lv.Lake) -> list[Any]:
        """Run the statements, each in a deferred transaction on rows that others change, too."""
        self.make(lake)
        observed: list[Any] = []
        for number, statement in enumerate(self.statements):
            if self.races and number % 3 == 2:
                other.run(lambda txn: txn.update("t", {"day": "NULL"}, where="k % 5 = 4"))
            context = inside(lake).context
            context.groups.named("combine", Combining).note_hot(context)
            try:
                with lake.transaction(defer=True) as txn:
                    result = statement(txn)
                observed.append(counts(result))
            except lv.LakeVillaError as error:
                observed.append(type(error))
        return [*observed, seen(lake.read("t")), seen(other.read("t"))]


def counts(result: Any) -> Any:
    """Return all counts of a statement; a read's rows, or an error, as they are."""
    if not isinstance(result, lv.OperationResult):
        return result
    return (
        result.rows_matched,
        result.rows_inserted,
        result.rows_updated,
        result.rows_deleted,
        result.files_added,
        result.files_removed,
    )


def seen(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def told(error: lv.InvalidOperation) -> tuple[type, str | None]:
    """Return an error without its text, which shows any of the rows that are wrong."""
    return type(error), error.reason


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, tally: Counter[str]) -> Iterator[None]:
    """Count the statements that were run on kept rows."""
    original = Kept._hit

    def counted(self: Kept, step: Any, *, checked: bool) -> dict[int, int]:
        tally["kept"] += 1
        return original(self, step, checked=checked)

    renew = Kept.renew

    def counted_renewals(self: Kept) -> bool:
        renewed = renew(self)
        tally["renewed"] += renewed
        return renewed

    scan = Kept.scan

    def counted_scans(self: Kept, *args: Any, **options: Any) -> Any:
        before = self.size_bytes
        found = yield from scan(self, *args, **options)
        tally["read"] += found is not None and self.size_bytes > before
        return found

    again = Kept._written_again

    def counted_again(self: Kept, files: Any) -> Any:
        tally["again"] += bool(files)
        return (yield from again(self, files))

    with monkeypatch.context() as patch:
        patch.setattr(Kept, "_hit", counted)
        patch.setattr(Kept, "_written_again", counted_again)
        patch.setattr(Kept, "renew", counted_renewals)
        patch.setattr(Kept, "scan", counted_scans)
        yield


@pytest.mark.cases(2)  # six programs of a few kinds find more than two of each
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_does_the_same_with_kept_rows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = compared(kind, Program.run, PROGRAMS, monkeypatch)
    assert bool(tally["kept"]) is KINDS[kind].keeps


@pytest.mark.cases(2)  # six programs of a few kinds find more than two of each
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_transactions_do_the_same_with_the_rows_of_those_before(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows whose versions are those of their files are not kept: a file has one once it is
    published.
    """
    tally = compared(kind, Program.run_one_by_one, LONG_PROGRAMS, monkeypatch)
    assert bool(tally["kept"]) is KINDS[kind].keeps
    assert bool(tally["renewed"]) is (KINDS[kind].keeps and not KINDS[kind].lineage)


@pytest.mark.cases(2)  # six programs of a few kinds find more than two of each
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_does_the_same_if_its_reads_load_rows(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = compared(kind, Program.run_reading, PROGRAMS, monkeypatch)
    assert bool(tally["read"]) is (KINDS[kind].keeps and not KINDS[kind].lineage)


def compared(
    kind: str,
    run: Callable[[Program, lv.Lake, lv.Lake], list[Any]],
    programs: int,
    patched: pytest.MonkeyPatch,
) -> Counter[str]:
    """Compare what programs see with kept rows and without; return what was done with the rows."""
    tally: Counter[str] = Counter()
    for seed in range(first_seed() * 1000, first_seed() * 1000 + programs):
        results = []
        for keeps in (True, False):
            root = f"memory://kept-{run.__name__}-{kind}-{seed}-{keeps}"
            with watched(patched, tally), patched.context() as patch:
                if not keeps:
                    patch.setattr(DuckDBEngine, "keep", lambda self, layout, limit_bytes: None)
                with lv.connect(root) as lake, lv.connect(root) as other:
                    results.append(run(Program(seed, KINDS[kind]), lake, other))
        kept, plain = results
        for number, (one, two) in enumerate(zip(kept, plain, strict=True)):
            assert one == two, f"seed {seed}, statement {number}"
    return tally
