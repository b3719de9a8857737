"""Planted bugs of chains (note 69): a rule is left out, and histories show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.store.effects import Program
from lakevilla.transaction.commit import commit
from lakevilla.transaction.commit.together import chain
from lakevilla.transaction.commit.together.combine import Unchanged
from lakevilla.transaction.state.parts import Binding, Work
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.planted.bugs import attribute, planted
from lakevilla_testing.planted.edits import slip

_CHAINED: dict[str, Any] = {
    "chained": True,
    "features": (Feature.R | Feature.I,),
    "kinds": ("lists", "raises", "lists"),
    "threads": 4,
    "clients": 2,
    "commits_again": True,
    "intensity": 2.0,
}


@planted(first_seed=5, **_CHAINED)
def exception_let_out() -> Iterator[None]:
    """What a function has read before it raised is told though it is not decided yet (H3)."""

    def ended(txn: Any, steps: Any, *, undo: bool = False) -> Program[Any]:
        if not undo:
            return (yield from original(txn, steps))
        txn.turn.give_back()
        txn.turn = None
        return None

    original = chain.commit_in_chain
    with attribute(commit, "commit_in_chain", ended):
        yield


@planted(first_seed=15, **_CHAINED)
def read_of_a_chain_let_out() -> Iterator[None]:
    """A member that has only read is answered though the chain was refused (H3)."""
    original = chain._all_refused

    def refused(chained: Any, members: Any, error: Exception) -> Any:
        answers = dict(original(chained, members, error))
        return answers | {one: Unchanged() for one in members if not one.changes}

    with attribute(chain, "_all_refused", refused):
        yield


#: Processes that race with each other.
_RACING: dict[str, Any] = {
    **_CHAINED,
    "kinds": ("skew", "skew", "snapshot", "lists"),
    "threads": 2,
    "clients": 4,
    "commits_again": False,
    "intensity": 0.5,
}


@planted(**_RACING)
def reads_left_out_of_the_chain() -> Iterator[None]:
    """What a member has read is forgotten with its turn, so nobody validates it (H2)."""
    original = chain.Chain.end_turn

    def end_turn(self: Any, turn: Any, *, undo: bool) -> None:
        reads = dict(turn.reads)
        original(self, turn, undo=undo)
        if self._open is not None:
            self._open.txn.work.reads = reads

    with attribute(chain.Chain, "end_turn", end_turn):
        yield


@planted(first_seed=10, **_RACING)
def turn_taken_with_its_work() -> Iterator[None]:
    """What a transaction has done in a turn that was taken away stays in the chain (H4)."""

    def take_out(self: Any, turn: Any) -> None:
        found = self._open
        if turn.member.turn is turn and found is not None:
            turn.member.work, turn.member.bound = Work(), Binding(began=turn.began)
        self._holder = None
        self._pass_on(turn.now())

    with attribute(chain.Chain, "_take_out", take_out):
        yield


slip(
    "half_redone_chain_commits",
    "A chain commits that an interrupted leader has moved to a newer HEAD, and redone in part.",
    chain._commit,
    (" or found.txn.state is not Status.OPEN", ""),
    found_by=(
        "tests/simulation/races/test_chains.py::"
        "test_an_interrupted_leader_commits_nothing_that_it_has_not_redone[before]"
    ),
)
