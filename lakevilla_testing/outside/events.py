"""The events of a history, in the one order that both formats give them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lakevilla_testing.checks.history import Operation, Read, Recorded, Txn

#: How isolation is called by Elle.
Level = Literal["strict-serializable", "serializable", "snapshot-isolation"]
_LAST = "the end"


@dataclass(frozen=True, slots=True)
class Span:
    """A transaction, between the numbers of its two events.

    ``process``: the numbers of processes are such that none has two transactions at once, and none
    goes on after one of unknown outcome. ``ended`` is None for the latter.
    """

    txn: Txn
    process: int
    invoked: int
    ended: int | None

    @property
    def operations(self) -> Sequence[Operation]:
        return self.txn.operations


def promised(recorded: Recorded) -> Level:
    """Return the strongest level that was promised to all transactions of a history."""
    if recorded.snapshot:
        return "snapshot-isolation"
    return "strict-serializable" if recorded.real_time else "serializable"


def spans(recorded: Recorded) -> list[Span]:
    """Return the transactions with the numbers of their events, and a read of all lists at the end.

    A transaction that only reads, and has seen another before that had a place in the order of all
    transactions (design, section 10), is left out.
    """
    placed = [
        one for one in recorded.txns if one.name.partition(" on ")[0] not in recorded.unplaced
    ]
    free: dict[str, list[int]] = {}
    processes = itertools.count()
    busy: list[tuple[int, str, int]] = []
    found = []
    for txn, invoked, ended in _numbers(placed):
        for until, client, process in [one for one in busy if one[0] < invoked]:
            busy.remove((until, client, process))
            free.setdefault(client, []).append(process)
        process = free[txn.client].pop() if free.get(txn.client) else next(processes)
        if ended is not None:
            busy.append((ended, txn.client, process))
        found.append(Span(txn, process, invoked, ended))
    return [*found, _end(recorded, found, next(processes))]


def _numbers(txns: Sequence[Txn]) -> Iterator[tuple[Txn, int, int | None]]:
    """Yield the transactions by their begin; of events at one time, begins come first."""
    events = [(txn.invoked, 0, number) for number, txn in enumerate(txns)]
    events += [
        (txn.completed, 1, number)
        for number, txn in enumerate(txns)
        if txn.completed is not None and txn.status != "unknown"
    ]
    places = {(kind, number): place for place, (_, kind, number) in enumerate(sorted(events))}
    for number in sorted(range(len(txns)), key=lambda number: places[0, number]):
        yield txns[number], places[0, number], places.get((1, number))


def _end(recorded: Recorded, found: Sequence[Span], process: int) -> Span:
    numbers = [span.invoked for span in found] + [span.ended or 0 for span in found]
    last = max(numbers, default=-1)
    reads: list[Operation] = [Read(key, tuple(values)) for key, values in recorded.final.items()]
    txn = Txn(_LAST, _LAST, float(last), reads, float(last), "committed")
    return Span(txn, process, last + 1, last + 2)
