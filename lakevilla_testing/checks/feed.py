"""Checks of the change feed: its steps, laid over a state, against the real states of the lake.

States are those of the HEADs in the store's journal, as in ``checks.past``. Each step of a range
must lead from the state before it to the state after it, by what it reports of the tables' files.
The steps must cover the range. No step may report a change that a later step takes back.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lakevilla.api.feed.walk import ALL, Stretch, stretch
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.global_log.head import Head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.operations.feed_rows import Step, changes_in
from lakevilla.store.effects import Program
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.checks.past import apply_files, heads_that_were, state_of
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import SimulatedStore

#: Per table that was in the lake, the paths of its live files.
State = dict[str, frozenset[str]]


@dataclass
class Copy:
    """The files of each table by the feed, up to ``position``; and all earlier states."""

    position: int = 0
    state: State = field(default_factory=dict)
    seen: list[tuple[int, State]] = field(default_factory=list)

    def move(self, position: int, state: State) -> None:
        """Advance by one step."""
        self.position, self.state = position, state
        self.seen.append((position, state))


def feed_is_as_it_was(
    store: SimulatedStore,
    context: Context,
    source: random.Random,
    *,
    count: int,
    passing: Collection[str] = (),
    may_be_missing: bool,
) -> int:
    """Follow ``count`` ranges of the feed, drawn from ``source``; return the number of compared
    steps.

    ``passing`` and ``may_be_missing`` as in ``checks.past``.
    """
    held = run_now(store, context.head())
    if held is None:
        return 0
    heads = heads_that_were(store, run_now(store, Timeline.of(held.head).newest(None)))
    compared = 0
    for _ in range(count if len(heads) > 1 else 0):
        since, until = sorted(source.sample(sorted(heads), 2))
        for net in (False, True):
            try:
                found = run_now(store, stretch(context, held.head, since, until))
                compared += _follow(store, context, found, heads, passing, net=net)
            except VersionNotFound:
                if not may_be_missing:
                    raise
            except InvalidOperation as error:
                raise Violated(f"a HEAD ended at {since} and at {until}: {error}") from error
    return compared


def _follow(
    store: SimulatedStore,
    context: Context,
    found: Stretch,
    heads: Mapping[int, Head],
    passing: Collection[str],
    *,
    net: bool,
) -> int:
    steps = list(found.steps(ALL, {}, net=net))
    _nothing_is_taken_back(steps)
    state = state_of(store, heads[found.since], passing)
    last, compared = found.since, 0
    for step in steps:
        if step.since < last:
            raise Violated(f"commit {step.since + 1} is in two steps")
        if step.since > last:
            raise Violated(f"the feed leaves out the commits after {last}, up to {step.since}")
        last = step.commit.sequence
        state = run_now(store, state_after(context, found, step, state, passing))
        if last in heads:
            real = state_of(store, heads[last], passing)
            _compare(state, real, last, f"the feed since {step.since}")
            compared += 1
    if net and not steps:  # added files were removed again, and no table differs
        last = found.until
        real = state_of(store, heads[last], passing)
        _compare(state, real, last, f"the feed since {found.since}")
    if last != found.until:
        raise Violated(f"the feed ends at {last}, and was asked for up to {found.until}")
    return compared


def copies_are_as_it_was(store: SimulatedStore, context: Context, copies: Iterable[Copy]) -> int:
    """Compare the states of followers at each position with the real ones; return the number."""
    held = run_now(store, context.head())
    if held is None:
        return 0
    heads = heads_that_were(store, run_now(store, Timeline.of(held.head).newest(None)))
    compared = 0
    for copy in copies:
        positions = [position for position, _ in copy.seen]
        if positions != sorted(set(positions)):
            raise Violated(f"a follower was told {positions}")
        for position, state in copy.seen:
            if position in heads:
                _compare(state, state_of(store, heads[position], ()), position, "a follower")
                compared += 1
    return compared


def _nothing_is_taken_back(steps: list[Step]) -> None:
    first = 0
    for step in steps:
        first = first or step.since + 1
        for commit in step.commits:
            early = [n for n in commit.replaces if first <= n <= step.since]
            if early:
                raise Violated(
                    f"commit {early[0]} is told before {commit.sequence}, which takes its place"
                )


def state_after(
    context: Context, found: Stretch, step: Step, state: State, passing: Collection[str] = ()
) -> Program[State]:
    """Return a state after a step of the feed."""
    new = dict(state)
    for table in step.tables:
        if table.location in passing:
            continue
        if table.leaves:
            del new[table.location]
        if not table.is_there:
            continue
        live = set(new.get(table.location, ()))
        for change in (yield from changes_in(context, found.timeline, step, table)):
            apply_files(change, live)
        new[table.location] = frozenset(live)
    return new


def _compare(found: State, expected: State, version: int, who: str) -> None:
    for table in sorted({*found, *expected}):
        if found.get(table) != expected.get(table):
            raise Violated(
                f"{table} at global version {version} had the files "
                f"{sorted(expected.get(table, ()))}, and {who} has "
                f"{sorted(found.get(table, ()))}"
            )
