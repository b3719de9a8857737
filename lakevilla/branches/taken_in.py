"""What the logs hold beyond HEAD, taken in by the replacement that makes a ref.

So the ref shows what any reader sees now, and its tables lie as the log has them: nothing of
an older version of the log is needed for them, which other clients may clean up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.branches.states import fitting
from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.head import Head, successor
from lakevilla.global_log.refs import is_at
from lakevilla.global_log.repo import load_tables, load_tables_below, make_room
from lakevilla.lake.absorb import absorb as take_in
from lakevilla.lake.absorb import moved_to
from lakevilla.lake.context import Context, Event
from lakevilla.lake.frozen.mounts import mounted
from lakevilla.lake.newer import refuse_newer_logs
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tail import Tail
from lakevilla.store.effects import Program, parallel

#: With more tables the lake is taken as HEAD has it: a look at each would cost more than the ref.
MOST_TABLES = 256


def with_logs(
    context: Context,
    head: Head,
    tables: Sequence[str] | None = None,
    absorb: Sequence[str] | None = None,
    below: str | None = None,
) -> Program[Head]:
    """The HEAD that follows ``head``, with what the logs of its tables hold.

    The logs are read after that HEAD was: a file that is live there now is so in a state which a
    vacuum that has moved HEAD before keeps, and one that moves it later sees the ref.

    Parameters
    ----------
    tables : sequence of str, optional
        Patterns of the tables that the ref is to have.
    absorb : sequence of str, optional
        Patterns of the tables whose logs are looked at. If not given, those that the ref is to
        have and others can write, unless they are more than ``MOST_TABLES``.
    below : str, optional
        The ref is to have what is at this place or below it.
    """
    if below is None:
        looked_at = yield from _looked_at(context, head, tables, absorb)
    else:
        looked_at = yield from _below(context, head, below)
    tails = yield from parallel([_log(context, location) for location in looked_at])
    yield from refuse_newer_logs(context, head, _found(tails).values())
    absorbed = yield from take_in(context, head, _found(tails))
    moved_states = {}
    for location, placement in absorbed.placements.items():
        state = head.tables[location]
        moved = moved_to(state, placement)
        if moved != state:
            moved_states[location] = moved
    page = (yield from make_room(head, context.ids)) if absorbed.commits else None
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=moved_states,
        sizes=absorbed.sizes,
        page=page,
    )


def _looked_at(
    context: Context, head: Head, tables: Sequence[str] | None, absorb: Sequence[str] | None
) -> Program[list[str]]:
    """The tables whose logs are looked at."""
    if absorb is not None:
        if not absorb:
            return []  # however many tables there are
        return sorted((yield from fitting(head.tables, head.names, "absorb", absorb)))
    if tables is not None:
        shown = yield from mounted(head)
        fit = yield from fitting(head.tables, head.names, "tables", tables, shown)
        found = sorted(fit - shown.keys())
    elif head.tables.missing() or len(head.tables) > MOST_TABLES:
        return _none(context)
    else:
        yield from load_tables(head)
        found = [location for location, state in head.tables.items() if not state.dropped]
    open_to_others = [location for location in found if not head.tables[location].guarded]
    return open_to_others if len(open_to_others) <= MOST_TABLES else _none(context)


def _below(context: Context, head: Head, place: str) -> Program[list[str]]:
    yield from load_tables(head, [place])
    yield from load_tables_below(head, f"{place}/")
    there = [one for one in head.tables.at_hand() if is_at(one, place)]
    states = {one: head.tables[one] for one in sorted(there)}
    open_to_others = [p for p, one in states.items() if not (one.dropped or one.guarded)]
    return open_to_others if len(open_to_others) <= MOST_TABLES else _none(context)


def _none(context: Context) -> list[str]:
    context.notify(
        Event(
            "left_out",
            None,
            f"the ref has more than {MOST_TABLES} tables, so no log was looked at: what other "
            "clients have committed since a transaction last wrote a table is not in it; absorb= "
            "names tables that are to be looked at",
            {"tables": MOST_TABLES},
        )
    )
    return []


def _log(context: Context, location: str) -> Program[Tail | None]:
    """A table's log as it is now; None if it can't be read, which must not stop the others."""
    try:
        return (yield from refresh(context, location))
    except StoreError:
        raise
    except LakeVillaError as error:
        context.notify(
            Event(
                "left_out",
                None,
                f"table {location} is in the ref as HEAD has it, since its log can't be read: "
                f"{error.message}",
                {"table": location, "reason": error.message},
            )
        )
        return None


def _found(tails: Iterable[Tail | None]) -> dict[str, Tail]:
    return {tail.location: tail for tail in tails if tail is not None and tail.tip >= 0}
