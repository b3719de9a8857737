"""Expiring snapshots: letting states go that were replaced long ago (design note 0017).

A metadata file lists every state that its readers may ask for, and every object of a listed
state has to stay. So a clean-up publishes a file that lists fewer first, and looks at what is
named no more after that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.iceberg.commit import check_next
from lakevilla.formats.iceberg.metadata import STATISTICS, Metadata, next_metadata
from lakevilla.formats.iceberg.paths import metadata_key
from lakevilla.formats.iceberg.properties import whole_number
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.base import ABSENT, Stored
from lakevilla.store.effects import Program, put

__all__ = ["check_expirable", "publish_without", "without_expired"]

_AT_LEAST = "history.expire.min-snapshots-to-keep"
_COLLECTED = "gc.enabled"


def check_expirable(state: IcebergSnapshot) -> None:
    """Raise what keeps LakeVilla from letting snapshots of a table go, and files.

    Raises
    ------
    InvalidOperation
        The table's property ``gc.enabled`` says that nobody may.
    UnsupportedTableFeature
        The table is in a catalog.
    """
    if state.catalog:
        raise UnsupportedTableFeature(
            f"vacuum of table {state.table}: it is in a catalog, and cleaned up by its clients; "
            "expire its snapshots and remove its orphan files with one of them",
            table=state.table,
        )
    if state.layout.properties.get(_COLLECTED, "true").lower() == "false":
        raise InvalidOperation(
            f"vacuum of table {state.table}: its property {_COLLECTED} is false, for its files may "
            "be another table's too; set it to true if they are not",
            table=state.table,
        )


def without_expired(document: Metadata, replaced_before_ms: int, now_ms: int) -> Metadata | None:
    """The metadata without the snapshots that nobody is to ask for any more; None if all stay.

    Branches and tags stay, and so do of each branch the snapshots since ``replaced_before_ms``
    with the one that was current then, or more if the branch or the table says so. Whatever
    ``main`` was set back from since then stays too.
    """
    kept = _kept(document, replaced_before_ms, now_ms)
    snapshots = document.snapshots
    if kept >= snapshots.keys():
        return None
    parts = dict(document.parts)
    parts["snapshots"] = _raw([raw for number, raw in snapshots.items() if number in kept])
    log: list[dict[str, Any]] = []
    for entry in document.get("snapshot-log") or []:
        # A gap would tell that a state was current for longer than it was.
        log = [*log, entry] if entry["snapshot-id"] in kept else []
    parts["snapshot-log"] = _raw(log)
    for name in STATISTICS:
        if (told := document.get(name)) is not None:
            parts[name] = _raw([one for one in told if one.get("snapshot-id") in kept])
    return Metadata(document.key, document.table, parts)


def publish_without(
    state: IcebergSnapshot, expired: Metadata, now_ms: int
) -> Program[IcebergSnapshot | None]:
    """Create the version after ``state`` as ``expired``; None where it may not have come about."""
    before = state.document
    assert before is not None, "a table without metadata has no snapshots"
    key = metadata_key(state.location, state.version + 1)
    after = next_metadata(
        expired,
        key,
        state.definition.place.spelled(before.key.removeprefix(f"{state.location}/")),
        definition=None,
        snapshot=None,
        applications={},
        commit=None,
        now_ms=now_ms,
    )
    document = Metadata(key, state.table, after.parts)
    yield from check_next(state)
    if not isinstance((yield from put(key, document.encode(), ABSENT)), Stored):
        return None
    return IcebergSnapshot(state.version + 1, state.definition, document, state.cache)


# ------------------------------------------------------------------ inside


def _kept(document: Metadata, replaced_before_ms: int, now_ms: int) -> set[int]:
    times = {number: int(one.get("timestamp-ms") or 0) for number, one in _snapshots(document)}
    parents = {number: one.get("parent-snapshot-id") for number, one in _snapshots(document)}
    least = whole_number(document.properties, _AT_LEAST, 1)
    kept = {number for number, time in times.items() if time >= replaced_before_ms}
    refs = list((document.get("refs") or {}).values())
    if document.current_id is not None:
        refs.append({"type": "branch", "snapshot-id": document.current_id})
    for ref in refs:
        number = ref["snapshot-id"]
        if ref.get("type") != "branch":
            kept.add(number)
            continue
        own = ref.get("max-snapshot-age-ms")
        before_ms = replaced_before_ms if own is None else min(replaced_before_ms, now_ms - own)
        wanted = ref.get("min-snapshots-to-keep") or least
        line: dict[int, int] = {}
        while number in times and number not in line:
            line[number] = times[number]
            if len(line) >= wanted and line[number] < before_ms:
                break
            number = parents[number]
        kept |= line.keys()
    log = document.get("snapshot-log") or []
    for entry, follower in itertools.pairwise(log):
        if follower["timestamp-ms"] >= replaced_before_ms:
            kept.add(entry["snapshot-id"])
    return kept


def _snapshots(document: Metadata) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in document.snapshots:
        found = document.snapshot(number)
        assert found is not None, "a snapshot that is listed"
        yield number, found


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
