"""Write batches of two checkpoints under one name: one is committed, the other refused (note 46).

The same holds for two plans of one batch, one made from an older copy of the checkpoint (note 48).
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

#: The checkpoint of a batch, and the plan that it holds for the batch.
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
    """Write batch 0 of the query in a few attempts, as ``foreach_batch`` does."""

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
    """Return the number of writes of a batch that no other client disturbs."""
    process, count = Process(made(form), batch(*ONE, 1)), 0
    while not process.done:
        count += isinstance(process.next, Put)
        process.step()
    assert process.result == "committed"
    return count


def outcomes(form, until, goes_on, other):
    """Return the outcomes of two clients that write batch 0; the first stops before a write."""
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
    # A decided batch is committed: the next client publishes it.
    alone(simulation, lambda client: recover(context_of(client)), "recoverer")
    return first.result if goes_on else None, second, again, balances(simulation)["a"][0] - 100


@pytest.mark.parametrize("other", [ANOTHER_CHECKPOINT, ANOTHER_PLAN])
@pytest.mark.parametrize("form", ["replaced", "log"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_one_of_two_batches_of_different_checkpoints_or_plans_is_refused(form, goes_on, other):
    """Wherever the first client stops, the rows of one batch are there, and the other
    is refused.
    """
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
def test_a_batch_is_lost_without_an_error_if_checkpoints_are_not_compared(form, bug, other):
    with PLANTED[bug].plant():
        _, second, _, added = outcomes(form, writes(form) - 1, False, other)
    assert (second, added) == ("done already", 1)
