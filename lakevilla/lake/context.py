"""The state that the programs of one process share about their lake and its tables."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakevilla.clock import Clock, SystemClock
from lakevilla.engines.base import Engine, FileNamer
from lakevilla.errors import CorruptObject, InvalidOperation, RefNotFound, UnsupportedFormat
from lakevilla.formats.base import Entry, FormatName, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import VECTOR_FILE
from lakevilla.formats.files import DATA_SUFFIX
from lakevilla.formats.registry import Formats
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import Head, PendingRef
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.history import check_lineage
from lakevilla.global_log.repo import (
    HOME,
    HeldHead,
    LakeFile,
    check_not_closed,
    claim_of,
    create_head,
    find_remains,
    head_lost,
    lake_key,
    load_head,
    load_sized_commit,
)
from lakevilla.ids import NO_TXN, Ids
from lakevilla.lake.groups import Groups
from lakevilla.markers.claims import GivenUp, QueueEvent
from lakevilla.markers.guests import Guests
from lakevilla.markers.marker import Marker, Unreadable
from lakevilla.settings import MOST_LEASE_SECONDS, Settings
from lakevilla.store.base import Token
from lakevilla.store.cached import CachedObjects
from lakevilla.store.codec import encode
from lakevilla.store.effects import Gate, Program, list_names, parallel, wait_at
from lakevilla.sublogs.lease import Leases, Renewable

# -------------------- context
#
# The state that the programs of one lake share: injected parts, and caches of immutable values.


#: The size of a commit object in memory is up to this many times its size in the store.
_DECODED = 4
_MARKERS_CACHED = 65_536
#: The time for which a root without a HEAD counts as new. If a lake is made there meanwhile and
#: loses its HEAD, the claims of its tables show that.
_NEW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Event:
    """A notable event; ``on_event`` and the logger ``lakevilla`` get the same events.

    Two kinds are sent only to ``on_event``. A ``phase`` is a stretch of a transaction's time: its
    detail has ``phase`` (``version``, ``metadata``, ``data``, ``marker``, ``wait``, ``validate``,
    ``decide``, ``publish`` or ``free``), ``table`` or None, ``began`` and ``ended`` (seconds on the
    monotonic clock), ``seconds``, and ``own_seconds``, which leave out phases inside it and
    concurrent with it, so that own seconds can be added up. A ``transaction`` is reported at its
    end: ``outcome`` (``committed``, ``read``, ``aborted``, ``failed`` or ``unknown``), ``error``
    (the error's kind or None), ``features``, ``tables``, ``operations``, ``retries``, ``redos``,
    ``members`` (the number of transactions that share its version, or 0), ``began``, ``ended`` and
    ``seconds``.

    Attributes
    ----------
    kind : str
        ``redo``: operations are performed again on a newer state. ``retry``: a lost race, or a
        write without an answer. ``waiting``, ``shift``, ``stale`` and ``escalation`` are about
        queues. ``helping``: ``recover`` published a commit of another client. ``published``: a
        decided commit could not be published yet. ``reconcile``: a commit was replayed on another
        client's change. ``abort``, ``gc`` and ``vacuum`` report what was ended or deleted.
        ``left_out``: something was skipped, for a reason. ``reader``: Spark's connector could not
        read a table. ``unsafe_store``: the store does not support conditional writes.
        ``progress``: the rows, files and bytes of a long operation. For ``phase`` and
        ``transaction`` see above.
    txn_id : str or None
        The transaction in question; None if there is none.
    message : str
        The event in words.
    detail : Mapping of str to object
        Plain values, among them the tables in question.

    Examples
    --------
    >>> told = []
    >>> other = lv.connect("warehouse", on_event=told.append)
    >>> txn = other.transaction()
    >>> _ = txn.append("stock", [{"sku": "jam", "qty": 1}])
    >>> lake.drop_table("orders")  # another client is faster
    >>> _ = txn.commit()
    >>> all(isinstance(event, lv.Event) for event in told)
    True
    """

    kind: Literal[
        "redo",
        "retry",
        "helping",
        "published",
        "reconcile",
        "foreign",
        "abort",
        "gc",
        "vacuum",
        "waiting",
        "shift",
        "stale",
        "escalation",
        "unsafe_store",
        "left_out",
        "reader",
        "progress",
        "phase",
        "transaction",
    ]
    txn_id: str | None
    message: str
    detail: Mapping[str, object] = field(default_factory=dict)


def lost_branch(known: HeldHead | None) -> RefNotFound:
    """Return the error for a branch whose HEAD does not exist any more."""
    epoch = None if known is None else known.head.epoch
    name = "that was opened" if epoch is None else repr(epoch.name)
    return RefNotFound(
        f"branch {name} was deleted, or was rebased, and this state of it is not kept any more: "
        "check `refs()`, and open it again by `on` (if it finds no HEAD, the HEAD is lost, and "
        "the commits of the branch are not known)"
    )


def _name_of(txn: str, digest: str) -> str:
    return f"commit {txn}-{digest}"


def _always() -> Program[bool]:
    yield from ()
    return True


@dataclass(slots=True)
class Asked:
    """The time of the last request for HEAD, and the times until which checks are not repeated.

    ``at``: the time of that request. ``changed_at``: the time when the newest HEAD became known.
    ``new_until``: until then, a root without a HEAD counts as new, and is not listed again for
    remains of a lake. ``unclaimed_until``: until then, its tables are not searched for claims
    again. ``is_newest``: the first HEAD that this client read was
    checked for signs of a newer one; all later HEADs descend from it.
    """

    at: float = float("-inf")
    changed_at: float = float("-inf")
    new_until: float = float("-inf")
    unclaimed_until: float = float("-inf")
    is_newest: bool = False


@dataclass(slots=True)
class _Loading:
    """A commit object that a program requests; its gate opens when the object is there, or not."""

    gate: Gate = field(default_factory=Gate)
    found: CommitObject | None = None


@dataclass(frozen=True, slots=True)
class OfBranch:
    """The branch of a context: its id and its epoch, and the context of the lake itself."""

    id: str
    epoch: str
    lake: Context


@dataclass(slots=True)
class Context:
    """One lake, or one branch of it, as one process sees it.

    The caches hold immutable values that are replaced by single assignments, so threads may share a
    context: a lost update costs a request, and never gives a wrong result.

    ``branch`` names the context's branch, None for the lake itself; a branch's logs do not advance.
    ``leases`` notes when the records of other transactions were last seen to change. ``renewed`` is
    called with each record that the heartbeat shall renew from then on. ``replaces`` returns
    whether the store replaces an object under a condition, ``proposes`` whether commits may be
    proposed to other processes. ``groups`` has the groups that its transactions join. ``expected``
    has the formats of tables that transactions create here, ``past_states`` the one state of a
    table whose log was not read otherwise, ``catalogs`` the keys of the pointers of tables that
    were opened by their names in catalogs, ``connected`` the names of the connected catalogs.
    ``is_callers`` returns whether the running thread itself has a transaction open.
    """

    root: str
    clock: Clock
    ids: Ids
    settings: Settings
    formats: Formats
    engine: Engine
    notify: Callable[[Event], None] = lambda event: None
    renewed: Callable[[Renewable], None] = lambda record: None
    replaces: Callable[[], Program[bool]] = _always
    proposes: Callable[[], bool] = lambda: True
    is_callers: Callable[[str], bool] = lambda txn_id: False
    held: HeldHead | None = None
    tails: dict[str, Tail] = field(default_factory=dict)
    past_states: dict[str, TableSnapshot] = field(default_factory=dict)
    expected: dict[str, FormatName] = field(default_factory=dict)
    catalogs: dict[str, str] = field(default_factory=dict)
    connected: tuple[str, ...] = ()
    commits: CachedObjects = field(default_factory=CachedObjects)
    ended: set[str] = field(default_factory=set)
    checkpoints_due: deque[tuple[str, int]] = field(default_factory=deque)
    markers: dict[tuple[str, Token], Marker | Unreadable] = field(default_factory=dict)
    given_up: GivenUp = field(default_factory=GivenUp)
    guests: Guests = field(default_factory=Guests)
    leases: Leases = field(init=False)
    groups: Groups = field(default_factory=Groups)
    asked: Asked = field(default_factory=Asked)
    branch: OfBranch | None = None
    _loading: dict[tuple[int, str], _Loading] = field(default_factory=dict)

    @property
    def epoch(self) -> str:
        """The branch's epoch; ``""`` for the lake itself."""
        return "" if self.branch is None else self.branch.epoch

    @property
    def lake(self) -> Context:
        """The context of the lake itself: this one, or, for a branch's context, its lake's."""
        return self if self.branch is None else self.branch.lake

    @property
    def branch_id(self) -> str:
        """The branch's id, which stays when it is rebased; ``""`` for the lake itself."""
        return "" if self.branch is None else self.branch.id

    def new_txn_id(self, above: str = NO_TXN, *, by_entry: bool = False) -> str:
        """Return an id for a transaction that commits through the HEAD of this context."""
        return self.ids.txn_id(above, by_entry=by_entry, branch=self.branch_id)

    def __post_init__(self) -> None:
        self.leases = Leases(self.settings.lease_seconds, MOST_LEASE_SECONDS)

    def of_branch(self, held: HeldHead) -> Context:
        """Return the context of a branch by its HEAD; programs of the branch run ``at_home``."""
        epoch = held.head.epoch
        branch_id = "" if epoch is None else epoch.ref_id
        return Context(
            self.root,
            self.clock,
            self.ids,
            self.settings,
            self.formats,
            self.engine,
            notify=self.notify,
            replaces=self.replaces,
            proposes=lambda: False,
            connected=self.connected,
            held=held,
            commits=self.commits,
            branch=OfBranch(branch_id, held.head.home, self.lake),
        )

    def head(self) -> Program[HeldHead | None]:
        """Return the newest HEAD, by one conditional GET, and remember it.

        Raises
        ------
        CorruptObject
            HEAD is damaged, was set back, or is lost: other objects of its lake exist.
        RefNotFound
            The HEAD of the context's branch does not exist any more.
        """
        known, started = self.held, self.clock.elapsed()
        held = yield from load_head(known)
        if held is None and self.epoch:
            raise lost_branch(known)
        if known is not None:
            check_lineage(known.head, None if held is None else held.head)
        elif held is None:
            held = yield from self._head_of_new_lake()
        self.remember(held)
        self.asked.at = max(self.asked.at, started)
        return held

    def head_of_late(self, seconds: float) -> Program[None]:
        """Request HEAD, unless that was done at most ``seconds`` ago."""
        if self.clock.elapsed() - self.asked.at > seconds:
            yield from self.head()

    def _head_of_new_lake(self) -> Program[HeldHead | None]:
        """Return None if the root never had a lake; HEAD if another client has just made one."""
        if self.clock.elapsed() < self.asked.new_until:
            return None
        started = self.clock.elapsed()
        remains = yield from find_remains()
        if not remains:
            self.asked.new_until = started + _NEW_SECONDS
            return None
        # If there is no HEAD now, it is lost: HEAD is stored before all other objects of a lake,
        # and is never deleted.
        held = yield from load_head()
        if held is None:
            raise head_lost(
                f"a lake was here, of which objects are left: {remains[0]} and {len(remains) - 1} "
                "more"
            )
        return held

    def existing(self) -> Program[HeldHead | None]:
        """Return HEAD like ``head``; None only if no lake of this root has claimed a table, either.

        Raises the errors of ``head``.
        """
        held = yield from self.head()
        started = self.clock.elapsed()
        if held is not None or started < self.asked.unclaimed_until:
            return held
        claimed = yield from find_claimed(self.root)
        if claimed is None:
            self.asked.unclaimed_until = started + _NEW_SECONDS
        # A table is claimed after HEAD was made: another client may have made the lake meanwhile.
        held = None if claimed is None else (yield from self.head())
        if claimed is not None and held is None:
            location, claim = claimed
            raise head_lost(
                f"a lake (id {claim.lake_id}) was here: {HOME} is missing, and table {location} "
                f"is left (if only the table was copied here, delete {lake_key(location)}, and "
                "`register` it)",
                table=location,
            )
        return held

    def make_head(self) -> Program[HeldHead]:
        """Make the lake's first HEAD, in the form that the store allows, and remember it.

        Raises
        ------
        CorruptObject
            The root had a HEAD before: a table exists that a lake of this root has claimed.
        """
        held = yield from self.existing()
        if held is not None:
            return held
        as_log = not (yield from self.replaces())
        held = yield from create_head(self.ids, self.root, as_log=as_log)
        self.remember(held)
        return held

    @property
    def only_creates(self) -> bool:
        """True if HEAD is known to be a log: then no object of this lake is ever replaced."""
        return self.held is not None and self.held.head.as_log

    def is_only_creating(self) -> Program[bool]:
        """Return whether HEAD is a log; if there is no HEAD yet, whether it will be one."""
        held = self.held or (yield from self.head())
        return not (yield from self.replaces()) if held is None else held.head.as_log

    def remember(self, held: HeldHead | None) -> None:
        """Remember a HEAD, unless another thread has remembered a newer one meanwhile.

        The answer that there is none is older than a HEAD that another thread has found.
        """
        known = self.held
        if held is None and known is not None:
            return
        if held is not None and known is not None:
            # Leaves that were fetched for one HEAD need not be fetched again for the other.
            held.head.tables.share(known.head.tables)
            held.head.names.share(known.head.names)
            held.head.refs.share(known.head.refs)
            held.head.copies.share(known.head.copies)
            if known.head.lake_id != held.head.lake_id:
                # The lake was removed and made again here: the cached logs are of other tables.
                self.tails.clear()
                self.past_states.clear()
                self.expected.clear()
            elif known.head.replacement > held.head.replacement:
                return
        if known is None or held is None or known.head.nonce != held.head.nonce:
            self.asked.changed_at = self.clock.elapsed()
        self.held = held

    def commit_object(self, txn: str, digest: str) -> Program[CommitObject]:
        """Return the object of a commit in HEAD's list, and cache it."""
        known = self.known_commit(txn, digest)
        if known is not None:
            return known
        (found,) = yield from self._loaded([self._load(txn, digest, self.epoch)])
        return found

    def commit_objects(self, wanted: Sequence[PendingRef]) -> Program[list[CommitObject]]:
        """Return the objects of pending commits, in order; read missing ones in one round."""
        known = {ref: self.known_commit(ref.txn, ref.hash) for ref in wanted}
        missing = [ref for ref, commit in known.items() if commit is None]
        read = yield from self._loaded(
            [self._load(ref.txn, ref.hash, ref.epoch) for ref in missing]
        )
        known.update(zip(missing, read, strict=True))
        return [found for ref in wanted if (found := known[ref]) is not None]

    def _loaded(self, loads: Sequence[Program[CommitObject]]) -> Program[list[CommitObject]]:
        try:
            return (yield from parallel(loads))
        except CorruptObject:
            yield from self.refuse_ended()
            raise

    def _load(self, txn: str, digest: str, epoch: str) -> Program[CommitObject]:
        """Request a commit object; if another program is doing so, wait for its answer.

        A commit to a thousand tables is one large object, which programs that visit all tables
        request for each of them.
        """
        # A forked child has the parent's entries, and none of the programs that would end them.
        name = (os.getpid(), _name_of(txn, digest))
        under_way = self._loading.get(name)
        if under_way is not None:
            yield from wait_at(under_way.gate)
            if under_way.found is not None:
                return under_way.found
        mine = self._loading[name] = _Loading()
        try:
            mine.found, size = yield from load_sized_commit(txn, digest, epoch)
            self.keep_commit(digest, mine.found, size)
            return mine.found
        finally:
            self._loading.pop(name, None)
            mine.gate.open()

    def refuse_ended(self) -> Program[None]:
        """Raise an error if this context's branch has ended, which explains a missing object."""
        if not self.epoch:
            return
        held = yield from self.head()
        if held is not None:
            check_not_closed(held.head)

    def known_commit(self, txn: str, digest: str) -> CommitObject | None:
        """Return the object of a commit, if it is cached."""
        found = self.commits.get(_name_of(txn, digest))
        return found if isinstance(found, CommitObject) else None

    def keep_commit(self, digest: str, commit: CommitObject, size: int | None = None) -> None:
        """Keep the object of a commit; ``size``: its bytes in the store."""
        size = len(encode(commit)) if size is None else size
        self.commits.keep(_name_of(commit.txn, digest), commit, _DECODED * size)

    def known_markers(self) -> dict[tuple[str, Token], Marker | Unreadable]:
        """Return the markers read so far; they never change."""
        if len(self.markers) > _MARKERS_CACHED:
            self.markers = {}
        return self.markers

    def keep_tail(self, tail: Tail) -> Tail:
        """Remember a table's log as read so far, unless another thread has read more of it."""
        known = self.tails.get(tail.location)
        ahead = known is not None and known.tip > tail.tip
        if known is None or not ahead or known.snapshot.table_id != tail.snapshot.table_id:
            self.tails[tail.location] = tail
        return tail

    def is_anothers(self, tail: Tail) -> bool:
        """Return whether a cached log may be that of a table that HEAD has replaced by another.

        Then the cached versions say nothing about the present log. (A table that a client replaces
        inside its log gets another id, too: that costs a LIST until HEAD knows the id. The log of a
        table that was dropped and not made again stays cached: a LIST that lags behind might not
        show the log.) If the table's leaf of HEAD is not cached, the result is True, and the log is
        read again: so a program that can fetch the leaf does so first.
        """
        tables = None if self.held is None else self.held.head.tables
        if tables is None or tail.tip < 0:
            return False
        if tables.missing([tail.location]):
            return True
        state = tables.get(tail.location)
        return not (state is None or state.dropped or state.table_id == tail.snapshot.table_id)

    def report(
        self, kind: QueueEvent, txn_id: str, message: str, detail: Mapping[str, object]
    ) -> None:
        """Report an event of the queues."""
        self.notify(Event(kind, txn_id, message, detail))

    def note_unpublished(self, txn_id: str, table: str, error: Exception) -> None:
        """Report that a decided commit could not be published now; the next client publishes it."""
        self.notify(
            Event(
                "published",
                txn_id,
                f"table {table} could not be published now; the next client will publish it: "
                f"{error}",
                {"table": table, "complete": False},
            )
        )

    def now_ms(self) -> int:
        return int(self.clock.now() * 1000)

    def refuse_unconfirmed(self, what: str) -> None:
        """Refuse a deletion by a HEAD that was rebuilt and that no user has confirmed."""
        if self.held is not None and self.held.head.unconfirmed:
            raise InvalidOperation(
                f"{what}: this lake's HEAD was rebuilt, and the files to delete may include files "
                "of commits that the rebuild could not find: read the report of the rebuild, then "
                "run `lakevilla recover ROOT --confirm-head`"
            )

    def refuse_foreign_root(self) -> None:
        """Refuse to write to a lake that was copied or moved here (hazard 30)."""
        if self.held is not None:
            refuse_foreign_head(self.held.head, self.root)


def refuse_foreign_head(head: Head, root: str) -> None:
    """Refuse to write at ``root`` by a HEAD that names another root (hazard 30)."""
    if head.root == root:
        return
    if head.epoch is not None:
        branch = head.epoch.name
        raise InvalidOperation(
            f"branch {branch!r} was created when the lake was at {head.root}, and only reads at "
            f"{root}: `rebase({branch!r})` on the lake moves it here, and branch(..., "
            f"at={branch!r}) creates another one from it"
        )
    raise InvalidOperation(
        f"this lake's HEAD names the root {head.root}, not {root}: it was copied or moved and is "
        "read-only here; `lakevilla doctor --adopt` gives it a new identity"
    )


# -------------------- file names
#
# The names of data files: they show a file's owner, and the kind of its commit point.


#: An engine that writes into a local lake may leave a file under its temporary ``tmp_`` name.
#: Iceberg's manifests and manifest lists are stored by the publisher. A file of Delta's vectors is
#: in a directory with such a name.
_OWN = re.compile(
    r"(?:.*/)?(?:tmp_|snap-\d+-)?lv-([hl])-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9a-f]+"
    r"(?:(?:-deletes)?\.parquet|(?:-[0-9a-f]{32})?\.puffin|(?:-m\d+)?\.avro"
    rf"|(?:-[0-9a-f]{{32}})?/{VECTOR_FILE.pattern})"
)

#: The directory of a branch's files: below the table, so that the table's log can name them by
#: relative paths once they are merged, and hidden from the clean-up of Spark and deltalake.
_BRANCH_FILES = "_lakevilla/b"
_OF_BRANCH = re.compile(rf"{_BRANCH_FILES}/(\d{{20}}-[0-9a-f]{{16}})/")


def file_path(partition: str, txn: str, through_head: bool, nonce: str) -> str:
    """Return a data file's path: its name shows its owner, and the kind of its commit point.

    Transactions that commit by their own log entry can't be fenced, so only VACUUM ever deletes
    their files.
    """
    kind = "h" if through_head else "l"
    name = f"lv-{kind}-{txn}-{nonce}{DATA_SUFFIX}"
    return f"{partition}/{name}" if partition else name


def branch_directory(location: str, epoch: str) -> str:
    """Return the directory of a table's files that were written on a branch."""
    return f"{location}/{_BRANCH_FILES}/{epoch}"


def branch_of(path: str) -> str | None:
    """Return the branch's epoch in which a data file was written, by its path; else None."""
    found = _OF_BRANCH.match(path)
    return None if found is None else found[1]


def inner_branch_of(path: str) -> tuple[str, str] | None:
    """Return the inner table, and the epoch, of a branch's data file in a table's directory.

    A branch may have a table inside the directory of a table of the lake that the branch does not
    have. None if the file does not belong to such an inner table.
    """
    place, found, rest = path.partition(f"/{_BRANCH_FILES}/")
    epoch = branch_of(f"{_BRANCH_FILES}/{rest}") if found and branch_of(path) is None else None
    return None if epoch is None else (place, epoch)


def owner_of(path: str) -> tuple[str, str] | None:
    """Return a file's owner by its name: "h" (through HEAD) or "l" (by log entry), and the id."""
    found = _OWN.fullmatch(path)
    return None if found is None else (found[1], found[2])


def file_namer(context: Context, txn: str, through_head: bool) -> FileNamer:
    return _Namer(context.ids, txn, through_head, context.epoch)


@dataclass(frozen=True, slots=True)
class _Namer:
    ids: Ids
    txn: str
    through_head: bool
    epoch: str

    def __call__(self, partition: str) -> str:
        if self.epoch:
            # The path has the partition's directories: some readers take values from paths.
            # https://github.com/pola-rs/polars/issues/23391
            partition = f"{_BRANCH_FILES}/{self.epoch}/{partition}".rstrip("/")
        return file_path(partition, self.txn, self.through_head, self.ids.nonce()[:16])

    def __reduce__(self) -> tuple[object, ...]:
        # In another process, names use that process's random generator: each attempt of a task has
        # names of its own, so no attempt overwrites another's file.
        return _namer, (self.txn, self.through_head, self.epoch)


def _namer(txn: str, through_head: bool, epoch: str) -> _Namer:
    return _Namer(Ids(SystemClock()), txn, through_head, epoch)


# -------------------- relied on
#
# The objects on whose content a reader acts at once.


_LOG_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")


def is_relied_on(key: str) -> bool:
    """Return whether a reader acts at once on the content of a key, that of a HEAD or a log entry.

    On a store without conditional writes (``connect(conditional_writes="check")``), a reader reads
    these again until their content has settled. One read of any other object is sufficient: data
    files, commit objects and pages have one writer; markers and records are hints; for an
    idempotency key, HEAD shows the outcome.
    """
    return is_head(key) or _LOG_ENTRY.search(key) is not None


# -------------------- tail
#
# A table's log as far as this process has read it: a value.


#: The number of entries, and of snapshots, that are kept of a log.
_KEPT = 160
#: The most memory for the snapshots that are kept of a log: Iceberg's snapshots share none.
_HELD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Tail:
    """Log entries up to ``tip``, and snapshots at some versions, including the tip's.

    ``tip`` is -1 for a table that has no log yet.
    """

    location: str
    tip: int
    snapshots: Mapping[int, TableSnapshot]
    entries: Mapping[int, Entry] = field(default_factory=dict)
    seen_at: float = 0.0

    @property
    def snapshot(self) -> TableSnapshot:
        return self.snapshots[self.tip]

    def extended(self, entry: Entry, snapshot: TableSnapshot, seen_at: float) -> Tail:
        """Return this tail with one more entry; the oldest entries are forgotten."""
        assert entry.version == self.tip + 1
        # A list of all files for each version would need much memory. A program that still reads
        # the last version keeps its list; for a program that reads an older version later, the list
        # is computed again.
        outdated = self.snapshots.get(self.tip - 1)
        if outdated is not None:
            outdated.forget_files()
        oldest = entry.version - _KEPT
        entries = {v: one for v, one in self.entries.items() if v > oldest}
        if self.tip in entries:
            entries[self.tip] = entries[self.tip].described_alone()
        return Tail(
            self.location,
            entry.version,
            {**_within_memory(self.snapshots, oldest), entry.version: snapshot},
            {**entries, entry.version: entry},
            seen_at,
        )


def _within_memory(snapshots: Mapping[int, TableSnapshot], oldest: int) -> dict[int, TableSnapshot]:
    """Return the newest of the snapshots above ``oldest``, as many as ``_HELD_BYTES`` allow."""
    found: dict[int, TableSnapshot] = {}
    held = 0
    for version in sorted(snapshots, reverse=True):
        held += snapshots[version].held_bytes
        if version <= oldest or (held > _HELD_BYTES and found):
            break
        found[version] = snapshots[version]
    return found


# -------------------- claimed
#
# The search for tables that a lake of this root has claimed, if nothing else of that lake is left.
#
# If ``_lakevilla`` was deleted, a root looks like a new one. But the claim of each table names its
# lake. So before a client makes the first HEAD there, or reports that no lake exists, it searches
# the directories once (docs/design/0053-gone-back.md).


#: The number of directories that are listed in one round.
_AT_ONCE = 256
#: A table's directory contains one of these.
_LOGS = frozenset({"_delta_log/", "metadata/"})


def find_claimed(root: str) -> Program[tuple[str, LakeFile] | None]:
    """Return a table below the root that a lake of this very root has claimed, or None.

    Nothing is listed below a table. The search ends with the first table that is found.
    """
    level = [""]
    while level:
        wanted, level = level, []
        for first in range(0, len(wanted), _AT_ONCE):
            locations = wanted[first : first + _AT_ONCE]
            listed = yield from parallel([list_names(location) for location in locations])
            names = dict(zip(locations, listed, strict=True))
            tables = [
                location for location in locations if location and "_lakevilla/" in names[location]
            ]
            claims = yield from parallel([_claim(location) for location in tables])
            for location, claim in zip(tables, claims, strict=True):
                if claim is not None and claim.root == root:
                    return location, claim
            for location in locations:
                if not location or not _LOGS.intersection(names[location]):
                    level += _directories(location, names[location])
    return None


def _directories(parent: str, names: Sequence[str]) -> list[str]:
    """Return the directories that may contain tables: no hidden ones, no partitions."""
    return [
        f"{parent}/{name[:-1]}" if parent else name[:-1]
        for name in names
        if name.endswith("/") and name[0] not in "_." and "=" not in name
    ]


def _claim(location: str) -> Program[LakeFile | None]:
    try:
        return (yield from claim_of(location))
    except (CorruptObject, UnsupportedFormat):
        return None
