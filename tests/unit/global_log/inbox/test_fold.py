"""Proposed commits that a leader includes in the next HEAD, and the reasons to leave one out."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from lakevilla.formats.base import Change, ClientUpdates
from lakevilla.global_log.commits import seal
from lakevilla.global_log.head import Head, Reservation, TableState, commits_after
from lakevilla.global_log.inbox import fold
from lakevilla.global_log.inbox.fold import (
    MOST_PENDING,
    MOST_PENDING_ALONE,
    fitting_commit,
    take_along,
)
from lakevilla.global_log.inbox.proposal import WINDOW, Proposal
from lakevilla.global_log.refs import Policy
from lakevilla.global_log.repo import HeldHead
from lakevilla.sublogs.operations import Defined, Given, Rename, Transplant
from lakevilla.transaction.commit.together.crowd import as_proposed
from lakevilla.transaction.commit.together.group import Candidate
from lakevilla.transaction.commit.together.join import add_candidate
from lakevilla.transaction.commit.together.replacing import may_go_along
from lakevilla_testing.histories.plan import small_limits
from tests.support.simulated.memory_lake import MemoryLake, Peer

replace = msgspec.structs.replace
GIVEN = Given("a", ClientUpdates(3), Change())


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def proposal(lake: MemoryLake, *ids: int, table: str = "a", peer: Peer | None = None) -> Proposal:
    """Return the proposal of a process with one transaction for each id, which appends that row."""
    peer = peer or lake.peer()
    commits = []
    for number in ids:
        candidate = peer.candidate(peer.appending(table, number))
        commits.append(peer.run(as_proposed(candidate.held, candidate)))
    head = lake.head
    return Proposal(1, "nonce", head.lake_id, head.replacement, head.sequence, tuple(commits))


def reason(head: Head, one: Proposal, base: Head | None = None) -> str | None:
    found = fitting_commit(base or head, head, one, one.commits[0])
    return found if isinstance(found, str) else None


def after(lake: MemoryLake, head: Head, *proposals: Proposal) -> Head:
    peer = lake.peer()
    taken = peer.run(take_along(head, head, proposals, peer.context.ids, 0, math.inf))
    return taken.head


def unnamed(state: TableState) -> TableState:
    """Return the table without the hashes of its pending commits: commit objects have nonces."""
    return replace(state, pending=tuple(replace(ref, hash="") for ref in state.pending))


def test_an_included_append_gives_the_same_head_as_a_commit_by_its_owner(lake: MemoryLake) -> None:
    peer = lake.peer()
    txn = peer.appending("a", 7)
    candidate = peer.candidate(txn)
    commit = peer.run(as_proposed(candidate.held, candidate))
    before = lake.head
    one = Proposal(1, "n", before.lake_id, before.replacement, before.sequence, (commit,))
    taken = after(lake, before, one)
    peer.commit(txn, publish=False)
    alone = lake.head
    assert taken.replacement == alone.replacement
    assert unnamed(taken.tables["a"]) == unnamed(alone.tables["a"])
    own, other = taken.commits[-1], alone.commits[-1]
    assert replace(own, timestamp_ms=0, hash="") == replace(other, timestamp_ms=0, hash="")


def test_proposals_of_several_processes_are_committed_together_in_the_order_of_their_names(
    lake: MemoryLake,
) -> None:
    some = [proposal(lake, 7, 8), proposal(lake, 9, table="b")]
    head = lake.head
    new = after(lake, head, *some)
    assert new.replacement == head.replacement + 1
    assert new.sequence == head.sequence + 3
    wanted = [commit.txn for one in some for commit in one.commits]
    assert [commit.txn for commit in new.commits[-3:]] == wanted
    assert [ref.txn for ref in new.tables["a"].pending[-2:]] == wanted[:2]


def same(value: Any) -> Any:
    return value


def of_table(head: Head, **changes: Any) -> Head:
    return replace(head, tables=head.tables.updated({"a": replace(head.tables["a"], **changes)}))


def claimed(one: Proposal, **changes: Any) -> Proposal:
    commit = one.commits[0]
    claim = replace(commit.tables["a"], **changes)
    return replace(one, commits=(replace(commit, tables={"a": claim}),))


def sealed(one: Proposal, change: Callable[[Any], Any]) -> Proposal:
    """Return the proposal with a changed commit object and a matching digest."""
    commit = one.commits[0]
    made = change(commit.commit_object())
    digest, body = seal(made)
    return replace(one, commits=(replace(commit, digest=digest, commit=msgspec.Raw(body)),))


def of_part(**changes: Any) -> Callable[[Proposal], Proposal]:
    def change(commit: Any) -> Any:
        part = replace(commit.tables["a"], **changes)
        return replace(commit, tables={"a": part})

    return lambda one: sealed(one, change)


def brings_back(commit: Any) -> Any:
    return replace(commit, operations=(Transplant("a", (), (), Defined({})),))


def renames(commit: Any) -> Any:
    return replace(commit, operations=(*commit.operations, Rename("a", "a", "new", "new")))


def gives(commit: Any) -> Any:
    return replace(commit, operations=(GIVEN,))


@pytest.mark.parametrize(
    ("of_head", "of_proposal", "why"),
    [
        (same, lambda one: replace(one, lake_id="another"), "another lake's"),
        (lambda head: replace(head, replacement=head.replacement + WINDOW), same, "too far"),
        (same, lambda one: replace(one, replacement=one.replacement + 1), "too far"),
        (lambda head: replace(head, floor="f" * 36), same, "aborted"),
        (lambda head: replace(head, commits=head.commits[:0]), lambda one: replace(one, sequence=0),
         "moved to a page"),
        (lambda head: of_table(head, dropped=True), same, "no table to which"),
        (lambda head: of_table(head, guarded=True), same, "no table to which"),
        (lambda head: of_table(head, catalog="glue/a"), same, "no table to which"),
        (lambda head: of_table(head, table_id="another"), same, "another table by now"),
        (same, lambda one: claimed(one, table_id="another"), "another table by now"),
        (same, of_part(table_id="another"), "another table by now"),
        (same, lambda one: claimed(one, format="iceberg"), "another table by now"),
        (lambda head: replace(head, reserved=(Reservation("x", ("a",)),)), same, "reserved"),
        (same, of_part(created=True), "more than rows"),
        (same, of_part(dropped=True), "more than rows"),
        (same, lambda one: sealed(one, brings_back), "brings back files"),
        (same, lambda one: sealed(one, renames), "renames a table"),
        (same, lambda one: sealed(one, gives), "fits one version alone"),
        (lambda head: replace(head, policy=Policy("refuse")), same, "protected"),
        (same, lambda one: replace(one, commits=(replace(one.commits[0], digest="0" * 32),)),
         "does not hold the bytes"),
        (same, lambda one: replace(one, commits=(replace(one.commits[0], tables={}),)),
         "does not claim"),
    ],
)  # fmt: skip
def test_a_commit_that_may_not_fit_is_not_included(
    lake: MemoryLake,
    of_head: Callable[[Head], Head],
    of_proposal: Callable[[Proposal], Proposal],
    why: str,
) -> None:
    one = proposal(lake, 7)
    head = lake.head
    assert reason(head, one) is None
    left = reason(of_head(head), of_proposal(one))
    assert left is not None
    assert why in left


def test_the_commit_of_an_iceberg_client_is_proposed_to_nobody(lake: MemoryLake) -> None:
    txn = lake.peer().appending("a", 7)
    assert may_go_along(txn)
    txn.work.done[0].operation = GIVEN
    assert not may_go_along(txn)


def test_a_proposal_is_includable_until_the_last_head_of_its_window(
    lake: MemoryLake,
) -> None:
    one = proposal(lake, 7)
    head = lake.head
    numbers = [head.replacement + steps for steps in range(WINDOW + 1)]
    left = [reason(replace(head, replacement=number), one) for number in numbers]
    assert left[:WINDOW] == [None] * WINDOW
    assert left[WINDOW] is not None
    assert one.last_replaced == numbers[WINDOW - 1]


def test_a_commit_that_is_in_head_or_in_the_same_group_is_not_included_again(
    lake: MemoryLake,
) -> None:
    one = proposal(lake, 7)
    head = lake.head
    twice = after(lake, head, one, replace(one, nonce="another"))
    assert twice.sequence == head.sequence + 1
    again = replace(twice, replacement=head.replacement + 1)
    assert reason(again, one) == "it is committed"


def test_a_proposed_append_is_included_after_added_rows_and_not_after_a_metadata_change(
    lake: MemoryLake,
) -> None:
    one = proposal(lake, 7)
    other = lake.peer()
    adding = other.begin()
    other.add(adding, "a", 1)
    other.commit(adding)
    head = lake.head
    assert reason(head, one) is None
    last = head.commits[-1]
    touched = replace(last, tables={"a": replace(last.tables["a"], metadata=True)})
    changed = replace(head, commits=(*head.commits[:-1], touched))
    assert "changed more than its rows" in (reason(changed, one) or "")
    stands_in = replace(head, commits=(*head.commits[:-1], replace(last, kind="reconcile")))
    assert "changed more than its rows" in (reason(stands_in, one) or "")


def test_a_commit_to_a_table_with_too_many_pending_commits_is_not_included(
    lake: MemoryLake,
) -> None:
    one = proposal(lake, 7)
    head = lake.head
    ref = head.commits[-1].sequence + 1

    def waiting(count: int) -> Head:
        refs = tuple(fold.PendingRef(ref + n, "t", "h", 99) for n in range(count))
        return of_table(head, pending=refs, published=99)

    assert reason(waiting(MOST_PENDING - 1), one) is None
    assert "too many" in (reason(waiting(MOST_PENDING), one) or "")
    alone = claimed(one, alone=True)
    assert reason(waiting(MOST_PENDING_ALONE - 1), alone) is None
    assert "too many" in (reason(waiting(MOST_PENDING_ALONE), alone) or "")


def test_including_a_proposal_advances_the_published_version_to_the_one_that_its_owner_has_read(
    lake: MemoryLake,
) -> None:
    writer = lake.peer()
    writer.commit(writer.appending("a", 5))  # published, and HEAD does not show that yet
    reader = lake.peer()
    one = proposal(lake, 7, peer=reader)
    head = lake.head
    assert head.tables["a"].pending, "HEAD lags behind publishing"
    claim = one.commits[0].tables["a"]
    assert claim.logged == lake.version("a")
    new = after(lake, head, one)
    assert new.tables["a"].published == lake.version("a")
    assert [ref.txn for ref in new.tables["a"].pending] == [one.commits[0].txn]
    assert new.commits[-1].tables["a"].published == lake.version("a")


def test_including_a_proposal_never_lowers_the_published_version_in_head(lake: MemoryLake) -> None:
    early = proposal(lake, 7)
    ahead = of_table(lake.head, published=lake.head.tables["a"].published + 3, pending=())
    new = after(lake, replace(ahead, nonce="later"), early)
    assert new.tables["a"].published == ahead.tables["a"].published
    assert new.tables["a"].pending[-1].base == ahead.tables["a"].published


def test_a_full_list_of_commits_in_head_moves_to_a_page_when_proposals_are_included(
    lake: MemoryLake,
) -> None:
    with small_limits(True):
        one = proposal(lake, *range(7, 15))
        head = lake.head
        new = after(lake, head, one)
    assert new.page is not None
    assert lake.keys("_lakevilla/pages/")
    found = commits_after(new, new.page.last_sequence)
    assert found is not None
    assert found[-1].sequence == new.sequence


@pytest.mark.parametrize("seed", range(20))
def test_a_group_of_included_appends_equals_the_same_commits_one_by_one(seed: int) -> None:
    """Owners are bound to different HEADs, on both formats, among published and unpublished
    commits.
    """
    random = Random(seed)
    lake = MemoryLake(iceberg=("b",) if seed % 2 else ())
    owners: list[tuple[Peer, Candidate, Proposal]] = []
    for number in range(random.randint(1, 5)):
        peer = lake.peer()
        tables = random.sample(("a", "b"), random.randint(1, 2))
        txn = peer.appending(tables[0], 100 + number)
        for table in tables[1:]:
            peer.append(txn, table, 100 + number)
        candidate = peer.candidate(txn)
        commit = peer.run(as_proposed(candidate.held, candidate))
        held = candidate.held.head
        one = Proposal(1, "n", held.lake_id, held.replacement, held.sequence, (commit,))
        owners.append((peer, candidate, one))
        if random.random() < 0.4:
            other = lake.peer()
            other.commit(other.appending(random.choice("ab"), 200 + number), publish=number % 2 > 0)
    base = lake.head
    fitting = [owner for owner in owners if reason(base, owner[2]) is None]
    group = after(lake, base, *(one for _, _, one in fitting))
    one_by_one = base
    for peer, candidate, _ in fitting:
        step = peer.run(add_candidate(HeldHead(base, candidate.held.token), one_by_one, candidate))
        assert isinstance(step, Head)
        one_by_one = step
    assert [(c.txn, c.hash, c.sequence) for c in group.commits] == [
        (c.txn, c.hash, c.sequence) for c in one_by_one.commits
    ]
    for table in ("a", "b"):
        assert group.tables[table].pending[-1:] == one_by_one.tables[table].pending[-1:]
        waiting = {ref.txn for ref in group.tables[table].pending}
        assert {ref.txn for ref in one_by_one.tables[table].pending} <= waiting
    in_time = [one for _, _, one in owners if base.replacement <= one.last_replaced]
    assert [one for _, _, one in fitting] == in_time, "within the window appends always fit"


def test_a_pending_commit_that_the_owner_has_not_found_in_the_log_stays(lake: MemoryLake) -> None:
    for number in (7, 8, 9):
        lake.peer().decide("a", number)
    state = lake.head.tables["a"]
    claim = proposal(lake, 10).commits[0].tables["a"]
    first, *others = state.pending
    moved = fold._moved(state, replace(claim, logged=state.published + 1, upto=first.sequence))
    assert moved.pending == tuple(others)
