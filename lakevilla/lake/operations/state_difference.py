"""What one state of the lake has other than another, table by table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lakevilla.errors import TableNotFound, VersionNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.states import StateName, between, chosen_places, state_of
from lakevilla.lake.operations.difference import Difference, difference
from lakevilla.lake.view import View
from lakevilla.store.effects import Program, parallel

Kind = Literal["created", "joined", "dropped", "changed"]


@dataclass(frozen=True, slots=True)
class TableDifference:
    """One table that differs. ``snapshot`` is its later state, or the only one."""

    location: str
    change: Kind
    found: Difference
    snapshot: TableSnapshot


def states_differ(
    context: Context, before: StateName, after: StateName, patterns: Sequence[str] | None
) -> Program[list[TableDifference]]:
    """The tables that differ in two states. Equal ones are not opened.

    Raises
    ------
    VersionNotFound, RefNotFound
        A state is not kept any more.
    InvalidOperation
        A pattern fits no table.
    """
    held = yield from context.head()
    if held is None:
        raise VersionNotFound("the lake has no global version yet: its first transaction makes one")
    head = held.head
    old = yield from state_of(head, before)
    new = yield from state_of(head, after)
    places = yield from between(context, head, old, new)
    wanted = yield from chosen_places(head, places.tables, patterns)
    was = yield from old.views(context, wanted)
    now = yield from new.views(context, wanted)
    found = yield from parallel([_one(context, was[place], now[place]) for place in wanted])
    differing = []
    for place, (change, what, snapshot) in zip(wanted, found, strict=True):
        if what.is_empty and change == "changed":
            continue
        kind: Kind = "joined" if change == "created" and place not in places.made else change
        differing.append(TableDifference(place, kind, what, snapshot))
    return differing


def _one(
    context: Context, old: View | None, new: View | None
) -> Program[tuple[Kind, Difference, TableSnapshot]]:
    known = new or old
    if known is None:
        raise TableNotFound("a table that came and went between the two states")
    snapshot = known.snapshot
    format_ = context.formats.of(snapshot)
    blank = format_.blank(snapshot.location, snapshot.layout.table, catalog=snapshot.catalog)
    was = blank if old is None else old.snapshot
    now = blank if new is None else new.snapshot
    change: Kind = "created" if old is None else "dropped" if new is None else "changed"
    return change, (yield from difference(was, now)), snapshot
