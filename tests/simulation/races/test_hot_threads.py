"""Threads of a process that change one row again and again, in simulated time of S3 (note 71)."""

from contextlib import suppress

import pytest

from lakevilla.errors import ConflictError, ForeignConflict
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together import combine
from lakevilla.transaction.commit.together.group import Pace
from lakevilla_testing.checks import invariants
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.timed import TimedSimulation
from tests.support.simulated.commits import TABLES, add_to, balances, begin, end, lake
from tests.support.simulated.threads import process
from tests.support.simulated.transfers import commits

#: From then on the clients know that the row is hot.
WARM = 2


class Hot:
    """Clients on one row: the time that each of them thinks, and how long its changes took.

    ``defer``: they defer at once, and not only after a conflict. ``rival``: one more, alone in its
    process, thinks for so long. ``foreign``: so does a client without LakeVilla, which changes
    another row of the file.
    """

    def __init__(self, *thinks, seconds=4, defer=False, rival=None, foreign=None):
        self.simulation = TimedSimulation(3)
        self.simulation.store = lake().store
        self.seconds, self.defer, self.done = seconds, defer, 0
        self.took = [[] for _ in thinks]
        threads = [self._thread(number, think) for number, think in enumerate(thinks)]
        self.simulation.add("threads", process(*threads))
        if rival is not None:
            self.simulation.add("rival", process(self._thread(None, rival)))
        if foreign is not None:
            self.simulation.add("foreign", lambda client: self._rewrites(client, foreign))
        self.changed = 0
        self.simulation.run()
        found = balances(self.simulation)["a"]
        assert found == {0: 100 + self.done, 1: 100 + self.changed}
        invariants.no_id_commits_twice(self.simulation.store, TABLES)

    def _thread(self, number, think):
        def works(context, client):
            yield from sleep(0.3 * client.random.random())
            while self.simulation.now < self.seconds:
                yield from sleep(think)
                began = self.simulation.now
                txn = begin(client, context=context, defer=self.defer)
                combine.defer_if_hot(txn)  # as ``lake.run`` does
                try:
                    yield from add_to(txn, "a", 1)
                    with suppress(ForeignConflict):  # it is committed
                        yield from commit(txn)
                except ConflictError:
                    yield from end(txn)
                    continue
                self.done += 1
                if number is not None and began > WARM:
                    self.took[number].append(self.simulation.now - began)

        return works

    def _rewrites(self, client, think):
        def change(row):
            return {**row, "balance": row["balance"] + (row["id"] == 1)}

        while self.simulation.now < self.seconds:
            yield from sleep(think)
            self.changed += yield from delta_writer.rewrite(client, "a", change)

    @property
    def a_second(self):
        return sum(map(len, self.took)) / (self.seconds - WARM)


def test_threads_that_commit_again_and_again_are_one_group():
    hot = Hot(*[0] * 8)
    late = commits(hot.simulation)[-5:]
    assert [len(one.members) for one in late[:-1]] == [8] * 4
    assert hot.a_second > 30, (
        "in two groups, each of which reads what the other wrote, they make 16"
    )


def test_a_group_sends_four_writes_and_reads_nothing_that_its_process_knows():
    short, long = [Hot(*[0] * 8, seconds=seconds) for seconds in (2.5, 4)]
    asked = long.simulation.asked - short.simulation.asked
    groups = len(commits(long.simulation)) - len(commits(short.simulation))
    puts = sum(count for verb, count in asked.items() if verb.startswith("put"))
    assert puts == 4 * groups  # a file, the commit object, HEAD, the log's entry
    members = long.done - short.done
    assert asked["get"] <= members + groups  # HEAD for each begin; the next entry of the log


@pytest.mark.parametrize("thinks", [(0,), (0, 0), (0, 0.5), (0.5, 0.7)])
def test_one_or_two_clients_never_wait_for_each_other(thinks, monkeypatch):
    asked = Pace.to_wait
    waits = []

    def noted(self, now, present):
        found = asked(self, now, present)
        waits.append(found)
        return found

    monkeypatch.setattr(Pace, "to_wait", noted)
    Hot(*thinks, defer=True)
    assert waits
    assert set(waits) == {None}


@pytest.mark.parametrize("thinks", [(0, 0, 0.5), (0,) * 4 + (0.5,) * 4, (0.3,) * 8])
def test_clients_that_think_are_not_slower_for_the_waits(thinks, monkeypatch):
    def mean(hot):
        return [sum(one) / len(one) for one in hot.took]

    with_waits = mean(Hot(*thinks))
    monkeypatch.setattr(Pace, "to_wait", lambda *_: None)
    without = mean(Hot(*thinks))
    assert all(one < 1.1 * other for one, other in zip(with_waits, without, strict=True))


def test_a_process_that_changes_the_row_beside_a_group_loses_nothing_to_it():
    hot = Hot(*[0] * 4, rival=0.4)
    assert hot.a_second > 5


def test_a_client_without_lakevilla_that_rewrites_the_file_loses_nothing_to_a_group():
    hot = Hot(*[0] * 4, foreign=0.7)
    assert hot.changed > 0
    assert hot.a_second > 5
