"""Publish decided commits to the logs of their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from lakevilla.errors import LakeVillaError, TableNotFound, VersionNotFound
from lakevilla.formats.base import CommitInfo, FormatName
from lakevilla.formats.files import FileRef
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import Head, PendingRef, application_id
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.fitness import first_unfit, is_lost, is_old, unpublished
from lakevilla.lake.lanes import Lane, Member, pass_through
from lakevilla.lake.publishing.reconcile import reconcile
from lakevilla.lake.row_changes import compose
from lakevilla.lake.table_log import is_cleaned_up_soon, next_entry, open_tail, opened_again, probe
from lakevilla.lake.view import pending_parts
from lakevilla.store.base import Stored, Unknown
from lakevilla.store.effects import Program, put, sleep
from lakevilla.sublogs.describe import summed

# -------------------- publish
#
# Publishing: bringing decided commits into their tables' logs, exactly once, by anybody.
#
# Entries go in HEAD's order, each with the lake's ``txn`` action: a table whose
# value is at least a commit's sequence has published it (design, section 8). Exactly once,
# because a publisher has read every entry below its own and creates the next
# number only if absent: whoever loses reads what came and goes on.


#: Numbers lost to other writers, and unclear answers, before publishing is left to the next client.
_MAX_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Published:
    """How far a table's log has come. ``head`` is the newest HEAD that publishing had to read.

    ``complete`` is False when time ran out: whoever comes next goes on. ``created`` are the
    versions that were created here; whatever else came into the log is others' work.
    """

    head: Head
    tail: Tail
    complete: bool
    created: frozenset[int] = frozenset()

    def is_by_another(self, sequence: int) -> bool:
        """Whether somebody else has published a commit, who may have met what was not seen here."""
        return self.version_of(sequence) not in self.created

    def version_of(self, sequence: int) -> int | None:
        """The log version that holds a commit, or None if that isn't known (yet)."""
        application = application_id(self.head)
        found = None
        # From the newest on: entries go in HEAD's order, so the first one below ends the search.
        for version in sorted(self.tail.entries, reverse=True):
            value = self.tail.entries[version].applications.get(application)
            if value is not None:
                if value < sequence:
                    break
                found = version
        return found


def publish_table(
    context: Context, head: Head, location: str, turn: Turn | None = None
) -> Program[Published]:
    """Publish all that ``head`` shows as pending on one table.

    Stops after ``publish_timeout_seconds``. What a foreign writer has made unfit is
    reconciled first. With a ``turn`` the owner of what comes first has the time to publish it.

    Raises
    ------
    UnsupportedTableFeature
        The table has come to require what LakeVilla must not write without.
    """
    limit = context.settings.publish_timeout_seconds
    deadline = context.clock.elapsed() + limit
    looked = context.clock.elapsed() - _age(context, head)
    created: set[int] = set()
    wished = head
    tail = yield from open_tail(context, location, missing_ok=True)
    attempt, looked_again = 0, -1
    while attempt < _MAX_ATTEMPTS:
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        if state is not None and tail.tip < state.published:
            tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)
        if not (waiting and unpublished(wished, location, tail)):
            return Published(head, tail, complete=True, created=frozenset(created))
        if attempt and context.clock.elapsed() > deadline:
            break
        if turn is not None:
            head, tail, turn = yield from _give_way(context, head, tail, waiting, turn)
            continue
        lost = yield from is_lost(context, head, location, tail)
        if tail.tip >= 0 and not lost:
            # Writers may have to know by now what this library does not: then what is
            # decided stays pending for a client that does. Nothing of it is lost.
            tail.snapshot.check_writable()
        parts = yield from pending_parts(context, location, waiting)
        unfit = yield from first_unfit(context, head, location, tail, waiting, parts)
        if unfit == 0:
            newer = yield from reconcile(context, location)
            if newer is None:
                break
            wished = head = newer
            turn = None  # what comes first now is ours
            tail = yield from open_tail(context, location, missing_ok=True)
            attempt += 1
            continue
        if context.clock.elapsed() - looked > limit and looked_again < attempt:
            # Since then the table may have been dropped, its data deleted, and another made in
            # its place: to that log this entry must not come (note 13).
            looked, looked_again = context.clock.elapsed(), attempt
            held = yield from context.head()
            wished = head = head if held is None else held.head
            tail = yield from open_tail(context, location, missing_ok=True)
            continue
        fitting = len(waiting) if unfit is None else unfit
        # What is so old that its files are looked for goes alone: should they be gone before
        # the entry lands, and be voided by another client, nothing else lands with it.
        young = sum(1 for _ in takewhile(lambda ref: not is_old(context, ref), waiting))
        count = _batch(parts[: min(fitting, max(young, 1))], tail)
        before = tail.tip
        tail, stored = yield from _create(context, head, tail, waiting[:count], parts[:count])
        attempt += 1
        if stored:
            created.add(before + 1)
        if tail.tip == before:
            yield from sleep(context.settings.retry_base_seconds * context.ids.jitter() / 2)
    return Published(head, tail, complete=False, created=frozenset(created))


def _give_way(
    context: Context, head: Head, tail: Tail, waiting: Sequence[PendingRef], turn: Turn
) -> Program[tuple[Head, Tail, Turn | None]]:
    """Look once whether another has published what comes first; no turn is left once it is ours."""
    if turn.is_anothers(head, waiting):
        return head, (yield from turn.look(context, tail)), turn
    if turn.has_waited:
        # Meanwhile others have committed, who wait for this entry: it takes theirs along.
        held = yield from context.head()
        head = head if held is None else held.head
    return head, tail, None


def _age(context: Context, head: Head) -> float:
    """For how many seconds HEAD may have been at hand, at most, as far as clocks agree."""
    newest_ms = head.commits[-1].timestamp_ms if head.commits else 0
    return max(0.0, context.clock.now() - newest_ms / 1000)


def _batch(parts: Sequence[TablePart], tail: Tail) -> int:
    """How many commits at the head of the pending may share one entry.

    Those that touch none of each other's files; one with new metadata stands
    alone, and so does each commit of a table with a change data feed, whose
    readers take an entry's change files for all of its changes (hazard 32).
    """
    if _alone(parts[0]) or (tail.tip >= 0 and tail.snapshot.layout.change_data_feed):
        return 1
    touched = _refs(parts[0])
    count = 1
    for part in parts[1:]:
        mine = _refs(part)
        if _alone(part) or touched & mine:
            break
        touched |= mine
        count += 1
    return count


def _refs(part: TablePart) -> set[FileRef]:
    added = {file.ref for file in part.change.adds}
    return added | {file.ref for file in part.change.removes}


def _alone(part: TablePart) -> bool:
    change = part.change
    return part.created or bool(change.metadata or change.protocol or change.domains)


def _create(
    context: Context,
    head: Head,
    tail: Tail,
    refs: Sequence[PendingRef],
    parts: Sequence[TablePart],
) -> Program[tuple[Tail, bool]]:
    """Create the next entry; on a lost race follow the log instead."""
    commits: list[CommitObject] = []
    for ref in refs:
        commits.append((yield from context.commit_object(ref.txn, ref.hash)))
    info = _info(context, head, refs, parts, commits)
    version = tail.tip + 1
    table_format = context.formats.of(tail.snapshot)
    change = compose([part.change for part in parts])
    try:
        ready = yield from table_format.prepare(tail.snapshot, change, info, context.now_ms())
    except VersionNotFound:
        # What the known tip names is cleaned up: there is a newer one.
        return (yield from probe(context, tail)), False
    except TableNotFound:
        # Another client has dropped the table, or made another in its place.
        return (yield from opened_again(context, tail)), False
    outcome = yield from put(ready.key, ready.body, ready.condition)
    if not isinstance(outcome, Stored):
        # Refused: somebody has the number. Unknown: ours may land yet, or
        # another's; whichever does, the next walk finds it, and nobody can
        # ever store a second entry under the number.
        if isinstance(outcome, Unknown):
            message = f"publishing version {version} of {tail.location}: {outcome.reason}"
            context.notify(Event("retry", refs[0].txn, message, {"table": tail.location}))
        return (yield from next_entry(context, tail)), False
    if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
        # The process slept so long that log clean-up may have taken the number
        # away before ours was created: look again whether anybody sees it
        # (hazard 10). If not, the entry is where nobody reads.
        context.tails.pop(tail.location, None)
        return (yield from open_tail(context, tail.location, missing_ok=True)), False
    if ready.entry is None:
        # A catalog has made it, and others' may lie below it: what it became is read.
        return (yield from probe(context, tail)), True
    # What was created says nothing of the entries below it: it counts from when these were seen.
    state = table_format.advance(tail.snapshot, ready.entry)
    newer = tail.extended(ready.entry, state, tail.seen_at)
    if is_cleaned_up_soon(context, tail) and not (yield from table_format.stands(newer.snapshot)):
        context.tails.pop(tail.location, None)
        return (yield from open_tail(context, tail.location, missing_ok=True)), False
    tail = context.keep_tail(newer)
    yield from table_format.announce(tail.snapshot)
    if table_format.checkpoint_due(version, tail.snapshot):
        context.checkpoints_due.append((tail.location, version))
    return tail, True


def _info(
    context: Context,
    head: Head,
    refs: Sequence[PendingRef],
    parts: Sequence[TablePart],
    commits: Sequence[CommitObject],
) -> CommitInfo:
    applications: dict[str, int] = {}
    metadata: dict[str, str] = {}
    txns: list[str] = []
    for commit in commits:
        applications.update(commit.applications)
        metadata.update(commit.metadata)
        txns.extend(txn for _, txn, _ in commit.replaces)
        txns.append(commit.txn)
    applications[application_id(head)] = refs[-1].sequence
    one = parts[0] if len(parts) == 1 else None
    return CommitInfo(
        operation="TRANSACTION" if one is None else one.operation,
        parameters={} if one is None else one.parameters,
        metrics=summed(part.metrics for part in parts),
        is_blind_append=all(part.blind for part in parts),
        txn_ids=tuple(txns),
        nonce=context.ids.nonce(),
        metadata=metadata,
        applications=applications,
    )


# -------------------- publish once
#
# Publishing for all transactions of a process at once: one of them publishes a table.
#
# Each alone would try to create the same entry, and all but one would have to read
# what came instead. So one publishes all that is pending on a table, and the others
# wait for it; whoever is decided meanwhile goes in the next round, with one entry.


@dataclass(slots=True, eq=False)
class Wish(Member[Published | LakeVillaError]):
    """That all which ``head`` shows as pending on a table is published.

    ``ours`` are the transactions whose commits are the wisher's own to publish; others' owners may
    go first. With none of them nobody is waited for.
    """

    head: Head
    ours: frozenset[str]


def publish_once(
    context: Context, head: Head, location: str, ours: frozenset[str] = frozenset()
) -> Program[Published | LakeVillaError]:
    """Publish what ``head`` shows as pending on a table, or wait for whoever does.

    What has failed is returned, not raised: it befalls all who wait for it.
    """
    wish = Wish(head, ours)
    lane = _lane(context, location)
    yield from pass_through(lane, wish, partial(_publish, context, lane, location))
    assert wish.answer is not None
    return wish.answer


def _lane(context: Context, location: str) -> Lane[Wish]:
    return context.lanes.named(f"publishing {location}")


def _publish(context: Context, lane: Lane[Wish], location: str) -> Program[None]:
    wishes = lane.present()  # any number of them is granted by one walk of the log
    newest = max((wish.head for wish in wishes), key=lambda head: head.replacement)
    known = context.held
    if (
        known is not None
        and known.head.lake_id == newest.lake_id
        and known.head.replacement > newest.replacement
    ):
        # Decided since: those it has decided are about to ask for the same.
        newest = known.head

    # A newer HEAD has pending what an older one has, unless its log has it by now,
    # or a reconcile commit stands in its place: so all the wishes are granted.
    def is_ours(txn: str) -> bool:
        return any(not wish.ours or txn in wish.ours for wish in lane.present())

    answer: Published | LakeVillaError
    try:
        answer = yield from publish_table(context, newest, location, Turn(is_ours))
    except LakeVillaError as error:
        answer = error
    lane.answer(dict.fromkeys(wishes, answer))


# -------------------- turn
#
# Whose turn it is to publish: the owner of the first commit that waits for a table's log.
#
# Anybody may publish anything at any time, so this is a courtesy, which no rule of safety rests
# on. Of ten processes with commits pending on one table all could create its next entry; nine
# would be refused, and read what came. So the owner of the first goes at once, and the others look
# whether the entry has come. It may have stopped: they look a few times, and then publish
# themselves.


#: How often one looks for the entry of another, and after which pause. A Delta entry takes about
#: 60 ms on S3, a version of an Iceberg table three times that.
LOOKS = 4
LOOK_SECONDS: dict[FormatName, float] = {"delta": 0.08, "iceberg": 0.2}
#: The first comes sooner: the owner has begun when HEAD was replaced, which is heard of later.
_FIRST_LOOK = 0.5
#: How much older than the newest commit of HEAD one may be whose owner is still expected.
_EXPECTED_MS = 1000


@dataclass(slots=True)
class Turn:
    """How one who wishes a table to be published lets its owners go first.

    ``is_ours`` tells of a transaction's id whether its commit is to be published here, at once.
    """

    is_ours: Callable[[str], bool]
    _looks: int = field(default=0, init=False)
    _goes_on: bool = field(default=False, init=False)

    def is_anothers(self, head: Head, waiting: Sequence[PendingRef]) -> bool:
        """Whether another is expected to publish the first of those that are waiting."""
        first = waiting[0]
        if self._looks >= LOOKS or self.is_ours(first.txn):
            return False
        newest = head.commits[-1].timestamp_ms
        made = (one.timestamp_ms for one in head.commits if one.sequence == first.sequence)
        return newest - next(made, 0) <= _EXPECTED_MS

    @property
    def has_waited(self) -> bool:
        """Whether it has let others go first."""
        return self._looks > 0

    def look(self, context: Context, tail: Tail) -> Program[Tail]:
        """See what has come into the log: after a pause, unless there was something just now."""
        if not self._goes_on:
            self._looks += 1
            pause = LOOK_SECONDS[tail.snapshot.format] * (_FIRST_LOOK if self._looks == 1 else 1)
            yield from sleep(pause * (0.8 + 0.4 * context.ids.jitter()))
        newer = yield from next_entry(context, tail)
        self._goes_on = newer.tip > tail.tip
        return newer
