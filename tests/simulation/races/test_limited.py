"""Test commits on a store that takes one write of an object a second, as Google Cloud Storage does.

See ``docs/design/0076-one-write-a-second.md``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lakevilla.errors import LakeVillaError, UnsafeStore
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, sleep
from lakevilla.store.probe import probe
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.plan import draw
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.client import EPOCH, Client
from lakevilla_testing.world.latency import EXPRESS, S3, LatencyProfile
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.timed import TimedSimulation
from tests.support.search import how_many
from tests.support.simulated.commits import TABLES, begin, lake
from tests.support.simulated.memory_lake import rows_of


class Appenders:
    """Processes that append a row at a time to one table, for so many virtual seconds."""

    def __init__(
        self,
        count: int,
        seconds: float,
        *,
        pause: float = 0.0,
        late: float = 0.5,
        profile: LatencyProfile = S3,
        others_seconds: float | None = None,
    ) -> None:
        self.simulation = TimedSimulation(7, profile=profile)
        store = lake().store
        store.now = lambda: EPOCH + self.simulation.now
        store.seconds_between_writes = 1.0
        self.simulation.store = self.store = store
        self.rows: list[int] = []
        self.errors: list[LakeVillaError] = []
        self.done: Counter[str] = Counter()
        self._pause, self._late = pause, late
        self._until = {"appender 0": seconds}
        self._others_until = seconds if others_seconds is None else others_seconds
        for number in range(count):
            self.simulation.add(f"appender {number}", self._appends)
        self.simulation.run()
        self.rate = len(self.rows) / seconds

    def _appends(self, client: Client) -> Program[None]:
        context = context_of(client)
        yield from sleep(self._late * client.random.random())
        while self.simulation.now < self._until.get(client.name, self._others_until):
            txn = begin(client, context=context)
            number = 1000 + client.random.randrange(10**9)
            try:
                yield from read_write.append(txn, "a", rows_of(number).to_reader())
                yield from commit(txn)
            except LakeVillaError as error:
                self.errors.append(error)
                continue
            self.rows.append(number)
            self.done[client.name] += 1
            yield from sleep(self._pause)

    def check(self) -> None:
        """Check that the table has each row that was acknowledged, once, and no other."""
        found = Counter(row["id"] for row in table_rows(self.store, "a") if row["id"] >= 1000)
        assert found == Counter(self.rows)
        invariants.tables_follow_head(self.store, TABLES)
        invariants.no_id_commits_twice(self.store, TABLES)


def test_eight_processes_on_a_limited_store_commit_together_and_meet_no_error() -> None:
    crowd = Appenders(8, 15.0)
    crowd.check()
    assert crowd.errors == []
    assert crowd.rate >= 4.0


def a_first_and_others(seconds: float = 12.0) -> Appenders:
    """The store is so quick that who has replaced HEAD is ready before it can be replaced again."""
    return Appenders(8, seconds, late=5.0, profile=EXPRESS)


def test_a_process_that_is_first_each_time_takes_the_others_along() -> None:
    crowd = a_first_and_others()
    crowd.check()
    assert crowd.errors == []
    assert min(crowd.done.values()) >= max(crowd.done.values()) / 2, crowd.done


def test_a_process_that_is_left_alone_does_not_go_on_as_a_crowd() -> None:
    left = Appenders(3, 20.0, others_seconds=6.0)
    left.check()
    head = decode(HEAD_KEY, left.store.objects[HEAD_KEY].body, Head)
    assert head.crowd < 2


def test_a_process_that_takes_none_along_starves_the_others() -> None:
    with PLANTED["others_left_behind"].plant():
        crowd = a_first_and_others()
    crowd.check()
    assert min(crowd.done.values()) < max(crowd.done.values()) / 4, crowd.done


def test_clients_that_do_not_look_after_a_429_fail_with_it() -> None:
    with PLANTED["sent_without_a_look"].plant():
        crowd = Appenders(8, 15.0)
    assert any("429" in error.message for error in crowd.errors)


def test_a_sole_writer_keeps_its_replacements_apart_and_is_turned_away_once() -> None:
    writer = Appenders(1, 20.0)
    writer.check()
    assert (writer.errors, writer.store.turned_away) == ([], 1)
    assert writer.rate >= 0.85


def test_a_sole_writer_that_does_not_wait_for_limit_is_turned_away_again_and_again() -> None:
    with PLANTED["sent_as_soon_as_ready"].plant():
        writer = Appenders(1, 20.0)
    writer.check()
    assert writer.store.turned_away > 5


def test_a_writer_that_commits_seldom_waits_for_nothing() -> None:
    writer = Appenders(1, 20.0, pause=1.0)
    assert writer.store.turned_away == 0


def probed(simulation: Simulation, seconds_between_writes: float) -> object:
    """Return what the probe finds out about a store that takes one write of an object a second."""
    simulation.store.seconds_between_writes = 1.0

    def program(client: Client) -> Program[object]:
        try:
            return (yield from probe(client.ids, seconds_between_writes))
        except UnsafeStore as error:
            return error.message

    client = simulation.add("prober", program)
    simulation.run()
    assert simulation.store.objects == {}
    return client.result


@pytest.mark.parametrize(("seconds_between_writes", "turned_away"), [(1.0, False), (0.0, True)])
def test_the_probe_finds_out_that_a_limited_store_is_safe(
    seconds_between_writes: float, turned_away: bool
) -> None:
    simulation = Simulation(3)
    assert probed(simulation, seconds_between_writes) is True
    assert (simulation.store.turned_away > 0) is turned_away


@pytest.mark.parametrize("seconds_between_writes", [1.0, 0.0])
def test_the_probe_does_not_take_a_limit_for_a_condition_that_is_honoured(
    seconds_between_writes: float,
) -> None:
    simulation = Simulation(3)
    simulation.store.conditional = False
    found = probed(simulation, seconds_between_writes)
    assert "the check that a second create is refused" in str(found)


def test_every_invariant_holds_on_a_limited_store() -> None:
    turned_away = 0
    for seed in range(how_many(1, whole=60)):
        outcome = campaign.run(seed, plan=replace(draw(seed), limited=True))
        turned_away += outcome.store.turned_away
    assert turned_away > 0
