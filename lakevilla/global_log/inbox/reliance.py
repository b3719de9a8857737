"""Reliances: the data that a proposed commit has read or changes, compared with later commits.

A commit that only adds rows is right after any other commit of rows. A commit that has read rows,
or removes files, is right only if no commit since the HEAD that its owner has validated it against
can have changed these rows or files. The client that includes the commit decides this by what HEAD
states of each commit since: it sends no request to the store and compares no rows. The commit
object itself states what was queried, so that its owner can't omit it; a reliance has the other
data that the decision needs.
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

#: The most files with queried rows that a reliance names per table; if more, any file may hold
#: them.
MOST_FILES = 256
#: The most bytes that all reliances of one commit take in a proposal.
MOST_BYTES = 8 * 1024

#: The rows that were queried of a table; None: all rows.
Predicates = Sequence[Expr | None]


class Reliance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data that decides whether another commit to one table may touch rows queried there.

    Attributes
    ----------
    table_id : str
        The id of the table.
    names, stored : bytes
        The columns that the queries use, and the same columns as statistics name them: Arrow
        schemas.
    partitions : tuple of str
        Those of the columns by which the table is partitioned.
    files : tuple of int, or None
        Fingerprints of all files that may hold a queried row, and of the files that the commit
        removes; None if any file may hold a queried row.
    """

    table_id: str
    names: bytes
    stored: bytes
    partitions: tuple[str, ...] = ()
    files: tuple[int, ...] | None = None


def relied(commit: CommitObject) -> dict[str, list[Expr | None]]:
    """Return the predicates by table, of tables that the commit has read or removes files of."""
    predicates: dict[str, list[Expr | None]] = {}
    for record in commit.reads:
        predicates.setdefault(record.table, []).append(record.where)
    for operation in commit.operations:
        for table, where in tables_read(operation).items():
            predicates.setdefault(table, []).append(where)
    for table, part in commit.tables.items():
        if part.change.removes:
            predicates.setdefault(table, [])
    return {table: list(dict.fromkeys(wheres)) for table, wheres in predicates.items()}


def reliance_of(
    table_id: str, layout: Layout, predicates: Predicates, files: Collection[int] | None
) -> Reliance:
    """Return the reliance on one table; ``layout`` is that of the queried state."""
    used = {
        path[0]
        for where in predicates
        if where is not None
        for column in columns(where)
        if (path := path_of(layout, column.ids) if column.ids else column.path) is not None
    }
    indices = [at for at, name in enumerate(layout.schema.names) if name in used]
    few = files is not None and len(files) <= MOST_FILES
    return Reliance(
        table_id,
        _message(layout.schema, indices),
        _message(layout.statistics_schema, indices),
        tuple(name for name in layout.partition_by if name in used),
        tuple(sorted(files)) if files is not None and few else None,
    )


def why_touched(
    since: Iterable[CommitSummary], table: str, predicates: Predicates, reliance: Reliance
) -> str | None:
    """Return why one of the later commits may have touched the queried rows, or None."""
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
            return f"HEAD does not record which files commit {commit.sequence} changed"
        removed = touch.summary.removed
        if removed and (reliance.files is None or not set(reliance.files).isdisjoint(removed)):
            return f"commit {commit.sequence} removed a file that may have held such rows"
        added.extend(touch.summary.added)
    # All files are checked at once: this takes no longer than for one file.
    return (
        "a file was added that may hold such rows"
        if _may_hold(predicates, reliance, added)
        else None
    )


def _may_hold(predicates: Predicates, reliance: Reliance, added: Sequence[Added]) -> bool:
    """Return whether an added file may hold a queried row."""
    if not predicates or not added:
        return False
    layout = _layout(reliance)
    for where in predicates:
        # A column that the reliance does not have would count as null in every row.
        if where is None or any(
            column.ids and path_of(layout, column.ids) is None for column in columns(where)
        ):
            return True
    return may_hold(layout, predicates, map(known_of, added))


def states_all(touch: Touch, change: Change) -> bool:
    """Return whether ``touch`` covers the whole change of a commit: clients rely on that."""
    if touch.adds != bool(change.adds) or touch.removes != bool(change.removes):
        return False
    summary = touch.summary
    if summary is None:
        return True
    removed = {fingerprint(file.ref) for file in change.removes}
    return len(summary.added) == len(change.adds) and removed == set(summary.removed)


def size_of(relies: Mapping[str, Reliance]) -> int:
    """Return the number of bytes that the reliances take in a proposal."""
    return len(msgspec.json.encode(relies))


def _message(schema: pa.Schema, indices: Sequence[int]) -> bytes:
    some = pa.schema([schema.field(index) for index in indices])
    return bytes(some.serialize())


def _layout(reliance: Reliance) -> Layout:
    """Return the part of the table's layout that the check of bounds needs."""
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
