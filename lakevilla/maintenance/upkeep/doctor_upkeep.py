"""What the doctor tells of a lake's upkeep: who did what, when, and how it went."""

from __future__ import annotations

from datetime import UTC, datetime

from lakevilla.errors import UnsupportedFormat
from lakevilla.maintenance.upkeep.lease import MAINTENANCE_PREFIX, TaskRecord, look, task_key
from lakevilla.results import Finding
from lakevilla.store.effects import Program, list_objects, parallel


def look_at_upkeep() -> Program[list[Finding]]:
    """One note for each task that was ever done; one LIST where none was."""
    listed = yield from list_objects(MAINTENANCE_PREFIX)
    names = [info.key.removeprefix(f"{MAINTENANCE_PREFIX}/") for info in listed]
    tasks = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    found = yield from parallel([_task(task) for task in tasks])
    return [finding for finding in found if finding is not None]


def _task(task: str) -> Program[Finding | None]:
    key = task_key(task)
    try:
        seen = yield from look(task)
    except UnsupportedFormat as error:
        return Finding("note", error.kind, error.message, key=key)
    text = _summary(seen.record)
    return Finding("note", "upkeep", f"{task}: {text}", key=key) if text else None


def _summary(record: TaskRecord) -> str:
    parts = []
    if record.result is not None:
        moment = datetime.fromtimestamp(record.done_ms / 1000, UTC)
        when = moment.isoformat(sep=" ", timespec="seconds")
        well = "" if record.result.ok else ", with findings"
        parts.append(f"last done {when} by {record.result.by}{well}: {record.result.message}")
    if record.owner:
        parts.append(f"{record.owner} is at work on it, or died at it")
    return "; ".join(parts)
