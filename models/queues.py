"""Queues: the tickets of transactions at two tables, their waits, and who gives way in a cycle.

Each transaction takes a ticket in one table after the other, and commits when nobody is ahead of
it. A lower number is an older transaction. Its record says with which tickets it waits for whom:
its *edges*. It writes them when it has looked at the queues, and reads those of the transactions
ahead of it later, one at a time; so what it knows may be old.

Faults, as many as ``Queues.faults``: a process dies, and its places stay until another one that
waits for it takes them away.

Rules
-----
Note 5 has no names for its rules; these are ours.

youngest   In a cycle of waits the youngest transaction gives way: it takes new tickets, at the end
           of the queues in which others of the cycle wait for it.
tickets    An edge names the tickets of both, and is void if one of them is not held any more.
stale      A transaction takes away the places of one whose record has not changed for a lease.
time-out   A time-out never shifts: the transaction keeps its tickets (and commits without its
           turn, which is no part of this model).
order      A transaction writes its edges before it reads those of others.

Invariants
----------
oldest     The oldest of all never gives way.
cycle      Who decides to give way is in a cycle of waits, as it is, or was until the places of a
           dead one were taken away.
end        From each state all that have not died can commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Mistakes that the checker must find, by the rule that each leaves out; those that are planted in
#: the code, too, have the same name there.
FLAWS = {
    "both_give_way": "youngest",
    "nobody_gives_way": "youngest",
    "edges_without_tickets": "tickets",
    "stale_not_swept": "stale",
    "time_out_shifts": "time-out",
}
#: Who reads before it writes sees a cycle when it reads again. So the rule saves time: the last
#: edge that is written closes a cycle, and its writer sees the whole at once.
COSTS = {"edges_written_after_reading": "order"}

#: For each transaction its tables, in the order in which it takes places there.
SCENARIOS: dict[str, tuple[tuple[int, ...], ...]] = {
    "two cross": ((0, 1), (1, 0)),
    "a ring of three": ((0, 1), (1, 2), (2, 0)),
    "two cross, one follows": ((0, 1), (1, 0), (0,)),
}
LARGE: dict[str, tuple[tuple[int, ...], ...]] = {
    "three cross": ((0, 1), (1, 0), (0, 1)),
    "a ring of four": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "all of three": ((0, 1, 2), (1, 2, 0), (2, 0, 1)),
}

#: A table and a ticket there.
Place = tuple[int, int]


class Edge(NamedTuple):
    """One wait at a table: the waiter and the transaction ahead, with their tickets."""

    table: int
    waiter: int
    waiter_ticket: int
    holder: int
    holder_ticket: int


@dataclass(frozen=True, slots=True)
class Client:
    """A transaction: where it is, its record, and the tables in which it is to give way."""

    at: str = "take"
    taken: int = 0
    held: frozenset[Place] = frozenset()
    edges: frozenset[Edge] = frozenset()
    gives: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    wants: tuple[tuple[int, ...], ...] = ()
    clients: tuple[Client, ...] = ()
    #: For each table its tickets, with their owners.
    queues: tuple[frozenset[tuple[int, int]], ...] = ()
    faults: int = 0
    wrong: str = ""

    def at(self, number: int, **changes: object) -> State:
        changed = replace(self.clients[number], **changes)  # type: ignore[arg-type]
        clients = (*self.clients[:number], changed, *self.clients[number + 1 :])
        return replace(self, clients=clients)

    def with_ticket(self, table: int, owner: int) -> tuple[State, int]:
        """Place a marker: one above the highest that is present."""
        ticket = 1 + max((ticket for ticket, _ in self.queues[table]), default=0)
        queue = self.queues[table] | {(ticket, owner)}
        return self.with_queue(table, queue), ticket

    def with_queue(self, table: int, queue: frozenset[tuple[int, int]]) -> State:
        return replace(self, queues=(*self.queues[:table], queue, *self.queues[table + 1 :]))

    def without(self, owner: int) -> State:
        """Take all places of a transaction away."""
        queues = (frozenset(one for one in queue if one[1] != owner) for queue in self.queues)
        return replace(self, queues=tuple(queues))

    def waits(self, number: int) -> frozenset[Edge]:
        """Return whom a transaction waits for, by the queues as they are."""
        return frozenset(
            Edge(table, number, mine, owner, ticket)
            for table, mine in self.clients[number].held
            for ticket, owner in self.queues[table]
            if ticket < mine
        )


@dataclass(frozen=True, slots=True)
class Queues:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    faults: int = 1
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        return State(faults=self.faults)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                wants = {**SCENARIOS, **LARGE}[name]
                tables = 1 + max(table for one in wants for table in one)
                clients = tuple(Client() for _ in wants)
                queues = (frozenset[tuple[int, int]](),) * tables
                yield name, replace(state, wants=wants, clients=clients, queues=queues)
            return
        for number, client in enumerate(state.clients):
            if client.at in ("done", "dead"):
                continue
            yield from self._go_on(state, number, client)
            if state.faults and client.held:
                yield f"{number} dies", replace(state.at(number, at="dead"), faults=0)

    def has_ended(self, state: object) -> bool:
        assert isinstance(state, State)
        return bool(state.clients) and all(one.at in ("done", "dead") for one in state.clients)

    def violation(self, state: State) -> str | None:
        return state.wrong or None

    def _go_on(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        if client.at == "take":
            yield self._take(state, number, client)
        elif client.at == "look":
            yield from self._look(state, number, client)
        elif client.at == "read":
            yield self._read(state, number, client)
        else:
            yield self._give_way(state, number, client)

    def _take(self, state: State, number: int, client: Client) -> tuple[str, State]:
        wanted = state.wants[number]
        table = wanted[client.taken]
        after, ticket = state.with_ticket(table, number)
        at = "look" if client.taken + 1 == len(wanted) else "take"
        after = after.at(
            number, at=at, taken=client.taken + 1, held=client.held | {(table, ticket)}
        )
        return f"{number} takes a place in {table}", after

    def _look(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        """List the queues, and write into the record whom the transaction waits for."""
        edges = state.waits(number)
        if not edges:
            done = state.without(number).at(number, at="done", held=frozenset(), edges=edges)
            yield f"{number} commits", done
            return
        if self.flaw == "edges_written_after_reading":
            read = self._read(state.at(number, at="look"), number, client)[1]
            yield f"{number} reads, and writes its edges", read.at(number, edges=edges)
        else:
            yield f"{number} writes its edges", state.at(number, at="read", edges=edges)
        for holder in {edge.holder for edge in edges}:
            if state.clients[holder].at == "dead" and self.flaw != "stale_not_swept":
                yield f"{number} takes the places of {holder} away", state.without(holder)
        if self.flaw == "time_out_shifts":
            tables = frozenset(edge.table for edge in edges)
            yield f"{number} times out", self._deciding(state, number, tables)

    def _read(self, state: State, number: int, client: Client) -> tuple[str, State]:
        """Read the records of all that are ahead, and of those for which these wait."""
        edges = [edge for one in state.clients if one.at != "done" for edge in one.edges]
        if self.flaw != "edges_without_tickets":
            held = {(who, *place) for who, one in enumerate(state.clients) for place in one.held}
            edges = [
                edge
                for edge in edges
                if {
                    (edge.waiter, edge.table, edge.waiter_ticket),
                    (edge.holder, edge.table, edge.holder_ticket),
                }
                <= held
            ]
        if self.flaw != "both_give_way":
            edges = [edge for edge in edges if max(edge.waiter, edge.holder) <= number]
        members = _cycle_of(number, edges)
        if not members or self.flaw == "nobody_gives_way":
            return f"{number} reads", state.at(number, at="look")
        tables = {edge.table for edge in edges if edge.holder == number and edge.waiter in members}
        return f"{number} sees a cycle", self._deciding(state, number, frozenset(tables))

    def _deciding(self, state: State, number: int, tables: frozenset[int]) -> State:
        """Decide to give way, and note whether it was right."""
        true = [edge for other in range(len(state.clients)) for edge in state.waits(other)]
        # The record of a dead one still says that it holds places that others have taken away.
        dead = {who for who, one in enumerate(state.clients) if one.at == "dead"}
        known = [edge for one in state.clients for edge in one.edges]
        true += [edge for edge in known if {edge.waiter, edge.holder} & dead]
        wrong = "" if _cycle_of(number, true) else "cycle"
        wrong = "oldest" if number == 0 else wrong
        return replace(state.at(number, at="give way", gives=tables), wrong=wrong)

    def _give_way(self, state: State, number: int, client: Client) -> tuple[str, State]:
        """Place new tickets, then delete the old ones; the record has the new ones."""
        held = set(client.held)
        for table in sorted(client.gives):
            old = {ticket for at, ticket in held if at == table}
            state, ticket = state.with_ticket(table, number)
            queue = frozenset(one for one in state.queues[table] if one[0] not in old)
            state = state.with_queue(table, queue)
            held = {place for place in held if place[0] != table} | {(table, ticket)}
        after = state.at(number, at="look", held=frozenset(held), gives=frozenset())
        return f"{number} gives way", after


def _cycle_of(number: int, edges: Iterable[Edge]) -> set[int]:
    """Return the members of all cycles of waits through a transaction."""
    pairs = {(edge.waiter, edge.holder) for edge in edges}
    return _reached(number, pairs) & _reached(number, {(holder, who) for who, holder in pairs})


def _reached(start: int, pairs: set[tuple[int, int]]) -> set[int]:
    """Return what is reached by one pair or more, and only if the start is."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        fresh = {after for before, after in pairs if before == here} - found
        found |= fresh
        waiting += fresh
    return found if start in found else set()
