"""Ending a clone: whether somebody still needs what it keeps (docs/design/0039-clones.md)."""

from __future__ import annotations

import msgspec

from lakevilla.branches.entries import LeftAsIs, Next, following, until_replaced
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.head import Head, TableState, with_refs
from lakevilla.global_log.refs import RefEntry, is_at
from lakevilla.global_log.repo import HeldHead, load_tables, load_tables_below
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.kept import outside
from lakevilla.lake.frozen.states import not_found
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import refresh
from lakevilla.lake.view import build_view
from lakevilla.store.effects import Program, parallel

#: So many tables are named where a clone can't be ended.
_NAMED = 5


def end_clone(context: Context, name: str, first: RefEntry) -> Program[None]:
    """Take a clone out of HEAD, and what is left of tables that were dropped there unwritten.

    Safe because it is asked of the very HEAD that is replaced which tables of it were written to:
    whoever writes to one later finds no clone, and is in conflict.

    Raises
    ------
    RefNotFound
    InvalidOperation
        It is protected, or a table that was written to names files that it keeps.
    """
    is_again = False

    def step(held: HeldHead | None, entry: RefEntry | None) -> Program[LeftAsIs[None] | Next[None]]:
        nonlocal is_again
        if held is None or entry is None or entry.id != first.id:
            if is_again:
                return LeftAsIs(None)  # an answer was lost, or another has ended it
            raise (yield from not_found(None if held is None else held.head, name))
        is_again = True
        if entry.protected:
            raise InvalidOperation(
                f"clone {name!r} is protected: protect({name!r}, on=False) lifts that"
            )
        states = yield from tables_of(held.head, name)
        yield from _refuse_needed(context, held.head, name, states)
        new = following(context, held)
        never_made = {place: None for place, one in states.items() if _was_never_made(one)}
        if never_made:
            new = msgspec.structs.replace(new, tables=new.tables.updated(never_made))
        return Next(with_refs(new, {name: None}), None)

    yield from until_replaced(context, name, step)


def tables_of(head: Head, name: str) -> Program[dict[str, TableState]]:
    """The tables of HEAD itself at and below the place of a clone, dropped ones too."""
    yield from load_tables(head, [name])
    yield from load_tables_below(head, f"{name}/")
    return {place: one for place, one in head.tables.at_hand().items() if is_at(place, name)}


def files_elsewhere(context: Context, head: Head, location: str) -> Program[set[str]]:
    """The objects outside of its own directory that a table needs, as HEAD and its log have it."""
    tail = yield from refresh(context, location)
    view = yield from build_view(context, head, location, tail)
    needed = yield from context.formats.of(view.snapshot).objects_of(view.snapshot)
    return outside(context, needed)


def _refuse_needed(
    context: Context, head: Head, name: str, states: dict[str, TableState]
) -> Program[None]:
    """Refuse to end a clone of which tables name files that it keeps."""
    live = sorted(place for place, state in states.items() if not state.dropped)
    found = yield from parallel([_needs_it(context, head, place) for place in live])
    needing = [place for place, needs in zip(live, found, strict=True) if needs]
    if needing:
        more = f" and {len(needing) - _NAMED} more" if len(needing) > _NAMED else ""
        raise InvalidOperation(
            f"delete_ref: {', '.join(needing[:_NAMED])}{more} of clone {name!r} "
            f"{'names' if len(needing) == 1 else 'name'} files of its source, which it keeps: "
            f"keep({name!r}) copies them, or drop these tables first",
            table=needing[0],
        )


def _needs_it(context: Context, head: Head, location: str) -> Program[bool]:
    if not (yield from files_elsewhere(context, head, location)):
        return False
    if not head.tables[location].pending:
        return True
    # Its log may name what was taken out by a commit that is not published: then others who read
    # the log need it yet.
    yield from publish_table(context, head, location)
    return bool((yield from files_elsewhere(context, head, location)))


def _was_never_made(state: TableState) -> bool:
    """Whether it is a mark alone that a table is not shown: there is no log, and none comes."""
    return state.dropped and state.published < 0 and not state.pending
