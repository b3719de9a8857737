"""Ending a clone: whether somebody still needs what it keeps (docs/design/0039-clones.md)."""

from __future__ import annotations

import msgspec

from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.global_log.head import Head, TableState, successor, with_refs
from lakevilla.global_log.refs import RefEntry, is_at
from lakevilla.global_log.repo import load_refs, load_tables, load_tables_below
from lakevilla.lake.context import Context
from lakevilla.lake.refs.kept import outside
from lakevilla.lake.refs.states import not_found
from lakevilla.lake.table_log import refresh
from lakevilla.lake.view import build_view
from lakevilla.publishing.publish import publish_table
from lakevilla.refs.entries import replace
from lakevilla.store.effects import Program, parallel

_MAX_RACES = 200
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
    for attempt in range(_MAX_RACES):
        held = yield from context.head()
        context.refuse_foreign_root()
        head = None if held is None else held.head
        yield from load_refs(head, [name])
        entry = None if head is None else head.refs.get(name)
        if held is None or entry is None or entry.id != first.id:
            if attempt:
                return  # an answer was lost, or another has ended it
            raise (yield from not_found(head, name))
        if entry.protected:
            raise InvalidOperation(
                f"clone {name!r} is protected: protect({name!r}, on=False) lifts that"
            )
        states = yield from tables_of(held.head, name)
        outside = yield from _that_need_it(context, held.head, states)
        if outside:
            more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
            raise InvalidOperation(
                f"delete_ref: {', '.join(outside[:_NAMED])}{more} of clone {name!r} "
                f"{'names' if len(outside) == 1 else 'name'} files of its source, which it keeps: "
                f"keep({name!r}) copies them, or drop these tables first",
                table=outside[0],
            )
        new = successor(held.head, nonce=context.ids.nonce(), now_ms=context.now_ms())
        never_made = {place: None for place, one in states.items() if _was_never_made(one)}
        tables = new.tables.updated(never_made) if never_made else new.tables
        new = with_refs(msgspec.structs.replace(new, tables=tables), {name: None})
        if (yield from replace(context, held, new)):
            return
    raise StoreError(f"HEAD was replaced by others {_MAX_RACES} times in a row: try again")


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


def _that_need_it(
    context: Context, head: Head, states: dict[str, TableState]
) -> Program[list[str]]:
    live = sorted(place for place, state in states.items() if not state.dropped)
    found = yield from parallel([_needs_it(context, head, place) for place in live])
    return [place for place, needs in zip(live, found, strict=True) if needs]


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
