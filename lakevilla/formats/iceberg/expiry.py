"""Expiring snapshots: dropping states that were replaced long ago (note 17).

A metadata file lists every state that its readers may request, and every object of a listed
state must stay. So a clean-up first publishes a file that lists fewer states, and only then
checks which objects are not named any more.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.iceberg.commit import check_next
from lakevilla.formats.iceberg.metadata.definition import (
    compressed_version,
    is_of_state,
    metadata_directory,
    metadata_key,
    metadata_version,
)
from lakevilla.formats.iceberg.metadata.file import (
    STATISTICS,
    Metadata,
    next_metadata,
    statistics_in,
)
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Program, put

_AT_LEAST = "history.expire.min-snapshots-to-keep"
_COLLECTED = "gc.enabled"
_METADATA = re.compile(r"[^/]+\.metadata\.json(?:\.gz)?")


def check_cleanable(state: IcebergSnapshot, keys: Iterable[str]) -> None:
    """See ``formats.base.TableFormat.check_cleanable``."""
    if state.catalog:
        raise UnsupportedTableFeature(
            f"vacuum of table {state.table}: it is in a catalog, and cleaned up by its clients; "
            "expire its snapshots and remove its orphan files with one of them",
            table=state.table,
        )
    if state.layout.properties.get(_COLLECTED, "true").strip().lower() != "true":
        raise InvalidOperation(
            f"vacuum of table {state.table}: its property {_COLLECTED} is not true, for its files "
            "may be another table's too; set it to true if they are not",
            table=state.table,
        )
    metadata, log = f"{metadata_directory(state.location)}/", f"{state.location}/_delta_log/"
    for key in keys:
        # A catalog's version, no matter which client registered the table there: the table may
        # have had more versions since.
        if key.startswith(log) or (key.startswith(metadata) and _is_foreign(key[len(metadata) :])):
            raise InvalidOperation(
                f"vacuum of table {state.table}: {key} is of another table, which may have its "
                "files in this directory too: remove it if there is no such table any more, or "
                "clean up with a client that knows both",
                table=state.table,
            )


def without_expired(
    document: Metadata, replaced_before_ms: int, now_ms: int, kept_snapshots: Collection[int] = ()
) -> Metadata | None:
    """Return the metadata without the snapshots that are not needed any more; None if all stay.

    ``kept_snapshots`` stay at any age.

    Branches and tags stay. Of each branch the snapshots since ``replaced_before_ms`` stay too,
    with the one that was current then, or more if the branch or the table says so. Snapshots from
    which ``main`` was set back since then also stay.
    """
    kept = _kept(document, replaced_before_ms, now_ms) | set(kept_snapshots)
    snapshots = document.snapshots
    if kept >= snapshots.keys():
        return None
    parts: dict[str, Any] = {
        "snapshots": [raw for number, raw in snapshots.items() if number in kept]
    }
    log = document.parsed("snapshot-log", list[_Logged]) or []
    # A gap would mean that a state was current for longer than it was.
    whole = list(itertools.takewhile(lambda entry: entry.snapshot_id in kept, reversed(log)))
    parts["snapshot-log"] = whole[::-1]
    for name in STATISTICS:
        raws = document.parsed(name, list[msgspec.Raw])
        if raws is not None:
            described = zip(raws, statistics_in(document, name), strict=True)
            parts[name] = [raw for raw, one in described if one.snapshot_id in kept]
    return document.replaced(parts)


def publish_without(state: IcebergSnapshot, expired: Metadata, now_ms: int) -> Program[None]:
    """Try to create the version after ``state``, with the content of ``expired``."""
    key = metadata_key(state.location, state.version + 1)
    after = next_metadata(
        expired,
        key,
        state.table,
        state.document_uri,
        definition=None,
        snapshot=None,
        applications={},
        commit=None,
        now_ms=now_ms,
    )
    yield from check_next(state)
    yield from put(key, after.encode(), ABSENT)


# ------------------------------------------------------------------ inside


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int
    parent_snapshot_id: int | None = None


class _Ref(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    type: str = "branch"
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


class _Logged(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    timestamp_ms: int


def _is_foreign(name: str) -> bool:
    """Return whether a file of the metadata directory is a version of another table."""
    own = metadata_version(name) is not None or compressed_version(name) is not None
    own = own or is_of_state(name)
    return _METADATA.fullmatch(name) is not None and not own


def _kept(document: Metadata, replaced_before_ms: int, now_ms: int) -> set[int]:
    found = document.parsed("snapshots", list[_Snapshot]) or []
    known = {one.snapshot_id: one for one in found}
    least = whole_number(document.properties, _AT_LEAST, 1)
    kept = {one.snapshot_id for one in found if one.timestamp_ms >= replaced_before_ms}
    refs = list((document.parsed("refs", dict[str, _Ref]) or {}).values())
    if document.current_id is not None:
        refs.append(_Ref(document.current_id))
    for ref in refs:
        number: int | None = ref.snapshot_id
        if ref.type == "tag":
            kept.add(ref.snapshot_id)
            continue
        before_ms, wanted = replaced_before_ms, ref.min_snapshots_to_keep or least
        if ref.max_snapshot_age_ms is not None:
            before_ms = min(before_ms, now_ms - ref.max_snapshot_age_ms)
        line: set[int] = set()
        while number in known and number not in line:
            line.add(number)
            if len(line) >= wanted and known[number].timestamp_ms < before_ms:
                break
            number = known[number].parent_snapshot_id
        kept |= line
    log = document.parsed("snapshot-log", list[_Logged]) or []
    for entry, follower in itertools.pairwise(log):
        if follower.timestamp_ms >= replaced_before_ms:
            kept.add(entry.snapshot_id)
    return kept
