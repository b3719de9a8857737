"""Maintain a lake: run the tasks that are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    LakeVillaError,
    StoreError,
    UnsupportedFormat,
    VersionNotFound,
)
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import commits_since, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.newer import Signs, refuse_in_doubt, refuse_older_head
from lakevilla.maintenance.upkeep.lease import (
    MAINTENANCE_PREFIX,
    Lease,
    Seen,
    TaskRecord,
    TaskResult,
    is_free,
    look,
    take,
    task_key,
)
from lakevilla.maintenance.upkeep.tasks import DAY_SECONDS, TASKS, Piece, UpkeepTask, table_work
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program, list_objects, parallel, sleep
from lakevilla.store.readback import same_object

# -------------------- maintain
#
# The upkeep of a lake: decide which tasks are due, take their leases, and run them.


#: The time for which signs of a newer HEAD serve the next check of a run, too.
_SIGNS_SECONDS = 60.0
#: The number of reads of another client's lease within the lease's time.
_LOOKS = 6


def maintain(
    context: Context,
    tasks: Sequence[str],
    *,
    owner: str = "",
    budget_seconds: float | None = None,
    stops: Callable[[], bool] = lambda: False,
) -> Program[Report]:
    """Do the tasks that are due, one after the other; report one note for each.

    ``stops`` is called between two pieces of work. If it returns True, or ``budget_seconds`` are
    over, the rest is left for the next run.

    The run waits only if another client is at work on a task, or has died during it, and then for a
    lease at most.
    """
    held = yield from context.head()
    if held is None:
        return Report(True)
    context.refuse_foreign_root()
    began = context.clock.elapsed()

    def is_over() -> bool:
        late = budget_seconds is not None and context.clock.elapsed() - began >= budget_seconds
        return late or stops()

    run = _Run(context, owner, is_over, held.head, held.head.lake_id)
    busy = []
    for task in tasks:
        if (yield from run.attempt(task)):
            busy.append(task)
    for task in busy:
        yield from run.watch(task)
    return Report(run.ok, tuple(run.findings))


@dataclass
class _Run:
    """One run of upkeep, with its findings."""

    context: Context
    owner: str
    is_over: Callable[[], bool]
    #: HEAD for the first task, which ``maintain`` has just read.
    just_read: Head | None
    lake_id: str
    #: The signs of a newer HEAD, and when they were looked for; none of them proves one.
    signs: Signs | None = None
    looked_at: float = 0.0
    #: True if no commit is in doubt, either.
    is_certain: bool = False
    ok: bool = True
    findings: list[Finding] = field(default_factory=list)

    def attempt(self, name: str) -> Program[bool]:
        """Do a task unless it is not due; return True if another client has its lease."""
        if self.is_over():
            self._note(name, "left for the next run: there was no time left")
            return False
        if (yield from self.context.is_only_creating()):
            # Such a store can't replace objects, so there are no leases and no records of tasks.
            head = yield from self._head()
            if head is not None and (yield from self._may_begin(name)):
                yield from self._do(name, head, None, None)
            return False
        try:
            seen = yield from look(name)
        except LakeVillaError as error:
            if isinstance(error, StoreError):
                raise
            self.findings.append(Finding("warning", error.kind, error.message))
            return False
        why = _rests(self.context, TASKS[name], self.lake_id, seen.record)
        if why:
            self._note(name, why)
            return False
        head = yield from self._head()
        if head is None:
            return False
        why = _is_idle(self.context, TASKS[name], head, seen.record)
        if why:
            self._note(name, why)
            return False
        if not is_free(self.context, name, seen):
            return True
        if not (yield from self._may_begin(name)):
            return False
        lease = yield from take(self.context, name, self.owner, seen)
        if lease is None:
            self._note(name, "another client has begun it")
            return False
        yield from self._do(name, head, seen, lease)
        return False

    def _head(self) -> Program[Head | None]:
        """Return HEAD, which is read again for each task that is due."""
        head, self.just_read = self.just_read, None
        if head is not None:
            return head
        held = yield from self.context.head()
        return None if held is None else held.head

    def _may_begin(self, name: str) -> Program[bool]:
        """Return whether HEAD is in no doubt, since each task replaces HEAD or deletes objects by
        it.
        """
        try:
            must_be_certain = TASKS[name].goes_on and not self.is_certain
            now = self.context.clock.elapsed()
            is_old = now - self.looked_at > _SIGNS_SECONDS
            if self.signs is None or (must_be_certain and is_old):
                self.signs = yield from refuse_older_head(self.context, "maintain")
                self.looked_at = now
            if must_be_certain:
                yield from refuse_in_doubt(self.context, "maintain", self.signs)
                self.is_certain = True
        except ConflictError as error:
            self._note(name, f"left for the next run: {error.message}")
            return False
        except CorruptObject as error:
            if not any(finding.message == error.message for finding in self.findings):
                self.findings.append(Finding("error", error.kind, error.message, key=error.key))
            self.ok = False
            return False
        return True

    def watch(self, name: str) -> Program[None]:
        """Do a task if its lease is not renewed; else leave it to the client that renews it."""
        seen = yield from look(name)
        token = seen.token
        while not self.is_over():
            if token is None or seen.token is None or not same_object(token, seen.token):
                break
            if is_free(self.context, name, seen):
                yield from self.attempt(name)
                return
            yield from sleep(self.context.settings.lease_seconds / _LOOKS)
            seen = yield from look(name)
        self._note(name, f"{seen.record.owner or 'another client'} is running it")

    def _do(self, name: str, head: Head, seen: Seen | None, lease: Lease | None) -> Program[None]:
        """Do a task from the table where the last run stopped, to its end or until time is over."""
        task = TASKS[name]
        last = None if seen is None else seen.record.result
        if last is not None and last.lake_id != head.lake_id:
            last = None  # the record is from the lake of which this one is a copy
        work = Piece()
        begun = _Begun(head.sequence, self.context.now_ms(), "")
        after = ""
        try:
            if task.lake is not None:
                among: Collection[str] | None = None
                if task.by_table:
                    begun, among = yield from _begin(self.context, task, head, last)
                work.add((yield from task.lake(self.context, self.owner, among)))
            elif task.table is not None:
                begun, after = yield from self._tables(task, head, last, work)
        except StoreError:
            raise  # the store is not reachable, so the lease can't be given back either
        except LakeVillaError as error:
            key = getattr(error, "key", None)
            work.add(Piece(False, findings=[Finding("error", error.kind, error.message, key=key)]))
        self.ok = self.ok and work.ok
        message = _summary(work) + (f"; stopped behind table {after}" if after else "")
        self._note(name, message)
        self.findings += work.findings
        if lease is None:
            return
        now = self.context.held.head if self.context.held is not None else head
        yield from lease.end(
            TaskResult(
                head.lake_id,
                begun.sequence,
                now.replacement,
                work.ok,
                message,
                self.owner,
                begun.all_ms,
                after,
            )
        )

    def _tables(
        self, task: UpkeepTask, head: Head, last: TaskResult | None, work: Piece
    ) -> Program[tuple[_Begun, str]]:
        """Do a task table by table; return the round's beginning, and the table at which it
        stopped.
        """
        assert task.table is not None
        begun, written = yield from _begin(self.context, task, head, last)
        tables = yield from _live(head, written)
        for location in (one for one in tables if one > begun.after):
            if self.is_over():
                return begun, begun.after or location
            work.add((yield from table_work(self.context, task.table, location, self.owner)))
            begun.after = location
        return begun, ""

    def _note(self, task: str, message: str) -> None:
        self.findings.append(Finding("note", task, message))


@dataclass(slots=True)
class _Begun:
    """A round over the tables: HEAD's version and the time when it began; the last table done."""

    sequence: int
    all_ms: int
    after: str


def _begin(
    context: Context, task: UpkeepTask, head: Head, last: TaskResult | None
) -> Program[tuple[_Begun, Collection[str] | None]]:
    """Begin a round; return the tables that were written since the last round, or None for all.

    A round that was stopped is continued. The next round then checks the tables that were written
    since the beginning of this one.
    """
    now_ms = context.now_ms()
    if last is not None and last.after:
        return _Begun(last.sequence, last.all_ms, last.after), None
    # What was found by a check of all tables is found again until it is mended.
    if (
        task.looks_at_all
        or last is None
        or (task.by_table and not last.ok)
        or not 0 <= now_ms - last.all_ms < DAY_SECONDS * 1000
        # HEAD was set back, or is not the one in which that round found all pending commits.
        or not head.rebuilt <= last.sequence <= head.sequence
    ):
        return _Begun(head.sequence, now_ms, ""), None
    try:
        since = yield from commits_since(head, last.sequence)
    except (CorruptObject, VersionNotFound):
        since = None
    if since is None:
        return _Begun(head.sequence, now_ms, ""), None
    written = {location for one in since for location in one.tables}
    return _Begun(head.sequence, last.all_ms, ""), written


def _live(head: Head, among: Collection[str] | None) -> Program[list[str]]:
    """Return the tables of HEAD (of these), sorted, without those that were dropped."""
    yield from load_tables(head, among)
    states = head.tables.cached(among)
    return sorted(location for location, state in states.items() if not state.dropped)


def _rests(context: Context, task: UpkeepTask, lake_id: str, record: TaskRecord) -> str:
    """Return why it is too early for a task, or "". A wrong clock makes it due early or late."""
    last = record.result
    if last is None or last.lake_id != lake_id or last.after:
        return ""
    age = context.clock.now() - record.done_ms / 1000
    if 0 <= age < task.every_seconds:
        return f"not due: it ran {_ago(age)} ago, and runs once in {_ago(task.every_seconds)}"
    return ""


def _is_idle(context: Context, task: UpkeepTask, head: Head, record: TaskRecord) -> str:
    """Return why nothing is left for a task to do, or ""."""
    last = record.result
    if last is None or last.lake_id != head.lake_id or last.after or not last.ok:
        return ""
    age = context.clock.now() - record.done_ms / 1000
    same = (head.sequence, head.replacement) == (last.sequence, last.replacement)
    if same and 0 <= age < task.idle_seconds:
        return f"not due: nothing has changed since it ran {_ago(age)} ago"
    return ""


def _ago(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"


def _summary(work: Piece) -> str:
    counted = ", ".join(f"{count} {what}" for what, count in work.counts.items() if count)
    return counted or "nothing to do"


# -------------------- doctor upkeep
#
# The doctor's reports on a lake's upkeep: for each task, the client, the time and the result.


def look_at_upkeep() -> Program[list[Finding]]:
    """Return one note for each task that was ever done; without any, this takes one LIST."""
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
    text = _summary_of_upkeep(seen.record)
    return Finding("note", "upkeep", f"{task}: {text}", key=key) if text else None


def _summary_of_upkeep(record: TaskRecord) -> str:
    parts = []
    if record.result is not None:
        instant = datetime.fromtimestamp(record.done_ms / 1000, UTC)
        when = instant.isoformat(sep=" ", timespec="seconds")
        well = "" if record.result.ok else ", with findings"
        parts.append(f"last done {when} by {record.result.by}{well}: {record.result.message}")
    if record.owner:
        parts.append(f"{record.owner} is running it, or died while running it")
    return "; ".join(parts)
