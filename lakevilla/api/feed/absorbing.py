"""Absorption of the commits of other clients, so that a feed reports them.

Every transaction does this for the tables that it writes (``lake.absorb``); here it is done by one
that writes none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lakevilla.api.feed.walk import ALL, Chosen, names_by_location
from lakevilla.branches.branches import replace
from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, TableState, successor
from lakevilla.global_log.repo import load_all, make_room
from lakevilla.lake.absorb import absorb, moved_to
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import refresh
from lakevilla.lake.view import is_another
from lakevilla.store.effects import Program, parallel

#: The number of logs that are read at once; the next call reads the next ones.
MOST_TABLES = 256
_TRIES = 3
_MAX_RACES = 200


@dataclass(slots=True)
class Absorber:
    """The absorption of the logs of the chosen tables, in turn.

    ``last`` is the location that was read last.
    """

    context: Context
    chosen: Chosen
    last: str = ""

    def absorb(self) -> Program[bool]:
        """Give the commits that the logs have beyond HEAD their places in HEAD, if there are any.

        It costs a read of HEAD and of each log, and one replacement of HEAD if a log has grown.

        Returns
        -------
        bool
            True if HEAD was replaced.
        """
        for _ in range(_TRIES):
            found = yield from _try_absorb(self.context, self._next)
            if found is not None:
                self.last = found.looked_at[-1] if found.looked_at else ""
                return bool(found.tables)
        return False

    def _next(self, head: Head) -> list[str]:
        """Return the tables to read: those after the last one, and then the first ones again."""
        live = _live(head, self.chosen)
        return sorted(live, key=lambda location: (location <= self.last, location))[:MOST_TABLES]


def absorb_all(context: Context, chosen: Chosen = ALL) -> Program[frozenset[str]]:
    """Give what the logs of all chosen tables have beyond HEAD its place there.

    Return the tables of which something was absorbed.

    Raises
    ------
    StoreError
        Other clients have replaced HEAD again and again.
    """
    tables: frozenset[str] = frozenset()
    last = ""
    races = 0
    while races < _MAX_RACES:
        found = yield from _try_absorb(context, partial(_after, last, chosen))
        if found is None:
            races += 1
            continue
        tables |= found.tables
        if len(found.looked_at) < MOST_TABLES:
            return tables
        last = found.looked_at[-1]
    raise StoreError(f"HEAD was replaced by other clients {_MAX_RACES} times in a row: try again")


@dataclass(frozen=True, slots=True)
class _Found:
    """The tables whose logs were read, and those among them whose logs had grown."""

    looked_at: list[str]
    tables: frozenset[str] = frozenset()


def _try_absorb(context: Context, choose: Callable[[Head], list[str]]) -> Program[_Found | None]:
    """Try once to absorb what the logs of some tables have; None if a race was lost.

    This is as safe as any commit: HEAD is replaced only if it is the one against which the logs
    were placed, and no more of a log is absorbed than fits what is decided (``view.place``). The
    client that has won the race may have absorbed the same.
    """
    held = yield from context.head()
    if held is None:
        return _Found([])
    context.refuse_foreign_root()
    head = held.head
    yield from load_all(head)
    locations = choose(head)
    tails = yield from parallel([_log(context, head, location) for location in locations])
    found = {tail.location: tail for tail in tails if tail is not None}
    absorbed = yield from absorb(context, head, found)
    tables: dict[str, TableState] = {}
    for commit in absorbed.commits:
        for location in commit.tables:
            state, placement = head.tables[location], absorbed.placements[location]
            tables[location] = moved_to(state, placement)
    if not tables:
        return _Found(locations)
    new = successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=tables,
        sizes=absorbed.sizes,
        page=(yield from make_room(head, context.ids)),
    )
    if (yield from replace(context, held, new)):
        return _Found(locations, frozenset(tables))
    return None


def _after(last: str, chosen: Chosen, head: Head) -> list[str]:
    return sorted(location for location in _live(head, chosen) if location > last)[:MOST_TABLES]


def _live(head: Head, chosen: Chosen) -> list[str]:
    """Return the chosen tables to which other clients can commit."""
    called = names_by_location(head)
    return [
        location
        for location, state in head.tables.items()
        if not (state.dropped or state.guarded) and chosen.has(location, called)
    ]


def _log(context: Context, head: Head, location: str) -> Program[Tail | None]:
    """Return a table's present log; None if it can't be read, or is another table's."""
    try:
        tail = yield from refresh(context, location)
        if tail.tip < 0 or (yield from is_another(context, head.tables[location], tail)):
            return None
    except StoreError:
        raise
    except LakeVillaError:
        return None
    return tail
