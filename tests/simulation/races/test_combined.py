"""Test combined commits: threads of a process whose operations are performed as one transaction."""

import random

import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.lake.publishing.outcome import fence
from lakevilla.maintenance import recovery
from lakevilla.store.effects import parallel, sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.faults import Fault, NoFaults
from lakevilla_testing.world.interrupts import interrupted
from tests.support.search import STRIDE
from tests.support.simulated.commits import (
    TABLES,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
)
from tests.support.simulated.threads import AtHead, asking, process, recover
from tests.support.simulated.transfers import (
    check_whole_or_absent,
    commits,
    drawn,
    moved,
    performing,
)

THREADS = 4
AMOUNTS = (1, 10, 100, 1000)


def transfer(context, client, amount, begun=None):
    """Move an amount from one table to the other, and look at no result before the commit."""
    txn = begin(client, context=context, defer=True)
    if begun is not None:
        begun[amount] = txn
    try:
        yield from add_to(txn, "a", amount)
        yield from add_to(txn, "b", -amount)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    assert [done.counts.rows_updated for done in txn.work.done] == [1, 1]
    return "committed"


def transfers(begun=None, amounts=AMOUNTS):
    return [
        lambda context, client, amount=amount: transfer(context, client, amount, begun)
        for amount in amounts
    ]


# ------------------------------------------------------------- going together


@pytest.mark.parametrize("iceberg", [(), TABLES, ("b",)])
def test_threads_that_change_the_same_rows_share_versions_and_redo_nothing(iceberg):
    shared = 0
    for seed in range(4):
        simulation = lake(seed=seed, iceberg=iceberg)
        client = simulation.add("threads", process(*transfers()))
        simulation.run()
        assert client.result == ["committed"] * THREADS
        assert moved(simulation) == sum(AMOUNTS)
        made = commits(simulation)
        ids = [txn for one in made for txn in one.transactions]
        assert len(ids) == len(set(ids)) == THREADS
        shared += sum(len(one.members) for one in made)
        invariants.tables_follow_head(simulation.store, TABLES)
        invariants.no_id_commits_twice(simulation.store, TABLES)
    assert shared > 0


def test_a_lone_transaction_is_a_version_of_its_own():
    simulation = lake()
    simulation.add("threads", process(*transfers(amounts=(1,))))
    simulation.run()
    (only,) = commits(simulation)
    assert only.members == ()


# ----------------------------------------------------- one after the other


@pytest.mark.parametrize("seed", range(20))
def test_a_combined_commit_does_the_same_as_its_members_one_after_the_other(seed):
    source = random.Random(f"combined/{seed}")
    members = [drawn(source) for _ in range(source.randint(2, 6))]
    simulation = lake(seed=seed)
    client = simulation.add(
        "threads",
        process(*[lambda c, k, ops=ops: performing(k, ops, c) for ops in members]),
    )
    simulation.run()
    told = dict(client.result)
    order = [txn for one in commits(simulation) for txn in one.transactions]
    by_id = {txn: ops for (txn, _), ops in zip(client.result, members, strict=True)}
    again = lake(seed=seed)
    for number, txn in enumerate(order):
        name = f"alone{number}"

        def one(client, ops=by_id[txn]):
            return (yield from performing(client, ops))

        assert alone(again, one, name)[1] == told[txn]
    assert balances(simulation) == balances(again)
    # A member that is not there was refused, and would have been refused at the end, too.
    for txn in by_id.keys() - set(order):
        assert isinstance(told[txn], str)


# ------------------------------------------------------------------ mishaps


def test_a_crash_of_the_process_at_any_request_leaves_each_member_whole_or_absent():
    def setting(faults, schedule):
        simulation = lake(faults, schedule)
        simulation.add("owner", process(*transfers(amounts=AMOUNTS[:3])), restart=recover)
        return simulation

    assert crash_everywhere(setting, check_whole_or_absent, "owner", every=STRIDE) > 30 // STRIDE


@pytest.mark.parametrize("fault", [Fault.APPLIED_503, Fault.APPLIED_CUT, Fault.DELAYED_WRITE])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_lost_acknowledgement_is_settled_for_all_members(fault, times):
    simulation = lake(NoFaults())
    simulation.faults = AtHead(fault, times)
    client = simulation.add("threads", process(*transfers()))
    simulation.run()
    simulation.land_delayed_writes()
    assert client.result == ["committed"] * THREADS
    assert moved(simulation) == sum(AMOUNTS)
    invariants.no_id_commits_twice(simulation.store, TABLES)


def _ctrl_c(thread, at, instant, begun, amount, *, again):
    """Interrupt a thread at its effect ``at``; then commit it again, or end it."""

    def program(context, client):
        try:
            return (yield from interrupted(thread(context, client), at, instant))
        except KeyboardInterrupt:
            txn = begun[amount]
            if again and txn.state == "open" and len(txn.work.done) == 2:
                yield from commit(txn)
                return "committed"
            yield from end(txn)
            return "never" if not txn.ending.tried else "unknown"

    return program


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("instant", ["before", "after"])
@pytest.mark.parametrize("struck", [0, 1, 3])
def test_ctrl_c_in_one_thread_neither_stops_nor_repeats_the_work_of_the_others(
    struck, instant, again
):
    endings = set()
    for seed in range(1, 60):
        simulation = lake(seed=seed)
        begun = {}
        threads = transfers(begun)
        mine, at = AMOUNTS[struck], 1 + seed % 20
        threads[struck] = _ctrl_c(threads[struck], at, instant, begun, mine, again=again)
        client = simulation.add("threads", process(*threads))
        simulation.run()
        results = list(client.result)
        ending = results.pop(struck)
        endings.add(ending)
        assert results == ["committed"] * (THREADS - 1)
        alone(simulation, recover, "other")
        there = moved(simulation) - (sum(AMOUNTS) - mine)
        assert there in (0, mine)
        assert ending != "committed" or there
        assert ending != "never" or not there
        told = alone(simulation, asking(begun[mine].id), "asker")
        assert told.state == ("committed" if there else "aborted")
        invariants.no_id_commits_twice(simulation.store, TABLES)
    assert endings >= ({"committed"} if again else {"never", "unknown", "committed"})


def test_an_aborted_member_does_not_commit_and_the_others_do():
    decided = set()
    for seed in range(24):
        begun = {}

        def fencer(context, client, begun=begun, wait=0.2 * seed):
            yield from sleep(wait)
            while AMOUNTS[-1] not in begun:
                yield from sleep(0.01)
            return (yield from fence(context_of(client), begun[AMOUNTS[-1]].id))

        simulation = lake(seed=seed)
        client = simulation.add("threads", process(fencer, *transfers(begun)))
        simulation.run()
        fenced, *rest, last = client.result
        assert rest == ["committed"] * (THREADS - 1)
        assert (last == "committed") == (fenced is not None)
        assert moved(simulation) == sum(AMOUNTS[:-1]) + (AMOUNTS[-1] if fenced else 0)
        decided.add(last)
    assert decided == {"committed", "lost"}


def test_processes_that_combine_their_threads_lose_no_update_to_each_other():
    for seed in range(6):
        simulation = lake(seed=seed)
        names = [("one", AMOUNTS), ("two", tuple(10_000 * n for n in AMOUNTS))]
        clients = [
            simulation.add(name, process(*transfers(amounts=amounts))) for name, amounts in names
        ]
        simulation.run()
        assert [client.result for client in clients] == [["committed"] * THREADS] * 2
        assert moved(simulation) == 10_001 * sum(AMOUNTS)
        invariants.no_id_commits_twice(simulation.store, TABLES)


def test_a_foreign_change_before_publishing_replays_each_member():
    simulation = lake()

    def program(client):
        context = context_of(client)

        def committing(amount):
            txn = begin(client, context=context, defer=True)
            yield from add_to(txn, "a", amount)
            yield from commit(txn, publish=False)

        yield from parallel([committing(amount) for amount in AMOUNTS])
        yield from delta_writer.rewrite(
            client, "a", lambda row: {**row, "balance": row["balance"] + 5}
        )
        yield from recovery.recover(context_of(client))

    simulation.add("threads", program)
    simulation.run()
    assert any(one.members for one in commits(simulation))
    rows = {row["id"]: row["balance"] for row in table_rows(simulation.store, "a")}
    assert rows[0] == 105 + sum(AMOUNTS)
