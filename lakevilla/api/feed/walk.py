"""Walk over the versions of a lake that changed the chosen tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from inspect import iscoroutinefunction
from typing import Protocol

from lakevilla.api.arguments import check_columns, check_number, check_patterns
from lakevilla.api.client.client import LakeClient
from lakevilla.api.history import milliseconds
from lakevilla.api.times import time_or_other
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound, VersionNotFound
from lakevilla.global_log.head import CommitSummary, Head, shown_names
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_head, load_names, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.operations.feed_rows import Step, TableTracker, in_steps
from lakevilla.lake.past import recorded
from lakevilla.settings import MOST_SECONDS, shown
from lakevilla.store.effects import Program, parallel

# -------------------- walk
#
# Walks over the commits of a lake: the version at which one may begin, and those that exist.
#
# A walk reads one HEAD and the pages that it names; later commits are left for the next walk.


#: The number of commit objects that are fetched at a time.
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """The versions of a range, in order, and what is needed to report them.

    ``commits`` has all commits after ``since``, also those after the range; ``names`` has the names
    of the tables that they changed.
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
        """Yield the steps that changed one of the chosen tables, oldest first.

        ``shapes`` has, by location, the last commit that may have changed a table's columns.
        """
        found = list(self.in_range)
        steps = [Step(tuple(found), net=True)] if net and found else in_steps(found)
        now = {location: _live_id(self.timeline.head, location) for location in self.names}
        epochs = TableTracker(now, self.commits)
        called = names_by_location(self.timeline.head)
        for step in steps:
            tables = epochs.past(step, shapes)
            chosen_tables = tuple(t for t in tables if chosen.has(t.location, called))
            if chosen_tables:
                yield Step(step.commits, chosen_tables, step.net)


def stretch(context: Context, head: Head, since: int, until: int) -> Program[Stretch]:
    """Return the commits after ``since``, up to ``until``.

    Raises
    ------
    VersionNotFound
        Some of the commits are not kept any more, or do not exist yet.
    InvalidOperation
        ``since`` or ``until`` is the number of a foreign commit that was absorbed together with the
        reconcile after it, and so is no version of its own.
    """
    timeline = Timeline.of(head)
    check_kept(head, since)
    timeline.check(since)
    timeline.check(until)
    try:
        commits = yield from timeline.after(since)
    except VersionNotFound:
        # gc has deleted a page meanwhile; the present HEAD shows what history is left.
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
    """Refuse a version that is older than the kept history.

    Raises
    ------
    VersionNotFound
    """
    first = max(head.history_start, head.rebuilt, head.adopted)
    if since < first and head.epoch is not None:
        raise VersionNotFound(
            f"branch {head.epoch.name!r} begins with version {first}, from which it was created "
            f"or rebased: its changes are kept since then (lake.on('{MAIN}') has those before it)"
        )
    if since < first:
        raise VersionNotFound(
            f"the changes since global version {since} are not kept any more: they are kept since "
            f"version {first}; read the present state, lake.snapshot(), and continue from its "
            "version"
        )


def _refuse_within(following: Sequence[CommitSummary], number: int, argument: str) -> None:
    """Refuse the number of a ``foreign`` commit that was decided together with a ``reconcile``."""
    if following and following[0].kind == "reconcile":
        raise InvalidOperation(
            f"{argument} is global version {number}, which has no state of its own: it was "
            f"committed together with version {number + 1}; give the `version` of a Version, or "
            "its `since`"
        )


@dataclass(frozen=True, slots=True)
class Noted:
    """Notes that a commit object has: the metadata, and the branch that it merges."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    merged: str | None = None


def noted_of(context: Context, steps: Sequence[Step]) -> Program[list[Noted | LakeVillaError]]:
    """Return the notes of each step's last commit, or its error; all are read in one round."""
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


# -------------------- chosen
#
# The tables that a caller follows: by name, or by patterns, which later tables may match too.


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen tables, by locations and by patterns of names; all if ``locations`` is None."""

    locations: frozenset[str] | None = None
    patterns: tuple[str, ...] = ()

    def has(self, location: str, called: Mapping[str, Sequence[str]]) -> bool:
        """Return whether a table is chosen; ``called`` has the names of tables by location."""
        if self.locations is None or location in self.locations:
            return True
        return any(fits(pattern, location, called) for pattern in self.patterns)


ALL = Chosen()


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def fits(pattern: str, location: str, called: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a table's location or one of its names matches a pattern."""
    return any(fnmatchcase(name, pattern) for name in (location, *called.get(location, ())))


def names_by_location(head: Head) -> dict[str, list[str]]:
    """Return the names of each table in HEAD by location; the names must be cached."""
    called: dict[str, list[str]] = {}
    for name, location in head.names.cached().items():
        called.setdefault(location, []).append(name)
    return called


def refuse_idle(head: Head, chosen: Chosen, touched: Collection[str]) -> Program[None]:
    """Refuse a pattern that matches neither one of the ``touched`` tables nor a table in HEAD.

    Raises
    ------
    InvalidOperation
    """
    called = names_by_location(head)
    idle = [
        p for p in chosen.patterns if not any(fits(p, location, called) for location in touched)
    ]
    if idle:
        yield from load_tables(head)
        idle = [p for p in idle if not any(fits(p, location, called) for location in head.tables)]
    if idle:
        raise InvalidOperation(f"tables: no table name of the lake matches {idle[0]!r}")


# -------------------- requests
#
# Arguments of the feed's callers, checked and translated.


class StopSignal(Protocol):
    """The interface of a ``threading.Event``."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> object: ...


@dataclass(frozen=True, slots=True)
class RequestedColumns:
    """The requested columns: one list for all tables, or lists by location."""

    of_all: Sequence[str] | None = None
    of_some: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, location: str) -> Sequence[str] | None:
        return self.of_some.get(location, self.of_all)


def moving(client: LakeClient, verb: str) -> LakeClient:
    """Return the client, if it is the lake's or a branch's. Raises ``InvalidOperation``."""
    if client.at is None:
        return client.current()
    base = client.at.base
    whose = "the branch that it belongs to has" if base.origin else f'lake.on("{MAIN}") has'
    raise InvalidOperation(
        f"{verb}: {base.kind} {client.at.name!r} is one state of the lake and has no later "
        f"versions: {whose} those that came after it, by {verb}({base.sequence})"
    )


def number_of(
    client: LakeClient, head: Head | None, verb: str, argument: str, value: object
) -> int:
    """Return a global version, or the newest that is not later than a time.

    Raises
    ------
    InvalidOperation
        The value is neither of them, or a future time, or the name or rows of a table, which
        another verb takes.
    VersionNotFound
        The lake has no such version.
    """
    value = time_or_other(value, argument)
    if isinstance(value, datetime):
        stamp = milliseconds(value)
        if stamp > client.context.now_ms():
            raise InvalidOperation(
                f"{verb}: {argument} is {value.isoformat()}, which is in the future: give a time "
                "of the past, or a global version"
            )
        return 0 if head is None else client.run(_by(Timeline.of(head), stamp))
    _refuse_table(verb, argument, value)
    number = check_number(argument, value)
    newest = 0 if head is None else head.sequence
    if number > newest:
        raise VersionNotFound(
            f"{verb}: {argument} is global version {number}, and the lake's newest is {newest}: "
            "request an older one (if it was seen here before, this is another lake, or an older "
            "copy of it)"
        )
    return number


def _by(timeline: Timeline, stamp_ms: int) -> Program[int]:
    """Return the newest version up to a time, as ``snapshot`` does: never one within a pair."""
    return (yield from timeline.settled((yield from timeline.by(stamp_ms))))


def _refuse_table(verb: str, argument: str, value: object) -> None:
    """Refuse a table's name, or rows, given as a version."""
    is_name = isinstance(value, str)
    is_rows = isinstance(value, list | tuple | Mapping) or hasattr(value, "__arrow_c_stream__")
    if not (is_name or is_rows):
        return
    table = value if is_name else getattr(value, "name", "NAME")
    raise InvalidOperation(
        f"{verb}: {argument} must be a global version or a time, not "
        f"{'a table' if is_name else 'rows'}: lake.{verb}(0, tables=[{table!r}]) returns the "
        f"versions of this table one by one, and txn.changes({table!r}, since) its changed rows"
    )


def chosen_of(client: LakeClient, head: Head | None, tables: object) -> Chosen:
    """Return the requested tables: names are looked up now, patterns are matched when a table
    occurs.

    Raises
    ------
    TableNotFound
        There is no table with one of the names.
    InvalidOperation
        The value holds no names.
    """
    if isinstance(tables, str):
        raise InvalidOperation(f"tables is a list of names, not a string: tables=[{tables!r}]")
    given = check_patterns("tables", tables)
    if given is None:
        return ALL
    patterns = tuple(text for text in given if is_pattern(text))
    locations = [_location(client, head, text) for text in given if not is_pattern(text)]
    return Chosen(frozenset(locations), patterns)


def columns_of(client: LakeClient, head: Head | None, columns: object) -> RequestedColumns:
    """Return the requested columns; raise the errors of ``chosen_of``."""
    if not isinstance(columns, Mapping):
        return RequestedColumns(check_columns(columns))
    by_location = {}
    for name, some in columns.items():
        names = check_columns(some)
        if names is not None:
            by_location[_location(client, head, name)] = names
    return RequestedColumns(None, by_location)


def _location(client: LakeClient, head: Head | None, name: str) -> str:
    """Return the location of a table that the lake has, or had."""
    location = client.resolve(client.names(head, name), name, head)
    client.run(load_tables(head, [location]))
    if head is None or location not in head.tables:
        client.run(load_names(head))
        raise TableNotFound(
            f"tables: the lake has no table {name!r}; `tables()` lists those that it has, and a "
            "pattern such as 'sales/*' also matches tables that are created later",
            table=name,
        )
    return location


def check_seconds(name: str, value: object) -> float:
    """Return a number of seconds to wait, which must be more than 0.

    Raises
    ------
    InvalidOperation
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= MOST_SECONDS:  # type: ignore[operator]
        raise InvalidOperation(
            f"{name} must be a number of seconds, more than 0 and at most {MOST_SECONDS:.12g}, not "
            f"{shown(value)}"
        )
    return float(value)  # type: ignore[arg-type]


def check_stop(stop: object) -> None:
    """Refuse an object without the methods ``is_set`` and ``wait`` of a ``threading.Event``."""
    verbs = [getattr(stop, name, None) for name in ("is_set", "wait")]
    if stop is not None and not all(callable(v) and not iscoroutinefunction(v) for v in verbs):
        raise InvalidOperation(f"stop must be a threading.Event, not {shown(stop)}")
