"""Make records and edges in short form, for tests of the graph of waits."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.sublogs.record import Access, Edge, Ticket, TxnRecord


def edge(waiter: str, holder: str, table: str = "t") -> Edge:
    """Return the edge of ``waiter`` with ticket 2 behind ``holder`` with ticket 1."""
    return Edge(waiter, 2, holder, 1, table)


def ring(*members: str) -> list[Edge]:
    """Let each wait for the next, and the last for the first, each pair in its own table."""
    return [
        edge(waiter, holder, f"{waiter}{holder}")
        for waiter, holder in zip(members, (*members[1:], members[0]), strict=True)
    ]


def record(
    txn: str, tickets: Iterable[tuple[str, int]] = (), edges: Iterable[Edge] = ()
) -> TxnRecord:
    access: Access = "write"
    return TxnRecord(
        format=1,
        nonce="n",
        txn=txn,
        owner="test",
        heartbeat=1,
        lease_seconds=30.0,
        began=0,
        tickets=tuple(Ticket(table, number, access) for table, number in tickets),
        edges=tuple(edges),
    )
