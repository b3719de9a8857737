"""Commits in a crowd of processes: proposed, included by others, or led by their owner.

No commit is refused too early. Here one process is a crowd, so each commit is proposed first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.errors import ConflictError
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX, WINDOW, read_proposal
from lakevilla.lake.publishing.outcome import fence
from lakevilla.maintenance.gc.gc import gc
from lakevilla.maintenance.rebuild_head import confirm_head, rebuild_head
from lakevilla.store.base import ANY
from lakevilla.store.effects import Get, List, Program, Put
from lakevilla.sublogs.operations import Alter
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together import group
from lakevilla.transaction.commit.together import join as behind
from lakevilla.transaction.commit.together.crowd import commit_together
from lakevilla.transaction.commit.together.group import Batch, Declined, Settled, commits_of
from lakevilla.transaction.redo import rebase as rebasing
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.applying.apply import roll_back
from lakevilla.transaction.verbs.read_write import execute
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import MemoryLake, Peer

HEAD = "_lakevilla/HEAD.json"


@pytest.fixture(autouse=True)
def _crowded() -> Iterator[None]:
    with small_limits(False, crowded=True):
        yield


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def proposing(peer: Peer, *ids: int, table: str = "a") -> Any:
    """Run the commit of a process until it has proposed."""
    return proposed(peer, peer.appending(table, *ids))


def proposed(peer: Peer, txn: TransactionState) -> Any:
    process = peer.steps(commit(txn))
    process.until(INBOX_PREFIX).step()
    return process


def leading(process: Any) -> Any:
    """Run such a commit until it replaces HEAD for all."""
    return process.until(HEAD)


def proposals(lake: MemoryLake) -> list[str]:
    return lake.keys(INBOX_PREFIX)


def test_a_leader_commits_the_proposals_of_other_clients_with_its_own(lake: MemoryLake) -> None:
    one, two, three = (proposing(lake.peer(), number) for number in (7, 8, 9))
    stored, entries = lake.replacements(), lake.version("a")
    leading(two).finish()
    assert lake.replacements() == stored + 1
    assert lake.version("a") == entries + 1, "one entry holds the rows of all"
    assert lake.head.crowd == 3
    assert lake.head.listed == lake.head.replacement
    results = [process.finish() for process in (one, three)]
    assert lake.replacements() == stored + 1
    assert lake.ids("a") == [0, 1, 7, 8, 9]
    versions = [result.versions["a"] for result in (two.result, *results)]
    assert versions == [entries + 1] * 3
    assert proposals(lake) == [], "each deletes its own"


def test_a_lake_in_which_one_process_commits_is_not_crowded_any_more(lake: MemoryLake) -> None:
    proposing(lake.peer(), 7).finish()
    assert lake.head.crowd == 1
    small = lake.peer()
    with small_limits(False):
        group.CROWD = 2
        small.run(small.context.head())
        assert not commits_of(small.context).is_crowded(small.context)


def test_a_commit_is_proposed_once_all_that_it_names_is_stored(lake: MemoryLake) -> None:
    peer = lake.peer()
    process = peer.steps(commit(peer.appending("a", 7)))
    process.until(INBOX_PREFIX)
    key, body = process.next.key, process.next.body
    one = read_proposal(key, body).commits[0]
    assert f"_lakevilla/commits/{one.txn}-{one.digest}.json" in lake.store.objects
    for file in one.commit_object().tables["a"].change.adds:
        assert f"a/{file.path}" in lake.store.objects


def test_a_commit_that_changes_the_definition_of_its_table_is_not_proposed(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    request = {"set_properties": {"owner": "sales"}}
    peer.run(execute(txn, Alter("a", request), "alter"))
    process = leading(peer.steps(commit(txn)))
    assert proposals(lake) == []
    process.finish()
    assert lake.ids("a") == [0, 1, 7]


def test_a_stored_proposal_is_committed_although_the_response_to_its_write_is_lost(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    process = peer.steps(commit(peer.appending("a", 7)))
    process.until(INBOX_PREFIX)
    lake.store.apply(process.next)
    process.fail(lv.StoreError("the answer was lost"))
    leading(proposing(lake.peer(), 8)).finish()
    assert process.finish().versions == {"a": lake.version("a")}
    assert lake.ids("a") == [0, 1, 7, 8]


def test_two_processes_that_lead_at_once_lose_no_commit(lake: MemoryLake) -> None:
    one, two = proposing(lake.peer(), 7), proposing(lake.peer(), 8)
    leading(one)
    leading(two)
    one.finish()
    two.finish()
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_transaction_interrupted_while_it_waits_keeps_its_files_and_may_be_committed(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    with pytest.raises(KeyboardInterrupt):
        process.interrupt()
    assert txn.ending.is_in_doubt
    assert not txn.ending.may_delete_its_files
    leading(proposing(lake.peer(), 8)).finish()
    assert lake.ids("a") == [0, 1, 7, 8]
    assert peer.commit(txn).versions == {"a": lake.version("a")}, "asked again, it has committed"


def test_the_proposal_of_an_interrupted_commit_is_deleted_by_the_next_commit_of_the_process(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    process = proposing(peer, 7)
    with pytest.raises(KeyboardInterrupt):
        process.interrupt()
    (left,) = proposals(lake)
    other = proposing(peer, 8, table="b")
    assert left in proposals(lake)
    other.finish()
    assert proposals(lake) == []


def test_the_proposal_of_a_transaction_with_a_conflict_is_deleted_by_the_next_commit(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    one, two = changing(peer, "a", read="b"), changing(lake.peer(), "b")
    two.finish()
    with pytest.raises(lv.ConflictError):
        one.finish()
    assert len(proposals(lake)) == 1
    peer.commit(peer.appending("a", 7))
    assert proposals(lake) == []


def test_a_proposal_with_a_commit_that_still_waits_is_not_deleted(lake: MemoryLake) -> None:
    peer = lake.peer()
    process = proposing(peer, 7)
    reader = peer.begin()
    peer.read(reader, "b")
    peer.commit(reader)
    assert len(proposals(lake)) == 1
    process.finish()
    assert proposals(lake) == []


def test_a_commit_is_proposed_again_once_the_window_of_its_proposal_is_over(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    first = proposals(lake)
    for number in range(WINDOW):
        with small_limits(False):
            other = lake.peer()
            other.context.proposes = lambda: False
            other.commit(other.appending("b", 20 + number))
    process.until(INBOX_PREFIX)
    assert process.next.key not in first
    last = read_proposal(first[0], lake.store.objects[first[0]].body).last_replaced
    assert lake.head.replacement == last + 1
    process.finish()
    assert lake.ids("a") == [0, 1, 7]


def test_a_proposed_transaction_that_was_fenced_is_committed_by_no_client(lake: MemoryLake) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    stranger = lake.peer()
    assert stranger.run(fence(stranger.context, txn.id)) is None
    leading(proposing(lake.peer(), 8)).finish()
    with pytest.raises(lv.TransactionAborted):
        process.finish()
    assert lake.ids("a") == [0, 1, 8]


@pytest.mark.parametrize("planted", [False, True])
def test_a_store_error_is_raised_as_unknown_while_another_client_may_include_the_proposal(
    lake: MemoryLake, planted: bool
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    bug = PLANTED["proposed_and_reported_as_undone"]
    with bug.plant() if planted else nullcontext():
        process.until(HEAD)
        process.fail(lv.StoreError("no right to write HEAD"))
        with pytest.raises(lv.StoreError if planted else lv.CommitOutcomeUnknown):
            process.finish()
    leading(proposing(lake.peer(), 8)).finish()
    assert lake.ids("a") == [0, 1, 7, 8], "which is why it must not say no"


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Make some transactions stricter than leaders: their owner finds a conflict when it leads."""
    found: set[str] = set()

    def add_candidates(context: Any, base: Any, candidates: Any) -> Program[Batch]:
        joined = yield from original(context, base, candidates)
        if not any(one.txn.id in found for one in joined.accepted):
            return joined
        conflict = ConflictError("by this version of the library it does not fit")
        refused = Declined(base, Examination(conflict=conflict))
        return Batch(base.head, {}, dict.fromkeys(joined.accepted, refused))

    original = behind.add_candidates
    monkeypatch.setattr(behind, "add_candidates", add_candidates)
    return found


def refusing(peer: Peer, strict: set[str]) -> Any:
    """Run a commit until its owner's own validation finds that it does not fit any more."""
    txn = peer.appending("a", 7)
    strict.add(txn.id)
    process = proposed(peer, txn)
    while not isinstance(process.next, List):
        process.step()
    for _ in range(2):
        process.step()  # the list of the inbox, and the read of HEAD
    return process


@pytest.mark.parametrize("planted", [False, True])
def test_a_leader_may_include_a_commit_that_its_owner_finds_in_conflict(
    lake: MemoryLake, strict: set[str], planted: bool
) -> None:
    bug = PLANTED["no_while_it_lives"]
    with bug.plant() if planted else nullcontext():
        process = refusing(lake.peer(), strict)
        if planted:
            with pytest.raises(lv.ConflictError):
                process.finish()
        leading(proposing(lake.peer(), 8)).finish()
        assert lake.ids("a") == [0, 1, 7, 8], "which is why its owner must not say no before"
        if not planted:
            assert process.finish().versions == {"a": lake.version("a")}


@pytest.mark.parametrize("planted", [False, True])
def test_a_proposal_that_its_owner_has_refused_is_included_by_no_client(
    lake: MemoryLake, strict: set[str], planted: bool
) -> None:
    process = refusing(lake.peer(), strict)
    with pytest.raises(lv.ConflictError):
        process.finish()
    assert len(proposals(lake)) == 1
    last = read_proposal(
        proposals(lake)[0], lake.store.objects[proposals(lake)[0]].body
    ).last_replaced
    assert lake.head.replacement > last, "its owner has moved HEAD himself, as nobody else did"
    bug = PLANTED["taken_too_late"]
    with bug.plant() if planted else nullcontext():
        leading(proposing(lake.peer(), 8)).finish()
    assert lake.ids("a") == ([0, 1, 7, 8] if planted else [0, 1, 8])


@pytest.mark.parametrize("options", [{"validation": "rules"}, {"slack": 1}])
def test_commits_that_can_not_be_proposed_race_for_head(lake: MemoryLake, options: Any) -> None:
    peer = lake.peer()
    adding = peer.begin(**options)
    peer.add(adding, "a", 5)
    peer.commit(adding)
    assert not peer.asked_for(Put, INBOX_PREFIX)
    assert lake.rows("a") == {0: 105, 1: 100}


def test_a_commit_that_restores_files_is_not_proposed(lake: MemoryLake) -> None:
    """Only its owner checks, at each HEAD that it replaces, whether these files are kept."""
    peer = lake.peer()
    before = lake.head.sequence
    adding = peer.begin()
    peer.add(adding, "a", 5)
    peer.commit(adding)
    proposed_before = len(peer.asked_for(Put, INBOX_PREFIX))
    txn = peer.begin()
    peer.run(roll_back(txn, ("version", before)))
    peer.commit(txn)
    assert len(peer.asked_for(Put, INBOX_PREFIX)) == proposed_before
    assert lake.rows("a") == {0: 100, 1: 100}


# ------------------------------------------------------------- commits that read or change rows


def changing(peer: Peer, table: str, *, read: str = "") -> Any:
    """Propose an update, of a transaction that has possibly read another table before."""
    txn = peer.begin()
    if read:
        peer.read(txn, read)
    peer.add(txn, table, 5)
    return proposed(peer, txn)


def test_changes_of_different_tables_are_included_in_one_replacement(lake: MemoryLake) -> None:
    one, two = changing(lake.peer(), "a"), changing(lake.peer(), "b")
    stored = lake.replacements()
    two.finish()
    one.finish()
    assert lake.replacements() == stored + 1
    assert lake.rows("a")[0] == lake.rows("b")[0] == 105


def test_a_proposal_that_changes_the_same_row_is_left_out_and_its_owner_commits_it(
    lake: MemoryLake,
) -> None:
    one, two = changing(lake.peer(), "a"), changing(lake.peer(), "a")
    last = max(read_proposal(key, lake.store.objects[key].body).last_replaced
               for key in proposals(lake))  # fmt: skip
    two.finish()
    assert lake.rows("a")[0] == 105
    assert one.finish().retries == 1
    assert lake.rows("a")[0] == 110
    assert lake.head.replacement > last, "it was redone once nobody could take what it had proposed"


def test_one_of_two_proposals_that_read_what_the_other_changes_raises_a_conflict(
    lake: MemoryLake,
) -> None:
    one = changing(lake.peer(), "a", read="b")
    two = changing(lake.peer(), "b", read="a")
    two.finish()
    with pytest.raises(lv.ConflictError):
        one.finish()
    assert (lake.rows("a")[0], lake.rows("b")[0]) == (100, 105)


def test_a_client_that_lost_a_row_conflict_proposes_no_updates_for_a_while(
    lake: MemoryLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "DOUBTFUL_SECONDS", 5.0)
    peer = lake.peer()
    one, two = changing(peer, "a"), changing(lake.peer(), "a")
    two.finish()
    one.finish()
    before = len(peer.asked_for(Put, INBOX_PREFIX))

    def commit_update() -> int:
        txn = peer.begin()
        peer.add(txn, "a", 5)
        peer.commit(txn)
        return len(peer.asked_for(Put, INBOX_PREFIX)) - before

    assert commit_update() == 0
    peer.commit(peer.appending("a", 7))
    assert len(peer.asked_for(Put, INBOX_PREFIX)) == before + 1, "rows that are added, it does"
    before += 1
    lake.pass_by(5.0)
    assert commit_update() == 1


def test_a_leader_reads_only_the_inbox_and_head_to_check_what_proposals_rely_on(
    lake: MemoryLake,
) -> None:
    plain, relying = [proposing(lake.peer(), 7), changing(lake.peer(), "b", read="a")]
    leader = lake.peer()
    process = proposed(leader, leader.appending("b", 8))
    asked = []
    while not (isinstance(process.next, Put) and process.next.key == HEAD):
        asked.append(type(process.step()[0]).__name__)
    # After its wait, the leader lists the inbox, and reads HEAD and the two proposals.
    assert [verb for verb in asked if verb != "Sleep"][-4:] == ["List", "Get", "Get", "Get"]
    process.finish()
    assert lake.head.crowd == 3
    plain.finish()
    relying.finish()


def test_two_waiting_threads_of_one_process_make_one_proposal(lake: MemoryLake) -> None:
    peer = lake.peer()
    first, *some = [peer.candidate(peer.appending("a", number)) for number in (6, 7, 8)]
    leader = leading(peer.steps(commit_together(first)))
    follower, last = [peer.steps(commit_together(one)) for one in some]
    leader.finish()
    follower.until(INBOX_PREFIX)
    found = read_proposal(follower.next.key, follower.next.body)
    assert [one.txn for one in found.commits] == [one.txn.id for one in some]
    assert isinstance(follower.finish(), Settled)
    assert isinstance(last.finish(), Settled)


def test_a_thread_that_joins_a_waiting_one_is_committed_with_it_without_a_proposal(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    first, second = [peer.candidate(peer.appending("a", number)) for number in (7, 8)]
    leader = peer.steps(commit_together(first))
    leader.until(INBOX_PREFIX).step()
    follower = peer.steps(commit_together(second))
    stored = lake.replacements()
    leader.finish()
    follower.finish()
    assert lake.replacements() == stored + 1
    assert len(peer.asked_for(Put, INBOX_PREFIX)) == 0


def test_proposals_of_a_leader_that_fails_are_committed_by_the_next_leader(
    lake: MemoryLake,
) -> None:
    one, two = proposing(lake.peer(), 7), proposing(lake.peer(), 8)
    leading(one)
    with pytest.raises(KeyboardInterrupt):
        one.interrupt()
    two.finish()
    assert lake.ids("a") == [0, 1, 7, 8], "it had proposed, and the next took it along"


def test_ten_thousand_old_proposals_cost_no_request_and_are_deleted_by_gc(lake: MemoryLake) -> None:
    for number in range(10_000):
        body = b"{}"
        lake.store.apply(Put(f"{INBOX_PREFIX}/{0:020}-{number:032x}.json", body, ANY))
    for number in range(WINDOW + 1):
        other = lake.peer()
        other.context.proposes = lambda: False
        other.commit(other.appending("b", 20 + number))
    peer = lake.peer()
    process = peer.steps(commit(peer.appending("a", 7)))
    leading(process)
    process.finish()
    assert lake.ids("a") == [0, 1, 7]
    collector = lake.peer()
    collector.run(gc(collector.context))
    assert not any(f"/{0:020}-" in key for key in proposals(lake))


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff" * 100, b'{"format": 99}'])
def test_a_damaged_proposal_is_ignored_and_stops_no_commit(lake: MemoryLake, body: bytes) -> None:
    number = lake.head.replacement
    lake.store.apply(Put(f"{INBOX_PREFIX}/{number:020}-{'ab' * 16}.json", body, ANY))
    peer = lake.peer()
    process = peer.steps(commit(peer.appending("a", 7)))
    leading(process)
    process.finish()
    assert lake.ids("a") == [0, 1, 7]


def test_an_outdated_list_of_the_inbox_delays_a_commit_and_loses_no_row(lake: MemoryLake) -> None:
    one, two = proposing(lake.peer(), 7), proposing(lake.peer(), 8)
    while not (isinstance(two.next, List) and two.next.prefix == INBOX_PREFIX):
        two.step()
    two.answer([])
    two.finish()
    assert 7 not in lake.ids("a")
    one.finish()
    assert lake.ids("a") == [0, 1, 7, 8]


def test_reads_of_head_while_waiting_are_conditional(lake: MemoryLake) -> None:
    process = proposing(lake.peer(), 7)
    process.until(HEAD, Get)
    assert process.next.known is not None


def test_a_rebuilt_head_begins_with_an_empty_inbox(lake: MemoryLake) -> None:
    proposing(lake.peer(), 7)
    assert proposals(lake)
    del lake.store.objects[HEAD]
    peer = lake.peer()
    peer.run(rebuild_head(peer.context))
    assert proposals(lake) == []
    assert lake.ids("a") == [0, 1]


# ------------------------------------------------------------- found long after it was included


def test_a_commit_that_is_found_behind_later_commits_gets_its_own_version(lake: MemoryLake) -> None:
    one = proposing(lake.peer(), 7)
    leading(proposing(lake.peer(), 8)).finish()
    leading(proposing(lake.peer(), 9)).finish()
    assert one.finish().versions == {"a": lake.version("a") - 1}
    assert lake.ids("a") == [0, 1, 7, 8, 9]


@pytest.mark.parametrize("how", ["toggle_not_null", "toggle_constraint"])
def test_a_commit_that_was_included_and_then_cancelled_raises_an_error(
    lake: MemoryLake, how: str
) -> None:
    one = proposing(lake.peer(), 7)
    leading(proposing(lake.peer(), 8, table="b")).step()
    foreign = lake.peer()
    assert foreign.run(getattr(delta_writer, how)(foreign.client, "a", "balance"))
    lake.recover()
    with pytest.raises(lv.ForeignConflict):
        one.finish()


def test_a_proposal_so_old_that_gc_may_have_deleted_its_files_is_not_included(
    lake: MemoryLake,
) -> None:
    process = proposing(lake.peer(), 7)
    with pytest.raises(KeyboardInterrupt):
        process.interrupt()
    lake.pass_by(8 * 24 * 3600)
    leading(proposing(lake.peer(), 8, table="b")).finish()
    assert lake.head.crowd == 1
    assert lake.ids("a") == [0, 1]


def test_a_damaged_leaf_of_a_proposals_table_does_not_stop_the_leader() -> None:
    with small_limits(True, crowded=True):
        lake = MemoryLake("a", "b", "c", "d", "e", "f")
        proposing(lake.peer(), 7, table="f")
        ref = lake.head.tables.missing(["f"])[0]
        assert ref not in lake.head.tables.missing(["a"])
        del lake.store.objects[ref.key]
        proposing(lake.peer(), 8, table="a").finish()


def test_commit_called_again_waits_until_no_client_can_include_the_proposal(
    lake: MemoryLake,
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    with pytest.raises(KeyboardInterrupt):
        process.interrupt()
    last = txn.ending.proposed
    assert last is not None
    again = peer.steps(commit(txn))
    again.until(INBOX_PREFIX)
    assert lake.head.replacement > last
    again.finish()
    assert lake.ids("a") == [0, 1, 7]


def test_a_proposed_transaction_interrupted_in_a_rebase_fails_as_unknown_and_not_as_retryable(
    lake: MemoryLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    process = proposed(peer, txn)
    with pytest.raises(KeyboardInterrupt):
        process.interrupt()

    def interrupted(*_: Any) -> Program[None]:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(rebasing, "_moved", interrupted)
    with pytest.raises(KeyboardInterrupt):
        peer.run(rebasing.rebase(txn, txn.bound.held, Examination()))
    assert isinstance(txn.ending.failure, lv.CommitOutcomeUnknown)
    txn.claims.key = KeyUse("load", None)
    peer.run(abort(txn))
    assert txn.id not in peer.context.ended, "it may yet be in HEAD"


# ------------------------------------------------------------- skewed clocks and sleeping owners

HOUR = 3600.0


@pytest.mark.parametrize("offset", [-HOUR, HOUR])
@pytest.mark.parametrize("leads", ["it", "the other"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_clock_that_is_an_hour_off_loses_or_doubles_no_commit(
    lake: MemoryLake, offset: float, leads: str, dies: bool
) -> None:
    leader, *peers = lake.peer(), lake.peer(), lake.peer()
    for one in [leader] if leads == "it" else peers:
        one.client.clock.skew(offset)
    owners = [proposing(peers[0], 7)] if dies else [proposing(peers[0], 7), changing(peers[1], "b")]
    leading(proposing(leader, 8)).finish()
    late = peers[0].context.clock.now() < leader.context.clock.now()
    assert lake.head.crowd == (1 if late else len(owners) + 1), "what seems old is left"
    if dies:
        for _ in range(WINDOW):
            leader.commit(leader.appending("b", 20))
        assert (7 in lake.ids("a")) is not late
        lake.recover()
        assert lake.ids("a") == ([0, 1, 8] if late else [0, 1, 7, 8])
        return
    for process in owners:
        process.finish()
    assert lake.ids("a") == [0, 1, 7, 8]
    assert lake.rows("b")[0] == 105


@pytest.mark.parametrize("slept", [1.0, 2 * HOUR, 30 * HOUR])
@pytest.mark.parametrize("taken", [False, True])
def test_an_owner_that_has_slept_finds_out_whether_its_proposal_was_included(
    lake: MemoryLake, slept: float, taken: bool
) -> None:
    owners = [proposing(lake.peer(), 7), changing(lake.peer(), "b")]
    other = lake.peer()
    other.context.proposes = lambda: taken  # otherwise it races, and does not read proposals
    lake.pass_by(slept if taken and slept < HOUR else 0.0)
    with small_limits(True, crowded=True):  # the included commit has moved to a page by then
        for number in range(8):
            other.commit(other.appending("a", 20 + number))
    lake.pass_by(slept)
    assert (7 in lake.ids("a")) is taken
    for process in owners:
        process.finish()
    assert lake.ids("a") == [0, 1, 7, *range(20, 28)]
    assert lake.rows("b")[0] == 105
    assert lake.recover().ok


def test_an_owner_that_has_slept_past_a_gc_learns_that_its_commit_is_aborted(
    lake: MemoryLake,
) -> None:
    process = proposing(lake.peer(), 7)
    lake.pass_by(8 * 24 * HOUR)
    collector = lake.peer()
    collector.run(confirm_head(collector.context))
    collector.run(gc(collector.context))
    leading(proposing(lake.peer(), 8)).finish()
    with pytest.raises(lv.TransactionAborted):
        process.finish()
    assert lake.ids("a") == [0, 1, 8]


def test_a_leader_that_has_slept_does_not_replace_a_newer_head(lake: MemoryLake) -> None:
    owner = proposing(lake.peer(), 7)
    stale = leading(proposing(lake.peer(), 8))
    assert json.loads(stale.next.body)["crowd"] == 2
    for number in range(WINDOW + 1):
        leading(proposing(lake.peer(), 20 + number)).finish()
    lake.pass_by(2 * HOUR)
    stale.finish()
    owner.finish()
    assert lake.ids("a") == [0, 1, 7, 8, *range(20, 21 + WINDOW)]
