"""Absorb foreign commits, so that the feed reports them.

Every transaction absorbs those of the tables that it writes (``lake.absorb``). Here, HEAD is
replaced only to absorb, without a transaction's own changes.
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

#: The number of logs that are read at once; the next call continues with the next logs.
MOST_TABLES = 256
_TRIES = 3
_MAX_RACES = 200


@dataclass(slots=True)
class Absorber:
    """An object that absorbs the foreign commits of the chosen tables, a part of the tables at a
    time.

    ``last`` is the location of the last table whose log was read.
    """

    context: Context
    chosen: Chosen
    last: str = ""

    def absorb(self) -> Program[bool]:
        """Give foreign commits their places in HEAD, if the logs have any that HEAD does not know.

        This costs a read of HEAD and of each log, and one replacement of HEAD if a log has grown.

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
        """Return the tables to read next: those after ``last``, then those from the beginning."""
        live = _live(head, self.chosen)
        return sorted(live, key=lambda location: (location <= self.last, location))[:MOST_TABLES]


def absorb_all(context: Context, chosen: Chosen = ALL) -> Program[frozenset[str]]:
    """Give all foreign commits of the chosen tables that HEAD does not know their places in HEAD.

    Return the tables whose foreign commits were absorbed.

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
    """The tables whose logs were read, and those whose foreign commits were absorbed."""

    looked_at: list[str]
    tables: frozenset[str] = frozenset()


def _try_absorb(context: Context, choose: Callable[[Head], list[str]]) -> Program[_Found | None]:
    """Try once to absorb the foreign commits of some tables; None if another client replaced HEAD.

    This is as safe as any commit: HEAD is replaced only if it is still the one with which the logs
    were compared, and only those entries of a log are absorbed that fit the decided commits
    (``view.place``). The client that has replaced HEAD may have absorbed the same commits.
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
    """Return the chosen tables to which clients without LakeVilla can commit."""
    called = names_by_location(head)
    return [
        location
        for location, state in head.tables.items()
        if not (state.dropped or state.guarded) and chosen.has(location, called)
    ]


def _log(context: Context, head: Head, location: str) -> Program[Tail | None]:
    """Return a table's present log; None if it can't be read or belongs to another table."""
    try:
        tail = yield from refresh(context, location)
        if tail.tip < 0 or (yield from is_another(context, head.tables[location], tail)):
            return None
    except StoreError:
        raise
    except LakeVillaError:
        return None
    return tail
