"""Test markers that their own client doesn't know: no transaction waits long for them."""

import pytest

from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.save import resume, save
from tests.simulation.queues.test_queues import settled
from tests.support.simulated.commits import RCTI, Member, Runner, add_to, alone, begin, lake

TABLES = ("a", "b", "c")


@pytest.mark.parametrize("seed", range(3))
def test_a_deadlock_over_a_place_that_a_resumed_transaction_does_not_know_is_broken(seed):
    simulation = lake(tables=TABLES, seed=seed)

    def begun(client):
        txn = begin(client, RCTI)
        yield from add_to(txn, "a", 1)
        yield from save(txn)
        yield from add_to(txn, "b", 1)  # no record shows its place in b when its client dies
        return txn.id

    txn_id = alone(simulation, begun, "begun")

    def crossing(txn):
        yield from add_to(txn, "c", 10)
        yield from sleep(2.0)
        yield from add_to(txn, "b", 10)

    waiter = Member(simulation, "waiter", crossing)

    ended = []

    def resumed(client):
        runner = Runner(client)
        yield from sleep(1.0)
        txn = yield from resume(runner.context, txn_id, "resumer")
        yield from add_to(txn, "c", 1)
        yield from commit(txn)
        ended.append(simulation.now)

    simulation.add("resumer", resumed)
    simulation.run()
    assert waiter.result == "committed"
    # Long before any wait times out.
    limit = 2 * simulation.settings.lease_seconds
    assert waiter.ended < limit
    assert ended[0] < limit
    found = settled(simulation, *TABLES)
    assert [found[table][0] for table in TABLES] == [101, 110, 111]
