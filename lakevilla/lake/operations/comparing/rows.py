"""What becomes of a row by its three states: before and after a change, and in the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from lakevilla.engines.base import Rewrite, Written
from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.comparing.computed import ANY
from lakevilla.sublogs.operations import OnConflict, Transplant

Row = dict[str, Any]
Key = tuple[Any, ...]
#: What is to be done to the row of a key.
Act = Literal["insert", "update", "delete"]
_NAN = float("nan")
#: Why rows can't be told where no keys tell them.
TOO_LARGE = "its files were rewritten by others, and are too large to compare"
CHANGED_BY_OTHERS = "a row that is to go was changed by others"
NOT_APART = "rows that are to go can't be told from others"


@dataclass(frozen=True, slots=True)
class ByRows:
    """What was written; ``skipped`` says why the rows can't be told."""

    rewrite: Rewrite = field(default_factory=Rewrite)
    added: tuple[Written, ...] = ()
    skipped: str | None = None


def act_on(
    was: Row | None, wanted: Row | None, now: Row | None, on_conflict: OnConflict
) -> Act | Literal["conflict"] | None:
    """What is to be done to a row of the table that is ``now``; None for nothing."""
    if same(was, wanted) or same(now, wanted):
        return None
    if not same(now, was) and on_conflict != "theirs":
        return "conflict"
    if wanted is None:
        return "delete"
    return "insert" if now is None else "update"


def asks_of_equal(operation: Transplant) -> bool:
    """Whether rows that both sides have changed alike matter: else they are as they are to be."""
    return operation.on_equal == "conflict" and operation.on_conflict == "error"


def changed_alike(was: Row | None, wanted: Row | None, now: Row | None) -> frozenset[str]:
    """The columns of a row that both sides have changed, and to the same; none if they have not."""
    if was is None or wanted is None or not same(now, wanted):
        return frozenset()
    return changed_in(was, wanted)


def changed_in(was: Row, wanted: Row) -> frozenset[str]:
    """The columns in which two states of a row differ."""
    return frozenset(name for name in was if repr(was[name]) != repr(wanted[name]))


def may_be_two(changed: frozenset[str], computed: frozenset[str]) -> bool:
    """Whether equal changes in some columns may be two, by the columns that were computed."""
    return bool(changed) and (computed >= ANY or not computed.isdisjoint(changed))


def key_of(row: Row, keys: Sequence[str]) -> Key:
    """What tells a row apart; a NaN is itself."""
    return tuple(_NAN if value != value else value for value in map(row.__getitem__, keys))


def indexed(layout: Layout, keys: Sequence[str], rows: Iterable[Row]) -> dict[Key, Row]:
    """Rows by their keys. Raises ``InvalidOperation`` where they tell no rows apart."""
    found: dict[Key, Row] = {}
    for row in rows:
        key = key_of(row, keys)
        if None in key:
            raise null_in_key(layout, keys, row)
        if key in found:
            raise two_of_key(layout, keys, key)
        found[key] = row
    return found


def null_in_key(layout: Layout, keys: Sequence[str], row: Row) -> InvalidOperation:
    return _no_key(layout, keys, f"a row has NULL in it: {row}")


def two_of_key(layout: Layout, keys: Sequence[str], key: Key) -> InvalidOperation:
    return _no_key(layout, keys, f"two rows have {', '.join(map(repr, key))}")


def _no_key(layout: Layout, keys: Sequence[str], why: str) -> InvalidOperation:
    return InvalidOperation(
        f"keys: {', '.join(keys)} of table {layout.table} tells its rows not apart: {why}; name "
        "other columns",
        table=layout.table,
    )


def conflict_schema(layout: Layout, keys: Sequence[str]) -> pa.Schema:
    """The columns of ``MergeConflict.rows``."""
    row = pa.struct(list(layout.schema))
    key = pa.struct([layout.schema.field(key) for key in keys])
    return pa.schema([("key", key), ("base", row), ("ours", row), ("theirs", row)])


def equal_conflict(
    layout: Layout, keys: Sequence[str], rows: pa.Table, count: int, computed: frozenset[str]
) -> MergeConflict:
    """The error for rows that were changed alike, by values that were computed of them."""
    why = "which may be" if computed >= ANY else f"in {', '.join(sorted(computed))}, which was"
    return _in_conflict(
        layout,
        keys,
        rows,
        count,
        f"changed alike on both sides, {why} computed of the row itself, so one of two changes may "
        "be lost",
        "then give on_equal='keep' if they are one, or on_conflict='ours' and do it again",
    )


def conflict(layout: Layout, keys: Sequence[str], rows: pa.Table, count: int) -> MergeConflict:
    """The error for ``count`` rows, of which some may be shown alone."""
    remedy = "then give on_conflict='ours' or 'theirs'"
    return _in_conflict(layout, keys, rows, count, "changed on both sides", remedy)


def _in_conflict(
    layout: Layout, keys: Sequence[str], rows: pa.Table, count: int, how: str, remedy: str
) -> MergeConflict:
    key = rows["key"][0].as_py()
    first = ", ".join(f"{name} {key[name]!r}" for name in keys)
    more = f" and {count - 1} more" if count > 1 else ""
    shown = f", which has the first {rows.num_rows} of them" if count > rows.num_rows else ""
    return MergeConflict(
        f"table {layout.table}: the row with {first}{more} was {how}: look at rows() of this "
        f"error{shown}, {remedy}",
        rows={layout.location: rows},
        table=layout.table,
    )


def text_of(row: Row) -> str:
    """What stands for a row: equal rows have equal ones, NaN is itself."""
    return repr(list(row.values()))


def same(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return text_of(one) == text_of(other)
