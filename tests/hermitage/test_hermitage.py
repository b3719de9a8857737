"""Hermitage: which anomalies an isolation level and a mix of features let through.

The test cases of Martin Kleppmann's Hermitage, one function each: two or three
transactions take their steps in a fixed order, and the function tells whether
the anomaly was seen. Locks are unknown here, so no step but the commit ever waits,
and that one no longer than its patience: a transaction that can't go on gets a
``ConflictError`` at its commit.

``test`` has the rows (1, 10) and (2, 20); the -MT variants keep row 2 in a
second table. With Feature.R alone a transaction stays on one table. A column
that names two mixes gives the second to every other transaction. Each line is of
Delta tables; the main ones are also run with Iceberg tables, and with row 2 in an
Iceberg table and row 1 in a Delta table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

import lakevilla as lv
from tests.builders import Place, make_place

Format = Literal["delta", "iceberg"]

R = lv.Feature.R
RI = lv.Feature.R | lv.Feature.I
RCT = lv.Feature.R | lv.Feature.CT
RCTI = RCT | lv.Feature.I

#: Steps follow each other in one thread: whom a commit waits for does not end meanwhile.
IMPATIENT = lv.Settings(wait_timeout_seconds=0.02, wait_poll_seconds=0.005)


@dataclass(frozen=True)
class Mix:
    """How a transaction is begun."""

    features: lv.Feature = RI
    options: dict[str, Any] = field(default_factory=dict)


SNAPSHOT = {"isolation": "snapshot"}
WRITE = {"isolation": "write-serializable"}
RULES = {"validation": "rules"}


@dataclass
class Lab:
    """Clients of one lake; where row 2 lives depends on the variant."""

    place: Place
    mixes: Sequence[Mix]
    two_tables: bool
    formats: tuple[Format, Format] = ("delta", "delta")

    def __post_init__(self) -> None:
        first, second = {"id": 1, "value": 10}, {"id": 2, "value": 20}
        tables = {"test": [first, second]}
        if self.two_tables:
            tables = {"test": [first], "test2": [second]}
        with self.place.connect() as lake, lake.transaction() as txn:
            for (name, rows), kind in zip(tables.items(), self.formats, strict=False):
                txn.create_table(name, rows, format=kind)
        self.clients = [self.place.connect(settings=IMPATIENT) for _ in range(3)]

    def begin(self) -> Iterator[Client]:
        for client, mix in zip(self.clients, itertools.cycle(self.mixes), strict=False):
            yield Client(self, client.transaction(mix.features, **mix.options))

    def table(self, row: int) -> str:
        return "test2" if self.two_tables and row == 2 else "test"

    def now(self) -> dict[int, int]:
        """The committed state."""
        with self.place.connect() as lake, lake.snapshot() as snapshot:
            tables = ["test", "test2"] if self.two_tables else ["test"]
            rows = [row for table in tables for row in snapshot.read(table).to_pylist()]
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["value"] for row in rows}


@dataclass
class Client:
    """One transaction of a test case."""

    lab: Lab
    txn: lv.Transaction

    def get(self, row: int) -> int:
        (found,) = self.txn.read(self.lab.table(row), where=f"id = {row}")["value"].to_pylist()
        assert isinstance(found, int)
        return found

    def where(self, predicate: str) -> list[int]:
        """Ids of the rows, in both tables, for which the predicate is true."""
        tables = ["test", "test2"] if self.lab.two_tables else ["test"]
        found = [self.txn.read(table, where=predicate)["id"].to_pylist() for table in tables]
        return sorted(number for ids in found for number in ids)

    def set(self, row: int, value: int | str) -> None:
        self.txn.update(self.lab.table(row), {"value": value}, where=f"id = {row}")

    def insert(self, row: int, value: int) -> None:
        table = "test2" if self.lab.two_tables and row % 2 == 0 else "test"
        self.txn.append(table, [{"id": row, "value": value}])

    def commit(self) -> bool:
        try:
            self.txn.commit()
        except lv.ConflictError:
            return False
        return True


def g0(lab: Lab) -> bool:
    """Dirty write: writes of two transactions interleave, each winning a row."""
    t1, t2, _ = lab.begin()
    t1.set(1, 11)
    t2.set(1, 12)
    t1.set(2, 21)
    t1.commit()
    assert lab.now() == {1: 11, 2: 21}
    t2.set(2, 22)
    t2.commit()
    return lab.now() not in ({1: 11, 2: 21}, {1: 12, 2: 22})


def g1a(lab: Lab) -> bool:
    """Aborted read: a value is seen that is never committed."""
    t1, t2, _ = lab.begin()
    t1.set(1, 101)
    before = t2.get(1)
    t1.txn.abort()
    after = t2.get(1)
    t2.commit()
    return 101 in (before, after, lab.now()[1])


def g1b(lab: Lab) -> bool:
    """Intermediate read: a value is seen that its writer overwrites before it commits."""
    t1, t2, _ = lab.begin()
    t1.set(1, 101)
    before = t2.get(1)
    t1.set(1, 11)
    assert t1.commit()
    return 101 in (before, t2.get(1))


def g1c(lab: Lab) -> bool:
    """Circular information flow: each sees what the other writes."""
    t1, t2, _ = lab.begin()
    t1.set(1, 11)
    t2.set(2, 22)
    saw = t1.get(2) == 22, t2.get(1) == 11
    t1.commit()
    t2.commit()
    return all(saw)


def otv(lab: Lab) -> bool:
    """Observed transaction vanishes: what was seen of a transaction is gone again."""
    t1, t2, t3 = lab.begin()
    t1.set(1, 11)
    t1.set(2, 19)
    t2.set(1, 12)
    assert t1.commit()
    first = t3.get(1)
    t2.set(2, 18)
    second = t3.get(2)
    t2.commit()
    again = t3.get(2), t3.get(1)
    seen = (first, second), (again[1], again[0])
    return any(pair not in ((10, 20), (11, 19), (12, 18)) for pair in seen)


def pmp(lab: Lab) -> bool:
    """Predicate-many-preceders: a predicate finds other rows the second time."""
    t1, t2, _ = lab.begin()
    before = t1.where("value = 30")
    t2.insert(3, 30)
    assert t2.commit()
    after = t1.where("value % 3 = 0")
    committed = t1.commit()
    return committed and (before != [] or after != [])


def pmp_write(lab: Lab) -> bool:
    """The same for a write predicate: a row escapes, or is deleted that was not matched."""
    t1, t2, _ = lab.begin()
    for row in (1, 2):
        t1.set(row, "value + 10")
    matched = t2.where("value = 20")
    for table in ("test", "test2") if lab.two_tables else ("test",):
        t2.txn.delete(table, where="value = 20")
    assert t1.commit()
    committed = t2.commit()
    return committed and matched != [1]


def p4(lab: Lab) -> bool:
    """Lost update."""
    t1, t2, _ = lab.begin()
    one, two = t1.get(1), t2.get(1)
    t1.set(1, one + 1)
    t2.set(1, two + 1)
    both = t1.commit(), t2.commit()
    return lab.now()[1] != 10 + sum(both)


def g_single(lab: Lab) -> bool:
    """Read skew: one row from before a transaction, another from after it."""
    t1, t2, _ = lab.begin()
    first = t1.get(1)
    t2.get(1)
    t2.get(2)
    t2.set(1, 12)
    t2.set(2, 18)
    assert t2.commit()
    return first == 10 and t1.get(2) == 18


def g_single_predicate(lab: Lab) -> bool:
    """Read skew by predicates."""
    t1, t2, _ = lab.begin()
    t1.where("value % 5 = 0")
    t2.set(1, 12)
    assert t2.commit()
    return t1.where("value % 3 = 0") != []


def g_single_write(lab: Lab) -> bool:
    """Read skew that a write acts on."""
    t1, t2, _ = lab.begin()
    assert t1.get(1) == 10
    t2.where("true")
    t2.set(1, 12)
    t2.set(2, 18)
    assert t2.commit()
    for table in ("test", "test2") if lab.two_tables else ("test",):
        t1.txn.delete(table, where="value = 20")
    committed = t1.commit()
    return committed


def g2_item(lab: Lab) -> bool:
    """Write skew: both read two rows, each changes another one."""
    t1, t2, _ = lab.begin()
    for client in (t1, t2):
        assert client.get(1) + client.get(2) == 30
    t1.set(1, 11)
    t2.set(2, 21)
    return t1.commit() and t2.commit()


def g2(lab: Lab) -> bool:
    """Anti-dependency cycle by predicates: each inserts what the other has looked for."""
    t1, t2, _ = lab.begin()
    assert t1.where("value % 3 = 0") == t2.where("value % 3 = 0") == []
    t1.insert(3, 30)
    t2.insert(4, 42)
    return t1.commit() and t2.commit()


def g2_two_edges(lab: Lab) -> bool:
    """Fekete's read-only anomaly: a reader sees a state that no order explains."""
    t1, t2, t3 = lab.begin()
    t1.where("true")
    t2.set(2, "value + 5")
    assert t2.commit()
    seen = t3.get(1), t3.get(2)
    assert t3.commit()
    t1.set(1, 0)
    return t1.commit() and seen == (10, 25)


ANOMALIES: dict[str, Callable[[Lab], bool]] = {
    "G0": g0,
    "G1a": g1a,
    "G1b": g1b,
    "G1c": g1c,
    "OTV": otv,
    "PMP": pmp,
    "PMP-write": pmp_write,
    "P4": p4,
    "G-single": g_single,
    "G-single-predicate": g_single_predicate,
    "G-single-write": g_single_write,
    "G2-item": g2_item,
    "G2": g2,
    "G2-two-edges": g2_two_edges,
}

#: The columns without -MT, and which transactions they are made of.
MIXES: dict[str, tuple[Mix, ...]] = {
    "R": (Mix(R),),
    "R|I": (Mix(RI),),
    "R|CT": (Mix(RCT),),
    "R|CT|I": (Mix(RCTI),),
    "R|CT,R|I": (Mix(RCT), Mix(RI)),
    "R|I,R|CT": (Mix(RI), Mix(RCT)),
    "R|CT|I,R|I": (Mix(RCTI), Mix(RI)),
    "R|I write": (Mix(RI, WRITE),),
    "R|CT|I write": (Mix(RCTI, WRITE),),
    "R|I rules": (Mix(RI, RULES),),
    "R|I write rules": (Mix(RI, WRITE | RULES),),
    "R snapshot": (Mix(R, SNAPSHOT),),
    "R|I snapshot": (Mix(RI, SNAPSHOT),),
    "R|CT snapshot": (Mix(RCT, SNAPSHOT),),
    "R|CT|I snapshot": (Mix(RCTI, SNAPSHOT),),
    "R|I snapshot rules": (Mix(RI, SNAPSHOT | RULES),),
    "R|I slack": (Mix(RI, {"slack": 1}),),
    "R|I slack rules": (Mix(RI, RULES | {"slack": 1}),),
    "R|I,R|I snapshot": (Mix(RI), Mix(RI, SNAPSHOT)),
    "R|I snapshot,R|I": (Mix(RI, SNAPSHOT), Mix(RI)),
}

COLUMNS = {
    f"{name}{variant}": (mixes, bool(variant))
    for name, mixes in MIXES.items()
    for variant in ("", " -MT")
    if not (variant and mixes[0].features == R)
}

#: Formats of the tables of row 1 and row 2, by what a column's name says of them.
FORMATS: dict[str, tuple[Format, Format]] = {
    "": ("delta", "delta"),
    " iceberg": ("iceberg", "iceberg"),
    " mixed": ("delta", "iceberg"),
}

#: The columns that are run with other formats too. What a mix promises does not depend on
#: them, so it is enough that each kind of commit point and of validation is among them.
MAIN = ("R", "R|I", "R|CT|I", "R|I snapshot")

CASES = [
    (column, kind)
    for kind in FORMATS
    for column, (_, two_tables) in COLUMNS.items()
    if not kind or column.removesuffix(" -MT") in MAIN
    if two_tables or kind != " mixed"
]

#: What snapshot isolation admits: write skew, and what a reader sees of one.
SKEW = ("G2-item", "G2", "G2-two-edges")

#: Without Feature.I each table is read as it is when first used: what only reads may
#: see two tables at two moments. What writes is as serializable as all others.
TORN = {("G-single", "R|CT -MT"), ("G-single", "R|CT,R|I -MT"), ("G-single", "R|CT snapshot -MT")}

#: Where write skew is admitted whenever it can be; elsewhere a queue, a rule or the
#: other transaction's own level may stand in its way.
ADMITTED = {
    (anomaly, column)
    for anomaly in SKEW
    for column in COLUMNS
    if column.removesuffix(" -MT") in ("R snapshot", "R|I snapshot", "R|I slack")
}


def is_allowed(anomaly: str, column: str) -> bool:
    """Whether some transaction of the column has asked for no more."""
    mixes, _ = COLUMNS[column]
    lenient = any({"isolation": "snapshot"}.items() <= mix.options.items() for mix in mixes)
    lenient |= any("slack" in mix.options for mix in mixes)
    return (anomaly, column) in TORN or (lenient and anomaly in SKEW)


_SEEN: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints what was seen, a level a line."""
    yield
    if _SEEN:
        width = max(len(column + kind) for column, kind in CASES)
        lines = [f"{'':{width}}  " + "  ".join(ANOMALIES)]
        cells = {True: "seen", False: "no", None: ""}
        for column, kind in CASES:
            row = "  ".join(
                f"{cells[_SEEN.get((anomaly, column + kind))]:>{len(anomaly)}}"
                for anomaly in ANOMALIES
            )
            lines.append(f"{column + kind:{width}}  {row}")
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print("\n" + "\n".join(lines))


@pytest.mark.parametrize(("column", "kind"), CASES, ids=[a + b for a, b in CASES])
@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_a_level_lets_no_anomaly_through_that_it_does_not_allow(
    anomaly: str, column: str, kind: str, request: pytest.FixtureRequest
) -> None:
    mixes, two_tables = COLUMNS[column]
    place = make_place("memory", request)
    seen = ANOMALIES[anomaly](Lab(place, mixes, two_tables, FORMATS[kind]))
    _SEEN[anomaly, column + kind] = seen
    if seen:
        assert is_allowed(anomaly, column)
    else:
        assert (anomaly, column) not in TORN | ADMITTED
