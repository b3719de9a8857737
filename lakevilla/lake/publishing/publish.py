"""Publish decided commits to the logs of their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from lakevilla.errors import (
    ConflictError,
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableNotFound,
    VersionNotFound,
)
from lakevilla.formats.base import Attempt, Change, ClientUpdates, CommitInfo, FormatName
from lakevilla.formats.files import FileRef
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import Head, PendingRef, application_id
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.applicability import (
    first_unfit,
    is_lost,
    may_lack_files,
    refuse_shorter_log,
    unpublished,
)
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.groups import Group, Member, lead_or_follow
from lakevilla.lake.publishing.reconcile import reconcile
from lakevilla.lake.row_changes import compose
from lakevilla.lake.table_log import is_cleaned_up_soon, next_entry, open_tail, opened_again, probe
from lakevilla.lake.view import pending_parts
from lakevilla.store.base import Stored, Unknown
from lakevilla.store.effects import Program, put, sleep
from lakevilla.sublogs.describe import summed
from lakevilla.sublogs.operations import Given

# -------------------- publish
#
# Publishing: any client writes decided commits into their tables' logs, each exactly once.
#
# Entries are created in HEAD's order, each with the lake's ``txn`` action: if its value in a
# table's log is at least a commit's sequence, that commit is published (design, section 8). Each
# commit is published exactly once, because a publisher has read every entry below its own and
# creates the next number only if absent: a publisher that loses the race reads the new entries and
# continues.


#: The most attempts to create an entry; then publishing is left to the next client.
_MAX_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Published:
    """The state of a table's log after publishing. ``head`` is the newest HEAD that was read.

    ``complete`` is False when time ran out: the next client continues. ``created`` are the versions
    that this program created; other clients created all other new entries of the log.
    """

    head: Head
    tail: Tail
    complete: bool
    created: frozenset[int] = frozenset()

    def is_by_another(self, sequence: int) -> bool:
        """True unless this program published a commit: another client may have reconciled it."""
        return self.version_of(sequence) not in self.created

    def version_of(self, sequence: int) -> int | None:
        """Return the log version that has a commit; None if that is not known (yet)."""
        application = application_id(self.head)
        found = None
        # Search from the newest entry back: entries are in HEAD's order, so the first with a lower
        # sequence ends the search.
        for version in sorted(self.tail.entries, reverse=True):
            value = self.tail.entries[version].applications.get(application)
            if value is not None:
                if value < sequence:
                    break
                found = version
        return found


def publish_table(
    context: Context,
    head: Head,
    location: str,
    turn: Turn | None = None,
    stores_now: Callable[[str], bool] = lambda txn: False,
    *,
    gives_up: bool = False,
) -> Program[Published]:
    """Publish all commits that are pending on one table in ``head``.

    Publishing stops after ``publish_timeout_seconds``. Commits that a foreign writer has made unfit
    are reconciled first. If a ``turn`` is given, the owner of the first commit gets time to publish
    it. ``stores_now`` is passed to ``first_unfit``. ``gives_up``: cancel the commits if the log is
    gone or an older copy, because a user has said that it will not come back.

    Raises
    ------
    TableNotFound
        The log is gone, or an older copy.
    UnsupportedTableFeature
        The table now requires a feature without which LakeVilla must not write.
    """
    limit = context.settings.publish_timeout_seconds
    deadline = context.clock.elapsed() + limit
    read_at = context.clock.elapsed() - _age(context, head)
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
        yield from _check_log(context, head, tail, gives_up=gives_up)
        parts = yield from pending_parts(context, location, waiting)
        unfit = yield from first_unfit(context, head, location, tail, waiting, parts, stores_now)
        if unfit == 0:
            newer = yield from reconcile(context, location, gives_up=gives_up)
            if newer is None:
                break
            wished = head = newer
            turn = None  # the first pending commit is the reconcile, which this client has made
            tail = yield from open_tail(context, location, missing_ok=True)
            attempt += 1
            continue
        if context.clock.elapsed() - read_at > limit and looked_again < attempt:
            read_at, looked_again = context.clock.elapsed(), attempt
            head, tail = yield from _looked_again(context, head, location)
            wished = head
            continue
        count = _batch(context, head, waiting[:unfit], parts[:unfit], tail)
        before = tail.tip
        tail, stored = yield from _created(context, head, tail, waiting[:count], parts[:count])
        attempt += 1
        if stored:
            created.add(before + 1)
        if tail.tip == before:
            yield from sleep(context.settings.retry_base_seconds * context.ids.jitter() / 2)
    return Published(head, tail, complete=False, created=frozenset(created))


def _check_log(context: Context, head: Head, tail: Tail, *, gives_up: bool) -> Program[None]:
    """Refuse a log that is not whole, or that this version of LakeVilla must not write.

    The table may by now require a feature that this version does not know. Then the decided commits
    stay pending for a client that knows the feature. The first commit may be the upgrade of a table
    that can't be written before it.
    """
    lost = yield from is_lost(context, head, tail.location, tail)
    if lost and not gives_up:
        yield from refuse_shorter_log(context, head, tail.location, tail)
    if tail.tip >= 0 and not lost:
        tail.snapshot.check_upgradable()


def _looked_again(context: Context, head: Head, location: str) -> Program[tuple[Head, Tail]]:
    """Return the newest HEAD and the table's present log.

    Meanwhile the table may have been dropped, its data deleted, and another table made in its
    place: the pending commits must not be added to that table's log (note 13).
    """
    held = yield from context.head()
    tail = yield from open_tail(context, location, missing_ok=True)
    return (head if held is None else held.head), tail


def _give_way(
    context: Context, head: Head, tail: Tail, waiting: Sequence[PendingRef], turn: Turn
) -> Program[tuple[Head, Tail, Turn | None]]:
    """Check once for an entry of another client; return no turn once this client may publish."""
    if turn.is_anothers(head, waiting):
        return head, (yield from turn.look(context, tail)), turn
    if turn.has_waited:
        # Transactions that have committed meanwhile wait for this entry: include their commits.
        held = yield from context.head()
        head = head if held is None else held.head
    return head, tail, None


def _age(context: Context, head: Head) -> float:
    """Return the longest time in seconds for which HEAD may have been cached, by its timestamp."""
    newest_ms = head.commits[-1].timestamp_ms if head.commits else 0
    return max(0.0, context.clock.now() - newest_ms / 1000)


def _batch(
    context: Context, head: Head, refs: Sequence[PendingRef], parts: Sequence[TablePart], tail: Tail
) -> int:
    """Return how many of the first pending commits, all of which fit, may share one entry.

    Commits may share an entry if none touches a file of another one. A commit with new metadata has
    an entry of its own. So has each commit of a table with a change data feed, whose readers expect
    that an entry's change files contain all of its changes (hazard 32). A commit whose files may be
    missing is published alone: if they are deleted before the entry is stored, and another client
    cancels the commit, no other commit is affected.
    """

    def keeps_files(ref: PendingRef) -> bool:
        return not may_lack_files(context, head, tail.location, ref)

    parts = parts[: max(sum(1 for _ in takewhile(keeps_files, refs)), 1)]
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
    defines = bool(change.metadata or change.protocol or change.domains)
    return part.created or bool(part.given) or defines


def _created(
    context: Context,
    head: Head,
    tail: Tail,
    refs: Sequence[PendingRef],
    parts: Sequence[TablePart],
) -> Program[tuple[Tail, bool]]:
    """Create the next entry; of the first commit alone if a catalog rejects all of them together.

    Raises
    ------
    StoreError
        It names the commit that the catalog rejects; ``publish_or_cancel`` cancels it.
    """
    try:
        return (yield from _create(context, head, tail, refs, parts))
    except StoreError as error:
        if not error.rejected or error.txn_id is not None:
            raise
        if len(refs) == 1:
            raise StoreError(
                f"the catalog of table {tail.location} rejects the commit of transaction "
                f"{refs[0].txn}, which is decided: {error.message}; `recover` cancels it there, "
                "unless a client that the catalog accepts publishes it before",
                permanent=True,
                rejected=True,
                table=tail.location,
                txn_id=refs[0].txn,
            ) from error
    return (yield from _created(context, head, tail, refs[:1], parts[:1]))


def _create(
    context: Context,
    head: Head,
    tail: Tail,
    refs: Sequence[PendingRef],
    parts: Sequence[TablePart],
) -> Program[tuple[Tail, bool]]:
    """Create the next entry; after a lost race, read the new entries of the log instead."""
    commits: list[CommitObject] = []
    for ref in refs:
        commits.append((yield from context.commit_object(ref.txn, ref.hash)))
    info = _info(context, head, refs, parts, commits, tail.location)
    version = tail.tip + 1
    table_format = context.formats.of(tail.snapshot)
    change = compose([part.change for part in parts])
    try:
        ready = yield from _prepared(context, tail, refs, change, info)
    except VersionNotFound:
        # The objects that the known tip names were cleaned up, so a newer tip exists.
        return (yield from probe(context, tail)), False
    except TableNotFound:
        # Another client has dropped the table, or made another table in its place.
        return (yield from opened_again(context, tail)), False
    outcome = yield from put(ready.key, ready.body, ready.condition)
    if not isinstance(outcome, Stored):
        # Refused: another writer's entry has the number. Unknown: our entry or another writer's may
        # be stored. The next read finds the stored entry, and no writer can ever store a second
        # entry under the number.
        if isinstance(outcome, Unknown):
            message = f"publishing version {version} of {tail.location}: {outcome.reason}"
            context.notify(Event("retry", refs[0].txn, message, {"table": tail.location}))
        return (yield from next_entry(context, tail)), False
    if context.clock.elapsed() - tail.seen_at > context.settings.trusted_tip_seconds:
        # The process slept so long that log clean-up may have deleted an entry with this number
        # before ours was created: open the log again, to see whether readers find our entry (hazard
        # 10).
        context.tails.pop(tail.location, None)
        return (yield from open_tail(context, tail.location, missing_ok=True)), False
    if ready.entry is None:
        # A catalog has made the entry, and foreign entries may be below it: read the log.
        return (yield from probe(context, tail)), True
    # The creation proves nothing about the entries below it: the tip keeps the time of their read.
    state = table_format.advance(tail.snapshot, ready.entry)
    newer = tail.extended(ready.entry, state, tail.seen_at)
    if is_cleaned_up_soon(context, tail) and not (
        yield from table_format.is_accepted(newer.snapshot)
    ):
        context.tails.pop(tail.location, None)
        return (yield from open_tail(context, tail.location, missing_ok=True)), False
    tail = context.keep_tail(newer)
    yield from table_format.announce(tail.snapshot)
    if table_format.checkpoint_due(version, tail.snapshot):
        context.checkpoints_due.append((tail.location, version))
    return tail, True


def _prepared(
    context: Context, tail: Tail, refs: Sequence[PendingRef], change: Change, info: CommitInfo
) -> Program[Attempt]:
    """Return the next entry.

    Raises
    ------
    StoreError
        The entry can't be made of the commits, by a fault that is theirs or this library's. It is
        ``rejected`` if the commit is an Iceberg client's: `recover` cancels it (note 73, G6).
    """
    table_format = context.formats.of(tail.snapshot)
    try:
        return (yield from table_format.prepare(tail.snapshot, change, info, context.now_ms()))
    except (InvalidOperation, ConflictError, CorruptObject) as error:
        if info.given is None:
            raise
        fault = error.message
        cause: Exception = error
    except (LakeVillaError, OSError, MemoryError):
        raise
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
        cause = error
    then = "`recover` cancels it there" if info.given else "it stays pending: report this fault"
    txns = ", ".join(ref.txn for ref in refs)
    raise StoreError(
        f"version {tail.tip + 1} of table {tail.location} can't be made of the commit of "
        f"transaction {txns}, which is decided ({fault}); {then}, unless another version of "
        "lakevilla publishes it",
        permanent=True,
        rejected=info.given is not None,
        table=tail.location,
        txn_id=refs[0].txn,
    ) from cause


def _info(
    context: Context,
    head: Head,
    refs: Sequence[PendingRef],
    parts: Sequence[TablePart],
    commits: Sequence[CommitObject],
    location: str,
) -> CommitInfo:
    applications: dict[str, int] = {}
    metadata: dict[str, str] = {}
    txns: list[str] = []
    members: list[str] = []
    for commit in commits:
        applications.update(commit.applications)
        metadata.update(commit.metadata)
        txns.extend(txn for _, txn, _ in commit.replaces)
        txns.append(commit.txn)
        members.extend(member.txn for member in commit.members)
    applications[application_id(head)] = refs[-1].sequence
    one = parts[0] if len(parts) == 1 else None
    return CommitInfo(
        operation="TRANSACTION" if one is None else one.operation,
        parameters={} if one is None else one.parameters,
        metrics=summed(part.metrics for part in parts),
        is_blind_append=all(part.blind for part in parts),
        txn_ids=tuple(txns),
        members=tuple(members),
        nonce=context.ids.nonce(),
        metadata=metadata,
        applications=applications,
        given=_given(commits[0], parts[0], location),
    )


def _given(commit: CommitObject, part: TablePart, location: str) -> ClientUpdates | None:
    """Return the updates of an Iceberg client, whose commit has an entry of its own."""
    if not part.given:
        return None
    operations = (one for one in commit.operations if isinstance(one, Given))
    return next(one.given for one in operations if one.table == location)


# -------------------- publish once
#
# Publishing for all transactions of a process: one of them publishes a table for all of them.
#
# If each transaction published on its own, all would try to create the same entry, and all but one
# would have to read the stored entry instead. So one transaction publishes all pending commits of a
# table, and the other transactions wait for it. Commits that are decided meanwhile are published
# next, with one entry.


@dataclass(slots=True, eq=False)
class Wish(Member[Published | LakeVillaError]):
    """A request to publish all commits that are pending on a table in ``head``.

    ``ours`` are the transactions whose commits the requesting program publishes at once; for other
    commits it first gives their owners time. If ``ours`` is empty, it waits for no owner.
    """

    head: Head
    ours: frozenset[str]


def publish_once(
    context: Context, head: Head, location: str, ours: frozenset[str] = frozenset()
) -> Program[Published | LakeVillaError]:
    """Publish the commits pending on a table in ``head``, or wait for the program that does.

    An error is returned, not raised, so that all programs that wait get it.
    """
    assert not context.epoch, f"the commits of a branch are in no log, so not in that of {location}"
    wish = Wish(head, ours)
    group = _publishing_group(context, location)
    return (yield from lead_or_follow(group, wish, partial(_lead, context, group, location)))


def _publishing_group(context: Context, location: str) -> Group[Wish]:
    return context.groups.named(f"publishing {location}")


def _lead(
    context: Context, group: Group[Wish], location: str
) -> Program[Published | LakeVillaError]:
    """Publish for all requests that are present, and return the answer, which they share."""
    wishes = group.present()  # one walk of the log serves any number of requests
    newest = max((wish.head for wish in wishes), key=lambda head: head.replacement)
    known = context.held
    if (
        known is not None
        and known.head.lake_id == newest.lake_id
        and known.head.replacement > newest.replacement
    ):
        # A newer HEAD has decided further transactions, which will soon request the same.
        newest = known.head

    # A commit that is pending in an older HEAD is pending in a newer one, unless it is published by
    # now or a reconcile commit has replaced it: so one call serves all requests.
    def is_ours(txn: str) -> bool:
        return any(not wish.ours or txn in wish.ours for wish in group.present())

    def stores_now(txn: str) -> bool:
        return any(txn in wish.ours for wish in group.present())

    answer: Published | LakeVillaError
    try:
        answer = yield from publish_table(context, newest, location, Turn(is_ours), stores_now)
    except LakeVillaError as error:
        answer = error
    served = list(wishes)
    if isinstance(answer, Published) and answer.complete:
        # Those that have come meanwhile, too, if all that they wish for was to be published.
        late = (wish for wish in group.present() if wish not in wishes)
        served += [wish for wish in late if _is_served(wish, newest)]
    group.answer(dict.fromkeys(served, answer))
    return answer


def _is_served(wish: Wish, newest: Head) -> bool:
    """Return whether publishing all that is pending in ``newest`` publishes what a wish is for."""
    head = wish.head
    return head.lake_id == newest.lake_id and head.replacement <= newest.replacement


# -------------------- turn
#
# The order of publishers: the owner of a table's first pending commit publishes first.
#
# Safety does not depend on this order: any client may publish any commit at any time. It saves
# requests: if ten processes have commits pending on one table and all create its next entry, nine
# are refused, and read the stored entry. So the owner of the first commit publishes at once, and
# the other processes check whether the entry exists. As the owner may have stopped, they check a
# few times, and then publish themselves.


#: How often a process checks for another process's entry, and after which pause. A Delta entry
#: takes about 60 ms on S3, a version of an Iceberg table three times that.
LOOKS = 4
LOOK_SECONDS: dict[FormatName, float] = {"delta": 0.08, "iceberg": 0.2}
#: The first pause is shorter by this factor: the owner began when HEAD was replaced, some time
#: before this process knew that.
_FIRST_LOOK = 0.5
#: The age, relative to HEAD's newest commit, up to which a commit's owner may still publish it.
_EXPECTED_MS = 1000


@dataclass(slots=True)
class Turn:
    """The state of a program that gives the owners of pending commits time to publish first.

    ``is_ours`` returns whether this program publishes a transaction's commit at once, by its id.
    """

    is_ours: Callable[[str], bool]
    _looks: int = field(default=0, init=False)
    _goes_on: bool = field(default=False, init=False)

    def is_anothers(self, head: Head, waiting: Sequence[PendingRef]) -> bool:
        """Return whether another process is expected to publish the first pending commit."""
        first = waiting[0]
        if self._looks >= LOOKS or self.is_ours(first.txn):
            return False
        newest = head.commits[-1].timestamp_ms
        made = (one.timestamp_ms for one in head.commits if one.sequence == first.sequence)
        return newest - next(made, 0) <= _EXPECTED_MS

    @property
    def has_waited(self) -> bool:
        """Return whether this program has let other processes go first."""
        return self._looks > 0

    def look(self, context: Context, tail: Tail) -> Program[Tail]:
        """Read the next log entries: after a pause, unless the last check found an entry."""
        if not self._goes_on:
            self._looks += 1
            pause = LOOK_SECONDS[tail.snapshot.format] * (_FIRST_LOOK if self._looks == 1 else 1)
            yield from sleep(pause * (0.8 + 0.4 * context.ids.jitter()))
        newer = yield from next_entry(context, tail)
        self._goes_on = newer.tip > tail.tip
        return newer
