"""What the logs hold beyond HEAD, taken in by the replacement that makes a ref.

So the ref shows what any reader sees now, and its tables lie as the log has them: nothing of
an older version of the log is needed for them, which other clients may clean up.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.repo import load_tables, make_room
from lakevilla.lake.absorb import absorb, moved_to
from lakevilla.lake.context import Context, Event
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tail import Tail
from lakevilla.store.effects import Program, parallel

#: With more tables the lake is taken as HEAD has it: a look at each would cost more than the ref.
MOST_TABLES = 256


def with_logs(context: Context, head: Head) -> Program[Head]:
    """The HEAD that follows ``head``, with what the logs of its tables hold.

    The logs are read after that HEAD was: a file that is live there now is so in a state which a
    vacuum that has moved HEAD before keeps, and one that moves it later sees the ref.
    """
    if head.tables.missing() or len(head.tables) > MOST_TABLES:
        context.notify(
            Event(
                "left_out",
                None,
                f"the lake has more than {MOST_TABLES} tables: what other clients have committed "
                "since a transaction last wrote a table is not in the ref",
                {"tables": MOST_TABLES},
            )
        )
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())
    yield from load_tables(head)
    live = [location for location, state in head.tables.items() if not state.dropped]
    tails = yield from parallel([_log(context, location) for location in live])
    absorbed = yield from absorb(context, head, _found(tails))
    tables = {}
    for location, placement in absorbed.placements.items():
        state = head.tables[location]
        moved = moved_to(state, placement)
        if moved != state:
            tables[location] = moved
    page = (yield from make_room(head, context.ids)) if absorbed.commits else None
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=tables,
        page=page,
    )


def _log(context: Context, location: str) -> Program[Tail | None]:
    """A table's log as it is now; None if it can't be read, which must not stop the others."""
    try:
        return (yield from refresh(context, location))
    except StoreError:
        raise
    except LakeVillaError:
        return None


def _found(tails: Iterable[Tail | None]) -> dict[str, Tail]:
    return {tail.location: tail for tail in tails if tail is not None and tail.tip >= 0}
