"""Play the order of commits by a table's own log entry, request by request.

The entry is stored after a commit through HEAD was validated, and before this commit replaces HEAD.
So the entry comes behind the commit, even if some reader has already seen the entry.
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
    """Read ``b``, and write ``a``."""
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
    """Read ``b`` and ``a`` in a client that the test can stop and continue later."""

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
    """Return a client that has read ``b`` and is about to replace HEAD; ``b`` has got an entry
    since.
    """
    simulation = lake(tables=TABLES)
    stalled = Process(simulation, reader_of_b, "stalled").until(HEAD)
    alone(simulation, by_entry, "by entry")
    return simulation, stalled


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_read_only_transaction_may_see_a_log_entry_before_the_commit_it_follows(features):
    simulation, stalled = crossed()
    ahead = alone(simulation, of_both(features, writes=False), "ahead")
    # A client that has not committed yet has read b at 100: no order of all three explains that.
    assert ahead == {"b": 105, "a": 100}
    assert stalled.finish() == 100
    assert alone(simulation, of_both(features, writes=False), "after") == {"b": 105, "a": 101}


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_writer_that_reads_a_log_entry_fixes_the_entry_s_place_for_all_clients(features):
    simulation, stalled = crossed()
    assert alone(simulation, of_both(features, writes=True), "first") == {"b": 105, "a": 100}
    with pytest.raises(ConflictError):
        stalled.finish()


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_later_writer_conflicts_instead_of_reading_two_orders(features):
    simulation, stalled = crossed()
    second = Process(simulation, of_both(features, writes=True), "second").until(HEAD)
    assert stalled.finish() == 100
    with pytest.raises(ConflictError):
        second.finish()


def test_a_log_entry_gets_two_places_if_commits_do_not_absorb_tables_that_they_only_read():
    with PLANTED["seen_and_not_taken_in"].plant():
        simulation, stalled = crossed()
        alone(simulation, of_both(RI, writes=True), "first")
        assert stalled.finish() == 100
