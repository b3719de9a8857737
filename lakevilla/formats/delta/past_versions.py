"""The versions of a Delta log that can still be opened, and when each was made.

A version is as old as its in-commit timestamp says, and, where the table has none, as old as
the store says of its log object: so does the time travel of deltalake and of Spark
(Delta's protocol, "In-Commit Timestamps").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakevilla.formats.base import LogVersion
from lakevilla.formats.delta.actions import entry_with_faults
from lakevilla.formats.delta.log import LogListing, get_entries, list_log
from lakevilla.formats.delta.paths import entry_key
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.store.base import Found
from lakevilla.store.effects import Program

#: Since which version in-commit timestamps tell; without it, since the first.
_SINCE = "delta.inCommitTimestampEnablementVersion"
#: Log entries asked for in one round.
_AT_ONCE = 64


def kept_versions(newest: DeltaSnapshot, limit: int | None) -> Program[list[LogVersion]]:
    """The newest versions that can be opened, newest first: one LIST.

    Where the table has in-commit timestamps, a GET for each version besides.
    """
    listing = yield from list_log(newest.location, None)
    versions = _up_to(newest, listing)[::-1]
    return (yield from _timed(newest, listing, versions if limit is None else versions[:limit]))


def kept_range(newest: DeltaSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
    """The oldest version that can be opened, and the newest; None if there is none."""
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
    """The newest version that is not later; None if all that can be opened are.

    One LIST. In-commit timestamps rise, so a few GETs besides find their place among them.
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
    """The versions that can be opened, and are no later than the newest one asked about."""
    return [version for version in listing.readable() if version <= newest.version]


def _first_timed(newest: DeltaSnapshot) -> int:
    """The first version that tells its own time; beyond the newest where none does."""
    if not newest.definition.in_commit_timestamps:
        return newest.version + 2
    since = newest.layout.properties.get(_SINCE, "0")
    return int(since) if since.isdecimal() else 0


def _store_times(listing: LogListing, versions: Sequence[int]) -> dict[int, int]:
    """When the store took each version: in milliseconds, each later than the one before.

    The clock of a store may stand still for a second. A version without an entry is that of a
    checkpoint, and no older than the one after it.
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
    """What entries say of their own time; nothing of one that is not there any more."""
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
