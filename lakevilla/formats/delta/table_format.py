"""``DeltaFormat``: Delta as a table format of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation, TableNotFound, VersionNotFound
from lakevilla.formats.base import (
    VOIDED,
    Attempt,
    Change,
    CommitInfo,
    Entry,
    FormatName,
    Leftovers,
    LogVersion,
    TableSnapshot,
)
from lakevilla.formats.delta import log
from lakevilla.formats.delta.actions import (
    begins_as,
    entry_key,
    entry_with_faults,
    log_directory,
    parse_entry,
)
from lakevilla.formats.delta.alter import (
    alter_table,
    merge_schema,
    redefined,
    replace_definition,
    replace_schema,
)
from lakevilla.formats.delta.checkpoint_writer import is_due, is_overdue, write_checkpoint
from lakevilla.formats.delta.commit import begins_timestamps, render
from lakevilla.formats.delta.create import create_table
from lakevilla.formats.delta.log import (
    kept_range,
    kept_versions,
    live_objects,
    named_objects,
    version_by,
)
from lakevilla.formats.delta.metadata.properties import interval_milliseconds
from lakevilla.formats.delta.metadata.protocol import guard_change, unguard_change
from lakevilla.formats.delta.shown import is_shown
from lakevilla.formats.delta.snapshot import DeltaSnapshot, blank_snapshot
from lakevilla.formats.delta.unsettled import Unsettled
from lakevilla.formats.layout import NewDefinition, TableAlteration
from lakevilla.store.base import ABSENT, Found
from lakevilla.store.effects import Program

# Up to this many entries between a cached state and the requested version are read one by one;
# beyond that, reading the newest checkpoint is cheaper.
_CATCH_UP = 32


# With more changes above its checkpoint a state is read again from the next one: each is an object
# of Python, in memory and in every checkpoint that is written.
_HELD_CHANGES = 256


_LOG_RETENTION_MS = 30 * 24 * 3_600_000
_FILE_RETENTION_MS = 7 * 24 * 3_600_000
_OBJECT = re.compile(
    r"(?:.*/)?(?:[^/]+\.parquet|deletion_vector_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin)"
)


class DeltaFormat:
    """See ``formats.base.TableFormat``. Thread-safe; holds a small cache of checkpoints.

    ``beginning`` returns the first bytes of a local object, no bytes if it is missing, and None if
    only a request to a server could return them.
    """

    name: FormatName = "delta"
    file_retention_source = "delta.deletedFileRetentionDuration"

    def __init__(self, beginning: Callable[[str], bytes | None] = lambda key: None) -> None:
        self._cache = log.CheckpointCache()
        self._beginning = beginning

    def open(
        self,
        location: str,
        table: str,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
        at_least: int = -1,
    ) -> Program[TableSnapshot]:
        """Return the newest version: a LIST and a round of reads, or the numbers after ``cached``.

        Raises ``TableNotFound``, ``CorruptObject``, ``UnsupportedTableFeature``.
        """
        known = _usable(cached)
        if known is not None:
            extended = yield from log.extend(known)
            if extended is not None:
                return extended
        return (yield from log.open_listed(location, table, None, self._cache, at_least))

    def open_at(
        self,
        location: str,
        table: str,
        version: int,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
    ) -> Program[TableSnapshot]:
        """Return the table at a version, without a LIST where its log can be read by number."""
        known = _usable(cached)
        if known is not None and known.version <= version <= known.version + _CATCH_UP:
            extended = yield from _catch_up(known, version)
            if extended is not None:
                return extended
        return (yield from log.open_numbered(location, table, version, self._cache))

    def open_several(
        self, location: str, table: str, versions: Collection[int]
    ) -> Program[dict[int, TableSnapshot]]:
        opened = yield from log.open_several(location, table, versions, self._cache)
        return dict(opened)

    def kept_versions(self, newest: TableSnapshot, limit: int | None) -> Program[list[LogVersion]]:
        return (yield from kept_versions(_delta(newest), limit))

    def kept_range(self, newest: TableSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
        return (yield from kept_range(_delta(newest)))

    def version_by(self, newest: TableSnapshot, timestamp_ms: int) -> Program[int | None]:
        return (yield from version_by(_delta(newest), timestamp_ms))

    def check_kept(self, newest: TableSnapshot, then: TableSnapshot) -> Program[None]:
        """Do nothing: a state is opened from a checkpoint, or the first entry, without a gap."""
        yield from ()

    def at_ref(self, newest: TableSnapshot, ref: int | str) -> Program[TableSnapshot]:
        yield from ()
        table = newest.layout.table
        raise InvalidOperation(
            f"table {table} is a Delta table, which has no snapshot, branch or tag {ref!r}: give "
            "version= or timestamp=",
            table=table,
        )

    def entry(self, known: TableSnapshot, version: int) -> Program[Entry | None]:
        return (yield from log.read_entry(known.location, version))

    def described(self, newest: TableSnapshot, versions: Iterable[int]) -> Mapping[int, Entry]:
        """Return none: a state says nothing of the entries before it."""
        return {}

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        return str(metadata.get("id", ""))

    def advance(self, snapshot: TableSnapshot, entry: Entry) -> TableSnapshot:
        return _delta(snapshot).advance(entry)

    def blank(self, location: str, table: str, *, catalog: str = "") -> TableSnapshot:
        return blank_snapshot(location, table)

    def create(
        self,
        blank: TableSnapshot,
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
        snapshot: TableSnapshot,
        alteration: TableAlteration,
    ) -> Change:
        return alter_table(_delta(snapshot).definition, alteration)

    def merge_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        return merge_schema(_delta(snapshot).definition, schema)

    def replace_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        return replace_schema(_delta(snapshot).definition, schema)

    def replace_definition(self, snapshot: TableSnapshot, wanted: NewDefinition) -> Change:
        return replace_definition(_delta(snapshot).definition, wanted)

    def redefine(
        self, snapshot: TableSnapshot, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
    ) -> Change:
        return redefined(_delta(snapshot).definition, metadata, protocol)

    def guard_change(self, snapshot: TableSnapshot) -> Change:
        state = _delta(snapshot)
        state.check_writable()
        return guard_change(state.protocol)

    def unguard_change(self, snapshot: TableSnapshot) -> Change:
        return unguard_change(_delta(snapshot).protocol)

    def void_change(self, snapshot: TableSnapshot, txn: str) -> Change:
        return alter_table(
            _delta(snapshot).definition, TableAlteration(set_properties={VOIDED: txn})
        )

    def prepare(
        self, snapshot: TableSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        yield from self.check_whole(snapshot)
        version, state = snapshot.version + 1, _delta(snapshot)
        if begins_timestamps(state, change):
            # The timestamp must be later than the store's time of the entry before; this client's
            # clock may be behind.
            stored_ms = yield from log.stored_ms(snapshot.location, snapshot.version)
            timestamp_ms = max(timestamp_ms, stored_ms + 1)
        body = render(state, change, info, timestamp_ms)
        entry = parse_entry(snapshot.location, version, body)
        return Attempt(entry_key(snapshot.location, version), body, ABSENT, entry)

    def check_whole(self, snapshot: TableSnapshot) -> Program[None]:
        """Raise ``TableNotFound`` if the version was deleted or replaced, where that is checked for
        free.

        An entry above a deleted one leaves a gap, so readers would refuse the log: also the log of
        a table that other clients have made in place of this one
        (docs/design/0050-drops-and-log-entries.md).
        """
        location, version = snapshot.location, snapshot.version
        begins = None if version < 0 else self._beginning(entry_key(location, version))
        if begins is None or (begins and begins_as(begins, _delta(snapshot).newest, version)):
            return
        if begins or (yield from log.list_log(location, version)).newest < version:
            raise TableNotFound(
                f"version {version} of table {snapshot.layout.table} is gone: another client has "
                "deleted the log, or made another table in its place; read the table again",
                table=snapshot.layout.table,
            )

    def is_accepted(self, snapshot: TableSnapshot) -> Program[bool]:
        """Return True: log clean-up deletes entries by their age, never within minutes."""
        yield from ()
        return True

    def announce(self, snapshot: TableSnapshot) -> Program[None]:
        """Do nothing: readers find an entry by its number."""
        yield from ()

    def is_announced(self, snapshot: TableSnapshot) -> Program[bool]:
        yield from ()
        return True

    def log_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return ``delta.logRetentionDuration``, by default 30 days."""
        text = _delta(snapshot).definition.properties.get("delta.logRetentionDuration")
        return interval_milliseconds(text, default=_LOG_RETENTION_MS) / 1000

    def file_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return ``delta.deletedFileRetentionDuration``, by default a week."""
        text = snapshot.layout.properties.get(self.file_retention_source)
        return interval_milliseconds(text, default=_FILE_RETENTION_MS) / 1000

    def may_name(self, path: str) -> bool:
        """Return True for data files and deletion vectors of any writer, and for shown states."""
        return _OBJECT.fullmatch(path) is not None or is_shown(path)

    def check_cleanable(self, snapshot: TableSnapshot, keys: Iterable[str]) -> None:
        """Do nothing: clients that translate a Delta table for other formats follow its VACUUM."""

    def without_expired(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> TableSnapshot:
        return snapshot

    def expire(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> Program[bool]:
        """Do nothing: a state records when each file was removed, and checkpoints forget it."""
        yield from ()
        return False

    def objects_of(self, snapshot: TableSnapshot) -> Program[set[str]]:
        return (yield from live_objects([_delta(snapshot)]))

    def objects_of_each(
        self, snapshots: Sequence[TableSnapshot]
    ) -> Program[tuple[set[str], list[VersionNotFound]]]:
        return (yield from live_objects([_delta(one) for one in snapshots])), []

    def named_objects(self, snapshot: TableSnapshot, removed_since_ms: int) -> Program[set[str]]:
        return (yield from named_objects(_delta(snapshot), removed_since_ms))

    def named_in_log(self, snapshot: TableSnapshot) -> Program[set[str]]:
        return (yield from log.named_in_log(snapshot.location))

    def log_directory(self, location: str) -> str:
        return log_directory(location)

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        return (yield from log.leftovers(location))

    def checkpoint_due(self, version: int, snapshot: TableSnapshot) -> bool:
        return is_due(version, _delta(snapshot))

    def checkpoint_overdue(self, snapshot: TableSnapshot) -> bool:
        return is_overdue(_delta(snapshot))

    def checkpoint(self, snapshot: TableSnapshot) -> Program[TableSnapshot | None]:
        state = _delta(snapshot)
        yield from write_checkpoint(state)
        if state.tail.fold().count <= _HELD_CHANGES:
            return None
        read = yield from log.open_numbered(state.location, state.table, state.version, self._cache)
        if read.checkpoint_version != state.version:
            return None
        return read if state.timestamp_ms is None else read.timed(state.timestamp_ms)


def _delta(snapshot: TableSnapshot) -> DeltaSnapshot:
    if not isinstance(snapshot, DeltaSnapshot):
        raise InvalidOperation(f"{type(snapshot).__name__} is no state of a delta table")
    return snapshot


def _usable(cached: TableSnapshot | None) -> DeltaSnapshot | None:
    """Return ``cached`` if it is a state of the log itself, with no pending change laid over it."""
    if isinstance(cached, DeltaSnapshot) and not cached.overlaid and cached.version >= 0:
        return cached
    return None


def _catch_up(known: DeltaSnapshot, version: int) -> Program[DeltaSnapshot | None]:
    numbers = range(known.version + 1, version + 1)
    answers = yield from log.get_entries(known.location, numbers)
    unsettled = Unsettled()
    for number, outcome in zip(numbers, answers, strict=True):
        if not isinstance(outcome, Found):
            return None
        key = entry_key(known.location, number)
        entry, faults = entry_with_faults(number, key, outcome.body)
        unsettled.follow(entry.change, faults)
        known = known.advance(entry)
    unsettled.check()
    return known
