"""The graph of waits between transactions, from the edges that waiters write into their records.

The records are read at different times, so the graph may be one that never existed. That is
harmless: an edge counts only while both of its tickets are held, and a cycle that has closed stays
until one of its members shifts, so any client that checks again sees the cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lakevilla.sublogs.record import RESERVATION, Edge, TxnRecord


def live_edges(
    records: Mapping[str, TxnRecord], reserved: Collection[tuple[str, str]]
) -> frozenset[Edge]:
    """Return the edges in ``records`` (by transaction) that block their waiters now.

    ``reserved`` are HEAD's reservations as (transaction, table): they count as tickets with the
    number ``RESERVATION``. Only HEAD states that these are held, whatever a record says.

    An edge does not count when one of its two tickets is not held, when its holder has no record
    (the holder has ended, or was aborted), or when another transaction than the waiter has written
    it: only the waiter knows which transaction it waits for. A record that is stored under the
    name of another transaction does not count either.
    """
    own = [(txn, record) for txn, record in records.items() if record.txn == txn]
    held = {
        (txn, ticket.table, ticket.number)
        for txn, record in own
        for ticket in record.tickets
        if ticket.number != RESERVATION
    }
    present = {txn for txn, _ in own}
    held.update((txn, table, RESERVATION) for txn, table in reserved if txn in present)
    return frozenset(
        edge
        for txn, record in own
        for edge in record.edges
        if edge.waiter == txn != edge.holder
        and (edge.waiter, edge.table, edge.waiter_ticket) in held
        and (edge.holder, edge.table, edge.holder_ticket) in held
    )


def cycles(edges: Iterable[Edge]) -> list[tuple[str, ...]]:
    """Return the sets of transactions that wait for each other, each sorted, to be shown to users.

    These are the strongly connected components with more than one member: two cycles that share a
    transaction are one set. This is Tarjan's algorithm with an explicit stack, since a queue may be
    longer than Python's recursion is deep.
    """
    behind: dict[str, list[str]] = {}
    for edge in edges:
        behind.setdefault(edge.waiter, []).append(edge.holder)
    found: list[tuple[str, ...]] = []
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}  # for each on ``path``: the lowest index on it that it reaches
    path: list[str] = []
    for root in behind:
        if root in index:
            continue
        walk = [(root, iter(behind[root]))]
        index[root] = lowest[root] = len(index)
        path.append(root)
        while walk:
            txn, ahead = walk[-1]
            for holder in ahead:
                if holder not in index:
                    index[holder] = lowest[holder] = len(index)
                    path.append(holder)
                    walk.append((holder, iter(behind.get(holder, ()))))
                    break
                if holder in lowest:
                    lowest[txn] = min(lowest[txn], index[holder])
            else:
                walk.pop()
                if walk:
                    waiter = walk[-1][0]
                    lowest[waiter] = min(lowest[waiter], lowest[txn])
                if lowest[txn] == index[txn]:
                    members: list[str] = []
                    while txn in lowest:
                        members.append(path.pop())
                        del lowest[members[-1]]
                    if len(members) > 1:
                        found.append(tuple(sorted(members)))
    return sorted(found)


# -------------------- who gives way
#
# The rule that only the youngest transaction of a cycle of waits gives way.


def gives_way(me: str, edges: Iterable[Edge]) -> frozenset[Edge]:
    """Return the edges into ``me`` that ``me`` must dissolve by shifting; if empty, it may wait.

    Each names a table and the ticket of ``me`` there behind which other members of a cycle wait.
    ``edges`` are the live ones; a larger id is a younger transaction.

    Transactions younger than ``me`` are left out of the graph: a cycle with one of them must be
    broken by that one. The remaining graph has a cycle through ``me`` exactly if some transaction
    that waits for ``me`` can be reached from ``me``, that is, is in its strongly connected
    component. In each such cycle ``me`` is the youngest.

    - One member of each cycle gives way: the youngest member finds the whole cycle among
      older transactions, while every other member leaves the youngest out of its graph,
      and so sees no cycle. So two members that see a cycle at once do not both shift.
    - No existing cycle is left once all transactions for which this was called have shifted: each
      cycle had an edge into its youngest member, and that edge is returned here.
    - Shifting ends. A shift adds edges from ``me`` alone. Of any set of transactions, the
      oldest never shifts because of the other ones; once its tickets stay, the second
      oldest shifts behind it at most once per table, and so on to the youngest.
    """
    edges_to_me = []
    ahead: dict[str, list[str]] = {}
    for edge in edges:
        if edge.waiter <= me and edge.holder <= me:
            ahead.setdefault(edge.waiter, []).append(edge.holder)
            if edge.holder == me != edge.waiter:
                edges_to_me.append(edge)
    reached: set[str] = set()
    waiting = [me]
    while waiting:
        for holder in ahead.get(waiting.pop(), ()):
            if holder not in reached:
                reached.add(holder)
                waiting.append(holder)
    return frozenset(edge for edge in edges_to_me if edge.waiter in reached)
