"""The rows of a change to a table: read from its change files, or told by the files it moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lakevilla.engines.base import TableInput, projection
from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, RemovedFile, file_key, files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.context import Context
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, parallel
from lakevilla.store.effects import Stat as HeadOf

_TYPE = pa.field("_change_type", pa.string(), nullable=False)
#: What each row of a change says beside the table's own columns.
CHANGE_COLUMNS = pa.schema(
    [
        _TYPE,
        pa.field("_commit_version", pa.int64(), nullable=False),
        pa.field("_commit_timestamp", pa.timestamp("ms", "UTC"), nullable=False),
    ]
)

#: Views over what came and what went.
ADDED, REMOVED = "lakevilla_added", "lakevilla_removed"
#: Each row as often as there are more of it on one side: one pass, in memory that is bounded by
#: what may be spilled. (EXCEPT ALL, once each way, takes minutes for a million rows.)
DIFFERENCE = f"""
SELECT * EXCLUDE (lakevilla_more, lakevilla_copy)
FROM (
    SELECT
        *,
        CASE WHEN lakevilla_more < 0 THEN 'delete' ELSE 'insert' END AS _change_type,
        unnest(range(abs(lakevilla_more))) AS lakevilla_copy
    FROM (
        SELECT
            * EXCLUDE (lakevilla_side),
            CAST(sum(lakevilla_side) AS BIGINT) AS lakevilla_more
        FROM (
            SELECT *, -1 AS lakevilla_side FROM {REMOVED}
            UNION ALL
            SELECT *, 1 AS lakevilla_side FROM {ADDED}
        )
        GROUP BY ALL
        HAVING sum(lakevilla_side) <> 0
    )
)
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is asked for: the rows of a table as its columns are at the bound version."""

    context: Context
    location: str
    layout: Layout
    columns: Sequence[str] | None
    where: Expr | None


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """Files whose rows tell of a change; ``kind`` is None where a column of theirs says it."""

    layout: Layout
    files: tuple[DataFile, ...]
    kind: Literal["insert", "delete"] | None


def sources_of(layout: Layout, change: Change) -> tuple[ChangeSource, ...]:
    """Where the rows of a change lie: nowhere, in one place, or in what came and what went.

    Of the latter two, what is in both has not changed.
    """
    if change.change_files and not layout.by_field_id:
        shown = replace(
            layout, schema=layout.schema.append(_TYPE), physical=layout.physical.append(_TYPE)
        )
        files = tuple(
            DataFile(file.path, file.size, 0, file.partition_values) for file in change.change_files
        )
        return (ChangeSource(shown, files, None),)
    added = tuple(file for file in change.adds if file.data_change)
    removed = tuple(_as_data(file) for file in change.removes if file.data_change)
    found = []
    if added:
        found.append(ChangeSource(layout, added, "insert"))
    if removed:
        found.append(ChangeSource(layout, removed, "delete"))
    return tuple(found)


def changed_rows(reading: Reading, change: Change) -> Program[list[pa.Table]]:
    """The rows of one change, with ``_change_type``."""
    names = projection(reading.layout, reading.columns).names
    sources = sources_of(reading.layout, change)
    if len(sources) == 2:
        added, removed = sources
        return [(yield from _difference(reading, added.files, removed.files))]
    if not sources:
        return []
    (source,) = sources
    if source.kind is None:
        return [(yield from _scanned(reading, source.layout, source.files, [*names, _TYPE.name]))]
    rows = yield from _scanned(reading, source.layout, source.files, names)
    types = pa.repeat(pa.scalar(source.kind, _TYPE.type), rows.num_rows)
    return [rows.append_column(_TYPE, types)]


def _difference(
    reading: Reading, added: Sequence[DataFile], removed: Sequence[DataFile]
) -> Program[pa.Table]:
    """Whole rows are compared, so all columns are read, whatever was asked for."""
    layout = reading.layout
    names = layout.schema.names
    new = yield from _scanned(reading, layout, added, names)
    old = yield from _scanned(reading, layout, removed, names)
    views = {ADDED: new.to_reader(), REMOVED: old.to_reader()}
    rows = yield from reading.context.engine.query(DIFFERENCE, {}, views, {})
    asked = projection(layout, reading.columns)
    schema = pa.schema([*asked, _TYPE])
    return rows.select(schema.names).cast(schema)


def _scanned(
    reading: Reading, layout: Layout, files: Sequence[DataFile], columns: Sequence[str]
) -> Program[pa.Table]:
    context, location = reading.context, reading.location
    listed = files_from_structs(files)
    try:
        reader = yield from context.engine.scan(TableInput(layout, listed), columns, reading.where)
        return reader.read_all()
    except Exception:
        # Which request failed is the engine's to know; a file that is gone explains it.
        yield from refuse_missing(location, files)
        raise


def refuse_missing(location: str, files: Sequence[DataFile]) -> Program[None]:
    """Raise ``VersionNotFound`` if one of the files is gone."""
    keys = [file_key(location, file.path) for file in files]
    infos: list[ObjectInfo | Missing] = yield from parallel([HeadOf(key) for key in keys])
    for key, info in zip(keys, infos, strict=True):
        if isinstance(info, Missing):
            raise VersionNotFound(
                f"the changes of table {location} are not kept so far back: {key} was removed; "
                "ask for those since a newer version",
                table=location,
            )


def _as_data(file: RemovedFile) -> DataFile:
    return DataFile(
        path=file.path,
        size=file.size or 0,
        modification_time=0,
        partition_values=file.partition_values or {},
        deletion_vector=file.deletion_vector,
        raw_path=file.raw_path,
        deletes=file.deletes,
    )


def stamped(tables: Sequence[pa.Table], commit: CommitSummary) -> list[pa.Table]:
    """The rows with the global version that made the change, and its time."""
    version, timestamp = CHANGE_COLUMNS.field(1), CHANGE_COLUMNS.field(2)
    return [
        rows.append_column(
            version, pa.repeat(pa.scalar(commit.sequence, version.type), rows.num_rows)
        ).append_column(
            timestamp, pa.repeat(pa.scalar(commit.timestamp_ms, timestamp.type), rows.num_rows)
        )
        for rows in tables
    ]
