"""Refuse a stream whose lake was set back to an older state, and no other stream (note 49)."""

from __future__ import annotations

import pytest

from lakevilla.errors import AlreadyCommitted, ConflictError, InvalidOperation, TransactionAborted
from lakevilla.maintenance.recovery import recover
from lakevilla.store.effects import Put
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import KeyUse
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.commits import Process, add_to, alone, balances, begin, end, lake

LOST = (ConflictError, TransactionAborted)

#: The amount that each batch adds to an account; a batch without an amount writes nothing.
AMOUNTS = (1, 0, 2, 4, 0, 0, 8)


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


def batch(number, attempts=4):
    """Write a batch in a few attempts, as ``foreach_batch`` does."""

    def program(client):
        context = context_of(client)
        for _ in range(attempts):
            key = KeyUse("query", number, "first", str(number), gapless=True)
            txn = begin(client, context=context, key=key, applications={"query": number})
            try:
                if AMOUNTS[number]:
                    yield from add_to(txn, "a", AMOUNTS[number])
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


def bring(simulation, number, name="driver"):
    return alone(simulation, batch(number), f"{name} of {number}")


def added(simulation):
    # A decided batch is committed: the next client publishes it.
    alone(simulation, lambda client: recover(context_of(client)), "recoverer")
    return balances(simulation)["a"][0] - 100


def stopped(simulation, number, writes):
    """Stop a driver after ``writes`` writes of a batch; return it, or None if it ends before."""
    process = Process(simulation, batch(number), "first")
    while True:
        while not process.done and not isinstance(process.next, Put):
            process.step()
        if process.done:
            return None
        if not writes:
            return process
        process.step()
        writes -= 1


def stream_with_a_stop(form, at, writes, wakes):
    """Write all batches, each acknowledged; return False if the first driver ends before it is
    stopped.

    The driver that is stopped in batch ``at`` continues when ``wakes`` others have ended, or never.
    """
    simulation = made(form)
    for number in range(at):
        assert bring(simulation, number) == "committed"
    first = stopped(simulation, at, writes)
    if first is None:
        return False
    for number in range(at, len(AMOUNTS)):
        outcome = bring(simulation, number, "second")
        assert outcome == "committed" or (number == at and outcome == "done already"), (
            number,
            outcome,
        )
        if number - at + 1 == wakes:
            assert first.finish() != "lost"
    assert added(simulation) == sum(AMOUNTS)
    return True


def every_stop(form, wakes):
    stops = 0
    for at in range(1, len(AMOUNTS)):
        writes = 0
        while stream_with_a_stop(form, at, writes, wakes):
            writes += 1
        stops += writes
    return stops


@pytest.mark.parametrize("form", ["replaced", "log"])
@pytest.mark.parametrize("wakes", [None, 1, 2])
def test_no_batch_is_refused_wherever_a_driver_stops(form, wakes):
    assert every_stop(form, wakes) > len(AMOUNTS)


def states(form):
    """Yield the lake after each write, and the number of batches that were acknowledged by then."""
    simulation = made(form)
    assert bring(simulation, 0) == "committed"
    yield simulation, 1
    for number in range(1, len(AMOUNTS)):
        process = Process(simulation, batch(number), f"driver of {number}")
        while not process.done:
            is_write = isinstance(process.next, Put)
            process.step()
            if is_write:
                yield simulation, number + process.done
        assert process.result == "committed"
        yield simulation, number + 1


def go_back(form):
    """Set the lake back to each of these states; return the number of later batches that are
    refused.
    """
    refused = 0
    for simulation, acknowledged in states(form):
        copy = dict(simulation.store.objects)
        for number in range(acknowledged, len(AMOUNTS)):
            before = added(simulation)
            outcome = bring(simulation, number, "later")
            if outcome == "refused":
                refused += 1
                assert number > acknowledged
                assert added(simulation) == before
            else:
                # No acknowledged batch is missing.
                assert outcome == "committed" or (
                    number == acknowledged and outcome == "done already"
                )
                assert number <= acknowledged + 1
                assert added(simulation) == sum(AMOUNTS[: number + 1])
            simulation.store.objects = dict(copy)
    return refused


@pytest.mark.parametrize("form", ["replaced", "log"])
def test_a_batch_of_a_lake_that_was_set_back_is_refused(form):
    assert go_back(form) > len(AMOUNTS)


@pytest.mark.parametrize("form", ["replaced", "log"])
def test_rows_are_missing_without_an_error_if_gaps_between_batches_are_allowed(form):
    with PLANTED["gaps_not_seen"].plant(), pytest.raises(AssertionError):
        go_back(form)


@pytest.mark.parametrize("form", ["replaced", "log"])
def test_a_batch_without_rows_counts_as_lost_if_it_leaves_no_note(form):
    with PLANTED["empty_batches_not_noted"].plant(), pytest.raises(AssertionError):
        every_stop(form, None)
