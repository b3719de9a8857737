"""What a proposed commit has read or changes, and whether HEAD tells that nothing has touched it.

A commit that only adds rows is right behind any other rows. One that has read some, or takes files
away, is right only where nothing since the HEAD that its owner has validated it against can have
touched these. Whoever takes it along tells that by what HEAD says of each commit since: he
asks the store for nothing and looks at no row. What was asked for stands in the commit object
itself, so no owner can leave it out; here is what it takes to answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa

from lakevilla.formats.base import Change
from lakevilla.formats.layout import Layout, path_of
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Touch
from lakevilla.global_log.rules import known_of, may_hold
from lakevilla.global_log.summaries import Added, fingerprint
from lakevilla.sql.expressions.tree import Expr, columns
from lakevilla.sublogs.operations import tables_read

#: Files that may hold what was asked for, by table; where there are more, any may.
MOST_FILES = 256
#: What all reliances of one commit take in a proposal at most.
MOST_BYTES = 8 * 1024

#: What was asked for of a table; None: all rows.
Asked = Sequence[Expr | None]


class Reliance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What it takes to tell whether a commit to one table touches what was asked for there.

    Attributes
    ----------
    table_id : str
        Of the table that it is about.
    names, stored : bytes
        The columns that were asked by, and the same as statistics know them: Arrow schemas.
    partitions : tuple of str
        Those of them by whose values the table is partitioned.
    files : tuple of int, or None
        Fingerprints of all files that may hold such a row, and of those that the commit removes;
        None: any file may.
    """

    table_id: str
    names: bytes
    stored: bytes
    partitions: tuple[str, ...] = ()
    files: tuple[int, ...] | None = None


def relied(commit: CommitObject) -> dict[str, list[Expr | None]]:
    """The tables of which the commit has read rows, or removes files, and what it asked for."""
    asked: dict[str, list[Expr | None]] = {}
    for record in commit.reads:
        asked.setdefault(record.table, []).append(record.where)
    for operation in commit.operations:
        for table, where in tables_read(operation).items():
            asked.setdefault(table, []).append(where)
    for table, part in commit.tables.items():
        if part.change.removes:
            asked.setdefault(table, [])
    return {table: list(dict.fromkeys(wheres)) for table, wheres in asked.items()}


def reliance_of(
    table_id: str, layout: Layout, asked: Asked, files: Collection[int] | None
) -> Reliance:
    """What is told of one table, whose layout is that of the state that was asked."""
    used = {
        path[0]
        for where in asked
        if where is not None
        for column in columns(where)
        if (path := path_of(layout, column.ids) if column.ids else column.path) is not None
    }
    places = [at for at, name in enumerate(layout.schema.names) if name in used]
    few = files is not None and len(files) <= MOST_FILES
    return Reliance(
        table_id,
        _message(layout.schema, places),
        _message(layout.statistics_schema, places),
        tuple(name for name in layout.partition_by if name in used),
        tuple(sorted(files)) if files is not None and few else None,
    )


def why_touched(
    since: Iterable[CommitSummary], table: str, asked: Asked, reliance: Reliance
) -> str | None:
    """Why one of the commits since may have touched what was asked for; None if none can have."""
    added: list[Added] = []
    for commit in since:
        touch = commit.tables.get(table)
        if touch is None:
            continue
        if commit.kind not in ("transaction", "foreign") or touch.metadata:
            return f"commit {commit.sequence} changed more than its rows"
        if not (touch.adds or touch.removes):
            continue
        if touch.summary is None:
            return f"HEAD does not tell which files commit {commit.sequence} changed"
        removed = touch.summary.removed
        if removed and (reliance.files is None or not set(reliance.files).isdisjoint(removed)):
            return f"commit {commit.sequence} took away a file that may have held such rows"
        added.extend(touch.summary.added)
    # All at once: it takes no longer for many files than for one.
    return "a file came that may hold such rows" if _may_hold(asked, reliance, added) else None


def _may_hold(asked: Asked, reliance: Reliance, added: Sequence[Added]) -> bool:
    """Whether a file that came may hold a row that was asked for."""
    if not asked or not added:
        return False
    layout = _layout(reliance)
    for where in asked:
        # A column that is not told of would be taken for one without a value in any row.
        if where is None or any(
            column.ids and path_of(layout, column.ids) is None for column in columns(where)
        ):
            return True
    return may_hold(layout, asked, map(known_of, added))


def tells_all(touch: Touch, change: Change) -> bool:
    """Whether what HEAD is to tell of a commit is no less than it does: others rely on that."""
    if touch.adds != bool(change.adds) or touch.removes != bool(change.removes):
        return False
    summary = touch.summary
    if summary is None:
        return True
    removed = {fingerprint(file.ref) for file in change.removes}
    return len(summary.added) == len(change.adds) and removed == set(summary.removed)


def size_of(relies: Mapping[str, Reliance]) -> int:
    """How many bytes they take in a proposal."""
    return len(msgspec.json.encode(relies))


def _message(schema: pa.Schema, places: Sequence[int]) -> bytes:
    some = pa.schema([schema.field(place) for place in places])
    return bytes(some.serialize())


def _layout(reliance: Reliance) -> Layout:
    """As much of the table's layout as bounds are looked at by."""
    return Layout(
        location="",
        table="",
        schema=pa.ipc.read_schema(pa.py_buffer(reliance.names)),
        physical=pa.ipc.read_schema(pa.py_buffer(reliance.stored)),
        by_field_id=False,
        partition_by=reliance.partitions,
        statistics_columns=(),
        constraints=(),
        properties={},
    )
