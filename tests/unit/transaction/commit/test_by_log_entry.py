"""A commit of one table by its own log entry: the outcome for each way in which its create may
end.
"""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.store.base import Refused, Stored, Token, Unknown
from lakevilla.store.effects import List, Put, delete
from lakevilla.sublogs.operations import Guard
from lakevilla.transaction.commit.by_log_entry import Behind, Landed, _attempt, commit_by_entry
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import drop, execute
from lakevilla_testing.tables import delta_writer
from tests.support.simulated.memory_lake import BY_ENTRY, MemoryLake, Peer

LOG = "a/_delta_log/"
LOST = Unknown("the connection was cut")


@pytest.fixture
def lake() -> MemoryLake:
    """A lake without a HEAD: these tests request nothing of HEAD."""
    return MemoryLake(warm=False)


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


@pytest.fixture
def txn(peer: Peer) -> TransactionState:
    return peer.appending("a", 7, features=BY_ENTRY)


def attempt(peer: Peer, txn: TransactionState, resends: int = 0) -> Landed | Behind:
    return peer.run(_attempt(txn, "a", iter(range(resends))))


def foreign(lake: MemoryLake, *ids: int) -> None:
    peer = lake.peer()
    rows = [{"id": number, "balance": 0, "items": ""} for number in ids]
    assert peer.run(delta_writer.append(peer.client, "a", rows))


def test_an_append_to_a_cached_table_takes_two_requests(lake: MemoryLake, peer: Peer) -> None:
    peer.commit(peer.appending("a", 6, features=BY_ENTRY))
    txn = peer.appending("a", 7, features=BY_ENTRY)
    peer.asked.clear()
    assert peer.run(commit_by_entry(txn)) == 2
    assert [type(request) for request in peer.asked] == [Put, Put]
    assert lake.ids("a") == [0, 1, 6, 7]


def test_a_commit_moves_behind_a_foreign_entry_that_has_taken_its_number(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    foreign(lake, 8)
    assert attempt(peer, txn) == Behind(raced=True)
    assert not txn.ending.is_in_doubt, "a refused create can't land any more"
    assert attempt(peer, txn) == Landed(2)
    assert lake.ids("a") == [0, 1, 7, 8]
    assert txn.ending.retries == 1


def test_an_own_entry_found_at_its_number_after_a_refused_create_is_the_commit(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    peer.instead(LOG, Refused(), landed=True)  # its first attempt is stored, its retry refused
    assert attempt(peer, txn) == Landed(1)
    assert lake.version("a") == 1


def test_an_own_entry_found_below_foreign_entries_is_the_commit_and_not_written_again(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    def landed_and_overtaken() -> Refused:
        foreign(lake, 8)
        return Refused()

    peer.instead(LOG, landed_and_overtaken, landed=True)
    assert attempt(peer, txn) == Landed(1)
    assert lake.ids("a") == [0, 1, 7, 8], "once, and not again behind the other"


@pytest.mark.parametrize("landed", [True, False])
def test_a_log_entry_without_a_response_is_sent_again_with_the_same_bytes(
    lake: MemoryLake, peer: Peer, txn: TransactionState, landed: bool
) -> None:
    peer.instead(LOG, LOST, landed=landed)
    assert attempt(peer, txn, resends=1) == Landed(1)
    sent = [request for request in peer.asked if isinstance(request, Put) and LOG in request.key]
    assert sent[0] == sent[1]
    assert lake.ids("a") == [0, 1, 7]


def test_a_log_entry_that_never_gets_a_response_stays_in_doubt_under_its_number(
    peer: Peer, txn: TransactionState
) -> None:
    peer.instead(LOG, LOST, times=100)
    with pytest.raises(lv.CommitOutcomeUnknown, match="became version 1 of table a"):
        attempt(peer, txn, resends=2)
    assert txn.ending.entry_tried is not None
    assert txn.ending.entry_tried.version == 1
    assert len(peer.asked_for(Put, LOG)) == 3


def test_a_log_entry_without_a_response_is_not_sent_again_to_a_table_dropped_meanwhile() -> None:
    lake = MemoryLake()
    peer, other = lake.peer(), lake.peer()
    txn = peer.appending("a", 7, features=BY_ENTRY)

    def dropped() -> Unknown:
        dropping = other.begin()
        other.run(drop(dropping, "a"))
        other.commit(dropping)
        return LOST

    peer.instead(LOG, dropped)
    with pytest.raises(lv.CommitOutcomeUnknown):
        attempt(peer, txn, resends=2)
    assert len(peer.asked_for(Put, LOG)) == 1


def test_a_commit_in_doubt_is_searched_for_before_a_second_call_takes_another_number(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    peer.instead(LOG, LOST, times=6, landed=True)
    with pytest.raises(lv.CommitOutcomeUnknown):
        peer.commit(txn)
    foreign(lake, 8)
    assert peer.commit(txn).versions == {"a": 1}
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_create_that_the_store_rejects_leaves_nothing_in_doubt(
    peer: Peer, txn: TransactionState
) -> None:
    peer.instead(LOG, lv.StoreError("no right to write"))
    with pytest.raises(lv.StoreError):
        attempt(peer, txn)
    assert not txn.ending.is_in_doubt


def test_a_commit_by_log_entry_is_refused_if_the_table_was_guarded_meanwhile(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    other = lake.peer()
    guarding = other.begin()
    other.run(execute(guarding, Guard("a", True), "guard"))
    other.commit(guarding)
    before = lake.version("a")
    with pytest.raises(lv.ConflictError, match="guarded meanwhile"):
        peer.run(commit_by_entry(txn))
    assert txn.state is Status.FAILED
    assert lake.version("a") == before


def test_a_commit_by_log_entry_whose_reads_were_changed_raises_a_conflict(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin(BY_ENTRY)
    peer.read(txn, "a")
    peer.append(txn, "a", 7)
    foreign(lake, 8)
    with pytest.raises(lv.ConflictError, match="table a"):
        peer.run(commit_by_entry(txn))
    assert lake.ids("a") == [0, 1, 8]


def test_a_log_tip_that_was_read_long_ago_is_listed_again(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7, features=BY_ENTRY)
    lake.pass_by(peer.context.settings.trusted_tip_seconds + 1)
    foreign(lake, 8)
    peer.asked.clear()
    assert peer.run(commit_by_entry(txn)) == 2
    assert peer.asked_for(List, "a/_delta_log")


def test_a_slow_upload_of_files_makes_the_commit_search_for_the_log_tip_again(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    def slowly() -> Stored:
        lake.pass_by(peer.context.settings.trusted_tip_seconds)
        return Stored(Token("file"))

    peer.instead("a/lv-", slowly, landed=True)
    assert attempt(peer, txn) == Behind(raced=False)
    assert peer.asked_for(Put, LOG) == [], "no entry is sent under a number that is that old"
    assert attempt(peer, txn) == Landed(1)


def test_a_log_entry_whose_create_took_long_counts_only_if_it_is_still_the_newest(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    """Clean-up may have removed its number meanwhile, and then no reader sees the entry."""

    def late() -> object:
        lake.pass_by(peer.context.settings.trusted_tip_seconds + 1)
        foreign(lake, 8)
        return Stored(lake.store.head(f"{LOG}{1:020}.json").token)  # type: ignore[union-attr]

    peer.instead(LOG, late, landed=True)
    with pytest.raises(lv.CommitOutcomeUnknown, match="cleaned up meanwhile"):
        attempt(peer, txn)


def test_a_log_entry_whose_create_took_long_is_the_commit_where_it_is_the_newest(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    def late() -> object:
        lake.pass_by(peer.context.settings.trusted_tip_seconds + 1)
        return Stored(lake.store.head(f"{LOG}{1:020}.json").token)  # type: ignore[union-attr]

    peer.instead(LOG, late, landed=True)
    assert attempt(peer, txn) == Landed(1)
    assert lake.ids("a") == [0, 1, 7]


def test_a_commit_to_a_table_that_was_created_again_is_a_conflict(
    lake: MemoryLake, peer: Peer, txn: TransactionState
) -> None:
    other = lake.peer()
    for key in lake.keys("a/"):
        other.run(delete(key))
    other.run(delta_writer.create(other.client, "a", {"id": "long", "balance": "long"}))
    lake.pass_by(peer.context.settings.trusted_tip_seconds)  # no path is reused earlier
    before = lake.keys(LOG)
    with pytest.raises(lv.ConflictError, match="created again"):
        peer.run(commit_by_entry(txn))
    assert lake.keys(LOG) == before
