"""Edges that count as waits, and cycles of transactions that wait for each other."""

from __future__ import annotations

import random
from itertools import pairwise

import networkx as nx
import pytest

from lakevilla.deadlock.graph import cycles, live_edges
from lakevilla.sublogs.record import RESERVATION, Edge
from tests.support.wait_graphs import edge, record, ring

B_BEHIND_A = Edge("b", 2, "a", 1, "t")


def test_an_edge_counts_while_both_tickets_are_held() -> None:
    records = {
        "a": record("a", [("t", 1)]),
        "b": record("b", [("t", 2), ("u", 1)], [B_BEHIND_A]),
    }
    assert live_edges(records, ()) == {B_BEHIND_A}


@pytest.mark.parametrize(
    ("holder", "waiter"),
    [
        pytest.param([("t", 3)], [("t", 2)], id="the holder has shifted"),
        pytest.param([], [("t", 2)], id="the holder has let go"),
        pytest.param([("u", 1)], [("t", 2)], id="the holder's number is of another table"),
        pytest.param([("t", 1)], [("t", 4)], id="the waiter has shifted"),
        pytest.param([("t", 1)], [("u", 2)], id="the waiter's number is of another table"),
        pytest.param([("t", 2)], [("t", 1)], id="each holds the other's number"),
    ],
)
def test_an_edge_does_not_count_once_one_of_its_tickets_is_released(
    holder: list[tuple[str, int]], waiter: list[tuple[str, int]]
) -> None:
    records = {"a": record("a", holder), "b": record("b", waiter, [B_BEHIND_A])}
    assert live_edges(records, ()) == frozenset()


def test_an_edge_to_a_finished_transaction_does_not_count() -> None:
    assert live_edges({"b": record("b", [("t", 2)], [B_BEHIND_A])}, ()) == frozenset()


def test_an_edge_counts_only_in_the_record_of_its_waiter() -> None:
    records = {
        "a": record("a", [("t", 1)]),
        "b": record("b", [("t", 2)]),
        "c": record("c", [("t", 3)], [B_BEHIND_A]),
    }
    assert live_edges(records, ()) == frozenset()


def test_a_record_stored_under_another_id_has_no_edges_and_no_tickets() -> None:
    a, b = record("a", [("t", 1)]), record("b", [("t", 2)], [B_BEHIND_A])
    assert live_edges({"a": a, "x": b}, ()) == frozenset()
    assert live_edges({"x": a, "b": b}, ()) == frozenset()
    assert live_edges({"a": record("x", [("t", 1)]), "b": b}, ()) == frozenset()


def test_a_transaction_never_waits_for_itself() -> None:
    own = Edge("a", 2, "a", 1, "t")
    assert live_edges({"a": record("a", [("t", 1), ("t", 2)], [own])}, ()) == frozenset()


def test_an_edge_to_a_reservation_counts_while_head_has_the_reservation() -> None:
    behind = Edge("b", 2, "a", RESERVATION, "t")
    records = {"a": record("a"), "b": record("b", [("t", 2)], [behind])}
    assert live_edges(records, {("a", "t")}) == {behind}
    assert live_edges(records, {("a", "u"), ("b", "t")}) == frozenset()
    assert live_edges(records, ()) == frozenset()
    assert live_edges({"b": records["b"]}, {("a", "t")}) == frozenset(), "its holder has ended"


def test_an_edge_to_a_reservation_that_only_a_record_claims_does_not_count() -> None:
    behind = Edge("b", 2, "a", RESERVATION, "t")
    records = {"a": record("a", [("t", RESERVATION)]), "b": record("b", [("t", 2)], [behind])}
    assert live_edges(records, ()) == frozenset()


def test_holders_of_reservations_can_wait_for_each_other() -> None:
    behind = Edge("b", RESERVATION, "a", RESERVATION, "t")
    records = {"a": record("a"), "b": record("b", (), [behind])}
    assert live_edges(records, {("a", "t"), ("b", "t")}) == {behind}
    assert live_edges(records, {("a", "t")}) == frozenset()


def test_cycles_are_sorted_and_share_no_member() -> None:
    edges = [*ring("d", "c"), *ring("b", "e", "a"), edge("c", "a"), edge("f", "d")]
    assert cycles(edges) == cycles(reversed(edges)) == [("a", "b", "e"), ("c", "d")]


def test_two_cycles_through_one_transaction_are_reported_as_one_set() -> None:
    assert cycles([*ring("a", "b"), *ring("b", "c")]) == [("a", "b", "c")]


def test_a_chain_and_a_self_edge_are_no_cycles() -> None:
    assert cycles([edge("a", "b"), edge("b", "c"), edge("a", "c"), edge("a", "a")]) == []
    assert cycles([]) == []


def test_cycles_longer_than_the_recursion_limit_are_found() -> None:
    names = [f"{number:05}" for number in range(10_000)]
    chain = [edge(waiter, holder) for waiter, holder in pairwise(names)]
    assert cycles(chain) == []
    assert cycles([*chain, edge(names[-1], names[0])]) == [tuple(names)]


@pytest.mark.parametrize("seed", range(5))
def test_large_graphs_have_the_strongly_connected_components_that_networkx_finds(seed: int) -> None:
    generator = random.Random(seed)
    edges = [
        edge(f"{generator.randrange(2_000):04}", f"{generator.randrange(2_000):04}")
        for _ in range(2_500)
    ]
    graph = nx.DiGraph((one.waiter, one.holder) for one in edges)
    expected = [tuple(sorted(c)) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert expected
    assert cycles(edges) == sorted(expected)
