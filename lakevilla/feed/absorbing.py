"""Taking in what other clients have committed, so that a feed tells it.

As every transaction does for the tables that it writes (``lake.absorb``); here by one that writes
none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.feed.chosen import Chosen, names_by_location
from lakevilla.global_log.head import Head, TableState, successor
from lakevilla.global_log.repo import load_all, make_room
from lakevilla.lake.absorb import absorb, moved_to
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import is_another
from lakevilla.refs.entries import replace
from lakevilla.store.effects import Program, parallel

#: Logs that are looked at in one go; the next go looks at the next ones.
MOST_TABLES = 256
_TRIES = 3


@dataclass(slots=True)
class Absorber:
    """Looks at the logs of the chosen tables, in turn.

    ``last`` is the location that was looked at last.
    """

    context: Context
    chosen: Chosen
    last: str = ""

    def absorb(self) -> Program[bool]:
        """Give what the logs hold beyond HEAD its place there, if there is something.

        It costs a look at HEAD and at each log, and one replacement of HEAD if a log has gone on.
        Safe as any commit is: HEAD is replaced only if it is the one that the logs were placed
        against, and of a log no more is taken in than what is decided fits (``view.place``). A
        race that is lost was won by somebody who may have taken in the same.

        Returns
        -------
        bool
            Whether HEAD was replaced.
        """
        for _ in range(_TRIES):
            held = yield from self.context.head()
            if held is None:
                return False
            self.context.refuse_foreign_root()
            head = held.head
            yield from load_all(head)
            locations = self._next(head)
            tails = yield from parallel([self._log(head, location) for location in locations])
            found = {tail.location: tail for tail in tails if tail is not None}
            absorbed = yield from absorb(self.context, head, found)
            tables: dict[str, TableState] = {}
            for commit in absorbed.commits:
                for location in commit.tables:
                    state, placement = head.tables[location], absorbed.placements[location]
                    tables[location] = moved_to(state, placement)
            if not tables:
                self._done(locations)
                return False
            new = successor(
                head,
                nonce=self.context.ids.nonce(),
                now_ms=self.context.now_ms(),
                commits=absorbed.commits,
                tables=tables,
                sizes=absorbed.sizes,
                page=(yield from make_room(head, self.context.ids)),
            )
            if (yield from replace(self.context, held, new)):
                self._done(locations)
                return True
        return False

    def _next(self, head: Head) -> list[str]:
        """The tables to be looked at: those after the last one, and round again."""
        called = names_by_location(head)
        live = [
            location
            for location, state in head.tables.items()
            if not (state.dropped or state.guarded) and self.chosen.has(location, called)
        ]
        return sorted(live, key=lambda location: (location <= self.last, location))[:MOST_TABLES]

    def _done(self, locations: list[str]) -> None:
        self.last = locations[-1] if locations else ""

    def _log(self, head: Head, location: str) -> Program[Tail | None]:
        """A table's log as it is now; None if it can't be read, or is another table's."""
        try:
            tail = yield from refresh(self.context, location)
            if tail.tip < 0 or (yield from is_another(self.context, head.tables[location], tail)):
                return None
        except StoreError:
            raise
        except LakeVillaError:
            return None
        return tail
