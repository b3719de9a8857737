"""The workloads of YCSB-LH: which operation comes next, on which key."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from bench.ycsb_lh.generators import Interval, Latest, Scrambled, drawn_until

Kind = Literal["read", "update", "insert", "scan", "rmw"]
FIELDS, FIELD_BYTES, MOST_SCANNED = 10, 100, 100


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the kinds of operations, and how keys are chosen."""

    read: float = 0.0
    update: float = 0.0
    insert: float = 0.0
    scan: float = 0.0
    rmw: float = 0.0
    keys: Literal["zipfian", "latest"] = "zipfian"

    def kind(self, u: float) -> Kind:
        """The kind that a random ``u`` in [0, 1) stands for."""
        kinds: tuple[Kind, ...] = ("read", "update", "insert", "scan", "rmw")
        for kind in kinds:
            u -= getattr(self, kind)
            if u < 0:
                return kind
        return next(kind for kind in reversed(kinds) if getattr(self, kind))


MIXES = {
    "A": Mix(read=0.5, update=0.5),
    "B": Mix(read=0.95, update=0.05),
    "C": Mix(read=1.0),
    "D": Mix(read=0.95, insert=0.05, keys="latest"),
    "E": Mix(scan=0.95, insert=0.05),
    "F": Mix(read=0.5, rmw=0.5),
    "custom1": Mix(read=0.5, update=0.25, insert=0.25),
    "custom2": Mix(read=0.5, insert=0.5),
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: of a record's number, and for a scan of so many records."""

    kind: Kind
    number: int
    field: int = 0
    value: str = ""
    length: int = 1


class Inserted:
    """Records that are in the table; clients of one process share it.

    A record counts once its insert was acknowledged, and with it all below that were. Processes
    can't share it: each inserts numbers of its own, every ``step``-th from ``first`` on, and
    knows of no others.
    """

    def __init__(self, records: int, first: int = 0, step: int = 1) -> None:
        self.records, self._first, self._step = records, first, step
        self._lock = threading.Lock()
        self._next = records
        self._waiting: set[int] = set()
        self.count = records

    def __reduce__(self) -> tuple[type[Inserted], tuple[int, int, int]]:
        return Inserted, (self.records, self._first, self._step)

    def draw(self) -> int:
        """The number of the next record."""
        with self._lock:
            self._next += 1
            return self.number(self._next - 1)

    def number(self, place: int) -> int:
        """The number of the record in a place; those that were there before come first."""
        if place < self.records:
            return place
        return self.records + (place - self.records) * self._step + self._first

    def acknowledge(self, number: int) -> None:
        with self._lock:
            self._waiting.add(number)
            while self.number(self.count) in self._waiting:
                self._waiting.discard(self.number(self.count))
                self.count += 1


@dataclass(frozen=True, slots=True)
class Stream:
    """The operations of one client, drawn while it works.

    Attributes
    ----------
    table : str
        All are of this table.
    count, planned : int
        Of this client; and of all together, by which the reference sizes its range of keys.
    apart : float or None
        With one, keys come from the interval of this client: see ``Interval``.
    """

    table: str
    mix: Mix
    count: int
    planned: int
    seed: str
    client: int
    clients: int
    apart: float | None = None

    def operations(self, inserted: Inserted) -> Iterator[Operation]:
        """One after the other."""
        random = Random(self.seed)
        mix, records = self.mix, inserted.records
        scrambled = Scrambled(records + int(2 * self.planned * mix.insert) + 1)
        for _ in range(self.count):
            kind = mix.kind(random.random())
            if kind == "insert":
                yield Operation(kind, inserted.draw())
                continue
            if self.apart is not None:
                interval = Interval(records, self.clients, self.apart)
                place = interval.at(self.client, random.random())
            elif mix.keys == "latest":
                place = drawn_until(Latest(inserted.count).at, random, lambda n: n >= 0)
            else:
                place = drawn_until(scrambled.at, random, lambda n: n < inserted.count)
            number = inserted.number(place)
            match kind:
                case "scan":
                    yield Operation(kind, number, length=1 + int(random.random() * MOST_SCANNED))
                case "read":
                    yield Operation(kind, number)
                case _:
                    field = int(random.random() * FIELDS)
                    yield Operation(kind, number, field, text(random))


#: As the reference, from a random byte: all systems get a column of text.
_PRINTABLE = bytes(32 + byte % 95 for byte in range(256))


def text(random: Random) -> str:
    """A field's value: random bytes that are printable."""
    return random.randbytes(FIELD_BYTES).translate(_PRINTABLE).decode("ascii")


def record(random: Random) -> list[str]:
    """All fields of a record."""
    return [text(random) for _ in range(FIELDS)]


#: What the value of a read-modify-write begins with: how many there were.
_COUNTED = re.compile(r"rmw(\d{6})")


def times_modified(value: str) -> int:
    """How many read-modify-writes a field's value has seen."""
    found = _COUNTED.match(value)
    return int(found[1]) if found else 0


def modified(before: str, value: str) -> str:
    """What a read-modify-write makes of the value it has read: one more than that was."""
    return f"rmw{times_modified(before) + 1:06}{value[9:]}"
