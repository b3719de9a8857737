"""Which commits are told as one, and what each such step did to the lives of the tables.

Pure. Between two steps the lake had a state that nothing in the same range takes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakevilla.global_log.head import CommitSummary, Touch
from lakevilla.lake.operations.changes import TableStep


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """What a step did to one table, as far as the summaries of its commits tell.

    ``enters``: all its rows are new. ``leaves``: what was under that name is not there any more.
    ``shape`` is the last commit that may have changed its columns, as far as was looked.
    """

    location: str
    commits: tuple[CommitSummary, ...]
    enters: bool
    leaves: bool
    shape: int

    @property
    def is_there(self) -> bool:
        """Whether the lake has it after the step."""
        return self.enters or not self.leaves

    @property
    def as_step(self) -> TableStep:
        return TableStep(self.commits)


@dataclass(frozen=True, slots=True)
class Step:
    """Commits in a row that are told as one version, by the number of the last.

    ``net``: asked for as one difference, whatever they are.
    """

    commits: tuple[CommitSummary, ...]
    tables: tuple[TouchedTable, ...] = ()
    net: bool = False

    @property
    def commit(self) -> CommitSummary:
        return self.commits[-1]

    @property
    def since(self) -> int:
        """The version before it."""
        return self.commits[0].sequence - 1


def in_steps(commits: Sequence[CommitSummary]) -> list[Step]:
    """Commits in a row, cut where the lake has a state that none of them takes back.

    A ``reconcile`` goes with the ``foreign`` commit of the same replacement, with those among
    them that it stands for, and with all between: what touches several tables stays in one.
    """
    steps: list[Step] = []
    first = commits[0].sequence if commits else 0
    end = len(commits)
    while end:
        start = lowest = end - 1
        while start >= lowest:
            commit = commits[start]
            if commit.kind == "reconcile":
                known = [number - first for number in commit.replaces if number >= first]
                lowest = max(0, min(lowest, start - 1, *known))
            start -= 1
        steps.append(Step(tuple(commits[lowest:end])))
        end = lowest
    return list(reversed(steps))


class Lives:
    """Which tables the lake has, carried along the commits.

    Parameters
    ----------
    now : Mapping of str to (str or None)
        By location the id of the table that the lake has after all of ``commits``; None: none.
    commits : sequence of CommitSummary
        All from the first that will be looked at, to the newest.
    """

    def __init__(self, now: Mapping[str, str | None], commits: Sequence[CommitSummary]) -> None:
        self._ids: dict[str, str | None] = {}
        for commit in reversed(commits):
            for location, touch in commit.tables.items():
                self._ids.setdefault(location, now.get(location))
                if touch.left is not None or touch.entered is not None:
                    self._ids[location] = touch.left

    def past(self, step: Step, shapes: dict[str, int]) -> Iterator[TouchedTable]:
        """What the next step did; ``shapes`` is brought up to date."""
        touched: dict[str, list[CommitSummary]] = {}
        for commit in step.commits:
            for location, touch in commit.tables.items():
                touched.setdefault(location, []).append(commit)
                if may_reshape(commit, touch):
                    shapes[location] = commit.sequence
        for location in sorted(touched):
            commits = tuple(touched[location])
            before = self._ids.get(location)
            after, is_another = _followed(before, location, commits)
            self._ids[location] = after
            if before is None and after is None:
                continue  # it came and went
            enters = after is not None and (before is None or is_another)
            leaves = before is not None and (after is None or is_another)
            yield TouchedTable(location, commits, enters, leaves, shapes.get(location, -1))


def may_reshape(commit: CommitSummary, touch: Touch) -> bool:
    """Whether the columns of a table may be others after a commit that touched it.

    A ``reconcile`` may have taken a change of them back.
    """
    lives = touch.left is not None or touch.entered is not None
    return touch.metadata or lives or commit.kind == "reconcile"


def _followed(
    before: str | None, location: str, commits: Sequence[CommitSummary]
) -> tuple[str | None, bool]:
    """The table's id after the commits, and whether it is another table than before.

    One that went and came back with its id is the same; so is one whose id was replaced where
    it is, by a commit that tells its rows.
    """
    now, parted, is_another = before, None, False
    for commit in commits:
        touch = commit.tables[location]
        if touch.left is None and touch.entered is None:
            continue
        if touch.entered is None:
            parted = touch.left
        elif touch.left is None:
            is_another = is_another or (before is not None and touch.entered != parted)
        now = touch.entered
    return now, is_another
