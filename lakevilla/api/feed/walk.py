"""Walking the commits of a lake: from where one may begin, and which versions there are.

All is told of one HEAD, and of the pages that it names; what comes later is for the next walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakevilla.api.feed.chosen import Chosen, names_by_location
from lakevilla.errors import InvalidOperation, LakeVillaError, VersionNotFound
from lakevilla.global_log.head import CommitSummary, Head, shown_names
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_head, load_names, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.operations.feed_steps import Lives, Step, in_steps
from lakevilla.lake.past import recorded
from lakevilla.store.effects import Program, parallel

#: Commit objects are fetched so many at a time.
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """The versions of a range, in order, and what is needed to tell them.

    ``commits`` are all after ``since``, also those after the range; ``names`` are of the tables
    that they touch.
    """

    timeline: Timeline
    since: int
    until: int
    commits: Sequence[CommitSummary]
    names: dict[str, str]

    @property
    def in_range(self) -> Sequence[CommitSummary]:
        return self.commits[: self.until - self.since]

    def steps(self, chosen: Chosen, shapes: dict[str, int], *, net: bool) -> Iterator[Step]:
        """The steps that concern the chosen tables, oldest first.

        ``shapes`` is by location the last commit that may have changed a table's columns.
        """
        found = list(self.in_range)
        steps = [Step(tuple(found), net=True)] if net and found else in_steps(found)
        now = {location: _live_id(self.timeline.head, location) for location in self.names}
        lives = Lives(now, self.commits)
        called = names_by_location(self.timeline.head)
        for step in steps:
            tables = lives.past(step, shapes)
            mine = tuple(t for t in tables if chosen.has(t.location, called))
            if mine:
                yield Step(step.commits, mine, step.net)


def stretch(context: Context, head: Head, since: int, until: int) -> Program[Stretch]:
    """The commits after ``since``, up to ``until``.

    Raises
    ------
    VersionNotFound
        Some are not kept any more, or not there yet.
    InvalidOperation
        A number is within a pair, and no version of its own.
    """
    timeline = Timeline.of(head)
    check_kept(head, since)
    timeline.check(since)
    timeline.check(until)
    try:
        commits = yield from timeline.after(since)
    except VersionNotFound:
        # gc was quicker than we: what it has left is told by the HEAD of now.
        held = yield from load_head()
        if held is not None:
            check_kept(held.head, since)
        raise
    _refuse_within(commits, since, "since")
    _refuse_within(commits[until - since :], until, "until")
    touched = {location for commit in commits for location in commit.tables}
    yield from parallel([load_names(head), load_tables(head, touched)])
    names = shown_names(head)
    shown = {location: names.get(location, location) for location in touched}
    return Stretch(timeline, since, until, commits, shown)


def check_kept(head: Head, since: int) -> None:
    """Refuse a version that the history does not go back to.

    Raises
    ------
    VersionNotFound
    """
    first = max(head.history_start, head.rebuilt, head.adopted)
    if since < first and head.life is not None:
        raise VersionNotFound(
            f"branch {head.life.name!r} begins with version {first}, of which it was made, or "
            f"rebased: its changes can be had since that (lake.on('{MAIN}') has those before it)"
        )
    if since < first:
        raise VersionNotFound(
            f"the changes since global version {since} are not kept any more: they can be had "
            f"since version {first}; take the lake as it is, lake.snapshot(), and go on from its "
            "version"
        )


def _refuse_within(following: Sequence[CommitSummary], number: int, argument: str) -> None:
    """Refuse the number of a ``foreign`` commit that came in one with a ``reconcile``."""
    if following and following[0].kind == "reconcile":
        raise InvalidOperation(
            f"{argument} is global version {number}, which has no state of its own: it came in one "
            f"with version {number + 1}; give the `version` of a Version, or its `since`"
        )


@dataclass(frozen=True, slots=True)
class Noted:
    """What a commit says of itself: metadata, and the branch that it merges."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    merged: str | None = None


def noted_of(context: Context, steps: Sequence[Step]) -> Program[list[Noted | LakeVillaError]]:
    """What the steps' last commits say, in one round; or why it can't be had."""
    return (yield from parallel([_noted(context, step.commit) for step in steps]))


def _noted(context: Context, commit: CommitSummary) -> Program[Noted | LakeVillaError]:
    if not commit.hash or commit.kind == "foreign":
        return Noted()
    try:
        found = yield from recorded(context, commit)
    except LakeVillaError as error:
        return error
    return Noted(dict(found.metadata), found.merged or None)


def _live_id(head: Head, location: str) -> str | None:
    state = head.tables.get(location)
    return None if state is None or state.dropped else state.table_id
