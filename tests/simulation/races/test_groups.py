"""Test group commit: one replacement of HEAD commits the transactions of several threads of a
process.
"""

import random

import pyarrow as pa
import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.global_log.repo import HeldHead, replace_head
from lakevilla.lake.publishing.outcome import fence
from lakevilla.lake.table_log import refresh
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together import crowd as group
from lakevilla.transaction.commit.together import join as joining
from lakevilla.transaction.commit.together import replacing
from lakevilla.transaction.commit.together.group import Candidate, Replacement, Settled
from lakevilla.transaction.commit.together.join import add_candidates
from lakevilla.transaction.commit.upload import seal_commit, upload
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.tables.reader import run_now, table_rows
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
    read,
    simulation_client,
)
from tests.support.simulated.threads import AtHead, asking, process, recover

THREADS = 4


def uploaded(context, txn):
    """Run steps 2 and 3 of a commit; return the candidate for the commit group."""
    sealed = yield from seal_commit(txn)
    yield from upload(txn, sealed)
    context.keep_commit(sealed.digest, sealed.commit)
    return Candidate(txn, sealed.commit, sealed.digest, txn.bound.held, body=sealed.body)


def append(txn, table, number):
    rows = pa.table({"id": [number], "balance": [0], "items": [""]}, schema=SCHEMA)
    return (yield from read_write.append(txn, table, rows.to_reader()))


def appender(context, client, number, begun=None):
    """Add one row to both tables in a thread; return "lost" if the commit was refused."""
    txn = begin(client, context=context)
    if begun is not None:
        begun[number] = txn
    try:
        for table in TABLES:
            yield from append(txn, table, number)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    return "committed"


def adder(context, client, amount):
    """Change, in a thread, a row that other threads change too; the update is redone after each
    conflict.
    """
    txn = begin(client, context=context)
    yield from add_to(txn, "a", amount)
    yield from add_to(txn, "b", -amount)
    yield from commit(txn)
    return txn.id


def rows_added(simulation):
    """Return the rows that threads have added, by table, sorted and with duplicates."""
    found = {}
    for table in TABLES:
        ids = [row["id"] for row in table_rows(simulation.store, table)]
        found[table] = sorted(number for number in ids if number >= 100)
    return found


def replacements(simulation):
    return sum(mutation.key == HEAD_KEY for mutation in simulation.store.journal)


def appenders(count, begun=None):
    return [
        lambda context, client, number=number: appender(context, client, number, begun)
        for number in range(100, 100 + count)
    ]


# ------------------------------------------------------------- going together


def test_threads_commit_with_fewer_replacements_and_log_entries_than_commits():
    replaced = entered = 0
    for seed in range(5):
        simulation = lake(seed=seed)
        replaced -= replacements(simulation)
        entered -= _entries(simulation, "a")
        simulation.add("threads", process(*appenders(8)))
        simulation.run()
        replaced += replacements(simulation)
        entered += _entries(simulation, "a")
        assert rows_added(simulation) == {table: list(range(100, 108)) for table in TABLES}
        invariants.tables_follow_head(simulation.store, TABLES)
        invariants.no_id_commits_twice(simulation.store, TABLES)
    assert replaced < 5 * 8
    assert entered < 5 * 8


def _entries(simulation, table):
    return sum(key.startswith(f"{table}/_delta_log/") for key in simulation.store.objects)


@pytest.mark.parametrize("seed", range(5))
def test_threads_that_change_the_same_rows_lose_no_update(seed):
    simulation = lake(seed=seed)
    amounts = (1, 10, 100, 1000)
    threads = [lambda context, client, n=n: adder(context, client, n) for n in amounts]
    simulation.add("threads", process(*threads))
    simulation.run()
    found = balances(simulation)
    assert found["a"][0] == 100 + sum(amounts)
    assert found["b"][0] == 100 - sum(amounts)


def test_a_group_refuses_only_the_member_whose_read_is_outdated_by_another_member():
    """Each thread reads the row and then changes it: of one group only the first may commit."""

    def careful(context, client):
        txn = begin(client, context=context)
        try:
            seen = yield from read(txn, "a", "id = 0")
            yield from add_to(txn, "a", 1)
            yield from append(txn, "b", 1000 + seen[0])
            yield from sleep(1)  # all threads have read before any of them commits
            yield from commit(txn)
        except ConflictError:
            yield from end(txn)
            return "lost"
        return "committed"

    simulation = lake()
    client = simulation.add("threads", process(careful, careful, careful, *appenders(3)))
    simulation.run()
    assert sorted(client.result) == ["committed"] * 4 + ["lost"] * 2
    assert balances(simulation, "a")["a"][0] == 101
    added = rows_added(simulation)
    assert added["a"] == [100, 101, 102]
    assert added["b"] == [100, 101, 102, 1100]


def test_an_aborted_thread_does_not_commit_and_delays_no_other():
    begun = {}

    def fencer(context, client):
        yield from sleep(0.05)
        while 100 not in begun:
            yield from sleep(0.01)
        other = context_of(client)
        return (yield from fence(other, begun[100].id))

    decided = set()
    for seed in range(12):
        begun.clear()
        simulation = lake(seed=seed)
        client = simulation.add("threads", process(fencer, *appenders(THREADS, begun)))
        simulation.run()
        fenced, first, *rest = client.result
        assert rest == ["committed"] * (THREADS - 1)
        assert (first == "committed") == (fenced is not None)
        assert (100 in rows_added(simulation)["a"]) == (first == "committed")
        decided.add(first)
    assert decided == {"committed", "lost"}


# ----------------------------------------------------- one after the other


def prepared(client, context, source, number):
    """Return a transaction that is ready to wait for HEAD."""
    txn = begin(client, context=context)
    for table in source.sample(TABLES, source.randint(1, 2)):
        match source.randrange(4):
            case 0:
                yield from append(txn, table, 100 + number)
            case 1:
                yield from add_to(txn, table, 1, number=source.randrange(2))
            case 2:
                yield from read(txn, table, f"id = {source.randrange(2)}")
                yield from append(txn, table, 100 + number)
            case 3:
                yield from read(txn, table)
                other = "b" if table == "a" else "a"
                yield from add_to(txn, other, 2)
    return (yield from uploaded(context, txn))


@pytest.mark.parametrize("seed", range(30))
def test_a_group_commits_the_same_as_its_members_one_after_the_other(seed):
    source = random.Random(f"group/{seed}")
    simulation = lake(seed=seed)
    client = simulation_client(simulation, "threads")
    context = context_of(client)

    def prepare():
        yield from context.head()
        count = source.randint(2, 6)
        made = []
        for number in range(count):
            made.append((yield from prepared(client, context, source, number)))
        return made

    candidates = run_now(simulation.store, prepare())
    base = candidates[0].held

    def one_by_one():
        held, accepted = base, []
        for candidate in candidates:
            joined = yield from add_candidates(context, held, [candidate])
            if joined.accepted:
                stored = yield from replace_head(held, joined.head)
                held = HeldHead(joined.head, stored.token)
                accepted.append(candidate)
        return held.head, accepted

    joined = run_now(simulation.store, add_candidates(context, base, candidates))
    head, accepted = run_now(simulation.store, one_by_one())
    assert list(joined.accepted) == accepted
    assert accepted, "the first always fits"
    assert joined.head.tables == head.tables
    assert [c.hash for c in joined.head.commits] == [c.hash for c in head.commits]
    assert [c.tables for c in joined.head.commits] == [c.tables for c in head.commits]
    assert joined.head.sequence == head.sequence == base.head.sequence + len(accepted)
    assert joined.head.replacement == base.head.replacement + 1


def test_a_member_whose_commit_its_own_group_has_moved_to_a_page_is_acknowledged():
    simulation = lake()
    client = simulation_client(simulation, "threads")
    context = context_of(client)

    def prepare():
        yield from context.head()
        made = []
        for number in range(9):
            txn = begin(client, context=context)
            yield from append(txn, "a", 100 + number)
            made.append((yield from uploaded(context, txn)))
        return made

    with small_limits(True):
        candidates = run_now(simulation.store, prepare())
        joined = run_now(simulation.store, add_candidates(context, candidates[0].held, candidates))
        attempt = Replacement(candidates[0].held, joined.head, joined.accepted)
        commits = group.commits_of(context)
        assert commits.begin(attempt, joined.accepted, lambda _: None)
        run_now(simulation.store, replacing.carry_out(context, commits, attempt))
    in_head = {commit.txn for commit in joined.head.commits}
    assert any(candidate.txn.id not in in_head for candidate in candidates)
    for number, candidate in enumerate(candidates):
        assert isinstance(candidate.answer, Settled)
        summary = candidate.answer.summary
        assert (summary.txn, summary.hash) == (candidate.txn.id, candidate.digest)
        assert summary.sequence == candidates[0].held.head.sequence + number + 1


# ------------------------------------------------------------------ mishaps


def test_a_crash_of_the_process_at_any_request_leaves_each_thread_s_commit_whole_or_absent():
    def setting(faults, schedule):
        simulation = lake(faults, schedule)
        simulation.add("owner", process(*appenders(3)), restart=recover)
        return simulation

    def check(simulation):
        alone(simulation, recover, "other")
        added = rows_added(simulation)
        assert added["a"] == added["b"]
        assert len(set(added["a"])) == len(added["a"])
        invariants.tables_follow_head(simulation.store, TABLES)
        invariants.no_id_commits_twice(simulation.store, TABLES)

    assert crash_everywhere(setting, check, "owner", every=STRIDE) > 60 // STRIDE


@pytest.mark.parametrize("fault", [Fault.APPLIED_503, Fault.APPLIED_CUT, Fault.DELAYED_WRITE])
@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_acknowledgement_is_settled_for_the_whole_group(fault, times):
    faults = NoFaults()
    simulation = lake(faults)
    simulation.faults = AtHead(fault, times)
    client = simulation.add("threads", process(*appenders(THREADS)))
    simulation.run()
    simulation.land_delayed_writes()
    assert client.result == ["committed"] * THREADS
    assert rows_added(simulation) == {t: list(range(100, 100 + THREADS)) for t in TABLES}
    invariants.no_id_commits_twice(simulation.store, TABLES)


def ctrl_c(thread, at, instant, txns, number):
    def program(context, client):
        try:
            return (yield from interrupted(thread(context, client), at, instant))
        except KeyboardInterrupt:
            txn = txns[number]
            yield from end(txn)
            return "never" if not txn.ending.tried else "unknown"

    return program


@pytest.mark.parametrize("instant", ["before", "after"])
@pytest.mark.parametrize("struck", [0, 1, 3])
def test_ctrl_c_in_one_thread_neither_stops_nor_repeats_the_commits_of_the_others(struck, instant):
    endings = set()
    for at in range(1, 40):
        simulation = lake(seed=at)
        begun = {}
        threads = appenders(THREADS, begun)
        threads[struck] = ctrl_c(threads[struck], at, instant, begun, 100 + struck)
        client = simulation.add("threads", process(*threads))
        simulation.run()
        results = list(client.result)
        mine = results.pop(struck)
        endings.add(mine)
        assert results == ["committed"] * (THREADS - 1)
        alone(simulation, recover, "other")
        added = rows_added(simulation)
        assert added["a"] == added["b"]
        there = 100 + struck in added["a"]
        assert mine != "committed" or there
        assert mine != "never" or not there
        others = [n for n in added["a"] if n != 100 + struck]
        assert others == [n for n in range(100, 100 + THREADS) if n != 100 + struck]
        told = alone(simulation, asking(begun[100 + struck].id), "asker")
        assert told.state == ("committed" if there else "aborted")
        if mine == "committed":
            break
    assert endings >= {"never", "unknown", "committed"}


def test_an_interrupted_leader_s_replacement_is_settled_before_its_members_are_refused():
    """The replacement may be stored late; no transaction in it may have been refused by then."""
    simulation = lake()
    client = simulation_client(simulation, "threads")
    context = context_of(client)

    def reader():
        txn = begin(client, context=context)
        yield from read(txn, "a")
        yield from append(txn, "b", 100)
        candidate = yield from uploaded(context, txn)
        # A leader has sent the replacement, and was interrupted before it got the answer.
        joined = yield from add_candidates(context, txn.bound.held, [candidate])
        attempt = Replacement(txn.bound.held, joined.head, joined.accepted)
        assert group.commits_of(context).begin(attempt, joined.accepted, lambda _: None)
        # Another client changes what the transaction has read, and this process knows it.
        yield from delta_writer.rewrite(client, "a", lambda row: {**row, "balance": 0})
        yield from refresh(context, "a")
        return (yield from group.commit_together(candidate))

    answer = run_now(simulation.store, reader())
    assert isinstance(answer, Settled)
    assert group.commits_of(context).unsettled is None


# ------------------------------------------------------------- one that breaks


@pytest.mark.parametrize("place", range(4))
def test_an_error_in_examining_one_transaction_is_raised_to_it_and_the_rest_continue(
    place, monkeypatch
):
    """An unforeseen error in one transaction fails no other transaction, whichever of
    them leads.
    """
    for seed in range(5):
        _breaks_one(place, seed, monkeypatch)


def _breaks_one(place, seed, monkeypatch):
    simulation = lake(seed=seed)
    broken, examine = [], joining.examine

    def fails_for_one(txn, head, **options):
        if txn in broken:
            raise ZeroDivisionError("nobody has thought of that")
        return (yield from examine(txn, head, **options))

    monkeypatch.setattr(joining, "examine", fails_for_one)

    def one_that_breaks(context, client):
        txn = begin(client, context=context)
        broken.append(txn)
        for table in TABLES:
            yield from append(txn, table, 200)
        with pytest.raises(ZeroDivisionError):
            yield from commit(txn)
        yield from end(txn)

    threads = appenders(3)
    threads.insert(place, one_that_breaks)
    simulation.add("threads", process(*threads))
    simulation.run()
    assert rows_added(simulation) == {table: [100, 101, 102] for table in TABLES}
