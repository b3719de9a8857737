"""Hermitage: which anomalies a mix of features lets through.

The test cases of Martin Kleppmann's Hermitage, one function each: two or three
transactions take their steps in a fixed order, and the function tells whether
the anomaly was seen. Locks are unknown here, so no step but the commit ever waits,
and that one no longer than its patience: a transaction that can't go on gets a
``ConflictError`` at its commit.

``test`` has the rows (1, 10) and (2, 20); the -MT variants keep row 2 in a
second table. With Feature.R alone a transaction stays on one table. A level
that names two mixes gives the second to every other transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import lakevilla as lv
from tests.builders import Place, fill, make_place

R = lv.Feature.R
RI = lv.Feature.R | lv.Feature.I
RCT = lv.Feature.R | lv.Feature.CT
RCTI = RCT | lv.Feature.I

#: Steps follow each other in one thread: whom a commit waits for does not end meanwhile.
IMPATIENT = lv.Settings(wait_timeout_seconds=0.02, wait_poll_seconds=0.005)


@dataclass
class Lab:
    """Clients of one lake; where row 2 lives depends on the variant."""

    place: Place
    features: tuple[lv.Feature, ...]
    two_tables: bool

    def __post_init__(self) -> None:
        first, second = {"id": 1, "value": 10}, {"id": 2, "value": 20}
        if self.two_tables:
            fill(self.place, {"test": [first], "test2": [second]})
        else:
            fill(self.place, {"test": [first, second]})
        self.clients = [self.place.connect(settings=IMPATIENT) for _ in range(3)]

    def begin(self) -> Iterator[Client]:
        for client, features in zip(self.clients, itertools.cycle(self.features), strict=False):
            yield Client(self, client.transaction(features))

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

LEVELS: dict[str, tuple[tuple[lv.Feature, ...], bool]] = {
    "R": ((R,), False),
    "R|I": ((RI,), False),
    "R|I -MT": ((RI,), True),
    "R|CT": ((RCT,), False),
    "R|CT -MT": ((RCT,), True),
    "R|CT|I": ((RCTI,), False),
    "R|CT|I -MT": ((RCTI,), True),
    "R|CT,R|I -MT": ((RCT, RI), True),
    "R|I,R|CT -MT": ((RI, RCT), True),
    "R|CT|I,R|I -MT": ((RCTI, RI), True),
}

#: Without Feature.I each table is read as it is when first used: what only reads may
#: see two tables at two moments. What writes is as serializable as all others.
ALLOWED = {("G-single", "R|CT -MT"), ("G-single", "R|CT,R|I -MT")}

_SEEN: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints what was seen, as Hermitage does."""
    yield
    if _SEEN:
        width = max(map(len, ANOMALIES))
        lines = [f"{'':{width}}  " + "  ".join(f"{level:>{_wide(level)}}" for level in LEVELS)]
        for anomaly in ANOMALIES:
            cells = {True: "seen", False: "no", None: ""}
            row = "  ".join(
                f"{cells[_SEEN.get((anomaly, level))]:>{_wide(level)}}" for level in LEVELS
            )
            lines.append(f"{anomaly:{width}}  {row}")
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print("\n" + "\n".join(lines))


def _wide(level: str) -> int:
    return max(4, len(level))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_a_level_lets_no_anomaly_through_that_it_does_not_allow(
    anomaly: str, level: str, request: pytest.FixtureRequest
) -> None:
    features, two_tables = LEVELS[level]
    place = make_place("memory", request)
    seen = ANOMALIES[anomaly](Lab(place, features, two_tables))
    _SEEN[anomaly, level] = seen
    assert seen == ((anomaly, level) in ALLOWED)
