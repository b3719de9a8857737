"""Invalid proposals: they are ignored, and stop neither leader nor owner.

One process waits with a proposal, the test damages that, and another process leads. Then the owner
continues, and commits by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.global_log.commits import seal
from lakevilla.global_log.inbox import proposal as box
from lakevilla.global_log.inbox.proposal import (
    INBOX_PREFIX,
    MOST_BYTES,
    WINDOW,
    Proposal,
    read_proposal,
    seal_proposal,
)
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.base import ANY
from lakevilla.store.effects import Get, List, Put
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.histories.plan import small_limits
from tests.support.simulated.memory_lake import MemoryLake, Peer

HEAD = "_lakevilla/HEAD.json"
replace = msgspec.structs.replace


@pytest.fixture(autouse=True)
def _crowded() -> Iterator[None]:
    with small_limits(False, crowded=True):
        yield


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


def proposing(peer: Peer, number: int, table: str = "a") -> Any:
    """Run a commit until it has proposed itself, and waits."""
    process = peer.steps(commit(peer.appending(table, number)))
    process.until(INBOX_PREFIX).step()
    return process


def put(lake: MemoryLake, key: str, body: bytes) -> None:
    lake.store.apply(Put(key, body, ANY))


def spoil(lake: MemoryLake, change: Callable[[Proposal], Proposal]) -> str:
    """Replace the only proposal by a changed one; return its key."""
    (key,) = lake.keys(INBOX_PREFIX)
    found = read_proposal(key, lake.store.objects.pop(key).body)
    spoilt, body = seal_proposal(change(found))
    put(lake, spoilt, body)
    return spoilt


def as_another_lakes(one: Proposal) -> Proposal:
    return replace(one, lake_id="a copy")


def of_a_newer_format(one: Proposal) -> Proposal:
    return replace(one, format=Proposal.FORMAT + 1)


def with_another_digest(one: Proposal) -> Proposal:
    return replace(one, commits=(replace(one.commits[0], digest="0" * 32),))


def with_another_commit_object(one: Proposal) -> Proposal:
    commit = one.commits[0]
    _, body = seal(replace(commit.commit_object(), txn="somebody else"))
    return replace(one, commits=(replace(commit, commit=msgspec.Raw(body)),))


def with_a_commit_object_that_is_none(one: Proposal) -> Proposal:
    return replace(one, commits=(replace(one.commits[0], commit=msgspec.Raw(b"[1, 2]")),))


def with_a_table_that_is_not_in_head(one: Proposal) -> Proposal:
    commit = one.commits[0]
    made = commit.commit_object()
    digest, body = seal(replace(made, tables={"nowhere": made.tables["a"]}))
    tables = {"nowhere": commit.tables["a"]}
    return replace(
        one,
        commits=(replace(commit, digest=digest, commit=msgspec.Raw(body), tables=tables),),
    )


def of_a_head_that_is_to_come(one: Proposal) -> Proposal:
    return replace(one, replacement=one.replacement + 1)


def of_no_commits(one: Proposal) -> Proposal:
    return replace(one, commits=())


@pytest.mark.parametrize(
    "change",
    [
        as_another_lakes,
        of_a_newer_format,
        with_another_digest,
        with_another_commit_object,
        with_a_commit_object_that_is_none,
        with_a_table_that_is_not_in_head,
        of_a_head_that_is_to_come,
        of_no_commits,
    ],
)
def test_an_invalid_proposal_is_ignored_and_its_owner_commits_by_itself(
    lake: MemoryLake, change: Callable[[Proposal], Proposal]
) -> None:
    owner = proposing(lake.peer(), 7)
    spoilt = spoil(lake, change)
    other = proposing(lake.peer(), 9)
    proposing(lake.peer(), 8).finish()
    assert lake.ids("a") == [0, 1, 8, 9], "those that hold go along"
    assert lake.head.crowd == 2
    other.finish()
    owner.finish()
    assert lake.ids("a") == [0, 1, 7, 8, 9]
    assert lake.keys(INBOX_PREFIX) == [spoilt], "nobody who commits deletes what is not his"
    for number in range(WINDOW + 1):
        lake.peer().decide("b", 20 + number)
    collector = lake.peer()
    collector.run(gc(collector.context))
    assert lake.keys(INBOX_PREFIX) == []


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_truncated_proposal_is_ignored(lake: MemoryLake, cut: int) -> None:
    owner = proposing(lake.peer(), 7)
    (key,) = lake.keys(INBOX_PREFIX)
    put(lake, key, lake.store.objects[key].body[:cut])
    proposing(lake.peer(), 8).finish()
    assert lake.ids("a") == [0, 1, 8]
    owner.finish()
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_proposal_of_too_many_bytes_is_not_read(lake: MemoryLake) -> None:
    owner = proposing(lake.peer(), 7)
    (key,) = lake.keys(INBOX_PREFIX)
    put(lake, key, lake.store.objects[key].body + b" " * MOST_BYTES)
    leader = lake.peer()
    leader.commit(leader.appending("a", 8))
    assert leader.asked_for(List, INBOX_PREFIX)
    assert leader.asked_for(Get, INBOX_PREFIX) == []
    owner.finish()
    assert lake.ids("a") == [0, 1, 7, 8]


def test_ten_thousand_empty_proposals_hide_a_valid_one_and_stop_no_leader(lake: MemoryLake) -> None:
    """A leader reads as many as one replacement may include; the owner commits a proposal behind
    them.
    """
    owner = proposing(lake.peer(), 7)
    number = lake.head.replacement
    for at in range(10_000):
        put(lake, f"{INBOX_PREFIX}/{number:020}-{at:032x}.json", b"{}")
    leader = lake.peer()
    leader.commit(leader.appending("a", 8))
    assert 0 < len(leader.asked_for(Get, INBOX_PREFIX)) <= box._MOST_READ
    assert lake.ids("a") == [0, 1, 8]
    owner.finish()
    assert lake.ids("a") == [0, 1, 7, 8]
    for at in range(WINDOW):
        lake.peer().decide("b", 20 + at)
    late = lake.peer()
    late.commit(late.appending("a", 9))
    assert late.asked_for(List, INBOX_PREFIX)
    assert late.asked_for(Get, INBOX_PREFIX) == [], "HEAD has passed them"


# ------------------------------------------------------- an object that a proposal names is gone


def delete(lake: MemoryLake, prefix: str) -> None:
    for key in lake.keys(prefix):
        del lake.store.objects[key]


def commit_object_of(lake: MemoryLake) -> str:
    """Return the key of the commit object that the only proposal names."""
    (key,) = lake.keys(INBOX_PREFIX)
    one = read_proposal(key, lake.store.objects[key].body).commits[0]
    return f"_lakevilla/commits/{one.txn}-{one.digest}.json"


def test_a_commit_whose_object_is_gone_is_published_by_a_client_that_has_read_its_proposal(
    lake: MemoryLake,
) -> None:
    owner = proposing(lake.peer(), 7)
    delete(lake, commit_object_of(lake))
    proposing(lake.peer(), 8).finish()
    assert owner.finish().versions == {"a": lake.version("a")}
    assert lake.ids("a") == [0, 1, 7, 8]


def test_a_commit_whose_object_is_gone_is_cancelled_if_its_leader_has_died(
    lake: MemoryLake,
) -> None:
    owner = proposing(lake.peer(), 7)
    delete(lake, commit_object_of(lake))
    proposing(lake.peer(), 8).until(HEAD).step()
    assert lake.head.crowd == 2
    report = lake.recover()
    assert [finding.kind for finding in report.findings if finding.severity == "error"] == [
        "voided"
    ]
    with pytest.raises(lv.ForeignConflict):
        owner.finish()
    assert lake.ids("a") == [0, 1, 8]
