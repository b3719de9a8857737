"""Fairness of the queues: crossing clients, and one long transaction among many short ones.

5,000 histories in ``make soak``, the first 54 of them in ``make test-all``.
"""

import random
from itertools import count

import pytest

from lakevilla.errors import ConflictError
from lakevilla.settings import Settings
from lakevilla.store.effects import sleep
from lakevilla.transaction.state.late_reads import is_due
from lakevilla.transaction.verbs import save
from lakevilla.transaction.verbs.begin import take_turn
from lakevilla_testing.world.schedules import RandomSchedule
from tests.support.search import SOAK, how_many
from tests.support.simulated.commits import (
    RCT,
    RCTI,
    RI,
    Member,
    Runner,
    add_to,
    balances,
    lake,
    read,
    set_to,
)

TABLES = tuple("abcdefgh")

#: The number of clients, of tables, of histories in ``make soak``, and in ``make test-all``.
CROWDS = (
    (2, 2, 1250, 16),
    (2, 5, 750, 8),
    (4, 2, 750, 8),
    (4, 3, 750, 8),
    (4, 8, 750, 8),
    (16, 2, 250, 2),
    (16, 4, 250, 2),
    (16, 8, 250, 2),
)
assert sum(crowd[2] for crowd in CROWDS) == 5000


class QuickStore(RandomSchedule):
    """Choose the next ready client with equal probability; a request takes some milliseconds."""

    def latency_seconds(self):
        return 0.001 + 0.008 * self._random.random()


@pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])
@pytest.mark.parametrize(
    ("clients", "tables", "histories", "few"), CROWDS, ids=lambda value: str(value)
)
def test_crossing_clients_in_a_crowd_never_starve(clients, tables, histories, few, features):
    for seed in range(how_many(1, whole=few // 2, soak=histories // 2)):
        crowd(clients, TABLES[:tables], seed, features)


def crowd(clients, tables, seed, features):
    lasting = 4.0 + 4.0 * clients
    simulation = lake(
        tables=tables, seed=seed, schedule=QuickStore(random.Random(seed)), max_steps=1_000_000
    )
    events, results = [], {}

    def member(number):
        chosen = random.Random(f"{seed}/{number}")

        def program(client):
            runner = Runner(client, events.append)
            results[number] = []
            while simulation.now < lasting:
                pair = chosen.sample(tables, 2)

                def body(txn, pair=pair):
                    for table in pair:
                        yield from add_to(txn, table, 1)

                results[number].append((yield from runner.run(body, features)))
                yield from sleep(0.05 * chosen.random())

        return program

    for number in range(clients):
        simulation.add(f"c{number}", member(number))
    simulation.run()
    told = [result for ended in results.values() for result in ended]
    assert set(told) == {"committed"}, (seed, told)
    # A deadlock would have lasted until some client's wait timed out.
    assert not any(event.kind == "waiting" and not event.detail for event in events)
    assert sum(row[0] - 100 for row in balances(simulation, *tables).values()) == 2 * len(told)
    assert not [key for key in simulation.store.objects if "/markers/" in key]
    counts = sorted(len(ended) for ended in results.values())
    median = counts[len(counts) // 2]
    assert counts[0] >= median / 2, (seed, counts)
    simulation.dispose()
    return counts, events


# ----------------------------------------------------- one long among many short


def long_body(operations, reads, redone_at):
    """Update three tables one after the other, with ``operations`` updates in all.

    With ``reads`` it first reads what the other clients change, so that their commits conflict with
    it. ``redone_at`` gets the number of operations at the time of each redo.
    """

    def body(txn):
        if reads:
            yield from read(txn, "a", "id = 0")
        for number in range(operations):
            redos = txn.work.redos
            yield from add_to(txn, TABLES[number % 3], 1, number=1)
            redone_at.extend([number] * (txn.work.redos - redos))
            if is_due(txn):
                yield from save.save(txn)

    return body


def storm(operations, features, settings=None, *, reads=False, attempts=10):
    """Return the long transaction, and the number of short ones that committed concurrently."""
    simulation = lake(
        tables=TABLES[:3],
        schedule=QuickStore(random.Random(1)),
        settings=settings or Settings(),
        max_steps=1_000_000,
    )
    # The long transaction begins while the short ones are running.
    redone_at = []
    body = long_body(operations, reads, redone_at)
    long = Member(simulation, "long", body, features, after=3.0, attempts=attempts)
    long.redone_at = redone_at
    counts = count()
    numbers = random.Random("short")

    def short(client):
        runner = Runner(client)
        while long.ended is None:
            table = numbers.choice(TABLES[:3])

            def body(txn, table=table):
                yield from add_to(txn, table, 1)

            if (yield from runner.run(body, features)) == "committed":
                next(counts)
            yield from sleep(0.1 * numbers.random())

    for number in range(4):
        simulation.add(f"s{number}", short)
    simulation.run()
    return simulation, long, next(counts)


def sums(simulation):
    found = balances(simulation, *TABLES[:3])
    return [sum(row[number] - 100 for row in found.values()) for number in (0, 1)]


@pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])
@pytest.mark.parametrize("operations", [how_many(200, whole=1000)])
def test_a_long_transaction_among_queued_ones_commits_and_redoes_at_most_its_first_work(
    features, operations
):
    simulation, long, others = storm(operations, features)
    assert long.result == "committed"
    assert len(long.ids) == 1
    # One of the next two operations finds commits between the place and the HEAD of its round.
    assert all(number <= 4 for number in long.redone_at), long.redone_at
    assert len(long.kinds("redo")) == len(long.redone_at), "none at the commit"
    assert not long.kinds("shift")
    assert others > 0
    assert sums(simulation) == [others, operations]


OPERATIONS = how_many(20, whole=100, soak=1000)


def test_a_long_transaction_among_optimistic_ones_commits_once_it_is_escalated():
    settings = Settings(escalate_after=3 if SOAK else 1)
    simulation, long, others = storm(OPERATIONS, RI, settings, reads=True)
    assert long.result == "committed"
    # The transaction loses as often as it may, then runs once more with its tables reserved: under
    # one id.
    assert len(long.ids) == settings.escalate_after + 1
    assert len(set(long.ids)) == 1
    assert len(long.kinds("escalation")) == 1
    assert sums(simulation) == [others, OPERATIONS]


def test_a_long_transaction_among_optimistic_ones_loses_without_escalation():
    settings, attempts = Settings(escalate_after=1000), how_many(2, whole=4)
    simulation, long, others = storm(OPERATIONS, RI, settings, reads=True, attempts=attempts)
    assert isinstance(long.result, ConflictError)
    assert len(long.ids) == attempts
    assert sums(simulation) == [others, 0]


def test_a_long_update_among_optimistic_ones_is_redone_again_and_again():
    # The update has read nothing itself, so it has no conflict: but it never reaches its commit
    # point.
    operations = how_many(5, whole=20)
    simulation, long, others = storm(
        operations, RI, Settings(escalate_after=1000, max_redos=3), attempts=1
    )
    redone = len(long.kinds("redo"))
    assert redone > 0
    assert sums(simulation) == [others, operations if long.result == "committed" else 0]


# ------------------------------------------------- in turn: reading before writing


@pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])
@pytest.mark.parametrize("seed", range(60 if SOAK else 6))
def test_transactions_that_take_their_turn_before_reading_never_conflict(features, seed):
    """Each crosses four tables, and writes what it has computed from its reads."""
    tables = TABLES[:4]
    simulation = lake(
        tables=tables, seed=seed, schedule=QuickStore(random.Random(seed)), max_steps=1_000_000
    )
    events, attempts = [], []

    def member(number):
        chosen = random.Random(f"{seed}/{number}")

        def program(client):
            runner = Runner(client, events.append)
            for _ in range(4):
                pair = chosen.sample(tables, 2)

                def body(txn, pair=pair):
                    yield from take_turn(txn, pair)
                    for table in pair:
                        seen = yield from read(txn, table, "id = 0")
                        yield from set_to(txn, table, seen[0] + 1)

                ids = []
                assert (yield from runner.run(body, features, ids=ids)) == "committed"
                attempts.append(len(ids))
                yield from sleep(0.05 * chosen.random())

        return program

    for number in range(5):
        simulation.add(f"c{number}", member(number))
    simulation.run()
    assert attempts == [1] * 20
    # A deadlock would have lasted until some client's wait timed out.
    assert not any(event.kind == "waiting" and not event.detail for event in events)
    assert sum(row[0] - 100 for row in balances(simulation, *tables).values()) == 40
    assert not [key for key in simulation.store.objects if "/markers/" in key]
