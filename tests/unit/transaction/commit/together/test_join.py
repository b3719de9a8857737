"""The next HEAD: each candidate is compared with those before it in the same replacement."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.lake.publishing.outcome import fence
from lakevilla.store.effects import List
from lakevilla.transaction.commit.together.group import Batch, Candidate, Declined, Failed
from lakevilla.transaction.commit.together.join import _of_another, add_candidates
from lakevilla.transaction.redo.rebase import Examination
from tests.support.simulated.memory_lake import MemoryLake, Peer


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def joined(peer: Peer, *candidates: Candidate) -> Batch:
    held = peer.run(peer.context.head())
    assert held is not None
    return peer.run(add_candidates(peer.context, held, candidates))


def adding(peer: Peer, table: str, amount: int) -> Candidate:
    txn = peer.begin()
    peer.add(txn, table, amount)
    return peer.candidate(txn)


def test_all_transactions_that_fit_commit_in_one_replacement_in_their_order(
    lake: MemoryLake, peer: Peer
) -> None:
    first, second, third = [peer.candidate(peer.appending("a", n)) for n in (7, 8, 9)]
    base = lake.head
    found = joined(peer, first, second, third)
    assert found.head.replacement == base.replacement + 1
    assert [commit.txn for commit in found.head.commits[-3:]] == [
        one.txn.id for one in (first, second, third)
    ]
    assert found.accepted[third].sequence == base.sequence + 3
    assert [ref.txn for ref in found.head.tables["a"].pending] == [
        one.txn.id for one in (first, second, third)
    ]
    assert found.answers == {}
    assert lake.head == base, "nothing is written here"


def test_a_commit_that_conflicts_with_an_earlier_candidate_gets_no_answer_yet(peer: Peer) -> None:
    """The earlier candidates are not decided: if they fail, the commit may still fit."""
    first, second = adding(peer, "a", 1), adding(peer, "a", 2)
    found = joined(peer, first, second)
    assert list(found.accepted) == [first]
    assert found.answers == {}


def test_a_commit_that_conflicts_with_head_is_declined_with_the_findings(
    lake: MemoryLake, peer: Peer
) -> None:
    late = adding(peer, "a", 1)
    other = lake.peer()
    theirs = other.begin()
    other.add(theirs, "a", 5)
    other.commit(theirs)
    found = joined(peer, late, peer.candidate(peer.appending("b", 7)))
    answer = found.answers[late]
    assert isinstance(answer, Declined)
    assert answer.found is not None
    assert answer.found.redo_from == 0
    assert len(found.accepted) == 1, "it stands in nobody's way"


def test_a_fenced_commit_is_declined_without_validation(lake: MemoryLake, peer: Peer) -> None:
    candidate = peer.candidate(peer.appending("a", 7))
    other = lake.peer()
    other.run(fence(other.context, candidate.txn.id))
    found = joined(peer, candidate)
    assert found.accepted == {}
    answer = found.answers[candidate]
    assert isinstance(answer, Declined)
    assert answer.found is None


def test_one_of_two_candidates_with_the_same_id_is_accepted(peer: Peer) -> None:
    first, second = [peer.candidate(peer.appending("a", n)) for n in (7, 8)]
    second.txn.id = first.txn.id
    found = joined(peer, first, second)
    assert list(found.accepted) == [first]


def test_an_error_in_examining_one_commit_fails_that_commit_alone(peer: Peer) -> None:
    damaged, sound = adding(peer, "b", 1), peer.candidate(peer.appending("a", 7))
    error = lv.CorruptObject("torn", key="b")
    peer.context.tails.pop("b")
    peer.instead("b/_delta_log", error, verb=List)
    found = joined(peer, damaged, sound)
    assert list(found.accepted) == [sound]
    answer = found.answers[damaged]
    assert isinstance(answer, Failed)
    assert answer.error is error


def test_a_commit_is_refused_if_head_has_another_id_for_its_table(
    lake: MemoryLake, peer: Peer
) -> None:
    """Validation finds this too; if HEAD had the other table's id, the rows would belong to no
    table.
    """
    txn = peer.candidate(peer.appending("a", 7)).txn
    head, tails = lake.head, {"a": peer.context.tails["a"]}

    def refused(**changed: Any) -> Any:
        state = msgspec.structs.replace(head.tables["a"], **changed)
        other = msgspec.structs.replace(head, tables=head.tables.updated({"a": state}))
        return peer.run(_of_another(txn, other, Examination(tails=tails)))

    assert isinstance(refused(table_id="another"), lv.ConflictError)
    assert refused() is None
    assert refused(table_id="another", dropped=True) is None, "nothing of it is there"
