"""Batches of two checkpoints under one name: one is committed, the other is refused (note 46).

So it is of two plans of one batch, one by an older copy of the checkpoint (note 48).
"""

from __future__ import annotations

import pytest

from lakevilla.errors import AlreadyCommitted, ConflictError, InvalidOperation, TransactionAborted
from lakevilla.maintenance.recovery import recover
from lakevilla.store.effects import Put
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.commits import Process, add_to, alone, balances, begin, end, lake

LOST = (ConflictError, TransactionAborted)

#: The checkpoint that a batch is of, and what it has planned for it.
ONE = ("first", "a")
ANOTHER_CHECKPOINT = ("second", "a")
ANOTHER_PLAN = ("first", "b")


def made(form):
    simulation = lake(warm=False)
    simulation.store.replaces = form == "replaced"

    def warm_up(client):
        txn = begin(client)
        for table in ("a", "b"):
            yield from add_to(txn, table, 0)
        yield from commit(txn)

    alone(simulation, warm_up, "setup")
    return simulation


def batch(checkpoint, planned, amount, attempts=3):
    """As ``foreach_batch`` does it: batch 0 of the query, in a few attempts."""

    def program(client):
        context = context_of(client)
        for _ in range(attempts):
            key = KeyUse("query", 0, checkpoint, planned)
            txn = begin(client, context=context, key=key, applications={"query": 0})
            try:
                yield from bind_to_head(txn)
                yield from add_to(txn, "a", amount)
                yield from commit(txn)
            except AlreadyCommitted:
                yield from end(txn)
                return "done already"
            except InvalidOperation:
                yield from end(txn)
                return "refused"
            except LOST:
                yield from end(txn)
            else:
                return "committed"
        return "lost"

    return program


def writes(form):
    """The number of writes of a batch that no other client disturbs."""
    process, count = Process(made(form), batch(*ONE, 1)), 0
    while not process.done:
        count += isinstance(process.next, Put)
        process.step()
    assert process.result == "committed"
    return count


def outcomes(form, until, goes_on, other):
    """The outcomes of two clients that bring batch 0, the first of which stops before a write."""
    simulation = made(form)
    first = Process(simulation, batch(*ONE, 1), "first")
    for _ in range(until):
        while not isinstance(first.next, Put):
            first.step()
        first.step()
    second = alone(simulation, batch(*other, 10), "second")
    if goes_on:
        first.finish()
    again = alone(simulation, batch(*ONE, 1), "first again")
    # Decided is committed: who comes next publishes it.
    alone(simulation, lambda client: recover(context_of(client)), "recoverer")
    return first.result if goes_on else None, second, again, balances(simulation)["a"][0] - 100


@pytest.mark.parametrize("other", [ANOTHER_CHECKPOINT, ANOTHER_PLAN])
@pytest.mark.parametrize("form", ["replaced", "log"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_batches_of_two_checkpoints(form, goes_on, other):
    """Wherever the first is stopped: the rows of one are there, and the other is refused."""
    seen = set()
    for until in range(writes(form)):
        first, second, again, added = outcomes(form, until, goes_on, other)
        seen.add((second, again, added))
        if second == "committed":
            assert added == 10, until
            assert again == "refused", until
            assert first in ("refused", None), until
        else:
            assert (second, added) == ("refused", 1), until
            assert again == "done already", until
    assert len(seen) == 2


@pytest.mark.cases(None)
@pytest.mark.parametrize("form", ["replaced", "log"])
@pytest.mark.parametrize(
    ("bug", "other"),
    [("checkpoints_not_compared", ANOTHER_CHECKPOINT), ("plans_not_compared", ANOTHER_PLAN)],
)
def test_without_the_comparison_a_batch_is_lost_without_a_word(form, bug, other):
    with PLANTED[bug].plant():
        _, second, _, added = outcomes(form, writes(form) - 1, False, other)
    assert (second, added) == ("done already", 1)
