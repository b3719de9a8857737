"""Proposed commits that have read or changed rows: HEAD's summaries clear some, and others not."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

import msgspec
import pytest

from lakevilla.global_log.head import Head, Touch
from lakevilla.global_log.inbox.fold import fitting_commit, is_doubtful, take_along
from lakevilla.global_log.inbox.proposal import Proposal
from lakevilla.global_log.inbox.reliance import MOST_FILES, reliance_of, relied, states_all
from lakevilla.global_log.repo import HeldHead
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.transaction.commit.together.crowd import as_proposed
from lakevilla.transaction.commit.together.group import Candidate
from lakevilla.transaction.commit.together.join import add_candidate
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import how_many
from tests.support.simulated.memory_lake import MemoryLake, Peer

replace = msgspec.structs.replace

#: Rows that are each in a data file of their own, in both tables.
APART = (10, 20, 30)


@pytest.fixture
def lake() -> MemoryLake:
    return furnished()


def furnished(iceberg: tuple[str, ...] = ()) -> MemoryLake:
    lake = MemoryLake(iceberg=iceberg)
    for number in APART:
        for table in ("a", "b"):
            peer = lake.peer()
            peer.commit(peer.appending(table, number))
    return lake


def proposed(peer: Peer, txn: TransactionState) -> tuple[Candidate, Proposal]:
    """Return the candidate and the proposal of a transaction at its commit point."""
    candidate = peer.candidate(txn)
    commit = peer.run(as_proposed(candidate.held, candidate))
    head = candidate.held.head
    one = Proposal(2, "nonce", head.lake_id, head.replacement, head.sequence, (commit,))
    return candidate, one


def changing(lake: MemoryLake, number: int, table: str = "a") -> Proposal:
    peer = lake.peer()
    txn = peer.begin()
    peer.add(txn, table, 1, number)
    return proposed(peer, txn)[1]


def reading(lake: MemoryLake, where: str) -> Proposal:
    """Propose a transaction that has read rows of one table and appends one to the other."""
    peer = lake.peer()
    txn = peer.begin()
    peer.read(txn, "a", where)
    peer.append(txn, "b", 99)
    return proposed(peer, txn)[1]


def do(lake: MemoryLake, what: Callable[[Peer, TransactionState], Any]) -> Head:
    """Commit a change by another process; return the HEAD after it."""
    peer = lake.peer()
    txn = peer.begin()
    what(peer, txn)
    peer.commit(txn)
    return lake.head


def reason(head: Head, one: Proposal, base: Head | None = None) -> str | None:
    found = fitting_commit(base or head, head, one, one.commits[0])
    return found if isinstance(found, str) else None


def after(lake: MemoryLake, head: Head, *proposals: Proposal) -> Head:
    peer = lake.peer()
    return peer.run(take_along(head, head, proposals, peer.context.ids, 0, math.inf)).head


def update(number: int) -> Callable[[Peer, TransactionState], Any]:
    return lambda peer, txn: peer.add(txn, "a", 5, number)


def append(number: int) -> Callable[[Peer, TransactionState], Any]:
    return lambda peer, txn: peer.append(txn, "a", number)


# ---------------------------------------------------------------- what came since


@pytest.mark.parametrize(
    ("between", "is_left"),
    [
        (update(20), False),
        (append(40), False),
        (lambda peer, txn: peer.add(txn, "b", 5, 10), False),
        (update(10), True),
        (append(10), True),
    ],
    ids=["another row", "a row beside it", "another table", "the same row", "a row like it"],
)
def test_a_proposed_change_is_left_out_if_a_later_commit_may_touch_its_rows(
    lake: MemoryLake, between: Callable[[Peer, TransactionState], Any], is_left: bool
) -> None:
    one = changing(lake, 10)
    assert reason(lake.head, one) is None
    head = do(lake, between)
    assert (reason(head, one) is not None) is is_left
    assert lake.peer().run(is_doubtful(head, one)) is is_left


def test_a_read_of_a_table_that_is_not_written_counts_as_relied_on(lake: MemoryLake) -> None:
    one = reading(lake, "id = 10")
    other = reading(lake, "id = 20")
    head = do(lake, update(10))
    assert "removed a file" in (reason(head, one) or "")
    assert reason(head, other) is None


def test_a_proposal_that_has_read_all_rows_is_left_out_after_any_change(lake: MemoryLake) -> None:
    one = reading(lake, "id >= 0")
    assert reason(lake.head, one) is None
    assert reason(do(lake, append(40)), one) is not None


def test_a_removed_file_counts_as_one_that_may_have_had_rows_of_the_read(lake: MemoryLake) -> None:
    one = reading(lake, "balance = 100")  # ids 0 and 1, in one file
    head = do(lake, update(0))
    assert head.commits[-1].tables["a"].removes
    assert reason(head, one) is not None


def altered(head: Head, **changes: Any) -> Head:
    """Return HEAD as if its last commit had touched the table differently."""
    last = head.commits[-1]
    touched = replace(last, tables={"a": replace(last.tables["a"], **changes)})
    return replace(head, commits=(*head.commits[:-1], touched))


@pytest.mark.parametrize(
    "change",
    [
        lambda head: altered(head, summary=None),
        lambda head: altered(head, metadata=True),
        lambda head: replace(
            head, commits=(*head.commits[:-1], replace(head.commits[-1], kind="reconcile"))
        ),
        lambda head: replace(
            head, commits=(*head.commits[:-1], replace(head.commits[-1], kind="foreign")),
            tables=head.tables.updated({"a": replace(head.tables["a"], table_id="another")}),
        ),
        lambda head: replace(
            head, tables=head.tables.updated({"a": replace(head.tables["a"], dropped=True)})
        ),
    ],
    ids=["no summary", "metadata", "reconciled", "another table", "dropped"],
)  # fmt: skip
def test_a_proposal_is_left_out_if_head_does_not_show_what_changed(
    lake: MemoryLake, change: Callable[[Head], Head]
) -> None:
    one = reading(lake, "id = 10")
    head = do(lake, update(20))
    assert reason(head, one) is None
    assert reason(change(head), one) is not None


def test_a_commit_without_a_summary_counts_as_touching_all_rows(lake: MemoryLake) -> None:
    one = changing(lake, 10)
    touched = altered(do(lake, update(10)), summary=None)
    assert reason(touched, one) is not None
    with PLANTED["cleared_without_a_summary"].plant():
        assert reason(touched, one) is None, "the row would be there twice"


def test_an_absorbed_foreign_commit_is_compared_by_its_summary(lake: MemoryLake) -> None:
    one = reading(lake, "id = 10")
    head = do(lake, update(20))
    foreign = replace(head.commits[-1], kind="foreign", hash="", txn="")
    taken_in = replace(head, commits=(*head.commits[:-1], foreign))
    assert reason(taken_in, one) is None
    assert reason(altered(taken_in, summary=None), one) is not None


def test_a_proposal_is_also_compared_with_those_included_before_it(lake: MemoryLake) -> None:
    some = [changing(lake, 10), changing(lake, 10), changing(lake, 20), reading(lake, "id = 20")]
    head = lake.head
    new = after(lake, head, *some)
    taken = {commit.txn for commit in new.commits[head.sequence - new.sequence :]}
    assert taken == {some[0].commits[0].txn, some[2].commits[0].txn}


def test_one_of_two_proposals_that_read_what_the_other_writes_is_included(lake: MemoryLake) -> None:
    """Both together would be write skew."""

    def skew(read: str, written: str) -> Proposal:
        peer = lake.peer()
        txn = peer.begin()
        peer.read(txn, read, "id = 10")
        peer.add(txn, written, 1, 10)
        return proposed(peer, txn)[1]

    head = lake.head
    assert after(lake, head, skew("a", "b"), skew("b", "a")).sequence == head.sequence + 1


# ---------------------------------------------------------------- what its owner tells


def stripped(one: Proposal, **changes: Any) -> Proposal:
    commit = one.commits[0]
    relies = {table: replace(it, **changes) for table, it in commit.relies.items()}
    return replace(one, commits=(replace(commit, relies=relies if changes else {}),))


def test_a_proposal_whose_reads_can_not_be_compared_is_not_included(lake: MemoryLake) -> None:
    one = reading(lake, "id = 10")
    assert "does not state" in (reason(lake.head, stripped(one)) or "")
    head = do(lake, update(20))
    assert reason(head, one) is None
    nothing = replace(one.commits[0].relies["a"], names=b"", stored=b"")
    damaged = replace(one, commits=(replace(one.commits[0], relies={"a": nothing}),))
    assert "is not known" in (reason(head, damaged) or "")
    layout = lake.peer().run_layout("a")
    few = reliance_of("", layout, [parse_predicate("balance = 1")], ())
    assert reason(head, stripped(one, names=few.names, stored=few.stored)) is not None
    assert reason(head, stripped(one, files=None)) is not None, "any file that goes is a doubt"


def test_the_reads_of_a_proposal_are_taken_from_its_commit_object(lake: MemoryLake) -> None:
    peer = lake.peer()
    txn = peer.begin()
    peer.read(txn, "b", "id = 20")
    peer.add(txn, "a", 1, 10)
    _, one = proposed(peer, txn)
    found = relied(one.commits[0].commit_object())
    assert {table: len(wheres) for table, wheres in found.items()} == {"a": 1, "b": 1}
    assert found.keys() == one.commits[0].relies.keys()
    assert relied(proposed(peer, peer.appending("a", 1))[1].commits[0].commit_object()) == {}


def test_reliance_lists_files_up_to_a_limit_and_none_above_it(lake: MemoryLake) -> None:
    layout = lake.peer().run_layout("a")
    assert reliance_of("", layout, [], range(MOST_FILES)).files == tuple(range(MOST_FILES))
    assert reliance_of("", layout, [], range(MOST_FILES + 1)).files is None


def test_a_proposal_whose_summary_covers_less_than_its_commit_object_is_refused(
    lake: MemoryLake,
) -> None:
    one = changing(lake, 10)
    commit = one.commits[0]
    change = commit.commit_object().tables["a"].change
    touch = commit.tables["a"].touch
    assert states_all(touch, change)
    assert touch.summary is not None
    lies: list[Touch] = [
        replace(touch, adds=False),
        replace(touch, removes=False),
        replace(touch, summary=replace(touch.summary, removed=())),
        replace(touch, summary=replace(touch.summary, added=())),
    ]
    assert not any(states_all(lie, change) for lie in lies)
    claim = replace(commit.tables["a"], touch=lies[2])
    forged = replace(one, commits=(replace(commit, tables={"a": claim}),))
    assert "more than HEAD would record" in (reason(lake.head, forged) or "")


@pytest.mark.parametrize("planted", [False, True])
def test_a_transaction_whose_rows_were_moved_since_its_read_is_not_proposed(
    lake: MemoryLake, planted: bool
) -> None:
    peer = lake.peer()
    txn = peer.begin()
    peer.read(txn, "a", "id = 10")
    peer.append(txn, "b", 99)
    do(lake, lambda mover, moving: mover.add(moving, "a", 0, 10))  # the same row, in another file
    candidate = peer.candidate(txn)
    newest = peer.run(peer.context.head())
    bug = PLANTED["proposed_from_older_files"]
    with bug.plant() if planted else nullcontext():
        commit = peer.run(as_proposed(newest, candidate))
    if not planted:
        assert commit is None
        step = peer.run(add_candidate(newest, newest.head, candidate))
        assert isinstance(step, Head), "it fits, and goes on alone"
        return
    head = newest.head
    one = Proposal(2, "nonce", head.lake_id, head.replacement, head.sequence, (commit,))
    head = do(lake, lambda other, txn: other.delete(txn, "a", 10))
    assert reason(head, one) is None, "what it has read is gone, and nobody sees that"


# ---------------------------------------------------------------- one by one


def something(peer: Peer, random: Random, number: int) -> TransactionState:
    """Begin a transaction that reads, changes and adds a few rows."""
    txn = peer.begin()
    for table in random.sample(("a", "b"), random.randint(1, 2)):
        row = random.choice(APART)
        match random.randrange(5):
            case 0:
                peer.append(txn, table, random.choice((row, 100 + number)))
            case 1:
                peer.add(txn, table, 1, row)
            case 2:
                peer.read(txn, table, f"id = {row}")
            case 3:
                peer.read(txn, table, f"id > {row}")
            case 4:
                peer.delete(txn, table, row)
    if not txn.work.done:
        peer.append(txn, random.choice("ab"), 200 + number)
    return txn


@pytest.mark.parametrize("seed", range(how_many(15, whole=60)))
def test_a_group_of_included_proposals_equals_the_same_commits_one_by_one(seed: int) -> None:
    """If a leader includes a proposal, its owner could have committed it there, with nothing to
    redo.
    """
    random = Random(seed)
    lake = furnished(("b",) if seed % 3 == 0 else ())
    owners: list[tuple[Peer, Candidate, Proposal]] = []
    for number in range(random.randint(2, 6)):
        peer = lake.peer()
        candidate, one = proposed(peer, something(peer, random, number))
        if one.commits[0] is not None:  # otherwise the transaction changes nothing
            owners.append((peer, candidate, one))
        if random.random() < 0.3:
            other = lake.peer()
            other.commit(something(other, random, 50 + number), publish=number % 2 > 0)
    base = lake.head
    group = after(lake, base, *(one for _, _, one in owners))
    taken = [commit.txn for commit in group.commits if commit.sequence > base.sequence]
    one_by_one = base
    for peer, candidate, _ in owners:
        if candidate.txn.id in taken:
            step = peer.run(
                add_candidate(HeldHead(base, candidate.held.token), one_by_one, candidate)
            )
            assert isinstance(step, Head), "it would have been refused, or done again"
            one_by_one = step
    assert [(c.txn, c.hash, c.sequence) for c in group.commits] == [
        (c.txn, c.hash, c.sequence) for c in one_by_one.commits
    ]
    for table in ("a", "b"):
        refs = [ref.txn for ref in group.tables[table].pending]
        alone = [ref.txn for ref in one_by_one.tables[table].pending]
        assert alone == refs[len(refs) - len(alone) :]


def test_most_proposals_that_can_be_included_are_included() -> None:
    """Otherwise the property above would be trivially true."""
    taken = offered = 0
    for seed in range(how_many(6, whole=20)):
        random = Random(seed)
        lake = furnished()
        some = []
        for number in range(4):
            peer = lake.peer()
            some.append(proposed(peer, something(peer, random, number))[1])
        head = lake.head
        taken += after(lake, head, *some).sequence - head.sequence
        offered += len(some)
    assert taken > offered / 2
