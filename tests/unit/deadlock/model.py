"""A model of queues: transactions that place tickets, wait, give way, and finish.

Each transaction is a generator that stops after every step after which another transaction could
act, so a schedule is the order in which the generators are resumed. No message is ever late or lost
here; the simulator tests that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from lakevilla.deadlock.graph import gives_way, live_edges
from lakevilla.sublogs.record import Access, Edge, Ticket, TxnRecord
from tests.support.wait_graphs import record

#: A policy: given a transaction's id and the records that it reads, the edges that it must
#: dissolve.
Decide = Callable[[str, Mapping[str, TxnRecord]], frozenset[Edge]]
Plan = Sequence[tuple[str, Access]]


def youngest_gives_way(me: str, records: Mapping[str, TxnRecord]) -> frozenset[Edge]:
    edges = live_edges(records, ())
    assert all(edge.holder in records for edge in edges)
    return gives_way(me, edges)


class Queues:
    """The tickets in all queues, all records, and the step at which each transaction is."""

    def __init__(self, plans: Mapping[str, Plan], decide: Decide = youngest_gives_way) -> None:
        self.decide = decide
        self.placed: dict[tuple[str, int], tuple[str, Access]] = {}
        self.records = {txn: record(txn) for txn in plans}
        self.finished: list[str] = []
        self.shifts: list[str] = []
        self.running = {txn: self._live(txn, plan) for txn, plan in plans.items()}

    def step(self, txn: str) -> None:
        """Resume ``txn`` for one step, unless it has finished."""
        if txn in self.running and next(self.running[txn], None) is None:
            del self.running[txn]

    def in_turns(self, rounds: int) -> bool:
        """Let every transaction take one step a round; return whether all have finished."""
        for _ in range(rounds):
            for txn in list(self.running):
                self.step(txn)
        return not self.running

    def _live(self, me: str, plan: Plan) -> Generator[str, None, None]:
        for table, access in plan:
            self._place(me, table, access)
            yield "placed"
        while True:
            tickets, edges = self._listed(me)
            yield "listed"
            if not edges:
                break
            self.records[me] = self._written(me, tickets, edges)
            yield "written"
            dissolve = self.decide(me, dict(self.records))
            yield "decided"
            given_up = sorted({(edge.table, edge.holder_ticket) for edge in dissolve})
            if given_up:
                self.shifts.append(me)
            for table, number in given_up:
                assert self.placed[table, number][0] == me, "only what it holds can be given up"
                self._place(me, table, self.placed[table, number][1])
                yield "placed at the end"
                del self.placed[table, number]
                yield "gave way"
        for place, (txn, _) in list(self.placed.items()):
            if txn == me:
                del self.placed[place]
        del self.records[me]
        self.finished.append(me)

    def _place(self, me: str, table: str, access: Access) -> None:
        highest = max((number for name, number in self.placed if name == table), default=0)
        self.placed[table, highest + 1] = (me, access)

    def _listed(self, me: str) -> tuple[tuple[Ticket, ...], tuple[Edge, ...]]:
        own = tuple(
            Ticket(table, number, access)
            for (table, number), (txn, access) in self.placed.items()
            if txn == me
        )
        edges = tuple(
            Edge(me, ticket.number, txn, number, table)
            for ticket in own
            for (table, number), (txn, access) in self.placed.items()
            if table == ticket.table and number < ticket.number and txn != me
            if access == "write" or access != ticket.access
        )
        return own, edges

    @staticmethod
    def _written(me: str, tickets: tuple[Ticket, ...], edges: tuple[Edge, ...]) -> TxnRecord:
        return TxnRecord(1, "n", me, "test", 1, 30.0, 0, tickets=tickets, edges=edges)
