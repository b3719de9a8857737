"""The history of a lake and of its tables, for users."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from lakevilla.api.arguments import check_number
from lakevilla.api.client.client import LakeClient
from lakevilla.api.times import instant
from lakevilla.arrow.nesting import document
from lakevilla.display import HtmlList
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Entry
from lakevilla.global_log.head import shown_names
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.frozen.frozen import frozen_view
from lakevilla.lake.own_versions import OwnVersion, kept_versions
from lakevilla.lake.past import Recorded, recorded_commits, table_entries
from lakevilla.lake.view import View
from lakevilla.results import HistoryEntry, KeptVersion, LoggedOperation, TableHistoryEntry
from lakevilla.settings import shown
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import bind_to_past

__all__ = [
    "bind_to_version",
    "lake_history",
    "milliseconds",
    "utc_datetime",
    "own_version",
    "table_history",
    "table_versions",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Fields of ``commitInfo`` that writers set themselves; all other fields are from users.
_OWN = frozenset(
    (
        "timestamp",
        "inCommitTimestamp",
        "operation",
        "operationParameters",
        "operationMetrics",
        "readVersion",
        "isBlindAppend",
        "isolationLevel",
        "engineInfo",
        "clientVersion",
        "txnId",
        "userMetadata",
        "userId",
        "userName",
        "clusterId",
        "job",
        "notebook",
        "tags",
        "lakevilla",
    )
)


def bind_to_version(
    client: LakeClient,
    state: TransactionState,
    version: int | None,
    timestamp: datetime | str | None,
    only: Collection[str] | None = None,
) -> None:
    """Bind a transaction to the global version that its caller requests.

    Raises
    ------
    VersionNotFound, InvalidOperation
    """
    if version is not None and timestamp is not None:
        raise InvalidOperation("snapshot takes a version or a timestamp, not both")
    given: object = version
    if isinstance(given, str) and not given.isdigit():
        raise InvalidOperation(
            f"version must be a whole number, not {shown(given)}: the state of a tag or a branch "
            f"is read by lake.on({shown(given)})"
        )
    if version is not None:
        version = check_number("version", version)
    stamp = None if timestamp is None else milliseconds(timestamp)
    client.run(bind_to_past(state, version=version, timestamp_ms=stamp, only=only))


def lake_history(
    client: LakeClient, limit: int | None, until: int | None = None
) -> list[HistoryEntry]:
    """Return the lake's commits, newest first; see ``Lake.history``."""
    if limit is not None:
        limit = check_number("limit", limit)
    last = None if client.at is None else client.at.head.sequence
    if until is not None:
        until = check_number("until", until)
        head = client.head()
        newest = 0 if head is None else head.sequence
        last = min(until, newest if last is None else last)
    found = client.run(recorded_commits(client.context, limit, last))
    held = client.context.held
    if held is not None:
        client.run(load_names(held.head))
        touched = {location for one in found for location in one.summary.tables}
        client.run(load_tables(held.head, touched))
    names = {} if held is None else shown_names(held.head)
    rebuilt = 0 if held is None else held.head.rebuilt
    return HtmlList(_entry(one, names, rebuilt) for one in found)


def table_history(client: LakeClient, uri: str, limit: int | None) -> list[TableHistoryEntry]:
    """Return the entries of a table's log, newest first."""
    if limit is not None:
        limit = check_number("limit", limit)
    location = client.place(uri)
    until = _until(client, location)
    last = None if until is None else until.placement.logged
    entries = client.run(table_entries(client.context, location, limit, last, changes=False))
    return HtmlList(_logged(entry) for entry in entries)


def own_version(
    table: str, version: object, timestamp: datetime | str | None, iceberg_ref: object
) -> OwnVersion | None:
    """Return the state of a table that its caller requests by its own log; None for the newest.

    Raises
    ------
    InvalidOperation
        More than one of the arguments is given, or one has a wrong value.
    """
    given = {"version": version, "timestamp": timestamp, "iceberg_ref": iceberg_ref}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InvalidOperation(
            f"read {table}: it takes one of version, timestamp and iceberg_ref, not "
            f"{' and '.join(named)}",
            table=table,
        )
    if version is not None:
        return OwnVersion(version=check_number("version", version))
    if timestamp is not None:
        return OwnVersion(timestamp_ms=milliseconds(timestamp))
    if iceberg_ref is None:
        return None
    if isinstance(iceberg_ref, str) and iceberg_ref:
        return OwnVersion(ref=iceberg_ref)
    return OwnVersion(ref=check_number("iceberg_ref", iceberg_ref))


def table_versions(client: LakeClient, uri: str, limit: int | None) -> list[KeptVersion]:
    """Return the versions of a table's own log that can be opened, newest first."""
    if limit is not None:
        limit = check_number("limit", limit)
    location = client.place(uri)
    until = _until(client, location)
    found = client.run(kept_versions(client.context, location, limit, until))
    return HtmlList(
        KeptVersion(one.version, utc_datetime(one.timestamp_ms), one.snapshot_id) for one in found
    )


def _until(client: LakeClient, location: str) -> View | None:
    """Return the table's state at the ref to which the client is bound; later states are hidden."""
    if client.at is None:
        return None
    return client.run(frozen_view(client.context, client.at.base, location))


def milliseconds(timestamp: datetime | str) -> int:
    """Return the milliseconds since the epoch. Refuse a time without a zone."""
    return (instant(timestamp) - _EPOCH) // timedelta(milliseconds=1)


def utc_datetime(stamp_ms: int) -> datetime:
    """Return milliseconds since the epoch as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=stamp_ms)


def _entry(one: Recorded, names: Mapping[str, str], rebuilt: int) -> HistoryEntry:
    """Return a history entry; ``rebuilt`` is the version that rebuilt a lost HEAD, or 0."""
    summary, commit = one.summary, one.commit
    parts = {} if commit is None else commit.tables
    return HistoryEntry(
        version=summary.sequence,
        timestamp=utc_datetime(summary.timestamp_ms),
        txn_id=None if summary.kind == "foreign" else summary.txn,
        tables=tuple(sorted(names.get(location, location) for location in summary.tables)),
        operations=tuple(
            LoggedOperation(
                names.get(location, location),
                part.operation,
                part.parameters,
                part.metrics,
            )
            for location, part in parts.items()
        ),
        metadata={} if commit is None else commit.metadata,
        kind="rebuilt" if summary.sequence == rebuilt else summary.kind,
        members=summary.members,
        merged=None if commit is None else commit.merged or None,
    )


def _logged(entry: Entry) -> TableHistoryEntry:
    info = entry.raw_commit_info
    return TableHistoryEntry(
        version=entry.version,
        timestamp=utc_datetime(entry.timestamp_ms),
        operation=entry.operation,
        parameters=_mapping(info.get("operationParameters")),
        metrics=_mapping(info.get("operationMetrics")),
        txn_ids=entry.txn_ids,
        members=entry.members,
        metadata=_metadata(info),
    )


def _metadata(info: Mapping[str, Any]) -> dict[str, object]:
    others = {name: value for name, value in info.items() if name not in _OWN}
    text = info.get("userMetadata")
    if text is None:
        return others
    try:
        given = document(text)
    except (TypeError, ValueError):
        given = None
    return {**others, **(given if isinstance(given, dict) else {"userMetadata": text})}


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
