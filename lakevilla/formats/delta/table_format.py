"""``DeltaFormat``: Delta as the protocol sees a table format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import (
    VOIDED,
    Attempt,
    Change,
    CommitInfo,
    Entry,
    FormatName,
    Leftovers,
    Snapshot,
)
from lakevilla.formats.delta import log
from lakevilla.formats.delta.actions import parse_entry
from lakevilla.formats.delta.alter import alter_table, merge_schema
from lakevilla.formats.delta.checkpoint_writer import is_due, write_checkpoint
from lakevilla.formats.delta.commit import render
from lakevilla.formats.delta.create import create_table
from lakevilla.formats.delta.metadata.properties import interval_milliseconds
from lakevilla.formats.delta.metadata.protocol import guard_change, unguard_change
from lakevilla.formats.delta.named_objects import named_objects
from lakevilla.formats.delta.paths import entry_key, log_directory
from lakevilla.formats.delta.snapshot import DeltaSnapshot, blank_snapshot
from lakevilla.store.base import ABSENT, Found
from lakevilla.store.effects import Program

__all__ = ["DeltaFormat"]

# Entries between a cached state and the version asked for, up to which they are
# read one by one; beyond, the newest checkpoint is cheaper.
_CATCH_UP = 32


_LOG_RETENTION_MS = 30 * 24 * 3_600_000
_FILE_RETENTION_MS = 7 * 24 * 3_600_000
_OBJECT = re.compile(
    r"(?:.*/)?(?:[^/]+\.parquet|deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin)"
)


class DeltaFormat:
    """See ``formats.base.TableFormat``. Thread-safe; holds a small cache of checkpoints."""

    name: FormatName = "delta"
    file_retention_source = "delta.deletedFileRetentionDuration"

    def __init__(self) -> None:
        self._cache = log.CheckpointCache()

    def open(
        self, location: str, table: str, cached: Snapshot | None = None, *, catalog: str = ""
    ) -> Program[Snapshot]:
        """The newest version: a LIST and a round of reads, or the numbers after ``cached``.

        Raises ``TableNotFound``, ``CorruptObject``, ``UnsupportedTableFeature``.
        """
        known = _usable(cached)
        if known is not None:
            extended = yield from log.extend(known)
            if extended is not None:
                return extended
        return (yield from log.open_listed(location, table, None, self._cache))

    def open_at(
        self,
        location: str,
        table: str,
        version: int,
        cached: Snapshot | None = None,
        *,
        catalog: str = "",
    ) -> Program[Snapshot]:
        """The table at a version, without a LIST where its log can be read by number."""
        known = _usable(cached)
        if known is not None and known.version <= version <= known.version + _CATCH_UP:
            extended = yield from _catch_up(known, version)
            if extended is not None:
                return extended
        return (yield from log.open_numbered(location, table, version, self._cache))

    def entry(self, known: Snapshot, version: int) -> Program[Entry | None]:
        return (yield from log.read_entry(known.location, version))

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get("id", ""))

    def advance(self, snapshot: Snapshot, entry: Entry) -> Snapshot:
        return _delta(snapshot).advance(entry)

    def blank(self, location: str, table: str, *, catalog: str = "") -> Snapshot:
        return blank_snapshot(location, table)

    def create(
        self,
        blank: Snapshot,
        schema: pa.Schema,
        *,
        table_id: str,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        created_ms: int,
    ) -> Change:
        return create_table(
            _delta(blank).table,
            schema,
            table_id=table_id,
            partition_by=partition_by,
            properties=properties,
            created_ms=created_ms,
        )

    def alter(
        self,
        snapshot: Snapshot,
        *,
        add_columns: pa.Schema | None = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        drop_not_null: Sequence[str] = (),
        add_constraints: Mapping[str, str] | None = None,
        drop_constraints: Sequence[str] = (),
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Sequence[str] = (),
    ) -> Change:
        return alter_table(
            _delta(snapshot).definition,
            add_columns=add_columns,
            drop_columns=drop_columns,
            rename_columns=rename_columns,
            drop_not_null=drop_not_null,
            add_constraints=add_constraints,
            drop_constraints=drop_constraints,
            set_properties=set_properties,
            unset_properties=unset_properties,
        )

    def merge_schema(self, snapshot: Snapshot, schema: pa.Schema) -> Change:
        return merge_schema(_delta(snapshot).definition, schema)

    def guard_change(self, snapshot: Snapshot) -> Change:
        state = _delta(snapshot)
        state.check_writable()
        return guard_change(state.protocol)

    def unguard_change(self, snapshot: Snapshot) -> Change:
        return unguard_change(_delta(snapshot).protocol)

    def void_change(self, snapshot: Snapshot, txn: str) -> Change:
        return alter_table(_delta(snapshot).definition, set_properties={VOIDED: txn})

    def prepare(
        self, snapshot: Snapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        yield from ()
        version = snapshot.version + 1
        body = render(_delta(snapshot), change, info, timestamp_ms)
        entry = parse_entry(snapshot.location, version, body)
        return Attempt(entry_key(snapshot.location, version), body, ABSENT, entry)

    def check_whole(self, snapshot: Snapshot) -> Program[None]:
        """An entry needs nothing of those before it."""
        yield from ()

    def stands(self, snapshot: Snapshot) -> Program[bool]:
        """True: log clean-up takes entries away by their age, never within minutes."""
        yield from ()
        return True

    def announce(self, snapshot: Snapshot) -> Program[None]:
        """Nothing: readers find an entry by its number."""
        yield from ()

    def is_announced(self, snapshot: Snapshot) -> Program[bool]:
        yield from ()
        return True

    def log_retention_seconds(self, snapshot: Snapshot) -> float:
        """``delta.logRetentionDuration``, by default 30 days."""
        text = snapshot.layout.properties.get("delta.logRetentionDuration")
        return interval_milliseconds(text, default=_LOG_RETENTION_MS) / 1000

    def file_retention_seconds(self, snapshot: Snapshot) -> float:
        """``delta.deletedFileRetentionDuration``, by default a week."""
        text = snapshot.layout.properties.get(self.file_retention_source)
        return interval_milliseconds(text, default=_FILE_RETENTION_MS) / 1000

    def may_name(self, path: str) -> bool:
        """Data files and deletion vectors, whoever wrote them."""
        return _OBJECT.fullmatch(path) is not None

    def check_cleanable(self, snapshot: Snapshot, keys: Iterable[str]) -> None:
        """Nothing: clients that translate a Delta table for others follow its VACUUM."""

    def without_expired(self, snapshot: Snapshot, replaced_before_ms: int, now_ms: int) -> Snapshot:
        return snapshot

    def expire(self, snapshot: Snapshot, replaced_before_ms: int, now_ms: int) -> Program[bool]:
        """Nothing: a state tells when each file was removed, and checkpoints forget it."""
        yield from ()
        return False

    def named_objects(self, snapshot: Snapshot, removed_since_ms: int) -> Program[set[str]]:
        return (yield from named_objects(_delta(snapshot), removed_since_ms))

    def named_in_log(self, snapshot: Snapshot) -> Program[set[str]]:
        return (yield from log.named_in_log(snapshot.location))

    def log_directory(self, location: str) -> str:
        return log_directory(location)

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        return (yield from log.leftovers(location))

    def checkpoint_due(self, version: int, snapshot: Snapshot) -> bool:
        return is_due(version, _delta(snapshot))

    def checkpoint(self, snapshot: Snapshot) -> Program[None]:
        yield from write_checkpoint(_delta(snapshot))


def _delta(snapshot: Snapshot) -> DeltaSnapshot:
    if not isinstance(snapshot, DeltaSnapshot):
        raise InvalidOperation(f"{type(snapshot).__name__} is no state of a delta table")
    return snapshot


def _usable(cached: Snapshot | None) -> DeltaSnapshot | None:
    """``cached`` if it is a state of the log itself, nothing pending laid over."""
    if isinstance(cached, DeltaSnapshot) and not cached.overlaid and cached.version >= 0:
        return cached
    return None


def _catch_up(known: DeltaSnapshot, version: int) -> Program[DeltaSnapshot | None]:
    numbers = range(known.version + 1, version + 1)
    answers = yield from log.get_entries(known.location, numbers)
    for number, outcome in zip(numbers, answers, strict=True):
        if not isinstance(outcome, Found):
            return None
        known = known.advance(parse_entry(known.location, number, outcome.body))
    return known
