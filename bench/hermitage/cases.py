"""The test cases of Martin Kleppmann's Hermitage, one function each.

Two or three transactions take their steps in a fixed order, and the function tells whether the
anomaly was seen. ``test`` has the rows (1, 10) and (2, 20); in a lab of two tables row 2, and
those of even numbers that are inserted, lie in a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol


class Client(Protocol):
    """A transaction of a test case."""

    def get(self, row: int) -> int: ...

    def where(self, predicate: str) -> list[int]:
        """Ids of the rows, in all tables, for which the predicate is true."""

    def set(self, row: int, value: int | str) -> None: ...

    def insert(self, row: int, value: int) -> None: ...

    def delete(self, predicate: str) -> None:
        """Delete the rows, of all tables, for which the predicate is true."""

    def abort(self) -> None: ...

    def commit(self) -> bool:
        """Whether it is committed: a conflict is no error."""


class Lab(Protocol):
    """The rows, and clients that use them."""

    def begin(self) -> Iterator[Client]:
        """Three transactions, which begin as they are taken."""

    def now(self) -> dict[int, int]:
        """The committed state."""


def g0(lab: Lab) -> bool:
    """Dirty write: writes of two transactions interleave, each winning a row."""
    t1, t2, _ = lab.begin()
    t1.set(1, 11)
    t2.set(1, 12)
    t1.set(2, 21)
    t1.commit()
    if lab.now() != {1: 11, 2: 21}:
        return True
    t2.set(2, 22)
    t2.commit()
    return lab.now() not in ({1: 11, 2: 21}, {1: 12, 2: 22})


def g1a(lab: Lab) -> bool:
    """Aborted read: a value is seen that is never committed."""
    t1, t2, _ = lab.begin()
    t1.set(1, 101)
    before = t2.get(1)
    t1.abort()
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
    t2.delete("value = 20")
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
    t1.delete("value = 20")
    return t1.commit()


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
