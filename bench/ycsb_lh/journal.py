"""What clients have written and what was acknowledged, and what must be in the table therefore."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.harness.clients import Counts
from bench.ycsb_lh.workload import FIELDS, Inserted, Operation, times_modified

#: The checks; ``LOST_RMW`` does not hold under slack.
NOT_FOUND = "each read finds its record"
LOST_INSERT = "each acknowledged insert is there, once"
LOST_VALUE = "each field has the last value that was acknowledged"
LOST_RMW = "no read-modify-write is lost"
CHANGED = "what nobody wrote is as it was, and each record is there once"
#: A value is known by its end: its beginning counts, in a read-modify-write.
_COUNTED_LENGTH = 9


@dataclass(frozen=True, slots=True)
class Begun:
    """A client's write is about to begin."""

    table: str
    client: int
    order: int
    operation: Operation
    at: float


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The system has said that it is committed."""

    table: str
    client: int
    order: int
    at: float


@dataclass(frozen=True, slots=True)
class NotFound:
    """A read, of a transaction that began then, did not find a record once."""

    table: str
    number: int
    rows: int
    began: float


@dataclass(slots=True)
class Journal:
    """What one client writes down of its own work."""

    table: str
    client: int
    counts: Counts
    inserted: Inserted
    _order: int = 0
    _open: list[tuple[int, Operation]] = field(default_factory=list)
    _began: float | None = None

    def begin_transaction(self) -> None:
        """Before a transaction of many operations begins; another is of the next one alone."""
        self._began = time.perf_counter()

    def begin(self, operation: Operation) -> None:
        """Before an operation begins."""
        if self._began is None:
            self.begin_transaction()
        if operation.kind in ("insert", "update", "rmw"):
            self._order += 1
            self._open.append((self._order, operation))
            began = time.perf_counter()
            self.counts.facts.append(Begun(self.table, self.client, self._order, operation, began))

    def acknowledge(self) -> None:
        """All that was begun is committed."""
        for order, operation in self._open:
            ended = time.perf_counter()
            self.counts.facts.append(Acknowledged(self.table, self.client, order, ended))
            if operation.kind == "insert":
                self.inserted.acknowledge(operation.number)
        self._end()

    def restart(self) -> None:
        """What was begun is undone, and begins again."""
        self._end()

    def give_up(self) -> None:
        """The operation has lost too often: its user would hear of it, and go on with the next."""
        self._end()
        self.counts.lost += 1

    def _end(self) -> None:
        self._open.clear()
        self._began = None

    def found(self, operation: Operation, rows: int) -> None:
        """A read was of so many rows."""
        if rows != 1:
            assert self._began is not None, "its operation has begun"
            self.counts.facts.append(NotFound(self.table, operation.number, rows, self._began))


@dataclass(slots=True)
class _Write:
    begun: Begun
    acknowledged: float | None

    def is_surely_before(self, other: _Write) -> bool:
        """Whether whoever sees the other can't see this one any more."""
        one, two = self.begun, other.begun
        if one.client == two.client:
            return one.order < two.order
        return self.acknowledged is not None and self.acknowledged < two.at


#: The fields of the rows of each record's number; those of no known record are under -1.
Rows = Mapping[int, Sequence[Sequence[str]]]


def broken(facts: Iterable[object], table: str, rows: Rows, before: Rows) -> dict[str, bool]:
    """What must hold after a run, and whether it is broken.

    A write that was begun and never acknowledged, by a client that died or in a transaction that
    was undone, may have happened or not. A transaction need not see what was acknowledged after
    it began, although its client chooses a record that another has inserted meanwhile.
    """
    writes: dict[tuple[int, int], _Write] = {}
    missed: list[NotFound] = []
    for one in facts:
        match one:
            case Begun() if one.table == table:
                writes[one.client, one.order] = _Write(one, None)
            case Acknowledged() if one.table == table:
                writes[one.client, one.order].acknowledged = one.at
            case NotFound() if one.table == table:
                missed.append(one)
    cells: dict[tuple[int, int], list[_Write]] = defaultdict(list)
    inserts = []
    for write in writes.values():
        operation = write.begun.operation
        if operation.kind == "insert":
            inserts.append(write)
        else:
            cells[operation.number, operation.field].append(write)
    return {
        NOT_FOUND: any(_is_missed(one, inserts) for one in missed),
        LOST_INSERT: any(
            write.acknowledged is not None and len(rows.get(_number(write), ())) != 1
            for write in inserts
        ),
        LOST_VALUE: any(
            _is_lost(found, number, place, rows) for (number, place), found in cells.items()
        ),
        LOST_RMW: any(
            _has_lost_count(found, number, place, rows) for (number, place), found in cells.items()
        ),
        CHANGED: -1 in rows
        or any(
            _is_changed(
                fields,
                rows.get(number, ()),
                [place for place in range(FIELDS) if (number, place) not in cells],
            )
            for number, (fields,) in before.items()
        ),
    }


def _is_missed(read: NotFound, inserts: Iterable[_Write]) -> bool:
    """Whether it had to be there: before all inserts, or inserted before the transaction began."""
    ends = [write.acknowledged for write in inserts if _number(write) == read.number]
    return read.rows > 1 or not ends or any(end is not None and end < read.began for end in ends)


def _is_changed(
    before: Sequence[str], now: Sequence[Sequence[str]], unwritten: Iterable[int]
) -> bool:
    return len(now) != 1 or any(now[0][place] != before[place] for place in unwritten)


def _number(write: _Write) -> int:
    return write.begun.operation.number


def _is_lost(
    writes: Sequence[_Write],
    number: int,
    place: int,
    rows: Rows,
) -> bool:
    """Whether a field's value is one that an acknowledged write has replaced, or none of all."""
    done = [write for write in writes if write.acknowledged is not None]
    if not done:
        return False
    last = [
        write.begun.operation.value[_COUNTED_LENGTH:]
        for write in writes
        if not any(write.is_surely_before(other) for other in done)
    ]
    found = rows.get(number, ())
    return len(found) != 1 or found[0][place][_COUNTED_LENGTH:] not in last


def _has_lost_count(
    writes: Sequence[_Write],
    number: int,
    place: int,
    rows: Rows,
) -> bool:
    """Whether fewer have modified a field than were acknowledged; other updates end the count."""
    if any(write.begun.operation.kind != "rmw" for write in writes):
        return False
    done = sum(write.acknowledged is not None for write in writes)
    found = rows.get(number, ())
    return len(found) != 1 or not done <= times_modified(found[0][place]) <= len(writes)
