"""Protect main while other clients write: from then on no HEAD includes their direct writes.

Planted bugs leave out rules of docs/design/0030-refs.md, and one of these tests finds each.
"""

from contextlib import contextmanager
from itertools import pairwise

import pyarrow as pa
import pytest

from lakevilla.branches.change import protect_main
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.commits import commit_key, read_commit
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.store.codec import decode
from lakevilla.store.effects import Put
from lakevilla.sublogs.operations import is_direct
from lakevilla.transaction.verbs.applying.merge_branch import merge_branch
from lakevilla.transaction.verbs.optimize import optimize
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import appends, makes
from tests.support.simulated.commits import Process, add_to, alone, begin, commit, lake

SCHEDULES = how_many(3, whole=25, soak=300)


def answered(work):
    """Run a client that returns "done", or the kind of the error."""

    def program(client):
        try:
            yield from work(client)
        except LakeVillaError as error:
            return error.kind
        return "done"

    return program


@answered
def writes(client):
    txn = begin(client)
    yield from add_to(txn, "a", 1)
    yield from commit(txn)


@answered
def merges(client):
    txn = begin(client)
    yield from merge_branch(txn, "etl", keys={})
    yield from commit(txn)


def protects(client):
    return answered(lambda client: protect_main(context_of(client), on=True))(client)


def lifts(client):
    return answered(lambda client: protect_main(context_of(client), on=False))(client)


@answered
def optimizes(client):
    txn = begin(client)
    assert (yield from optimize(txn, "b")) is not None
    yield from commit(txn)


def adds(client, table, rows):
    txn = begin(client)
    yield from append(txn, table, rows.to_reader())
    yield from commit(txn)


@set_up_once
def a_branch(faults=None, schedule=None):
    simulation = lake(faults, schedule)
    alone(simulation, makes(), "maker")
    assert alone(simulation, appends(7), "first") == "committed"
    return simulation


def direct_writes(simulation):
    """Return the number of direct writes in HEADs that have replaced a protected HEAD."""
    heads = [
        decode(HEAD_KEY, mutation.after.body, Head)
        for mutation in simulation.store.journal
        if mutation.key == HEAD_KEY and mutation.after is not None
    ]
    found = 0
    for before, after in pairwise(heads):
        new = [one for one in after.commits if one.sequence > before.sequence and one.hash]
        for summary in new if before.is_protected else []:
            key = commit_key(summary.txn, summary.hash)
            operations = read_commit(key, simulation.store.objects[key].body).operations
            found += any(map(is_direct, operations))
    return found


def nothing_slips_in(simulation):
    results = {client.name: client.result for client in simulation.clients}
    assert set(results.values()) <= {"done", "conflict", "invalid_operation", None}, results
    assert direct_writes(simulation) == 0
    # From now on main refuses it by name, and a merge succeeds.
    assert alone(simulation, protects, "last") == "done"
    assert alone(simulation, writes, "late") == "invalid_operation"
    assert alone(simulation, merges, "merger") == "done"
    assert alone(simulation, lifts, "lifter") == "done"
    assert alone(simulation, writes, "later") == "done"


def beside(*others):
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("protector", protects)
        for number, other in enumerate(others):
            simulation.add(f"other {number}", other)
        return simulation

    return build


@pytest.mark.parametrize("other", [writes, merges, lifts])
def test_no_direct_write_is_committed_once_main_is_protected(other):
    assert interleavings(beside(other, writes), nothing_slips_in, limit=SCHEDULES) == SCHEDULES


@contextmanager
def crowded():
    with small_limits(False, crowded=True):
        yield


def test_no_client_of_a_crowd_writes_directly():
    with crowded():
        assert interleavings(beside(writes, writes), nothing_slips_in, limit=SCHEDULES) == SCHEDULES


def test_upkeep_includes_no_direct_write_behind_protection():
    """The write was proposed before main was protected, and has not been answered yet."""
    simulation = a_branch()
    rows = pa.Table.from_pylist([{"id": 9, "balance": 1, "items": ""}])
    alone(simulation, answered(lambda client: adds(client, "b", rows)), "filler")
    with crowded():
        writer = Process(simulation, writes, "writer").until(INBOX_PREFIX, Put)
        writer.step()
        assert alone(simulation, protects, "protector") == "done"
        assert alone(simulation, optimizes, "keeper") == "done"
        assert writer.finish() == "conflict"
    nothing_slips_in(simulation)


def test_protection_of_main_is_set_or_absent_wherever_its_client_dies():
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("owner", protects, restart=protects)
        simulation.add("other", writes)
        return simulation

    assert crash_everywhere(build, nothing_slips_in, "owner", every=STRIDE) > 5 // STRIDE


#: For each planted bug of protection, the test that finds it.
RULES = {
    "protected_by_its_verbs_alone": lambda: (
        test_no_direct_write_is_committed_once_main_is_protected(writes)
    ),
    "protection_unknown_to_who_takes_along": test_upkeep_includes_no_direct_write_behind_protection,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_protection_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 25)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
