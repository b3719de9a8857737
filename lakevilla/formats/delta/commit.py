"""Rendering of a log entry: its description of itself, and what depends on its place.

In-commit timestamps, row ids and removal times follow from the entry before,
so they are filled in here, at publishing, and not earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta.actions import add_line, cdc_line, json_line, lines, remove_line
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.delta.metadata.properties import ENABLEMENT, enablement, with_enablement
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import DataFile, RemovedFile, rows_in

ROW_TRACKING_DOMAIN = "delta.rowTracking"

try:
    _ENGINE = f"LakeVilla/{version('lakevilla')}"
except PackageNotFoundError:
    _ENGINE = "LakeVilla"


def render(snapshot: DeltaSnapshot, change: Change, info: CommitInfo, timestamp_ms: int) -> bytes:
    """Return the log entry that follows ``snapshot``; see ``formats.base.TableFormat.prepare``."""
    number = snapshot.version + 1
    before, after = snapshot.definition, _after(snapshot, change)
    stamp = timestamp_ms
    if after.in_commit_timestamps:
        stamp = _in_commit_timestamp(snapshot, timestamp_ms)
    metadata = change.metadata
    if metadata is not None:
        metadata = _with_enablement(before, after, number, stamp)
    adds, domains = change.adds, list(change.domains)
    if after.row_tracking:
        adds, mark = _with_row_ids(snapshot, change, number)
        domains = [d for d in domains if d["domain"] != ROW_TRACKING_DOMAIN]
        if mark is not None:
            domains.append(mark)
    actions: list[bytes] = []
    if change.protocol is not None:
        actions.append(json_line("protocol", change.protocol))
    if metadata is not None:
        actions.append(json_line("metaData", metadata))
    for application, sequence in info.applications.items():
        action = {"appId": application, "version": sequence, "lastUpdated": timestamp_ms}
        actions.append(json_line("txn", action))
    actions.extend(json_line("domainMetadata", {"removed": False, **domain}) for domain in domains)
    actions.extend(remove_line(file, timestamp_ms) for file in change.removes)
    actions.extend(add_line(file) for file in adds)
    actions.extend(cdc_line(file) for file in change.change_files)
    first = _commit_info(snapshot, change, info, after, timestamp_ms, stamp)
    if "lakevilla" in first:
        # Readers refuse an entry that was cut off between two lines.
        first["lakevilla"]["lines"] = 1 + len(actions)
    return lines([json_line("commitInfo", first), *actions])


def begins_timestamps(snapshot: DeltaSnapshot, change: Change) -> bool:
    """Return whether a change switches in-commit timestamps on in a log that has entries."""
    if change.metadata is None or snapshot.version < 0:
        return False
    after = _after(snapshot, change)
    return after.in_commit_timestamps and not snapshot.definition.in_commit_timestamps


def _after(snapshot: DeltaSnapshot, change: Change) -> DeltaDefinition:
    before = snapshot.definition
    return DeltaDefinition(
        before.location,
        before.table,
        change.metadata if change.metadata is not None else before.metadata,
        change.protocol if change.protocol is not None else before.protocol,
    )


def _commit_info(
    snapshot: DeltaSnapshot,
    change: Change,
    info: CommitInfo,
    after: DeltaDefinition,
    timestamp_ms: int,
    stamp: int,
) -> dict[str, Any]:
    action: dict[str, Any] = {}
    if after.in_commit_timestamps:
        action["inCommitTimestamp"] = stamp
    action["timestamp"] = max(timestamp_ms, stamp)
    action["operation"] = info.operation
    action["operationParameters"] = info.parameters
    if snapshot.version >= 0:
        action["readVersion"] = snapshot.version
    action["isBlindAppend"] = info.is_blind_append
    action["operationMetrics"] = info.metrics
    action["engineInfo"] = _ENGINE
    if info.txn_ids:
        action["txnId"] = info.txn_ids[0]
    if info.metadata:
        action["userMetadata"] = msgspec.json.encode(info.metadata).decode()
    if after.row_tracking:
        preserved = "true" if keeps_row_ids(snapshot.definition, change) else "false"
        action["tags"] = {"delta.rowTracking.preserved": preserved}
    own: dict[str, Any] = {}
    if info.nonce is not None:
        own["nonce"] = info.nonce
    if info.txn_ids:
        own["txns"] = info.txn_ids
    if info.members:
        own["members"] = info.members
    if own:
        action["lakevilla"] = own
    return action


# ---------------------------------------------------------- in-commit timestamps


def _in_commit_timestamp(snapshot: DeltaSnapshot, timestamp_ms: int) -> int:
    """Return a time later than the entry before, even if the clock is behind."""
    if snapshot.version < 0:
        return timestamp_ms
    if snapshot.timestamp_ms is None:
        if not snapshot.definition.in_commit_timestamps:
            return timestamp_ms
        raise CorruptObject(
            f"version {snapshot.version} of table {snapshot.table} has in-commit timestamps but "
            "no log entry with its own; restore the entry",
            table=snapshot.table,
        )
    return max(timestamp_ms, snapshot.timestamp_ms + 1)


def _with_enablement(
    before: DeltaDefinition, after: DeltaDefinition, number: int, stamp: int
) -> dict[str, Any]:
    """Return the metadata with the version from which on entries have in-commit timestamps.

    It is left out if they began with the table. The log alone knows that version: ``after`` may
    have its metadata from before the entry that switched them on, from an earlier state of the
    table, or from another table.
    """
    recorded: Mapping[str, str] = {}
    if after.in_commit_timestamps and before.in_commit_timestamps:
        recorded = enablement(before.properties)
    elif after.in_commit_timestamps and number > 0:
        recorded = {f"{ENABLEMENT}Version": str(number), f"{ENABLEMENT}Timestamp": str(stamp)}
    if recorded == enablement(after.properties):
        return after.metadata
    return with_enablement(after.metadata, recorded)


# ------------------------------------------------------------------ row tracking


def keeps_row_ids(definition: DeltaDefinition, change: Change) -> bool:
    """Return whether rows that stay in the table keep their ids in files that a change adds.

    An engine writes the ids of the rows of a file into the files that replace it, unless the log
    had not assigned them yet when it read the file.
    """
    if definition.lineage:
        return all(file.base_row_id is not None for file in change.removes)
    return not change.removes


def _with_row_ids(
    snapshot: DeltaSnapshot, change: Change, number: int
) -> tuple[tuple[DataFile, ...], dict[str, Any] | None]:
    """Return files with new row ids above the table's high-water mark, and the new mark.

    A file that is added again under its path (with new statistics or a new deletion
    vector) keeps its ids.
    """
    mark = high_water_mark(snapshot.domains, snapshot.table)
    # The files of a copied table may hold row ids themselves, up to the mark of their table.
    given = {domain["domain"]: domain["configuration"] for domain in change.domains}
    fresh = max(
        mark,
        high_water_mark(given, snapshot.table),
        *(_last_row_id(file, snapshot.table, mark) for file in change.adds),
    )
    known = _row_ids_of(snapshot, change.removes)
    result = []
    for file in change.adds:
        base, commit = file.base_row_id, file.default_row_commit_version
        if base is None:
            base, commit = known.get(file.path, (None, None))
        elif commit is None and base == known.get(file.path, (None, None))[0]:
            commit = known[file.path][1]
        if base is None:
            base = fresh + 1
            fresh += _row_count(file, snapshot.table)
            commit = number
        if commit is None:
            commit = number
        result.append(
            msgspec.structs.replace(file, base_row_id=base, default_row_commit_version=commit)
        )
    if fresh == mark:
        return tuple(result), None
    configuration = msgspec.json.encode({"rowIdHighWaterMark": fresh}).decode()
    return tuple(result), {"domain": ROW_TRACKING_DOMAIN, "configuration": configuration}


def _last_row_id(file: DataFile, table: str, mark: int) -> int:
    """Return the highest id that a file's rows have by its own first one; -1 if it has none.

    The rows of a file that was in this table are below its mark, so they need not be counted.
    """
    first = file.base_row_id
    if first is None:
        return -1
    if first <= mark and rows_in(file.stats) is None:
        return mark
    return first + _row_count(file, table) - 1


def high_water_mark(domains: Mapping[str, str], table: str) -> int:
    """Return the highest row id ever assigned in a table, -1 for none."""
    text = domains.get(ROW_TRACKING_DOMAIN)
    if text is None:
        return -1
    try:
        return int(document(text)["rowIdHighWaterMark"])
    except (ValueError, KeyError, TypeError):
        raise CorruptObject(
            f"table {table} has a {ROW_TRACKING_DOMAIN} domain that cannot be read: {text!r}; "
            "restore its log",
            table=table,
        ) from None


def _row_ids_of(
    snapshot: DeltaSnapshot, removes: Iterable[RemovedFile]
) -> dict[str, tuple[int | None, int | None]]:
    """Return the numbers of removed files, also of those that had none when they were read.

    Such a file was not in the log yet when this change was decided, and is there now.
    """
    found: dict[str, tuple[int | None, int | None]] = {}
    for file in removes:
        now = file if file.base_row_id is not None else snapshot.recent(file.ref) or file
        found[file.path] = now.base_row_id, now.default_row_commit_version
    return found


def _row_count(file: DataFile, table: str) -> int:
    try:
        count = document(file.stats or "{}")["numRecords"]
    except (ValueError, KeyError, TypeError):
        count = None
    if not isinstance(count, int):
        raise InvalidOperation(
            f"file {file.path} of table {table} has no row count in its statistics, which row "
            "tracking needs; write it with statistics",
            table=table,
        )
    return count
