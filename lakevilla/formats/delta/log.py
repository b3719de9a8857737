"""The Delta log: its entries, checkpoints and past versions."""

from __future__ import annotations

import contextlib
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import CorruptObject, TableNotFound, VersionNotFound
from lakevilla.forked import lock
from lakevilla.formats.base import Entry, Leftovers, LogVersion
from lakevilla.formats.delta.actions import (
    NO_FAULTS,
    compaction_of,
    entry_key,
    entry_with_faults,
    log_directory,
    parse_entry,
)
from lakevilla.formats.delta.checkpoint.file_list import (
    batches_of,
    decode_paths,
    load_files,
    vector_columns,
)
from lakevilla.formats.delta.checkpoint.reader import Checkpoint, fetch, open_checkpoint
from lakevilla.formats.delta.deletion_vectors import paths_of, vector_key
from lakevilla.formats.delta.metadata.properties import ENABLEMENT
from lakevilla.formats.delta.snapshot import DeltaSnapshot, blank_snapshot, snapshot_of
from lakevilla.formats.delta.unsettled import Unsettled
from lakevilla.formats.files import (
    DataFile,
    DeletionVector,
    FileRef,
    RemovedFile,
    file_key,
    masked_by_all,
    masked_out,
)
from lakevilla.store.base import Found, GetOutcome
from lakevilla.store.effects import Effect, Get, Program, get, list_objects, parallel

# -------------------- log
#
# Reading a Delta log: find the objects to read, by number or by one LIST, and read them.
#
# The log is dense: entry n exists, or a checkpoint at or after n exists. With a
# cached state the next numbers are requested; otherwise one LIST shows which objects exist,
# and one round of requests reads them.


# Numbers requested at once while entries keep being found: the first misses end the walk.
_BATCHES = (1, 1, 2, 4, 8, 16)

# Without a checkpoint hint, logs up to this length are read by number without a LIST.
_SHORT_LOG = 32

# With more entries than this after the hint, a LIST may find a newer checkpoint.
_LONG_TAIL = 256

# A LIST begins so many versions before one that the log is known to have: mostly there is a
# checkpoint among these, and one page of a LIST has room for what they and their writers left.
_BEFORE = 256


class CheckpointCache:
    """Checkpoints read lately, by keys and ETags: a checkpoint never changes under one ETag."""

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._lock = lock()
        self._held: OrderedDict[tuple[object, ...], Checkpoint] = OrderedDict()
        self._versions: dict[str, int] = {}

    def find(self, identity: tuple[object, ...]) -> Checkpoint | None:
        with self._lock:
            found = self._held.get(identity)
            if found is not None:
                self._held.move_to_end(identity)
            return found

    def keep(self, location: str, identity: tuple[object, ...], read: Checkpoint) -> Checkpoint:
        """Keep ``read``, or return the equal checkpoint already kept, which snapshots share."""
        with self._lock:
            held = self._held.setdefault(identity, read)
            self._held.move_to_end(identity)
            self._versions[location] = max(read.version, self._versions.get(location, 0))
            while len(self._held) > self._capacity:
                self._held.popitem(last=False)
            return held

    def last_version(self, location: str) -> int | None:
        """Return the version of a table's newest checkpoint seen so far: a LIST may start there."""
        with self._lock:
            return self._versions.get(location)

    def forget(self, location: str) -> None:
        """Forget the newest version of a table that was created again."""
        with self._lock:
            self._versions.pop(location, None)


# ------------------------------------------------------------- entries by number


def read_entry(location: str, version: int) -> Program[Entry | None]:
    """Return one log entry, or None if the number is absent."""
    outcome = yield from get(entry_key(location, version))
    return parse_entry(location, version, outcome.body) if isinstance(outcome, Found) else None


def named_in_log(location: str) -> Program[set[str]]:
    """Return the paths of all added, removed and change files of entries still in the log, and of
    their vectors.
    """
    numbers = sorted((yield from list_log(location, None)).entries)
    answers = yield from get_entries(location, numbers)
    named: set[str] = set()
    for number, outcome in zip(numbers, answers, strict=True):
        if isinstance(outcome, Found):
            entry, faults = entry_with_faults(number, entry_key(location, number), outcome.body)
            change = entry.change
            named.update(path for path, _ in faults.files)
            files: list[DataFile | RemovedFile] = [*change.adds, *change.removes]
            for file in files:
                named.update(paths_of(location, file))
            named.update(file.path for file in change.change_files)
    return named


_ROOT = re.compile(r"0{20}\.json|\d{20}\.checkpoint\..+")
#: Names of objects that clients of a deleted table may still write, and with which no table begins.
_STRAY = re.compile(r"\d{20}\.(?:json|crc)|_last_checkpoint")


def leftovers(location: str) -> Program[Leftovers]:
    """List the log: a table has entry 0 or a checkpoint.

    Without either, its entries were written after the data was deleted.
    """
    directory = f"{log_directory(location)}/"
    listed = yield from list_objects(directory.rstrip("/"))
    names = [info.key.removeprefix(directory) for info in listed]
    if any(_ROOT.fullmatch(name) for name in names):
        return Leftovers(True, ())
    return Leftovers(False, tuple(directory + n for n in names if _STRAY.fullmatch(n)))


def extend(snapshot: DeltaSnapshot) -> Program[DeltaSnapshot | None]:
    """Return ``snapshot`` with all entries after it; None if the log has a gap there.

    Takes one request if nothing is new. While entries keep being found, more numbers are
    requested at once, so that a long absence costs few rounds.
    """
    location = snapshot.location
    last_found = -1
    step = 0
    unsettled = Unsettled()
    while True:
        width = _BATCHES[min(step, len(_BATCHES) - 1)]
        first = snapshot.version + 1
        answers = yield from get_entries(location, range(first, first + width))
        for version, outcome in zip(range(first, first + width), answers, strict=True):
            if isinstance(outcome, Found):
                last_found = max(last_found, version)
                if version == snapshot.version + 1:
                    key = entry_key(location, version)
                    entry, faults = entry_with_faults(version, key, outcome.body)
                    unsettled.follow(entry.change, faults)
                    snapshot = snapshot.advance(entry)
        if snapshot.version + 1 == first + width:
            step += 1
        elif snapshot.version >= last_found:
            unsettled.check()
            return snapshot
        elif snapshot.version + 1 == first:
            # A later entry exists, and this one, requested a second time, does not:
            # log clean-up has deleted it meanwhile, or the log is broken. A LIST will show which.
            return None


def get_entries(location: str, versions: Iterable[int]) -> Program[list[GetOutcome]]:
    """Return the bodies of entries, read in one round."""
    requests: list[Effect | Program[GetOutcome]] = [
        Get(entry_key(location, version)) for version in versions
    ]
    return (yield from parallel(requests))


# -------------------------------------------------------------------- the listing


@dataclass(frozen=True, slots=True)
class _CheckpointFiles:
    version: int
    keys: tuple[str, ...]
    identity: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The objects to read: a checkpoint, then entries (n, n) and compactions (first, last)."""

    checkpoint: _CheckpointFiles | None
    steps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LogListing:
    """The content of a log. ``entries`` map versions to their store times, in epoch seconds."""

    entries: Mapping[int, float]
    checkpoints: tuple[_CheckpointFiles, ...]
    compactions: tuple[tuple[int, int], ...]

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.checkpoints

    @property
    def newest(self) -> int:
        """The newest version; -1 for none."""
        return max((*self.entries, *(c.version for c in self.checkpoints)), default=-1)

    @property
    def is_rooted(self) -> bool:
        return bool(self.checkpoints) or 0 in self.entries

    def readable(self) -> list[int]:
        """Return the versions that can be opened, in order: each has all entries since a
        checkpoint.
        """
        roots = {checkpoint.version for checkpoint in self.checkpoints}
        found: list[int] = []
        for version in sorted({*self.entries, *roots}):
            if version == 0 or version in roots or found[-1:] == [version - 1]:
                found.append(version)
        return found


_NAME = re.compile(
    r"(?P<version>\d{20})\."
    r"(?:(?P<entry>json)"
    r"|(?P<last>\d{20})\.compacted\.json"
    r"|checkpoint\.(?P<classic>parquet)"
    r"|checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet"
    r"|checkpoint\.(?P<uuid>[0-9a-fA-F-]{36})\.(?:json|parquet))"
)


def list_log(location: str, after: int | None, last: int | None = None) -> Program[LogListing]:
    """List the log, or its part from version ``after`` on, or up to the entry ``last``."""
    directory = log_directory(location)
    start = None if after is None else entry_key(location, after - 1) if after > 0 else None
    end = None if last is None else entry_key(location, last)
    objects = yield from list_objects(directory, start, end)
    entries: dict[int, float] = {}
    compactions: list[tuple[int, int]] = []
    single: list[_CheckpointFiles] = []
    multi: dict[tuple[int, int], dict[int, tuple[str, object]]] = {}
    for info in objects:
        match = _NAME.fullmatch(info.key[len(directory) + 1 :])
        if match is None:
            continue
        version = int(match["version"])
        if match["entry"]:
            entries[version] = info.modified_seconds
        elif match["last"]:
            compactions.append((version, int(match["last"])))
        elif match["part"]:
            group = multi.setdefault((version, int(match["parts"])), {})
            group[int(match["part"])] = (info.key, info.token.e_tag)
        else:
            single.append(_CheckpointFiles(version, (info.key,), ((info.key, info.token.e_tag),)))
    for (version, count), found in multi.items():
        # Parts are written one by one: until the last part exists there is no checkpoint.
        if set(found) == set(range(1, count + 1)):
            identity = tuple(found[number] for number in sorted(found))
            keys = tuple(found[number][0] for number in sorted(found))
            single.append(_CheckpointFiles(version, keys, identity))
    single.sort(key=lambda files: (files.version, -len(files.keys), files.keys))
    return LogListing(entries, tuple(single), tuple(compactions))


def _plan(listing: LogListing, target: int | None, location: str, table: str) -> _Plan:
    """Plan the reading of a listed log. Raises ``VersionNotFound`` and ``CorruptObject``."""
    usable = [c for c in listing.checkpoints if target is None or c.version <= target]
    checkpoint = usable[-1] if usable else None
    base = -1 if checkpoint is None else checkpoint.version
    tip = listing.newest if target is None else target
    if tip > listing.newest:
        raise VersionNotFound(
            f"table {table} has no version {tip}; its newest is {listing.newest}", table=table
        )
    missing = [version for version in range(base + 1, tip + 1) if version not in listing.entries]
    if missing:
        first = missing[0]
        # Clean-up may also leave an old checkpoint that a client wrote late, and delete the
        # entries above it: a newer checkpoint replaces them.
        above = [c.version for c in listing.checkpoints if c.version >= missing[-1]]
        if target is not None and (above or (checkpoint is None and first == 0)):
            oldest = f"version {min(above)}" if above else "its oldest checkpoint"
            raise VersionNotFound(
                f"version {target} of table {table} can no longer be read: the log before "
                f"{oldest} was cleaned up; request that or a newer one",
                table=table,
            )
        key = entry_key(location, first)
        raise CorruptObject(
            f"the log of table {table} has a gap: {key} is missing below version {tip}; restore it",
            key=key,
            table=table,
        )
    return _Plan(checkpoint, tuple(_steps(base + 1, tip, listing.compactions)))


def _steps(
    first: int, tip: int, compactions: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int]]:
    """Yield numbers ``first`` to ``tip``, as compactions where these fit.

    The tip itself is always read as an entry: a compaction keeps no commitInfo,
    and the next commit's timestamp must be later than the tip's.
    """
    while first <= tip:
        ends = [last for start, last in compactions if start == first and start < last < tip]
        last = max(ends, default=first)
        yield first, last
        first = last + 1


# ------------------------------------------------------------------ opening a table


def _list_near(
    location: str, target: int | None, at_least: int, cache: CheckpointCache
) -> Program[LogListing]:
    """List what the newest version, or ``target``, is read from: if possible, not the whole log.

    A part of the log is as good as all of it if it has a checkpoint, and all that comes after that.
    """
    seen = cache.last_version(location)
    if target is None:
        starts = {at_least - _BEFORE, seen or 0} - {0}
    else:
        starts = {max(target - _BEFORE, 0)} | ({seen} if seen and seen <= target else set())
    for start in sorted(starts, reverse=True):
        if start < 0:
            continue
        listing = yield from list_log(location, start, target)
        if listing.is_rooted if target is None else target in listing.readable():
            return listing
        if start == seen:
            # The table was created again, or that checkpoint was deleted.
            cache.forget(location)
    return (yield from list_log(location, None))


def open_listed(
    location: str, table: str, target: int | None, cache: CheckpointCache, at_least: int = -1
) -> Program[DeltaSnapshot]:
    """Return the newest version, or ``target``, found by a LIST.

    ``at_least`` is a version that the log is known to have had.
    """
    problem: CorruptObject | None = None
    # Clean-up between LIST and GET may delete listed objects, and a LIST of many
    # pages may miss an entry written behind its cursor and show the next one: neither
    # happens again at the second attempt; a log that is still broken then is broken.
    for attempt in range(2):
        if attempt == 0:
            listing = yield from _list_near(location, target, at_least, cache)
        else:
            listing = yield from list_log(location, None)
        if listing.is_empty:
            raise TableNotFound(
                f"there is no delta table {table}: {location}/_delta_log holds no log, so it is at "
                "most a directory that is not a table",
                table=table,
            )
        try:
            plan = _plan(listing, target, location, table)
        except CorruptObject as error:
            problem = error
            continue
        snapshot = yield from _load(location, table, plan, cache)
        if isinstance(snapshot, DeltaSnapshot):
            return snapshot
        problem = snapshot
    assert problem is not None
    raise problem


def open_several(
    location: str, table: str, versions: Collection[int], cache: CheckpointCache
) -> Program[dict[int, DeltaSnapshot]]:
    """Return the table at several versions, by one LIST; versions that it can't show are left out.

    Versions above one checkpoint are followed from one another, so that each entry is read once.
    """
    first, last = min(versions), max(versions)
    listing = yield from list_log(location, max(first - _BEFORE, 0), last)
    if first not in listing.readable():
        listing = yield from list_log(location, None)
    groups: dict[_CheckpointFiles | None, tuple[_Plan, list[int]]] = {}
    for version in sorted(versions):
        with contextlib.suppress(VersionNotFound, CorruptObject):
            plan = _plan(listing, version, location, table)
            groups.setdefault(plan.checkpoint, (plan, []))[1].append(version)
    opened: list[dict[int, DeltaSnapshot]] = yield from parallel(
        [_open_group(location, table, plan, group, cache) for plan, group in groups.values()]
    )
    return {version: snapshot for found in opened for version, snapshot in found.items()}


def _open_group(
    location: str, table: str, plan: _Plan, versions: Sequence[int], cache: CheckpointCache
) -> Program[dict[int, DeltaSnapshot]]:
    """Return versions above one checkpoint, as far as they can be read; ``plan`` is the first's.

    ``versions`` are in order.
    """
    first, last, wanted = versions[0], versions[-1], set(versions)
    both: list[Program[Any]] = [
        _load(location, table, plan, cache),
        get_entries(location, range(first + 1, last + 1)),
    ]
    snapshot, bodies = yield from parallel(both)
    found: dict[int, DeltaSnapshot] = {}
    if not isinstance(snapshot, DeltaSnapshot):
        return found
    found[first] = snapshot
    unsettled = Unsettled()
    for version, body in enumerate(bodies, first + 1):
        if not isinstance(body, Found):
            break
        entry, faults = entry_with_faults(version, entry_key(location, version), body.body)
        unsettled.follow(entry.change, faults)
        snapshot = snapshot.follow(entry)
        if version in wanted:
            try:
                unsettled.check()
            except CorruptObject:
                continue
            found[version] = snapshot
    return found


def open_numbered(
    location: str, table: str, version: int, cache: CheckpointCache
) -> Program[DeltaSnapshot]:
    """Return the table at a known version: by ``_last_checkpoint`` and numbers, else by a LIST."""
    if version < 0:
        raise VersionNotFound(f"table {table} has no version {version}", table=table)
    seen = cache.last_version(location)
    if seen is not None and seen > version:
        # The hint names a later checkpoint as well: only a LIST finds an older one.
        return (yield from open_listed(location, table, version, cache))
    hint = yield from _hint(location)
    if hint is not None and hint.version <= version <= hint.version + _LONG_TAIL:
        plan = _Plan(hint, tuple(_steps(hint.version + 1, version)))
    elif hint is None and version < _SHORT_LOG:
        plan = _Plan(None, tuple(_steps(0, version)))
    else:
        return (yield from open_listed(location, table, version, cache))
    snapshot = yield from _load(location, table, plan, cache)
    if isinstance(snapshot, DeltaSnapshot):
        return snapshot
    return (yield from open_listed(location, table, version, cache))


class _Hint(msgspec.Struct, rename="camel"):
    version: int
    parts: int | None = None
    v2_checkpoint: dict[str, Any] | None = None


_hints = JsonDecoder(_Hint)


def _hint(location: str) -> Program[_CheckpointFiles | None]:
    """Return the checkpoint that ``_last_checkpoint`` names; None if that is missing or
    unusable.
    """
    outcome = yield from get(f"{log_directory(location)}/_last_checkpoint")
    if not isinstance(outcome, Found):
        return None
    try:
        hint = _hints.decode(outcome.body)
    except ValueError:
        # The hint is written without a condition: a torn one is no error.
        return None
    base = f"{log_directory(location)}/{hint.version:020}.checkpoint"
    if hint.v2_checkpoint is not None:
        path = str(hint.v2_checkpoint.get("path", ""))
        if _NAME.fullmatch(path) is None:
            return None
        return _CheckpointFiles(hint.version, (f"{log_directory(location)}/{path}",))
    if hint.parts is None:
        return _CheckpointFiles(hint.version, (f"{base}.parquet",))
    if not 0 < hint.parts < 100_000:
        return None
    keys = tuple(f"{base}.{n:010}.{hint.parts:010}.parquet" for n in range(1, hint.parts + 1))
    return _CheckpointFiles(hint.version, keys)


def _load(
    location: str, table: str, plan: _Plan, cache: CheckpointCache
) -> Program[DeltaSnapshot | CorruptObject]:
    """Read a plan, in one round except for large checkpoints.

    An object that was deleted meanwhile is returned as a value: a new LIST may find better objects.
    """
    keys = [_step_key(location, step) for step in plan.steps]
    parts: list[Effect | Program[Any]] = [Get(key) for key in keys]
    if plan.checkpoint is not None:
        parts.insert(0, _checkpoint(location, plan.checkpoint, cache))
    answers = list((yield from parallel(parts)))
    if plan.checkpoint is None:
        snapshot = blank_snapshot(location, table)
    else:
        read = answers.pop(0)
        if isinstance(read, CorruptObject):
            return read
        snapshot = snapshot_of(location, table, cast(Checkpoint, read))
    unsettled = Unsettled()
    for key, (first, last), outcome in zip(keys, plan.steps, answers, strict=True):
        if not isinstance(outcome, Found):
            return CorruptObject(
                f"log object {key} of table {table} is missing; restore it", key=key, table=table
            )
        summed = None if first == last else compaction_of(last, key, outcome.body)
        if summed is None and first < last:
            # A compaction only repeats the content of its entries, and these exist (``_plan``).
            steps = tuple(_steps(plan.steps[0][0], plan.steps[-1][1]))
            return (yield from _load(location, table, _Plan(plan.checkpoint, steps), cache))
        entry, faults = (
            (summed, NO_FAULTS) if summed else entry_with_faults(last, key, outcome.body)
        )
        unsettled.follow(entry.change, faults)
        snapshot = snapshot.follow(entry)
    unsettled.check()
    if not snapshot.protocol or not snapshot.metadata:
        key = entry_key(location, 0)
        return CorruptObject(
            f"the log of table {table} has no protocol or no metaData action; restore {key}",
            key=key,
            table=table,
        )
    if snapshot.timestamp_ms is None and snapshot.definition.in_commit_timestamps:
        newest = yield from read_entry(location, snapshot.version)
        if newest is not None:
            snapshot = snapshot.timed(newest.timestamp_ms)
    return snapshot


def _step_key(location: str, step: tuple[int, int]) -> str:
    first, last = step
    if first == last:
        return entry_key(location, first)
    return f"{log_directory(location)}/{first:020}.{last:020}.compacted.json"


def _checkpoint(
    location: str, files: _CheckpointFiles, cache: CheckpointCache
) -> Program[Checkpoint | CorruptObject]:
    if files.identity is not None:
        held = cache.find(files.identity)
        if held is not None:
            return held
    try:
        read = yield from open_checkpoint(location, files.version, files.keys)
    except CorruptObject as error:
        return error
    identity = files.identity or tuple((part.key, part.token.e_tag) for part in read.parts)
    return cache.keep(location, identity, read) if identity else read


# -------------------- named objects
#
# The objects that make up a state of a table, and those that were replaced a short time ago.


def live_objects(snapshots: Sequence[DeltaSnapshot]) -> Program[set[str]]:
    """Return the objects of several states of one table; a checkpoint below them is read once."""
    by_checkpoint: dict[int, list[DeltaSnapshot]] = defaultdict(list)
    added: dict[FileRef, DataFile] = {}
    for state in snapshots:
        by_checkpoint[id(state.checkpoint)].append(state)
        added.update(state.tail.fold().adds)
    if not by_checkpoint:
        return set()
    location = snapshots[0].location
    vectors = [file.deletion_vector for file in added.values() if file.deletion_vector is not None]
    keys = {file_key(location, path) for path, _ in added} | _vectors(location, vectors)
    for states in by_checkpoint.values():
        checkpoint = states[0].checkpoint
        if checkpoint is None:
            continue
        files = yield from load_files(checkpoint, states[0].layout, None)
        base = files.select(["path", "dv_id", "deletion_vector"])
        left = masked_out(base, masked_by_all([state.tail.fold().masks for state in states]))
        paths = pc.unique(left["path"]).to_pylist()
        keys |= _keys(location, paths, left["deletion_vector"].drop_null().to_pylist())
    return keys


def named_objects(snapshot: DeltaSnapshot, removed_since_ms: int) -> Program[set[str]]:
    """See ``formats.base.TableFormat.named_objects``."""
    location = snapshot.location
    keys = yield from live_objects([snapshot])
    for file in snapshot.tail.fold().removes.values():
        # A removal without a time is not published yet: the file is being removed now.
        if file.deletion_timestamp is None or file.deletion_timestamp >= removed_since_ms:
            keys.add(file_key(location, file.path))
            if file.deletion_vector is not None:
                keys.update(_vectors(location, [file.deletion_vector]))
    checkpoint = snapshot.checkpoint
    if checkpoint is None:
        return keys
    for window, batches in batches_of(checkpoint, "remove"):
        for (_, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
            for batch in batches(fetched, group):
                times = batch.field("deletionTimestamp").cast(pa.int64())
                late = pc.fill_null(pc.greater_equal(times, removed_since_ms), True)
                keys |= _of_checkpoint(location, batch.filter(late), fetched.part.key)
    return keys


def _of_checkpoint(location: str, rows: pa.StructArray, key: str) -> set[str]:
    try:
        paths = decode_paths(rows.field("path").cast(pa.string()))[0]
    except UnicodeDecodeError as error:
        raise CorruptObject(f"checkpoint part {key} has a broken path: {error}", key=key) from None
    index = rows.type.get_field_index("deletionVector")
    column = None if index < 0 else rows.field("deletionVector")
    return _keys(location, paths.to_pylist(), vector_columns(column, len(rows))[1].to_pylist())


def _keys(
    location: str, paths: Iterable[str], vectors: Iterable[dict[str, object] | None]
) -> set[str]:
    keys = {file_key(location, path) for path in paths}
    found = [
        DeletionVector(**vector)  # type: ignore[arg-type]
        for vector in vectors
        if vector is not None
    ]
    return keys | _vectors(location, found)


def _vectors(location: str, vectors: Iterable[DeletionVector]) -> set[str]:
    return {vector_key(location, vector) for vector in vectors if vector.storage_type != "i"}


# -------------------- past versions
#
# The versions of a Delta log that can still be opened, and the time at which each was made.
#
# The age of a version is given by its in-commit timestamp, or, where the table has none, by
# the store's time of its log object. Time travel in deltalake and in Spark uses the same times
# (Delta's protocol, "In-Commit Timestamps").


#: The first version with an in-commit timestamp; without this property, the first of all.
_SINCE = f"{ENABLEMENT}Version"
#: Log entries requested in one round.
_AT_ONCE = 64


def kept_versions(newest: DeltaSnapshot, limit: int | None) -> Program[list[LogVersion]]:
    """Return the newest versions that can be opened, newest first: one LIST.

    Where the table has in-commit timestamps, each version takes a GET as well.
    """
    listing = yield from list_log(newest.location, None)
    versions = _up_to(newest, listing)[::-1]
    return (yield from _timed(newest, listing, versions if limit is None else versions[:limit]))


def kept_range(newest: DeltaSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
    """Return the oldest version that can be opened, and the newest; None if there is none."""
    listing = yield from list_log(newest.location, None)
    versions = _up_to(newest, listing)
    if not versions:
        return None
    oldest, last = yield from _timed(newest, listing, [versions[0], versions[-1]])
    return oldest, last


def _timed(
    newest: DeltaSnapshot, listing: LogListing, versions: Sequence[int]
) -> Program[list[LogVersion]]:
    times = _store_times(listing, listing.readable())
    times |= yield from _own_times(newest, [v for v in versions if v >= _first_timed(newest)])
    return [LogVersion(version, times[version]) for version in versions]


def version_by(newest: DeltaSnapshot, timestamp_ms: int) -> Program[int | None]:
    """Return the newest version not later than ``timestamp_ms``; None if all that open are later.

    Takes one LIST. In-commit timestamps rise, so a few more GETs find the place among them.
    """
    listing = yield from list_log(newest.location, None)
    versions = _up_to(newest, listing)
    first = _first_timed(newest)
    timed = [version for version in versions if version >= first and version in listing.entries]
    low, high = 0, len(timed)
    while low < high:
        middle = (low + high) // 2
        times = yield from _own_times(newest, [timed[middle]])
        if times.get(timed[middle], timestamp_ms + 1) <= timestamp_ms:
            low = middle + 1
        else:
            high = middle
    if low:
        return timed[low - 1]
    times = _store_times(listing, [version for version in versions if version < first])
    return max((v for v, time in times.items() if time <= timestamp_ms), default=None)


def _up_to(newest: DeltaSnapshot, listing: LogListing) -> list[int]:
    """Return the versions that can be opened and are no later than the ``newest`` given."""
    return [version for version in listing.readable() if version <= newest.version]


def _first_timed(newest: DeltaSnapshot) -> int:
    """Return the first version that records its own time; beyond the newest where none does."""
    if not newest.definition.in_commit_timestamps:
        return newest.version + 2
    since = newest.layout.properties.get(_SINCE, "0")
    return int(since) if since.isdecimal() else 0


def stored_ms(location: str, version: int) -> Program[int]:
    """Return the store's time of an entry in whole milliseconds, not before it; 0 if it is gone."""
    listing = yield from list_log(location, version)
    return math.ceil(listing.entries.get(version, 0.0) * 1000)


def _store_times(listing: LogListing, versions: Sequence[int]) -> dict[int, int]:
    """Return the store's time of each version in milliseconds, each later than the one before.

    The clock of a store may stand still for a second. A version without an entry is that of a
    checkpoint, and no older than the version after it.
    """
    times: dict[int, int] = {}
    last = 0
    for version in versions:
        seconds = _taken(listing.entries, version)
        last = max(last + 1, int(seconds * 1000))
        times[version] = last
    return times


def _taken(entries: Mapping[int, float], version: int) -> float:
    return entries.get(version, entries.get(version + 1, 0.0))


def _own_times(newest: DeltaSnapshot, versions: Sequence[int]) -> Program[dict[int, int]]:
    """Return the times that entries record of themselves; entries deleted since are left out."""
    times: dict[int, int] = {}
    for start in range(0, len(versions), _AT_ONCE):
        part = versions[start : start + _AT_ONCE]
        answers = yield from get_entries(newest.location, part)
        for version, outcome in zip(part, answers, strict=True):
            if isinstance(outcome, Found):
                key = entry_key(newest.location, version)
                entry, _ = entry_with_faults(version, key, outcome.body)
                times[version] = entry.timestamp_ms
    return times
