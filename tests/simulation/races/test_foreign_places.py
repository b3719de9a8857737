"""The order of commits by a table's own log entry, played out request by request.

It lands after a commit through HEAD was validated, and before that one reaches HEAD. So it comes
behind it, whoever may have seen it by then.
"""

import pytest

from lakevilla.errors import ConflictError
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.commits import RCTI, RI, Process, add_to, alone, begin, lake, read

HEAD = "HEAD.json"
TABLES = ("a", "b", "c")


def reader_of_b(client):
    """Reads ``b``, and writes ``a``."""
    txn = begin(client)
    seen = yield from read(txn, "b")
    yield from add_to(txn, "a", 1)
    yield from commit(txn)
    return seen[0]


def by_entry(client):
    txn = begin(client, Feature.R)
    yield from add_to(txn, "b", 5)
    yield from commit(txn)


def of_both(features, *, writes):
    """Read ``b`` and ``a``, and then stop, so that the test can go on with it later."""

    def program(client):
        txn = begin(client, features)
        seen = {}
        for table in ("b", "a"):
            seen[table] = (yield from read(txn, table))[0]
        if writes:
            yield from add_to(txn, "c", 1)
        yield from commit(txn)
        return seen

    return program


def crossed():
    """One that has read ``b`` is about to reach HEAD, and ``b`` has got an entry meanwhile."""
    simulation = lake(tables=TABLES)
    stalled = Process(simulation, reader_of_b, "stalled").until(HEAD)
    alone(simulation, by_entry, "by entry")
    return simulation, stalled


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_read_only_transaction_may_see_a_log_entry_before_the_commit_it_follows(features):
    simulation, stalled = crossed()
    ahead = alone(simulation, of_both(features, writes=False), "ahead")
    # It was read at 100 by one that is not there yet: no order of all three explains that.
    assert ahead == {"b": 105, "a": 100}
    assert stalled.finish() == 100
    assert alone(simulation, of_both(features, writes=False), "after") == {"b": 105, "a": 101}


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_writer_that_sees_a_log_entry_fixes_its_place_for_all(features):
    simulation, stalled = crossed()
    assert alone(simulation, of_both(features, writes=True), "first") == {"b": 105, "a": 100}
    with pytest.raises(ConflictError):
        stalled.finish()


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_later_writer_conflicts_instead_of_seeing_two_orders(features):
    simulation, stalled = crossed()
    second = Process(simulation, of_both(features, writes=True), "second").until(HEAD)
    assert stalled.finish() == 100
    with pytest.raises(ConflictError):
        second.finish()


def test_an_entry_gets_two_places_if_tables_only_read_are_not_absorbed():
    with PLANTED["seen_and_not_taken_in"].plant():
        simulation, stalled = crossed()
        alone(simulation, of_both(RI, writes=True), "first")
        assert stalled.finish() == 100
