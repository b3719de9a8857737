"""A table's state at a version of its own log, also from before the lake had the table.

A version is an entry of the log, and no client of the lake creates an entry before its commit is
decided (design, section 8). So commits that are undecided, cancelled, or not published yet have no
version in the log. The state at a version comes from the log alone: nothing is laid over it, and
HEAD only identifies the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lakevilla.errors import LakeVillaError, TableNotFound, VersionNotFound
from lakevilla.formats.base import Entry, LogVersion, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.files import DataFile, FileRef, data_files, file_key
from lakevilla.global_log.head import Head, TableState, application_id
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import first_entry, open_tail, probe, snapshot_at
from lakevilla.lake.view import Placement, View, is_another
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, Stat, parallel


@dataclass(frozen=True, slots=True)
class OwnVersion:
    """The requested state of a table: one of the three fields is given."""

    version: int | None = None
    timestamp_ms: int | None = None
    ref: int | str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"version {self.version}"
        if self.timestamp_ms is not None:
            return f"version by {_time(self.timestamp_ms)}"
        return f"snapshot, branch or tag {self.ref!r}"


def own_view(
    context: Context,
    head: Head | None,
    location: str,
    own: OwnVersion,
    until: View | None = None,
) -> Program[View]:
    """Return a table of ``head`` at a version of its own log.

    ``until``: the table's state at a ref; later entries of the log do not count.

    Raises
    ------
    VersionNotFound
        The log does not have that version, or has it no longer.
    TableNotFound
        There is no such table, or its location has another table by now.
    """
    state = yield from _state(head, location)
    tail = yield from _newest(context, state, location, own, until)
    try:
        snapshot = yield from _opened(context, tail, own)
    except VersionNotFound as error:
        if own.ref is not None:
            raise  # this error names the refs that exist
        waiting = head is not None and state is not None and _is_waiting(head, state, tail)
        raise (yield from _not_kept(context, tail, own, error.message, waiting)) from None
    return View(location, state, Placement(snapshot.version, ()), (), snapshot, snapshot, tail.tip)


def kept_versions(
    context: Context, location: str, limit: int | None, until: View | None = None
) -> Program[list[LogVersion]]:
    """Return the versions of the table's own log that can be opened, newest first."""
    held = yield from context.head()
    state = yield from _state(None if held is None else held.head, location)
    tail = yield from _newest(context, state, location, OwnVersion(), until)
    if tail.tip < 0:
        return []
    return (yield from context.formats.of(tail.snapshot).kept_versions(tail.snapshot, limit))


def _state(head: Head | None, location: str) -> Program[TableState | None]:
    yield from load_tables(head, [location])
    return None if head is None else head.tables.get(location)


def _newest(
    context: Context,
    state: TableState | None,
    location: str,
    own: OwnVersion,
    until: View | None,
) -> Program[Tail]:
    """Return the log; read its newest entries unless the requested version is known to exist."""
    if until is not None:
        return Tail(location, until.placement.logged, {until.placement.logged: until.base})
    if state is not None and state.dropped:
        raise TableNotFound(
            f"table {location} does not exist: it was dropped from this lake; `register` "
            "revives it while its log exists",
            table=location,
        )
    tail = yield from open_tail(context, location, missing_ok=state is not None)
    if own.version is None or own.version > tail.tip:
        tail = yield from probe(context, tail)
    if state is not None and (yield from is_another(context, state, tail)):
        raise TableNotFound(
            f"table {location} was removed, or created again, by another client: the lake knows "
            f"table {state.table_id}, and the log belongs to another; `unregister` it, then "
            "`register` the new one",
            table=location,
        )
    return tail


def _is_waiting(head: Head, state: TableState, tail: Tail) -> bool:
    """Return whether the table has a decided commit that is not in its log yet."""
    done = -1
    if tail.tip >= 0:
        done = tail.snapshot.application_version(application_id(head)) or -1
    return any(pending.sequence > done for pending in state.pending)


def _opened(context: Context, tail: Tail, own: OwnVersion) -> Program[TableSnapshot]:
    if tail.tip < 0:
        raise VersionNotFound("its creation is decided and not published yet")
    format_ = context.formats.of(tail.snapshot)
    if own.ref is not None:
        return (yield from format_.at_ref(tail.snapshot, own.ref))
    version = own.version
    if own.timestamp_ms is not None:
        version = yield from format_.version_by(tail.snapshot, own.timestamp_ms)
        if version is None:
            raise VersionNotFound("all versions that are kept are later")
    elif version is not None and version > tail.tip:
        raise VersionNotFound("there is none yet")
    assert version is not None, "one of the three is given"
    snapshot = yield from snapshot_at(context, tail, version)
    yield from format_.check_kept(tail.snapshot, snapshot)
    return snapshot


def _not_kept(
    context: Context, tail: Tail, own: OwnVersion, why: str, waiting: bool
) -> Program[VersionNotFound]:
    """Return the error for a version that can't be opened, with the reason and kept versions.

    ``waiting``: the table has a commit that is decided and not published yet.
    """
    message = f"table {tail.location} has no {own}"
    kept = None
    if tail.tip >= 0:
        with suppress(LakeVillaError):  # the first error is of more use to the caller
            kept = yield from context.formats.of(tail.snapshot).kept_range(tail.snapshot)
    if kept is None:
        message += f": {why}"
    elif own.version is not None and own.version <= tail.tip:
        message += " any more: its log was cleaned up, or its snapshot expired"
    elif own.version is not None and waiting:
        message += " (commits that are decided and not published yet have no number in it)"
    elif own.version is not None and tail.snapshot.format == "iceberg":
        message += " (snapshot ids, branches and tags are given as iceberg_ref=)"
    advice = "read without a version to get its newest state"
    if kept is not None:
        oldest, newest = kept
        advice = (
            f"those that are left are version {oldest.version} ({_time(oldest.timestamp_ms)}) to "
            f"{newest.version} ({_time(newest.timestamp_ms)}): request one of them"
        )
    return VersionNotFound(f"{message}; {advice}", table=tail.location)


def refuse_missing_files(context: Context, view: View, own: OwnVersion) -> Program[None]:
    """Raise an error if files of a state were deleted, by VACUUM or an expiry of snapshots.

    Called only after a read has failed, so that a read that succeeds costs no requests.
    """
    missing = yield from missing_files(view)
    if not missing:
        return
    tail = yield from open_tail(context, view.location)
    first = None
    if own.ref is None:
        first = yield from _first_without(context, tail, view.snapshot.version, missing)
    advice = "read without a version to get its newest state"
    if first == tail.tip:
        advice = f"version {first}, the newest, does not need it: request that version"
    elif first is not None:
        advice = f"versions {first} to {tail.tip} do not need it: request one of them"
    raise VersionNotFound(
        f"table {view.location} can't be read at {own} any more: {next(iter(missing.values()))} "
        f"was removed, as vacuum does with files that were replaced; {advice}",
        table=view.location,
    )


def missing_files(view: View) -> Program[dict[FileRef, str]]:
    """Return the files of a state of which an object is missing, each with the missing key."""
    named = [
        (file.ref, key)
        for file in data_files((yield from view.snapshot.files()))
        for key in _keys(view.location, file)
    ]
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for _, key in named])
    return {
        ref: key for (ref, key), info in zip(named, infos, strict=True) if isinstance(info, Missing)
    }


def _keys(location: str, file: DataFile) -> list[str]:
    """Return the keys of a data file, its deletion vector and its delete files."""
    keys = [file_key(location, file.path)]
    if file.deletion_vector is not None and file.deletion_vector.storage_type != "i":
        keys.append(vector_key(location, file.deletion_vector))
    return keys + [file_key(location, delete.path) for delete in file.deletes]


def _first_without(
    context: Context, tail: Tail, version: int, files: Iterable[FileRef]
) -> Program[int | None]:
    """Return the first later version without any of the files; None if that is not known."""
    waiting = set(files)

    def is_last(entry: Entry | None) -> bool:
        if entry is not None:
            waiting.difference_update(removed.ref for removed in entry.change.removes)
        return entry is None or not waiting

    found = yield from first_entry(context, tail, range(version + 1, tail.tip + 1), is_last)
    return None if found is None or found[1] is None else found[0]


def _time(timestamp_ms: int) -> str:
    instant = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
