"""Run the end of an idle transaction concurrently with its next verb, its commit and a crash (note
40).

The lake's thread that ends it is a second strand of the client. It never waits for a verb: if a
verb runs, it checks again later. A verb waits for the end of the transaction, and raises.
"""

from contextlib import contextmanager
from functools import partial

import pytest

from lakevilla.api.execution.turns import IdleEnd
from lakevilla.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    LakeVillaError,
    TransactionAborted,
)
from lakevilla.maintenance import recovery
from lakevilla.store.effects import Sleep, sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.abort import abort
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.world.scheduler import Simulation
from tests.support.search import STRIDE
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    lake,
    transfer,
)

#: The time for which the transaction may be idle; its caller pauses about as long between two
#: verbs.
IDLE_SECONDS = 1.0
SCHEDULES = 40
#: The time for which the caller pauses between its verbs.
GAPS = [(0.0, IDLE_SECONDS), (IDLE_SECONDS, 0.0), (0.5, 0.9), (0.0, 2.0)]


class SimulatedTurns:
    """Implement ``Turns`` for strands: a strand that finds the turn taken tries again."""

    def __init__(self):
        self._is_taken = False

    def verb(self, program):
        while self._is_taken:
            yield from sleep(0.01)
        self._is_taken = True
        try:
            return (yield from program)
        finally:
            self._is_taken = False

    @contextmanager
    def between_verbs(self):
        if self._is_taken:
            yield False
            return
        self._is_taken = True
        try:
            yield True
        finally:
            self._is_taken = False


class Executor:
    """Implement the part of an executor, and of its client, that ``IdleEnd`` uses."""

    def __init__(self, client, txn, is_watched=True):
        self.client, self.state, self.turns = self, txn, SimulatedTurns()
        self.context, self.idlers = txn.context, self
        self._process, self._is_watched = client, is_watched

    def add(self, idle):
        if self._is_watched:
            self._process.simulation.spawn(self._process, _looked_after(idle))

    def log(self, text, txn_id):
        raise AssertionError(text)

    def tell_end(self, state):
        pass


def _looked_after(idle):
    """Check when the transaction is due, and shortly after again if a verb is running."""
    while (yield from idle.renew()):
        yield from sleep(max(0.01, idle._used_at + IDLE_SECONDS - idle._looked))


def heard(program):
    """Run a program and note the outcome that its caller gets: the client has several strands."""

    def run(client):
        client.heard = yield from program(client)

    return run


def owner(client, gaps=(0.0, IDLE_SECONDS)):
    """Make a transfer whose caller pauses before its second verb, and before the commit."""
    txn = begin(client)
    executor = Executor(client, txn)
    idle = IdleEnd(executor, IDLE_SECONDS)

    def verb(program):
        result = yield from executor.turns.verb(program)
        idle.note_use()
        return result

    try:
        yield from verb(add_to(txn, "a", -1))
        yield from sleep(gaps[0])
        yield from verb(add_to(txn, "b", 1))
        yield from sleep(gaps[1])
        yield from verb(commit(txn))
    except (ConflictError, TransactionAborted) as error:
        yield from executor.turns.verb(abort(txn))
        return type(error).__name__
    return "committed"


def in_doubt(client):
    """Commit without an answer, and commit again after longer than the transaction may be idle."""
    txn = begin(client)
    executor = Executor(client, txn, is_watched=False)
    idle = IdleEnd(executor, IDLE_SECONDS)
    yield from add_to(txn, "a", -1)
    idle.note_use()
    try:
        yield from commit(txn)
    except CommitOutcomeUnknown:
        yield from sleep(3 * IDLE_SECONDS)
        assert not (yield from idle.renew())
        return (yield from commit(txn)).versions
    raise AssertionError("the store has answered")


def recover(client):
    return recovery.recover(context_of(client))


def beside_another(faults, schedule, program=owner):
    simulation = lake(faults, schedule)
    simulation.add("owner", heard(program), restart=recover)
    simulation.add("other", lambda client: transfer(client, "b", "a", 10))
    return simulation


def check(simulation: Simulation):
    """Check that the caller's outcome is true for both tables, and that all files are there."""
    store = simulation.store
    alone(simulation, recover, "recovers")
    invariants.every_table_is_readable(store, TABLES)
    found = balances(simulation)
    other = 10 * (simulation.clients[1].result == "committed")
    moved = 100 + other - found["a"][0]
    assert moved in (0, 1)
    assert found["b"][0] == 100 - other + moved
    # a client that crashed returns no outcome
    known = getattr(simulation.clients[0], "heard", None)
    assert known is None or moved == (known == "committed"), known
    invariants.all_or_nothing(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)


@pytest.mark.parametrize("gaps", GAPS)
def test_an_idle_end_and_the_next_verb_in_every_order_leave_all_or_nothing(gaps):
    def build(faults, schedule):
        return beside_another(faults, schedule, partial(owner, gaps=gaps))

    assert interleavings(build, check, limit=SCHEDULES, preemptions=3) == SCHEDULES


def test_both_a_commit_and_an_idle_end_occur_in_these_orders():
    """Otherwise the test above would show little."""
    met = set()
    for gaps in GAPS:
        simulation = beside_another(None, None, partial(owner, gaps=gaps))
        simulation.run()
        met.add(simulation.clients[0].heard)
    assert met == {"committed", "TransactionAborted"}


@pytest.mark.parametrize("gaps", GAPS)
def test_a_crash_anywhere_around_an_idle_end_leaves_all_or_nothing(gaps):
    def build(faults, schedule):
        return beside_another(faults, schedule, partial(owner, gaps=gaps))

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 10 // STRIDE


def doubted(lands):
    """Return the outcome of a commit whose write of HEAD got no answer, when its owner commits
    again.
    """
    simulation = lake()
    process = Process(simulation, in_doubt).until("HEAD.json")
    write = process.next
    if lands:
        simulation.store.apply(write)
    while not (isinstance(process.next, Sleep) and process.next.seconds == 3 * IDLE_SECONDS):
        if isinstance(process.next, Sleep):
            process.step()
        else:
            process.lose()
    found = process.finish()
    alone(simulation, recover, "recovers")
    invariants.every_table_is_readable(simulation.store, TABLES)
    assert balances(simulation)["a"][0] == 99
    return found


@pytest.mark.parametrize("lands", [False, True])
def test_a_commit_without_an_answer_is_not_undone_by_an_idle_end(lands):
    assert set(doubted(lands)) == {"a"}


def test_a_planted_idle_end_in_the_middle_of_a_verb_is_found():
    with (
        PLANTED["ended_in_the_middle_of_a_verb"].plant(),
        pytest.raises((AssertionError, LakeVillaError)),
    ):
        interleavings(beside_another, check, limit=SCHEDULES, preemptions=3)


def test_a_planted_idle_end_of_a_transaction_that_may_have_committed_is_found():
    with (
        PLANTED["ended_although_it_may_have_committed"].plant(),
        pytest.raises((AssertionError, LakeVillaError)),
    ):
        doubted(True)
