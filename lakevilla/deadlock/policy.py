"""The rule that only the youngest transaction of a cycle of waits gives way."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.sublogs.record import Edge


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
