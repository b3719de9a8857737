"""Operations in the inbox, request by request: who performs them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.global_log.head import Reservation
from lakevilla.global_log.inbox.fold import why_unintended
from lakevilla.global_log.inbox.proposal import (
    INBOX_PREFIX,
    WINDOW,
    Proposal,
    read_proposal,
    seal_proposal,
)
from lakevilla.lake.publishing.outcome import fence, outcome
from lakevilla.maintenance.gc.gc import gc
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import ANY
from lakevilla.store.effects import Get, List, Put, Sleep
from lakevilla.sublogs.operations import Alter, Drop, Guard, Update
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together import combine
from lakevilla.transaction.commit.together import group as crowds
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.bugs import attribute
from tests.support.simulated.memory_lake import MemoryLake, Peer

replace = msgspec.structs.replace

#: The statement fails on a row whose balance is above 120.
FAILS_ABOVE_120 = "CASE WHEN balance > 120 THEN 9223372036854775807 + 1 ELSE balance + 7 END"


@pytest.fixture(autouse=True)
def _hot_and_crowded() -> Iterator[None]:
    with small_limits(False, crowded=True, hot=True):
        yield


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def adding(peer: Peer, amount: int, table: str = "a") -> TransactionState:
    """Return a transaction that has noted one update, and looked at nothing."""
    txn = peer.begin(defer=True)
    peer.add(txn, table, amount)
    return txn


def setting(peer: Peer, value: str) -> TransactionState:
    txn = peer.begin(defer=True)
    operation = Update("a", {"balance": parse_expression(value)}, parse_predicate("id = 0"))
    peer.run(execute(txn, operation, "update"))
    return txn


def proposed(peer: Peer, txn: TransactionState) -> Any:
    """Run a commit until its operations are in the inbox."""
    process = peer.steps(commit(txn))
    process.until(INBOX_PREFIX).step()
    return process


def step_until(process: Any, verb: type[Any], word: str = "") -> None:
    """Stop right before the next such request, also one that is no write."""
    while not (isinstance(process.next, verb) and word in getattr(process.next, "key", "")):
        process.step()
        assert not process.done


def rows(txn: TransactionState) -> list[tuple[int, int, int, int]]:
    return [done.counts.rows for done in txn.work.done]


def move(lake: MemoryLake, times: int = 1) -> None:
    """Let another client replace HEAD."""
    for _ in range(times):
        lake.peer().decide("b", 20 + lake.head.sequence)


def spoil(lake: MemoryLake, change: Callable[[Proposal], Proposal]) -> None:
    """Replace the only proposal by a changed one."""
    (key,) = lake.keys(INBOX_PREFIX)
    found = read_proposal(key, lake.store.objects.pop(key).body)
    spoilt, body = seal_proposal(change(found))
    lake.store.apply(Put(spoilt, body, ANY))


# ---------------------------------------------------------------- performed by a leader


def test_a_leader_performs_what_another_process_proposes(lake: MemoryLake) -> None:
    peer, leader = lake.peer(), lake.peer()
    theirs, own = adding(peer, 10), adding(leader, 1)
    owner = proposed(peer, theirs)
    before = lake.version("a")
    result = leader.commit(own)
    assert lake.head.commits[-1].members == (own.id, theirs.id)
    assert owner.finish().global_version == result.global_version
    assert lake.rows("a")[0] == 111
    assert lake.version("a") == before + 1
    assert rows(theirs) == [(1, 0, 1, 0)]
    stored = [change.key for change in lake.store.journal if theirs.id in change.key]
    assert stored == [], "its owner has stored a proposal, and nothing else"
    assert lake.keys(INBOX_PREFIX) == []


def test_an_owner_is_given_the_counts_of_the_state_on_which_a_leader_performed_it(
    lake: MemoryLake,
) -> None:
    peer, leader = lake.peer(), lake.peer()
    theirs, own = peer.begin(defer=True), leader.begin(defer=True)
    peer.delete(theirs, "a", 1)
    leader.delete(own, "a", 1)
    owner = proposed(peer, theirs)
    leader.commit(own)
    owner.finish()
    assert (rows(own), rows(theirs)) == ([(1, 0, 0, 1)], [(0, 0, 0, 0)])


def test_threads_propose_together_and_are_performed_together(lake: MemoryLake) -> None:
    peer, leader = lake.peer(), lake.peer()
    txns = [adding(peer, 10**n) for n in range(1, 4)]
    first, second, third = [peer.steps(commit(txn)) for txn in txns]
    first.until(INBOX_PREFIX).step()
    leader.commit(adding(leader, 1))
    first.finish()
    second.until(INBOX_PREFIX).step()
    leader.commit(adding(leader, 1))
    assert lake.head.commits[-1].members[1:] == tuple(txn.id for txn in txns[1:])
    second.finish()
    third.finish()
    assert lake.rows("a")[0] == 100 + 1112


def test_a_process_that_is_alone_commits_by_itself_after_a_wait(lake: MemoryLake) -> None:
    peer = lake.peer()
    txn = adding(peer, 10)
    peer.commit(txn)
    assert lake.head.commits[-1].members == (txn.id,)
    assert lake.head.crowd == 1, "the crowd is over"
    assert lake.rows("a")[0] == 110


def test_a_transaction_on_a_table_that_is_not_hot_goes_the_usual_way(lake: MemoryLake) -> None:
    with attribute(combine, "COLD", float("-inf")):
        peer = lake.peer()
        txn = adding(peer, 10)
        combine._group_of(peer.context).note_hot(peer.context, ["b"])
        peer.commit(txn)
    assert lake.head.commits[-1].txn == txn.id


def test_a_process_that_meets_no_other_does_not_ask_for_one_again(lake: MemoryLake) -> None:
    peer = lake.peer()
    with attribute(crowds, "CROWD", 2):
        group = combine._group_of(peer.context)
        group.note_shared(peer.context, ["a"])
        for listed in (1, 1):
            peer.commit(adding(peer, 1))
            assert not group.is_shared(peer.context)
            assert len(peer.asked_for(List, INBOX_PREFIX)) == listed


def test_a_combined_transaction_that_loses_its_rows_shows_that_they_are_shared(
    lake: MemoryLake,
) -> None:
    peer, rival = lake.peer(), lake.peer()
    with attribute(crowds, "CROWD", 2):
        first, second, third = [peer.steps(commit(adding(peer, 1))) for _ in range(3)]
        first.finish()
        step_until(second, Put, "HEAD.json")
        rival.commit(adding(rival, 10))
        assert not combine._group_of(peer.context).is_shared(peer.context)
        second.finish()
        third.finish()
        assert combine._group_of(peer.context).is_shared(peer.context)
    assert lake.rows("a")[0] == 113


# ---------------------------------------------------------------- exactly one outcome


def test_an_intent_that_two_leaders_have_performed_commits_once(lake: MemoryLake) -> None:
    peer, first, second = lake.peer(), lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    owner = proposed(peer, theirs)
    slow = second.steps(commit(adding(second, 100)))
    step_until(slow, Put, "HEAD.json")
    first.commit(adding(first, 1))
    slow.finish()
    owner.finish()
    assert lake.rows("a")[0] == 211


def test_nothing_is_performed_in_a_replacement_after_the_proposals_last(lake: MemoryLake) -> None:
    """The leader has performed it in time, and another client replaces HEAD first."""
    peer, leader = lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    proposed(peer, theirs)  # it is never heard of again
    move(lake, WINDOW - 1)
    own = adding(leader, 1)
    slow = leader.steps(commit(own))
    step_until(slow, Put, "HEAD.json")
    move(lake)
    slow.finish()
    assert lake.rows("a")[0] == 101
    assert lake.head.commits[-1].members == (own.id,)


def test_an_owner_does_not_refuse_what_a_leader_may_yet_perform(lake: MemoryLake) -> None:
    """At home the statement fails; a leader performs it on another state, where it does not."""
    peer, leader = lake.peer(), lake.peer()
    rich = lake.peer()
    rich.commit(adding(rich, 30))
    theirs = setting(peer, FAILS_ABOVE_120)
    owner = proposed(peer, theirs)
    step_until(owner, List)  # it has waited long enough, and leads
    step_until(owner, Sleep)  # it has failed
    leader.commit(adding(leader, -30))
    owner.finish()
    assert theirs.id in lake.head.commits[-1].members
    assert lake.rows("a")[0] == 107


def test_an_owner_that_is_interrupted_finds_what_a_leader_has_performed(lake: MemoryLake) -> None:
    peer, leader = lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    owner = proposed(peer, theirs)
    with pytest.raises(KeyboardInterrupt):
        owner.interrupt()
    leader.commit(adding(leader, 1))
    sequence = lake.head.sequence
    assert peer.commit(theirs).global_version == sequence
    assert rows(theirs) == [(1, 0, 1, 0)]
    assert lake.rows("a")[0] == 111


def test_the_outcome_of_a_dead_owners_transaction_is_that_of_its_operations(
    lake: MemoryLake,
) -> None:
    peer, leader = lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    proposed(peer, theirs)
    leader.commit(adding(leader, 1))
    assert leader.run(outcome(leader.context, theirs.id)).state == "committed"


def test_a_fenced_transaction_is_not_performed(lake: MemoryLake) -> None:
    peer, leader, other = lake.peer(), lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    owner = proposed(peer, theirs)
    other.run(fence(other.context, theirs.id))
    leader.commit(adding(leader, 1))
    assert lake.rows("a")[0] == 101
    with pytest.raises(lv.TransactionAborted):
        owner.finish()


def test_a_lost_answer_to_the_proposal_changes_nothing(lake: MemoryLake) -> None:
    for stored in (False, True):
        before = lake.rows("a")[0]
        peer, leader = lake.peer(), lake.peer()
        owner = peer.steps(commit(adding(peer, 10)))
        owner.until(INBOX_PREFIX)
        if stored:
            lake.store.apply(owner.next)
        owner.lose()
        leader.commit(adding(leader, 1))
        owner.finish()
        assert lake.rows("a")[0] == before + 11


# ---------------------------------------------------------------- bad input


def of_a_newer_format(one: Proposal) -> Proposal:
    return replace(one, format=Proposal.FORMAT + 1)


def as_another_lakes(one: Proposal) -> Proposal:
    return replace(one, lake_id="a copy")


def of_a_head_that_is_to_come(one: Proposal) -> Proposal:
    return replace(one, replacement=one.replacement + 1)


def with_operations(*operations: Any) -> Callable[[Proposal], Proposal]:
    def changed(one: Proposal) -> Proposal:
        return replace(one, intents=(replace(one.intents[0], operations=operations),))

    return changed


def with_another_contract(one: Proposal) -> Proposal:
    tables = {"a": replace(one.intents[0].tables["a"], contract="0")}
    return replace(one, intents=(replace(one.intents[0], tables=tables),))


def with_more_tables(one: Proposal) -> Proposal:
    table = one.intents[0].tables["a"]
    return replace(one, intents=(replace(one.intents[0], tables={"a": table, "b": table}),))


def of_nothing(one: Proposal) -> Proposal:
    return replace(one, intents=())


#: A constraint that all rows fulfil.
CHECKED = Alter("a", {"add_constraints": {"small": "balance < 1000000"}})
NO_COLUMN = Update("a", {"no": parse_expression("1")}, parse_predicate("id = 0"))


@pytest.mark.parametrize(
    "change",
    [
        of_a_newer_format,
        as_another_lakes,
        of_a_head_that_is_to_come,
        with_operations(),
        with_operations(Drop("a", "id")),
        with_operations(NO_COLUMN),
        with_another_contract,
        with_more_tables,
        of_nothing,
    ],
)
def test_an_invalid_intent_is_left_and_its_owner_commits_by_itself(
    lake: MemoryLake, change: Callable[[Proposal], Proposal]
) -> None:
    peer, leader = lake.peer(), lake.peer()
    owner = proposed(peer, adding(peer, 10))
    spoil(lake, change)
    own = adding(leader, 1)
    leader.commit(own)
    assert lake.head.commits[-1].members == (own.id,)
    owner.finish()
    assert lake.rows("a")[0] == 111
    move(lake, WINDOW)
    collector = lake.peer()
    collector.run(gc(collector.context))
    assert lake.keys(INBOX_PREFIX) == []


def test_a_client_that_does_not_know_intents_leaves_them(lake: MemoryLake) -> None:
    peer, older = lake.peer(), lake.peer()
    owner = proposed(peer, adding(peer, 10))
    own = adding(older, 1)
    with attribute(Proposal, "FORMAT", 2):
        older.commit(own)
    assert lake.rows("a")[0] == 101
    assert len(lake.keys(INBOX_PREFIX)) == 1
    owner.finish()
    assert lake.rows("a")[0] == 111


def test_a_statement_that_fails_stops_no_leader_and_is_told_to_its_owner(lake: MemoryLake) -> None:
    peer, leader = lake.peer(), lake.peer()
    leader.commit(adding(leader, 30))
    theirs = setting(peer, FAILS_ABOVE_120)
    owner = proposed(peer, theirs)
    own = [adding(leader, 1), adding(leader, 1)]
    leader.commit(own[0])
    assert lake.head.commits[-1].members == (own[0].id,)
    refused = combine._group_of(leader.context).refused
    assert list(refused) == [theirs.id]
    leader.commit(own[1])
    with pytest.raises(lv.InvalidOperation):
        owner.finish()
    assert lake.rows("a")[0] == 132
    peer.commit(adding(peer, 1))
    assert lake.keys(INBOX_PREFIX) == []


def test_ten_thousand_intents_of_dead_owners_stop_nobody(lake: MemoryLake) -> None:
    """They may be performed, as their owners have agreed to that, until HEAD has moved on."""
    peer, late = lake.peer(), lake.peer()
    theirs = adding(peer, 1)
    proposed(peer, theirs)
    (key,) = lake.keys(INBOX_PREFIX)
    one = read_proposal(key, lake.store.objects[key].body)
    (intent,) = one.intents
    for number in range(10_000):
        txn = f"{intent.txn[:-6]}{number:06x}"
        stored, body = seal_proposal(replace(one, intents=(replace(intent, txn=txn),)))
        lake.store.apply(Put(stored, body, ANY))
    waiting = proposed(late, adding(late, 1))
    for leads in range(WINDOW + 1):
        leader = lake.peer()
        leader.commit(adding(leader, 1))
        assert len(leader.asked_for(Get, INBOX_PREFIX)) <= 64
        members = lake.head.commits[-1].members
        assert len(members) <= combine.MOST_MEMBERS
        assert len(members) == 1 or leads < WINDOW
    waiting.finish()
    ids = {txn for one in lake.head.commits for txn in one.members}
    assert lake.rows("a")[0] == 100 + len(ids)


@pytest.mark.parametrize("done", ["dropped", "guarded", "altered"])
def test_a_table_is_dropped_guarded_or_redefined_meanwhile(lake: MemoryLake, done: str) -> None:
    """The operations are performed on the table that their owner has seen, or by their owner."""
    peer, other, leader = lake.peer(), lake.peer(), lake.peer()
    theirs = adding(peer, 10)
    owner = proposed(peer, theirs)
    changes = other.begin()
    match done:
        case "dropped":
            table_id = lake.head.tables["a"].table_id
            other.run(execute(changes, Drop("a", table_id), "drop_table"))
        case "guarded":
            other.run(execute(changes, Guard("a", True), "guard"))
        case "altered":
            other.run(execute(changes, CHECKED, "alter"))
    other.commit(changes)
    if done == "dropped":
        with pytest.raises(lv.ConflictError):
            owner.finish()
        return
    leader.commit(adding(leader, 1))
    assert (theirs.id in lake.head.commits[-1].members) == (done == "guarded")
    owner.finish()
    assert lake.rows("a")[0] == 111


def test_a_large_operation_is_not_proposed(lake: MemoryLake) -> None:
    peer = lake.peer()
    peer.commit(setting(peer, f"CASE WHEN '{'x' * 70_000}' = '' THEN 0 ELSE balance END"))
    assert peer.asked_for(Put, INBOX_PREFIX) == []
    assert lake.rows("a")[0] == 100


# ---------------------------------------------------------------- by HEAD alone


def test_head_shows_which_intents_may_be_performed(lake: MemoryLake) -> None:
    peer = lake.peer()
    theirs = adding(peer, 10)
    proposed(peer, theirs)
    (key,) = lake.keys(INBOX_PREFIX)
    one = read_proposal(key, lake.store.objects[key].body)
    head = lake.head

    def why(head: Any = head, one: Proposal = one, written: Any = ("a", "b")) -> str | None:
        return why_unintended(head, one, one.intents[0], written)

    def table(**changes: Any) -> Any:
        return replace(
            head, tables=head.tables.updated({"a": replace(head.tables["a"], **changes)})
        )

    assert why() is None
    assert why(written=("b",)) == "it names tables that the leader does not write"
    reasons = [
        why(table(dropped=True)),
        why(table(catalog="pointer")),
        why(table(table_id="another")),
        why(replace(head, reserved=(Reservation("another", ("a",)),))),
        why(replace(head, aborted=(theirs.id,))),
        why(replace(head, replacement=head.replacement + WINDOW)),
        why(replace(head, replacement=head.replacement - 1)),
        why(one=replace(one, sequence=one.sequence + 1)),
        why(replace(head, commits=(*head.commits, replace(head.commits[-1], txn=theirs.id)))),
    ]
    assert None not in reasons
