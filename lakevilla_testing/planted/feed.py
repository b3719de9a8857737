"""Planted bugs of the change feed (docs/design/0033-change-feed.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from lakevilla.api.feed import absorbing
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.lake import absorb
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.operations import feed_rows as steps
from lakevilla.store.effects import Program
from lakevilla_testing.planted.bugs import attribute, instead, planted

#: Other clients rewrite files that decided commits will rewrite.
_OVERTAKEN: dict[str, Any] = {
    "foreign": ("rewrite", "append"),
    "kinds": ("transfer", "add", "lists"),
    "followers": 2,
}


@planted(first_seed=1, **_OVERTAKEN)
def reconcile_apart() -> Iterator[None]:
    """The feed shows each commit as a step of its own, a ``reconcile`` too."""

    def in_steps(commits: Sequence[CommitSummary]) -> list[steps.Step]:
        return [steps.Step((commit,)) for commit in commits]

    with instead(steps.in_steps, in_steps):
        yield


@planted(first_seed=1, **_OVERTAKEN)
def replaced_forgotten() -> Iterator[None]:
    """The feed joins a ``reconcile`` with the ``foreign`` commit before it, not with what it
    replaces.
    """
    original = steps.in_steps

    def in_steps(commits: Sequence[CommitSummary]) -> list[steps.Step]:
        alone = [msgspec.structs.replace(commit, replaces=()) for commit in commits]
        kept = {commit.sequence: commit for commit in commits}
        return [
            replace(step, commits=tuple(kept[commit.sequence] for commit in step.commits))
            for step in original(alone)
        ]

    with instead(original, in_steps):
        yield


@planted(first_seed=270, **_OVERTAKEN)
def absorbed_beside_head() -> Iterator[None]:
    """A follower absorbs all entries of a log, even those that make a decided commit unfit."""

    def all_of_it(context: Context, head: Head, tails: Mapping[str, Tail]) -> Program[Any]:
        fitting = yield from absorb.absorb(context, head, tails)
        placements, commits = dict(fitting.placements), list(fitting.commits)
        for location, tail in tails.items():
            first = placements[location].unfit_from
            if first is None:
                continue
            placements[location] = replace(placements[location], logged=tail.tip)
            hidden = tuple(range(first, tail.tip + 1))
            number = head.sequence + len(commits) + 1
            commits.append(absorb._foreign(number, location, hidden, tail))
        return absorb.Absorbed(placements, commits, {})

    with attribute(absorbing, "absorb", all_of_it):
        yield
