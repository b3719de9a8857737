"""Test what a store without conditional writes promises, thanks to its checks, and what it doesn't.

See ``docs/design/0006-check-mode.md``. Let W be ``check_reads`` times ``check_interval_seconds``:
the promises hold as long as every write is stored within W of its writer's last read of the key.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest

from lakevilla.global_log.head import HEAD_KEY
from lakevilla.settings import Settings
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.plan import draw
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.faults import (
    Fault,
    NoFaults,
    RandomFaults,
    ScriptedFaults,
    Strike,
    swarm,
)
from lakevilla_testing.world.scheduler import Simulation
from tests.support.search import WHOLE, how_many
from tests.support.simulated.commits import add_to, balances, begin, lake

#: Faults that store a write after its client has given it up, or long after the client's last read.
LATE = {Fault.DELAYED_WRITE, Fault.PAUSE}
RI = (Feature.R | Feature.I,)


class Prompt:
    """Let no request wait long: one of the four oldest is next, and takes at most 20 ms."""

    def __init__(self, source):
        self._random = source

    def pick(self, ready):
        return self._random.randrange(min(4, len(ready)))

    def latency_seconds(self):
        return 0.02 * self._random.random()


class InTime(RandomFaults):
    """Draw all faults except those by which a write is stored late."""

    def strike(self, client, number, attempt):
        strike = super().strike(client, number, attempt)
        late = strike is not None and strike.landing == "later"
        return Strike(strike.fault, "now") if late else strike


def history(seed, rates, kind=InTime, checked=True, seconds_between_writes=0.0, **changes):
    """Play one history on a store that ignores all conditions; return its outcome and error."""
    # Clients without LakeVilla do not check, so such a store promises nothing next to them.
    plan = replace(draw(seed), foreign=(), guarded=False, **changes)
    plan = replace(plan, settings=replace(plan.settings, check_interval_seconds=1.0))
    simulation = Simulation(
        seed,
        schedule=Prompt(random.Random(f"{seed}/schedule")),
        faults=kind(rates, random.Random(f"{seed}/faults")) if rates else NoFaults(),
        settings=plan.settings,
        content_tags=plan.content_tags,
        clock_rates=seed % 3 == 0,
        checked=checked,
        seconds_between_writes=seconds_between_writes,
    )
    simulation.store.conditional = False
    outcome, _, error = campaign.replay(seed, plan=plan, simulation=simulation)
    return outcome, error


def in_time(seed):
    rates = swarm(random.Random(f"{seed}/rates"))
    # A stale list gives a stale first read, on any store.
    return {fault: rate for fault, rate in rates.items() if fault not in {*LATE, Fault.STALE_LIST}}


def test_every_invariant_holds_if_the_store_takes_one_write_of_an_object_a_second():
    turned_away = 0
    for seed in range(how_many(1, whole=30)):
        outcome, error = history(seed, in_time(seed), seconds_between_writes=1.0)
        assert error is None, f"seed {seed} as this test draws it: {error}"
        turned_away += outcome.store.turned_away
    assert turned_away > 0


BLOCK = how_many(1, whole=30)


@pytest.mark.parametrize("first", range(0, how_many(1, whole=120), BLOCK))
def test_every_invariant_holds_while_writes_are_stored_in_time(first):
    """Draw clients that overlap, crash, lose acknowledgements and are throttled."""
    fired, ended = Counter(), Counter()
    for seed in range(first, first + BLOCK):
        outcome, error = history(seed, in_time(seed))
        assert error is None, f"seed {seed} as this test draws it: {error}"
        fired += outcome.fired
        ended += Counter(status.rsplit(" ", 1)[1] for status in outcome.ended.elements())
    if WHOLE:
        assert (
            min(fired[fault] for fault in (Fault.CRASH, Fault.APPLIED_CUT, Fault.APPLIED_503)) > 0
        )
        assert ended["committed"] > ended["aborted"] > 0


def test_a_single_client_loses_nothing_though_its_writes_are_slow():
    """A single client can overwrite no other client's write, so it may pause anywhere
    and continue.
    """
    rates = {Fault.PAUSE: 0.02, Fault.APPLIED_CUT: 0.05}
    fired = Counter()
    for seed in range(how_many(2, whole=60)):
        # One thread, too. Another thread's write may be delayed between its last read of the key
        # and the write. It is then stored long after that read, over a state that this thread
        # relies on by then.
        outcome, error = history(seed, rates, clients=1, threads=1, transactions=6, collects=False)
        assert error is None, f"seed {seed} as this test draws it: {error}"
        fired += outcome.fired
    if WHOLE:
        assert fired[Fault.PAUSE] > 20


def test_a_store_without_conditional_writes_loses_commits_if_clients_do_not_check():
    """The checks are necessary: without them at least half of the histories violate an
    invariant.
    """
    count = how_many(6, whole=30)
    wrong = [history(seed, {}, checked=False, features=RI)[1] is not None for seed in range(count)]
    assert sum(wrong) > count // 2


def test_some_histories_fail_if_writes_of_several_clients_are_stored_late():
    """The promise ends here. Measured: 12 of 100 histories fail with 2 pauses in 100 requests."""
    count = how_many(3, whole=30)
    wrong = sum(
        history(seed, {Fault.PAUSE: 0.02}, RandomFaults, features=RI)[1] is not None
        for seed in range(count)
    )
    assert wrong < count // 2
    assert wrong or not WHOLE


# -- two writers, one of which pauses between its last read and its write ------------------


def race(checked, paused_at=None):
    """Let two clients add to one account each; the second may pause before request
    ``paused_at``.
    """
    faults = NoFaults()
    if paused_at is not None:
        faults = ScriptedFaults({("slow", paused_at): Strike(Fault.PAUSE)})
    simulation = lake(settings=Settings(), faults=faults, checked=checked)

    def adding(table):
        def program(client):
            txn = begin(client)
            yield from add_to(txn, table, 10)
            yield from commit(txn)
            return txn.id

        return program

    slow = simulation.add("slow", adding("a"))
    quick = simulation.add("quick", adding("b"))
    simulation.run()
    return simulation, slow, quick


def head_put(simulation):
    """Return which of the slow client's requests replaces HEAD."""
    mine = [line for line in simulation.trace if line.client == "slow"]
    puts = [
        n for n, line in enumerate(mine, 1) if line.verb.startswith("put") and line.key == HEAD_KEY
    ]
    return puts[0]


def in_head(simulation):
    held = run_now(simulation.store, context_of(simulation.clients[0]).head())
    return {one.txn for one in held.head.commits}


def test_a_replacement_of_head_that_is_stored_late_loses_a_commit_without_an_error():
    """This is why check mode is best effort: both commits are acknowledged, and one is lost."""
    number = head_put(race(checked=True)[0])
    simulation, slow, quick = race(checked=True, paused_at=number)
    assert simulation.fired[Fault.PAUSE] == 1
    assert slow.status == quick.status == "done"
    assert slow.result in in_head(simulation)
    assert quick.result not in in_head(simulation), "acknowledged, and HEAD does not know it"


def test_the_same_history_loses_nothing_on_a_store_with_conditional_writes():
    number = head_put(race(checked=False)[0])
    simulation, slow, quick = race(checked=False, paused_at=number)
    assert simulation.fired[Fault.PAUSE] == 1
    assert {slow.result, quick.result} <= in_head(simulation)
    assert balances(simulation)["a"][0] == balances(simulation)["b"][0] == 110


def test_two_writers_that_overlap_in_time_both_commit():
    for seed in range(how_many(15, whole=50)):
        simulation = lake(seed=seed, settings=Settings(), checked=True)

        def program(client):
            txn = begin(client)
            yield from add_to(txn, "a", 1)
            yield from commit(txn)
            return txn.id

        clients = [simulation.add(name, program) for name in ("one", "two")]
        simulation.run()
        assert {client.result for client in clients} <= in_head(simulation)
        assert balances(simulation)["a"][0] == 102
