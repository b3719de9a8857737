"""What is asked of the verbs that apply states, table by table, and what they say of a conflict."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.formats.base import TableSnapshot
from lakevilla.global_log.refs import parsed
from lakevilla.lake.frozen.states import AtBase, LakeState, StateName
from lakevilla.lake.operations.comparing.computed import reached_by
from lakevilla.lake.operations.difference import Difference
from lakevilla.sublogs.operations import OnConflict, OnEqual, Reached, Transplant

#: How far a table was in its histories where nobody can tell.
UNKNOWN: tuple[Reached, Reached] = ({}, {})


@dataclass(frozen=True, slots=True)
class Settle:
    """What counts where both sides have changed the same, and where to the same."""

    on_conflict: OnConflict = "error"
    on_equal: OnEqual = "conflict"


#: What both sides have changed is refused.
REFUSE = Settle()


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one table."""

    location: str
    keys: tuple[str, ...]
    settle: Settle
    verb: str
    parameters: dict[str, str]
    since: Reached
    until: Reached

    @property
    def on_conflict(self) -> OnConflict:
        return self.settle.on_conflict


def conflict_of(request: Request, why: str, *, theirs: bool = True) -> MergeConflict:
    """``theirs``: whether ``on_conflict="theirs"`` can settle it."""
    may = "'ours' or 'theirs'" if theirs else "'ours'"
    left_out = "" if request.verb == "REBASE" else "leave it out by tables=, or "
    return MergeConflict(
        f"table {request.location}: {why}; {left_out}give on_conflict={may}",
        rows={request.location: None},
        table=request.location,
    )


def together(conflicts: Sequence[MergeConflict]) -> MergeConflict:
    """The conflicts of several tables as one error."""
    if len(conflicts) == 1:
        return conflicts[0]
    rows = {table: found for one in conflicts for table, found in one.by_table.items()}
    message = "; ".join(one.message for one in conflicts)
    return MergeConflict(f"{len(conflicts)} tables are in conflict: {message}", rows=rows)


def reached(old: LakeState, new: LakeState, location: str) -> tuple[Reached, Reached]:
    """How far a table is in the histories of two states, where one leads to the other."""
    was, now = _reached_by(old, location), _reached_by(new, location)
    if was.keys() == now.keys():
        return was, now
    if isinstance(old, AtBase) and old.base.kind == "branch" and old.base.life in now:
        return was, {**was, **now}  # the life that was made of it
    return UNKNOWN


def _reached_by(state: LakeState, location: str) -> Reached:
    return reached_by(state.base, location) if isinstance(state, AtBase) else {"": state.version}


def check_keys(snapshot: TableSnapshot, keys: Collection[str]) -> None:
    """Refuse keys that the table lacks, or that tell no rows apart. ``InvalidOperation``."""
    schema = snapshot.layout.schema
    for key in keys:
        if key not in schema.names:
            raise InvalidOperation(
                f"keys: table {snapshot.layout.table} has no column {key!r}; it has "
                f"{', '.join(schema.names)}",
                table=snapshot.layout.table,
            )
        if pa.types.is_nested(schema.field(key).type):
            raise InvalidOperation(
                f"keys: column {key!r} of table {snapshot.layout.table} is a "
                f"{schema.field(key).type}, which tells no rows apart: name others",
                table=snapshot.layout.table,
            )


def names_of(old: LakeState, new: LakeState) -> dict[str, str]:
    """What the history of a table tells of the two states."""
    if isinstance(new, AtBase) and new.base.kind == "branch" and isinstance(old, AtBase):
        return {"branch": f"{new.base.name}@{new.version}"}
    return {"before": old.name, "after": new.name}


def is_later(one: StateName, other: StateName) -> bool:
    """Whether of two versions of the lake, or of one branch, the one comes after the other."""
    numbers = [_number(name) for name in (one, other)]
    return numbers[0] > numbers[1]


def _number(name: StateName) -> int:
    match name:
        case ("version", int(version)):
            return version
        case ("ref", str(ref)):
            return parsed(ref)[1] or -1
    return -1


def transplant_of(request: Request, found: Difference) -> Transplant:
    """The operation that does what is asked."""
    return Transplant(
        request.location,
        found.removes,
        found.adds,
        found.before,
        found.after,
        keys=request.keys,
        on_conflict=request.on_conflict,
        on_equal=request.settle.on_equal,
        since=request.since,
        until=request.until,
        verb=request.verb,
        parameters=request.parameters,
    )
