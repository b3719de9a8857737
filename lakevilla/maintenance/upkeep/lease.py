"""Records of upkeep tasks: the client at work on a task, and the last result. They are hints.

The client at work renews the record. Another client may take the task over if it has watched the
record unchanged for ``lease_seconds``, by its own clock. Two clients that work on a task at once
only cost more requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lakevilla.errors import CorruptObject
from lakevilla.lake.context import Context
from lakevilla.store.base import ABSENT, Found, Match, Refused, Stored, Token
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, put

MAINTENANCE_PREFIX = "_lakevilla/maintenance"
#: The number of attempts to give a lease back, since a renewal may have been in flight when the
#: task ended.
_TRIES = 3


class TaskResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last result of a task.

    ``sequence`` is that of HEAD when the task began, ``replacement`` that of HEAD when it ended.
    ``all_ms`` is the time at which the last round over all tables began; other rounds check only
    tables that were written since. ``after``: the last table done by a task that did not finish;
    the next run continues after it.
    """

    lake_id: str
    sequence: int
    replacement: int
    ok: bool
    message: str
    by: str
    all_ms: int
    after: str = ""


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``_lakevilla/maintenance/<task>.json``.

    ``owner`` is the client at work, or "" if there is none; ``lease`` distinguishes its runs, and
    ``renewed`` counts its renewals. ``done_ms`` is the time at which the task last ended, by the
    clock of the client that did it, and ``result`` is its result.
    """

    format: int
    nonce: str
    owner: str = ""
    lease: str = ""
    renewed: int = 0
    done_ms: int = 0
    result: TaskResult | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it was read; ``token`` is None if no record exists yet."""

    record: TaskRecord
    token: Token | None


def task_key(task: str) -> str:
    return f"{MAINTENANCE_PREFIX}/{task}.json"


def look(task: str) -> Program[Seen]:
    """Return the record of a task; a damaged record counts as a free one, because it is only a
    hint.

    Raises
    ------
    UnsupportedFormat
        A newer LakeVilla has written it.
    """
    outcome = yield from get(task_key(task))
    if not isinstance(outcome, Found):
        return Seen(TaskRecord(FORMAT, ""), None)
    return _seen(task, outcome)


def _seen(task: str, found: Found) -> Seen:
    try:
        record = decode(task_key(task), found.body, TaskRecord)
    except CorruptObject:
        record = TaskRecord(FORMAT, "")
    return Seen(record, found.token)


class Lease:
    """A client's lease of a task, which is a courtesy to others; the heartbeat renews it."""

    def __init__(self, context: Context, task: str, record: TaskRecord, token: Token) -> None:
        self._context = context
        self._task = task
        self._record = record
        self._token = token
        self.key = id(self)
        self.txn_id = f"{task} (upkeep)"
        self.held_at: float | None = context.clock.elapsed()

    def renew(self) -> Program[bool]:
        """Replace the record; return False if another client has the lease or it was given back."""
        if self.held_at is None:
            return False
        known, record = self._token, self._record
        new = msgspec.structs.replace(
            record, nonce=self._context.ids.nonce(), renewed=record.renewed + 1
        )
        outcome = yield from put(task_key(self._task), encode(new), Match(known))
        if not isinstance(outcome, Stored):
            # Give up the lease after any failure; the client may go on with the task without harm.
            self.held_at = None
            return False
        self._record, self._token = new, outcome.token
        if self.held_at is not None:
            self.held_at = self._context.clock.elapsed()
        return True

    def end(self, result: TaskResult) -> Program[None]:
        """Give back the lease, and record the result of the task."""
        self.held_at = None
        token = self._token
        for _ in range(_TRIES):
            done = TaskRecord(
                FORMAT,
                self._context.ids.nonce(),
                done_ms=self._context.now_ms(),
                result=result,
            )
            outcome = yield from put(task_key(self._task), encode(done), Match(token))
            if not (isinstance(outcome, Refused) and outcome.current is not None):
                return
            seen = _seen(self._task, outcome.current)
            if seen.record.lease != self._record.lease or seen.token is None:
                return  # another client has taken over the lease, which was not renewed in time
            token = seen.token


def take(context: Context, task: str, owner: str, seen: Seen) -> Program[Lease | None]:
    """Take a free or expired lease; return None if another client was first.

    A lease has expired if it was not renewed for ``lease_seconds``.
    """
    record = TaskRecord(
        FORMAT,
        context.ids.nonce(),
        owner or "unknown",
        context.ids.nonce(),
        done_ms=seen.record.done_ms,
        result=seen.record.result,
    )
    condition = ABSENT if seen.token is None else Match(seen.token)
    outcome = yield from put(task_key(task), encode(record), condition)
    if not isinstance(outcome, Stored):
        return None
    lease = Lease(context, task, record, outcome.token)
    context.renewed(lease)
    return lease


def is_free(context: Context, task: str, seen: Seen) -> bool:
    """Return whether no client is at work on a task, or the client has not renewed its lease in
    time.
    """
    if not seen.record.owner or seen.token is None:
        return True
    lease_seconds = context.settings.lease_seconds
    return context.leases.observe(
        task_key(task), seen.token, lease_seconds, context.clock.elapsed()
    )
