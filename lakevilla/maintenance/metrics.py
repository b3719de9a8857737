"""Measure a lake: by HEAD, and by the few objects that say who is at work.

A scrape reads no table and no log, so that its requests do not grow with the lake's tables and
files: HEAD with its leaves, the inbox, the records of transactions, and those of upkeep.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from lakevilla.errors import InvalidOperation, UnsupportedFormat
from lakevilla.gauges import LakeMetrics
from lakevilla.global_log.head import Head, PendingRef, TableState, shown_names
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.ids import started_at
from lakevilla.lake.context import Context
from lakevilla.maintenance.transactions import Records, list_records, read_records, waits
from lakevilla.maintenance.upkeep.lease import TaskRecord, look
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.meter import Meter
from lakevilla.store.effects import Program, list_objects, parallel
from lakevilla.sublogs.record import TxnRecord

#: The most records of transactions that a scrape reads, the oldest first.
MOST_RECORDS = 1_000

Values = dict[str, float | Mapping[str, float]]


def measure(context: Context, most_tables: int, meter: Meter) -> Program[LakeMetrics]:
    """Measure the lake; of tables, name those with the most small files, at most ``most_tables``.

    ``meter`` counts the requests of this program.

    Raises
    ------
    InvalidOperation
        There is no lake at the root.
    """
    began = context.clock.elapsed()
    held = yield from context.existing()
    if held is None:
        raise InvalidOperation(
            f"metrics: {context.root} has no lake: check the root, or make one by the first commit"
        )
    head = held.head
    yield from load_tables(head)
    yield from load_names(head)
    records, upkeep, proposals = yield from parallel([_records(), _upkeep(), _proposals()])
    assert isinstance(records, Records)
    assert isinstance(upkeep, dict)
    assert isinstance(proposals, int)
    values: Values = {
        "lakevilla_up": 1,
        **_of_head(head),
        **_of_pending(head, _recovered(head, upkeep.get("recover"))),
        **_of_tables(head, context.settings.target_file_size_bytes // 2, most_tables),
        **_of_transactions(head, records),
        "lakevilla_proposals": proposals,
        **_of_upkeep(head, upkeep),
        "lakevilla_scrape_timestamp_seconds": context.clock.now(),
        "lakevilla_scrape_duration_seconds": context.clock.elapsed() - began,
        "lakevilla_scrape_requests": meter.done.requests,
    }
    return LakeMetrics(context.root, values)


# ------------------------------------------------------------------ what is read


def _records() -> Program[Records]:
    listed = yield from list_records()
    return (yield from read_records(dict(sorted(listed.items())[:MOST_RECORDS])))


def _upkeep() -> Program[dict[str, TaskRecord]]:
    """Return the record of each task that was ever done, but for those of a newer release."""
    found = yield from parallel([_task(task) for task in TASKS])
    return {task: one for task, one in zip(TASKS, found, strict=True) if one is not None}


def _task(task: str) -> Program[TaskRecord | None]:
    try:
        seen = yield from look(task)
    except UnsupportedFormat:
        return None
    return seen.record


def _proposals() -> Program[int]:
    return len((yield from list_objects(INBOX_PREFIX)))


# ------------------------------------------------------------------ what follows from it


def _of_head(head: Head) -> Values:
    found: Values = {
        "lakevilla_head_version": head.sequence,
        "lakevilla_head_unconfirmed": int(head.unconfirmed),
        "lakevilla_reservations": len(head.reserved),
    }
    if head.commits:
        found["lakevilla_head_timestamp_seconds"] = head.commits[-1].timestamp_ms / 1000
    return found


def _recovered(head: Head, record: TaskRecord | None) -> int:
    """Return the global version up to which upkeep has found or written all log entries."""
    last = None if record is None else record.result
    if last is None or not last.ok or last.after or last.lake_id != head.lake_id:
        return 0
    # A HEAD that was set back, or rebuilt since, is not the one that ``recover`` has seen.
    return last.sequence if head.rebuilt <= last.sequence <= head.sequence else 0


def _of_pending(head: Head, recovered: int) -> Values:
    pending = {
        ref.sequence: ref
        for _, state in _live(head)
        for ref in state.pending
        if ref.sequence > recovered
    }
    found: Values = {"lakevilla_commits_pending": len(pending)}
    if pending:
        oldest = pending[min(pending)]
        found["lakevilla_oldest_pending_commit_timestamp_seconds"] = _decided(head, oldest)
    return found


def _decided(head: Head, ref: PendingRef) -> float:
    """Return when a commit was decided, or, if HEAD does not list it any more, when it began."""
    times = {one.sequence: one.timestamp_ms / 1000 for one in head.commits}
    return times.get(ref.sequence, started_at(ref.txn))


def _live(head: Head) -> Iterator[tuple[str, TableState]]:
    return ((place, one) for place, one in head.tables.cached().items() if not one.dropped)


@dataclass(frozen=True, slots=True, order=True)
class _Sized:
    """A table of known size; tables with more small files sort first."""

    less_small: int
    less_files: int
    location: str
    rows: int
    bytes: int


def _of_tables(head: Head, small_below: int, most: int) -> Values:
    live = [(place, state) for place, state in _live(head) if not state.view]
    sized = [one for place, state in live if (one := _sized(place, state, small_below))]
    names = shown_names(head)
    named = [(names.get(one.location, one.location), one) for one in heapq.nsmallest(most, sized)]
    return {
        "lakevilla_tables": len(live),
        "lakevilla_tables_of_unknown_size": len(live) - len(sized),
        "lakevilla_files": -sum(one.less_files for one in sized),
        "lakevilla_rows": sum(one.rows for one in sized),
        "lakevilla_size_bytes": sum(one.bytes for one in sized),
        "lakevilla_small_files": -sum(one.less_small for one in sized),
        "lakevilla_table_files": {name: -one.less_files for name, one in named},
        "lakevilla_table_rows": {name: one.rows for name, one in named},
        "lakevilla_table_size_bytes": {name: one.bytes for name, one in named},
        "lakevilla_table_small_files": {name: -one.less_small for name, one in named},
    }


def _sized(location: str, state: TableState, small_below: int) -> _Sized | None:
    size = state.size
    if size is None or size.files is None or size.rows is None or size.bytes is None:
        return None
    small = least_small_files(size.files, size.bytes, small_below)
    return _Sized(-small, -size.files, location, size.rows, size.bytes)


def least_small_files(files: int, bytes: int, small_below: int) -> int:
    """Return how many of ``files`` with ``bytes`` together are at least smaller than this.

    No more files than ``bytes // small_below`` can have so many bytes each; all others are smaller.
    """
    return max(0, files - bytes // max(1, small_below))


def _of_transactions(head: Head, records: Records) -> Values:
    committed = {txn for one in head.commits for txn in one.transactions}
    open_ = {
        txn: record
        for txn, record in records.records.items()
        if txn not in committed and not head.is_fenced(txn)
    }
    waiting = {edge.waiter for edge in waits(head, records)} & open_.keys()
    found: Values = {
        "lakevilla_transactions": {
            "running": len(open_) - len(waiting),
            "waiting": len(waiting),
            "unreadable": len(records.unreadable),
        },
        "lakevilla_queue_depth": _depths(head, open_.values()),
    }
    if open_:
        began = started_at(min(open_))
        found["lakevilla_oldest_transaction_timestamp_seconds"] = began
    return found


def _depths(head: Head, records: Collection[TxnRecord]) -> dict[str, float]:
    names = shown_names(head)
    counted = Counter(ticket.table for record in records for ticket in record.tickets)
    return {names.get(place, place): count for place, count in sorted(counted.items())}


def _of_upkeep(head: Head, records: Mapping[str, TaskRecord]) -> Values:
    done = {
        task: (record.done_ms / 1000, int(record.result.ok))
        for task, record in records.items()
        if record.result is not None and record.result.lake_id == head.lake_id
    }
    return {
        "lakevilla_upkeep_timestamp_seconds": {task: when for task, (when, _) in done.items()},
        "lakevilla_upkeep_ok": {task: well for task, (_, well) in done.items()},
    }
