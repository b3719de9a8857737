"""Combined commits, request by request: their members, and what becomes of them (note 68)."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.maintenance.gc.gc import gc
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together.combine import may_combine
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.client import Client
from tests.support.simulated.commits import simulation_client
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def adding(peer: Peer, amount: int, table: str = "a", **options: Any) -> TransactionState:
    """Return a transaction that has noted one update, and looked at nothing."""
    txn = peer.begin(defer=True, **options)
    peer.add(txn, table, amount)
    return txn


def rows(txn: TransactionState) -> list[tuple[int, int, int, int]]:
    return [done.counts.rows for done in txn.work.done]


def test_transactions_that_arrive_while_another_commits_share_one_version(
    lake: MemoryLake, peer: Peer
) -> None:
    txns = [adding(peer, amount) for amount in (1, 10, 100)]
    first, second, third = [peer.steps(commit(txn)) for txn in txns]
    before, entries = lake.head.sequence, lake.version("a")
    first.finish()
    second.finish()
    results = [first.result, second.result, third.finish()]
    assert [one.global_version for one in results] == [before + 1, before + 2, before + 2]
    assert [one.id for one in results] == [txn.id for txn in txns]
    assert lake.head.commits[-1].members == tuple(txn.id for txn in txns[1:])
    assert lake.version("a") == entries + 2
    assert lake.rows("a")[0] == 211
    assert [rows(txn) for txn in txns] == [[(1, 0, 1, 0)]] * 3


def test_a_member_is_given_the_counts_of_the_state_on_which_it_commits(
    lake: MemoryLake, peer: Peer
) -> None:
    """Another client changes the rows between the members' performing and their commit."""
    first = peer.steps(commit(adding(peer, 0)))
    txns = [peer.begin(defer=True) for _ in range(2)]
    for txn in txns:
        peer.delete(txn, "a", 1)
    second, third = [peer.steps(commit(txn)) for txn in txns]
    first.finish()
    second.until("HEAD")
    rival = lake.peer()
    gone = rival.begin()
    rival.delete(gone, "a", 1)
    rival.commit(gone)
    second.finish()
    third.finish()
    assert [rows(txn) for txn in txns] == [[(0, 0, 0, 0)]] * 2


def test_a_member_that_leaves_before_the_commit_is_sent_is_not_committed(
    lake: MemoryLake, peer: Peer
) -> None:
    txns = [adding(peer, amount) for amount in (1, 10, 100, 1000)]
    steps = [peer.steps(commit(txn)) for txn in txns]
    steps[0].finish()
    steps[1].until("commits/")
    with pytest.raises(KeyboardInterrupt):
        steps[2].interrupt()
    steps[1].finish()
    steps[3].finish()
    assert lake.rows("a")[0] == 100 + 1 + 10 + 1000
    assert not txns[2].ending.tried
    assert lake.head.commits[-1].members == (txns[1].id, txns[3].id)
    peer.commit(txns[2])
    assert lake.rows("a")[0] == 100 + 1 + 10 + 1000 + 100


def test_a_member_that_leaves_once_the_commit_was_sent_finds_it_when_it_commits_again(
    lake: MemoryLake, peer: Peer
) -> None:
    txns = [adding(peer, amount) for amount in (1, 10, 100)]
    steps = [peer.steps(commit(txn)) for txn in txns]
    steps[0].finish()
    steps[1].until("HEAD")
    with pytest.raises(KeyboardInterrupt):
        steps[2].interrupt()
    steps[1].finish()
    sequence = lake.head.sequence
    assert peer.commit(txns[2]).global_version == sequence
    assert rows(txns[2]) == [(1, 0, 1, 0)]
    assert lake.rows("a")[0] == 211
    assert lake.head.sequence == sequence


def test_the_members_of_an_interrupted_leader_are_committed_once(
    lake: MemoryLake, peer: Peer
) -> None:
    for stored in (False, True):
        before = lake.rows("a")[0]
        txns = [adding(peer, amount) for amount in (1, 10, 100)]
        steps = [peer.steps(commit(txn)) for txn in txns]
        steps[0].finish()
        request = steps[1].until("HEAD").next
        if stored:
            lake.store.apply(request)  # its sender gets no response
        with pytest.raises(KeyboardInterrupt):
            steps[1].interrupt()
        steps[2].finish()
        assert lake.rows("a")[0] == before + 101 + (10 if stored else 0)
        peer.commit(txns[1])
        assert lake.rows("a")[0] == before + 111


def test_a_client_whose_clock_is_behind_the_floor_combines_transactions(lake: MemoryLake) -> None:
    lake.pass_by(3 * 24 * 3600)
    cleaner = lake.peer()
    cleaner.run(gc(cleaner.context))
    slow = lake.peer()
    slow.client.clock.skew(-3 * 24 * 3600)
    txns = [adding(slow, amount) for amount in (1, 10, 100)]
    steps = [slow.steps(commit(txn)) for txn in txns]
    for one in steps:
        one.finish()
    assert lake.head.commits[-1].members == tuple(txn.id for txn in txns[1:])
    assert lake.rows("a")[0] == 211


@pytest.mark.parametrize(
    "unfit",
    [
        "read",
        "counted",
        "appended",
        "keyed",
        "alone",
        "switched off",
        "by log entry",
        "queued",
        "with metadata",
        "with an application's version",
        "validated by rules",
    ],
)
def test_a_transaction_of_which_something_was_seen_or_is_its_own_commits_by_itself(
    unfit: str,
) -> None:
    lake = MemoryLake(combine=unfit != "switched off")
    peer = lake.peer()
    options: dict[str, Any] = {
        "alone": {"alone": True},
        "with metadata": {"metadata": {"by": "me"}},
        "with an application's version": {"applications": {"job": 3}},
        "validated by rules": {"validation": "rules"},
        "queued": {"features": Feature.R | Feature.I | Feature.CT},
        "by log entry": {"features": Feature.R},
    }.get(unfit, {})
    txn = adding(peer, 1, **options)
    assert may_combine(adding(peer, 1)) == (unfit != "switched off")
    match unfit:
        case "read":
            peer.read(txn, "b")
        case "counted":
            txn.work.done[0].observed = True
        case "appended":
            peer.append(txn, "a", 7)
        case "keyed":
            txn.claims.key = KeyUse("k", None)
    assert not may_combine(txn)


def test_a_foreign_change_cancels_only_the_member_that_does_not_fit_it(lake: MemoryLake) -> None:
    peer = lake.peer()
    first = peer.steps(commit(adding(peer, 1), publish=False))
    txns = [peer.begin(defer=True) for _ in range(3)]
    for number, txn in enumerate(txns):
        peer.add(txn, "a", 10**number)
    too_large = "CASE WHEN balance > 1000 THEN 9223372036854775807 + 1 ELSE balance END"
    value = {"balance": parse_expression(too_large)}
    operation = Update("a", value, parse_predicate("id = 0"))
    peer.run(execute(txns[1], operation, "update"))
    steps = [peer.steps(commit(txn, publish=False)) for txn in txns]
    first.finish()
    for one in steps:
        one.finish()
    assert lake.head.commits[-1].members == tuple(txn.id for txn in txns)
    client: Client = simulation_client(lake.world, "foreign")
    run_now(lake.store, delta_writer.rewrite(client, "a", lambda row: {**row, "balance": 5000}))
    report = lake.recover()
    assert lake.rows("a")[0] == 5000 + 1 + 1 + 100
    (finding,) = [one for one in report.findings if one.kind == "voided"]
    assert finding.txn_id == txns[1].id
