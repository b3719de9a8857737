"""Waiting and giving way, step by step: all transactions finish, but not with simpler rules."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from lakevilla.deadlock.graph import gives_way
from lakevilla.sublogs.record import Access, Edge, TxnRecord
from tests.support.search import how_many
from tests.unit.deadlock.model import Plan, Queues

ACCESSES: tuple[Access, ...] = ("read", "append", "write", "write")
CROSSING: dict[str, Plan] = {
    "a": [("t", "write"), ("u", "write")],
    "b": [("u", "write"), ("t", "write")],
}


def random_plans(generator: random.Random) -> dict[str, Plan]:
    tables = "tuvw"[: generator.randint(2, 4)]
    plans: dict[str, Plan] = {}
    for txn in "abcdef"[: generator.randint(2, 6)]:
        plan = [
            (table, generator.choice(ACCESSES))
            for table in generator.sample(tables, generator.randint(1, len(tables)))
        ]
        if plan[0][1] == "read" and generator.random() < 0.5:
            plan.append((plan[0][0], "write"))  # first a read, then a write: a second ticket
        plans[txn] = plan
    return plans


@pytest.mark.parametrize("seed", range(how_many(5, whole=20)))
def test_all_transactions_finish_in_any_order_of_steps(seed: int) -> None:
    generator = random.Random(seed)
    shifts = 0
    for _ in range(100):
        plans = random_plans(generator)
        names = list(plans)
        queues = Queues(plans)
        # Some transactions are much slower, so that records are old when other transactions read
        # them.
        speeds = [generator.choice((1, 1, 5, 50)) for _ in names]
        for _ in range(200 * len(names)):
            queues.step(generator.choices(names, speeds)[0])
        assert queues.in_turns(100 * len(names)), (plans, queues.records, queues.placed)
        assert sorted(queues.finished) == names
        assert not queues.placed
        assert not queues.records
        tables = len({table for plan in plans.values() for table, _ in plan})
        for elders, txn in enumerate(names):
            assert queues.shifts.count(txn) <= elders * tables, (plans, queues.shifts)
        shifts += len(queues.shifts)
    assert shifts > 20, "rings came about"


@pytest.mark.parametrize("first", ["a", "b"])
def test_two_transactions_that_wait_for_each_other_finish_after_one_shift_of_the_younger(
    first: str,
) -> None:
    order = (first, "b" if first == "a" else "a")
    queues = Queues({txn: CROSSING[txn] for txn in order})
    assert queues.in_turns(30)
    assert queues.shifts == ["b"]
    assert queues.finished == ["a", "b"]


def test_a_shifted_transaction_does_not_shift_again_on_outdated_edges_of_those_behind_it() -> None:
    queues = Queues(CROSSING)
    queues.in_turns(4)  # both have placed tickets, listed queues, and written their edges
    for _ in range(100):
        queues.step("b")
    assert queues.records["a"].edges, "a has not looked since"
    assert queues.shifts == ["b"]


def test_edges_without_tickets_make_a_transaction_shift_again_and_again() -> None:
    def without_tickets(me: str, records: Mapping[str, TxnRecord]) -> frozenset[Edge]:
        """Decide as if an edge lost its validity only when one of its two transactions has
        finished.
        """
        into = gives_way(
            me,
            [e for r in records.values() for e in r.edges if e.holder in records],
        )
        return frozenset(
            Edge(e.waiter, e.waiter_ticket, me, ticket.number, e.table)
            for e in into
            for ticket in records[me].tickets
            if ticket.table == e.table
        )

    queues = Queues(CROSSING, without_tickets)
    queues.in_turns(4)
    for _ in range(100):
        queues.step("b")
    assert len(queues.shifts) > 10


def test_transactions_never_finish_if_both_of_a_cycle_give_way() -> None:
    def both_give_way(me: str, records: Mapping[str, TxnRecord]) -> frozenset[Edge]:
        return frozenset(e for r in records.values() for e in r.edges if e.holder == me)

    queues = Queues(CROSSING, both_give_way)
    assert not queues.in_turns(1_000)
    assert not queues.finished
    assert min(queues.shifts.count(txn) for txn in "ab") > 100


class PlainSets:
    """A policy in which each transaction keeps the ids that it waits for, directly or through
    others.
    """

    def __init__(self) -> None:
        self.closures: dict[str, frozenset[str]] = {}

    def __call__(self, me: str, records: Mapping[str, TxnRecord]) -> frozenset[Edge]:
        ahead = {edge.holder for edge in records[me].edges}
        inherited = (self.closures.get(holder, frozenset()) for holder in ahead)
        self.closures[me] = frozenset(ahead).union(*inherited)
        if me not in self.closures[me] or me != max(self.closures[me]):
            return frozenset()
        return frozenset(e for r in records.values() for e in r.edges if e.holder == me)


@pytest.mark.parametrize("plain", [False, True])
def test_a_policy_of_plain_id_sets_deadlocks_on_a_finished_transaction(plain: bool) -> None:
    # c, the youngest, was first in v; it finishes while a and b wait for each other. It stays in
    # a's set because it is in b's, and in b's because it is in a's.
    plans: dict[str, Plan] = {
        "c": [("v", "write")],
        **CROSSING,
        "a": [("v", "write"), *CROSSING["a"]],
    }
    queues = Queues(plans, PlainSets()) if plain else Queues(plans)
    queues.step("c")
    for _ in range(40):
        for txn in "ab":
            queues.step(txn)
    assert queues.finished == []
    assert queues.in_turns(1_000) is not plain
    assert queues.finished == (["c"] if plain else ["c", "a", "b"])
