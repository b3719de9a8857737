"""The youngest transaction of a cycle gives way: known cases, and 100,000 graphs checked by
networkx.
"""

from __future__ import annotations

import random
from itertools import pairwise

import networkx as nx
import pytest

from lakevilla.deadlock.graph import cycles, gives_way
from lakevilla.sublogs.record import Edge
from tests.support.search import how_many
from tests.support.wait_graphs import edge, ring


def test_the_younger_of_two_in_a_cycle_gives_way() -> None:
    b_behind_a, a_behind_b = Edge("b", 2, "a", 1, "stock"), Edge("a", 2, "b", 1, "orders")
    edges = [b_behind_a, a_behind_b]
    assert gives_way("a", edges) == frozenset()
    assert gives_way("b", edges) == {a_behind_b}, "its ticket 1 in orders"


@pytest.mark.parametrize("members", ["abc", "acb"])
def test_the_youngest_of_three_in_a_cycle_gives_way(members: str) -> None:
    edges = ring(*members)
    assert gives_way("a", edges) == gives_way("b", edges) == frozenset()
    assert gives_way("c", edges) == {one for one in edges if one.holder == "c"}


def test_a_cycle_through_transitive_waits_is_found() -> None:
    # No direct waiter for d is one that d directly waits for: the way back is d, a, c, b.
    edges = [edge("d", "a"), edge("a", "c"), edge("c", "b"), edge("b", "d", "u")]
    assert gives_way("d", edges) == {edge("b", "d", "u")}
    assert all(not gives_way(txn, edges) for txn in "abc")
    assert not gives_way("d", [one for one in edges if one.waiter != "c"]), "not a ring yet"


def test_a_transaction_that_waits_for_a_cycle_does_not_give_way() -> None:
    edges = [*ring("a", "b"), edge("c", "b"), edge("c", "a")]
    assert gives_way("c", edges) == frozenset()


def test_a_transaction_that_a_cycle_waits_for_does_not_give_way() -> None:
    assert gives_way("c", [*ring("a", "b"), edge("a", "c"), edge("b", "c")]) == frozenset()


def test_the_youngest_keeps_tickets_for_which_only_transactions_outside_the_cycle_wait() -> None:
    # a waits for c, but c does not wait for a: c need not give up that ticket.
    edges = [*ring("b", "c"), edge("a", "c", "u")]
    assert gives_way("c", edges) == {edge("b", "c", "bc")}


def test_two_linked_cycles_are_each_broken_by_their_own_youngest_transaction() -> None:
    edges = [*ring("b", "d"), *ring("a", "b")]
    assert gives_way("b", edges) == {edge("a", "b", "ab")}
    assert gives_way("d", edges) == {edge("b", "d", "bd")}


def test_the_youngest_gives_up_its_tickets_in_every_table_where_the_cycle_waits() -> None:
    edges = [edge("b", "a"), edge("a", "b", "u"), edge("a", "b", "v"), Edge("a", 9, "b", 7, "v")]
    assert gives_way("b", edges) == set(edges[1:])


def test_a_transaction_without_edges_or_with_only_a_self_edge_never_gives_way() -> None:
    assert gives_way("x", ring("a", "b")) == gives_way("x", []) == frozenset()
    assert gives_way("a", [edge("a", "a")]) == frozenset()


def test_the_youngest_of_a_cycle_of_ten_thousand_gives_way() -> None:
    names = [f"{number:05}" for number in range(10_000)]
    edges = ring(*names)
    assert gives_way(names[-1], edges) == {edges[-2]}
    assert gives_way(names[-2], edges) == frozenset()


def random_edges(generator: random.Random) -> list[Edge]:
    """Draw two to seven transactions, sparse to dense, some with two edges to one another."""
    names = "abcdefg"[: generator.randint(2, 7)]
    edges = []
    for _ in range(generator.randint(1, 2 * len(names) + 2)):
        waiter, holder = generator.sample(names, 2)
        edges.append(edge(waiter, holder, generator.choice("tu")))
    return edges


@pytest.mark.parametrize("seed", range(10))
def test_the_policy_agrees_with_networkx_on_random_graphs(seed: int) -> None:
    generator = random.Random(seed)
    graphs, with_cycles = how_many(200, whole=10_000), 0
    for _ in range(graphs):
        edges = random_edges(generator)
        graph = nx.DiGraph((one.waiter, one.holder) for one in edges)
        rings = list(nx.simple_cycles(graph))
        with_cycles += bool(rings)

        # Expected: every edge into the youngest member of a cycle from another member. That is
        # every edge into it inside its component of the graph of it and its elders: the edge and a
        # way back to the waiter are such a cycle.
        expected: set[tuple[str, str]] = set()
        for members in rings:
            youngest = max(members)
            expected.add((members[members.index(youngest) - 1], youngest))
        dissolved = {txn: gives_way(txn, edges) for txn in graph}
        for txn, given_up in dissolved.items():
            assert given_up == {
                one for one in edges if one.holder == txn and (one.waiter, txn) in expected
            }, (txn, edges)

        # Because of one cycle exactly one of its members gives way.
        for members in rings[:3]:
            alone = [edge(*pair) for pair in pairwise([*members, members[0]])]
            assert [txn for txn in members if gives_way(txn, alone)] == [max(members)], edges

        left = set(edges).difference(*dissolved.values())
        remaining = nx.DiGraph((one.waiter, one.holder) for one in left)
        assert nx.is_directed_acyclic_graph(remaining), edges

        components = nx.strongly_connected_components(graph)
        assert cycles(edges) == sorted(tuple(sorted(c)) for c in components if len(c) > 1), edges
    assert 0.2 * graphs < with_cycles < 0.9 * graphs, "graphs of both kinds were looked at"
