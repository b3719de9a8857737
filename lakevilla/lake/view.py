"""Views: the state of one table by a HEAD and the table's log together.

The state at HEAD is always log[..published] plus the pending commits in order (design, section 9).
The log advances concurrently: some of the pending commits may be published by now, and clients
without LakeVilla may have appended entries. ``place`` returns up to which version the log may be
used unchanged, which commits must be laid over it, and which entries HEAD does not know yet (hidden
versions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakevilla.errors import CorruptObject, TableNotFound, VersionNotFound
from lakevilla.formats.base import Entry, TableSnapshot
from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import Head, PendingRef, TableState, application_id
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import entries_at, entry_at, snapshot_at
from lakevilla.store.codec import refuse_unknown
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class Placement:
    """The parts of a table's state: those from its log, and those from HEAD.

    Attributes
    ----------
    logged : int
        The newest log version all of whose content belongs to the view.
    overlay : tuple of PendingRef
        Decided commits that are not in log[..logged], in order.
    hidden : tuple of int
        Foreign versions up to ``logged`` that HEAD does not know.
    stale : bool
        True if the log has a commit of this lake that the HEAD in use does not know.
    unfit_from : int or None
        The first foreign version that makes a pending commit unfit.
    """

    logged: int
    overlay: tuple[PendingRef, ...]
    hidden: tuple[int, ...] = ()
    stale: bool = False
    unfit_from: int | None = None


@dataclass(frozen=True, slots=True)
class Mounted:
    """The clone that shows a table before its first write there (docs/design/0039-clones.md).

    ``name`` and ``entry`` are of the clone, ``source`` is the table's place in the clone's base.
    """

    name: str
    entry: RefEntry
    source: str


@dataclass(frozen=True, slots=True)
class View:
    """One table as a transaction sees it; immutable.

    ``state`` is HEAD's entry (None: the table is not in HEAD), ``probed`` the log's tip when
    the view was built. ``mount``: the clone that shows the table, if it has no entry in HEAD.
    """

    location: str
    state: TableState | None
    placement: Placement
    parts: tuple[TablePart, ...]
    base: TableSnapshot
    snapshot: TableSnapshot
    probed: int
    mount: Mounted | None = None

    def __post_init__(self) -> None:
        if self.state is not None:
            refuse_unknown(f"table {self.location}", self.state.needs)

    @property
    def log_version(self) -> int | None:
        """The log version with exactly this state, for any reader; None if there is none (yet)."""
        if self.placement.overlay or self.mount is not None:
            return None
        return self.placement.logged

    @property
    def snapshot_id(self) -> int | None:
        """The Iceberg snapshot with exactly this state, for any reader; None if there is none."""
        return None if self.placement.overlay else self.base.snapshot_id

    @property
    def guarded(self) -> bool:
        """True if the log has the guard's feature, and no pending commit removes it."""
        return self.base.guarded and self.snapshot.guarded

    @property
    def revives(self) -> bool:
        """True for a table that is dropped in its HEAD and that a commit on this view adds again.

        If its data was deleted, it has no log: then a new table is created in its place instead.
        """
        return self.state is not None and self.state.dropped and self.placement.logged >= 0

    def is_anothers(self, tail: Tail) -> bool:
        """Return whether the log belongs to another table by now, at the same version number."""
        same = self.base.version == tail.tip
        return same and self.base.table_id != tail.snapshot.table_id


def changes_contract(context: Context, tail: Tail, entry: Entry, part: TablePart) -> Program[bool]:
    """Return whether the entry changes the contract for which the commit's data files were made.

    The result is computed from the entry and the commit object alone, and does not depend on what
    is cached or can still be read: all clients must come to the same result. Otherwise one client
    could publish a commit that another client replaces in HEAD, and the rows would exist twice. A
    commit of an older client does not state its contract: then the state before the entry decides,
    if it can still be read.
    """
    if entry.change.metadata is None:
        return False
    if part.contract:
        return tail.snapshot.contract_of(entry.change.metadata) != part.contract
    try:
        before = yield from snapshot_at(context, tail, entry.version - 1)
    except (VersionNotFound, CorruptObject):
        return True  # the state before was cleaned up or damaged, so the contract is unknown
    return not before.keeps_contract(entry.change.metadata)


def breaks(entry: Entry, contract: bool, part: TablePart) -> str | None:
    """Return why a foreign entry makes a pending commit unfit, or None.

    Once a commit is decided, only physical conflicts count (design, section 8): a file that it
    removes was removed, a file that it adds exists already, or the metadata no longer fits. A new
    deletion vector for a file counts as a removal of the file with its old one.
    """
    if part.created:
        return f"version {entry.version} made the table first"
    if part.given == "version":
        return f"version {entry.version} came before updates of the version below it"
    if contract:
        return f"version {entry.version} changed the table's metadata"
    if entry.change.metadata is not None and part.change.metadata is not None:
        return f"version {entry.version} changed the table's metadata, as the commit does"
    if entry.change.clusters and part.change.metadata is not None:
        return f"version {entry.version} clustered the table anew, and the commit changes metadata"
    if entry.change.protocol is not None and part.change.protocol is not None:
        return f"version {entry.version} changed the table's protocol, as the commit does"
    if part.redefines and entry.change.adds:
        return f"version {entry.version} added rows to the table under its earlier definition"
    ours = {file.ref for file in part.change.removes}
    for removed in entry.change.removes:
        if removed.ref in ours:
            return f"version {entry.version} removed {removed.path}"
    # Two commits can add the same file only if both add an old file of the table again (note 32):
    # in Iceberg the file would then exist twice.
    again = {file.ref for file in part.change.adds}
    for added in entry.change.adds:
        if added.ref in again:
            return f"version {entry.version} added {added.path}"
    return None


def _breaks_any(
    context: Context, tail: Tail, entry: Entry, parts: Sequence[TablePart]
) -> Program[bool]:
    for part in parts:
        if breaks(entry, (yield from changes_contract(context, tail, entry, part)), part):
            return True
    return False


def breaks_unseen(
    snapshot: TableSnapshot, before: Sequence[TablePart], part: TablePart
) -> Program[bool]:
    """Return whether log entries that can no longer be read have made a pending commit unfit.

    ``snapshot`` is the state after these entries. ``before`` are the commits that are decided
    before this one and not in the log either: if they change the metadata, the state does not show
    whether the commit fits.
    """
    if part.redefines or part.given == "version":
        return True  # these entries may have added rows, and are versions that others have made
    settled = all(one.change.metadata is None for one in (*before, part))
    if part.contract and settled and snapshot.contract != part.contract:
        return True
    missing = yield from snapshot.missing([file.ref for file in part.change.removes])
    if missing:
        return True
    adds = [file.ref for file in part.change.adds]
    absent = yield from snapshot.missing(adds)
    return len(absent) < len(adds)


def pending_parts(
    context: Context, location: str, refs: Sequence[PendingRef]
) -> Program[list[TablePart]]:
    """Return the parts of pending commits for one table; read missing objects in one round."""
    commits = yield from context.commit_objects(refs)
    return [commit.tables[location] for commit in commits]


def place(
    context: Context,
    head: Head | None,
    location: str,
    tail: Tail,
    *,
    accept_hidden: bool = True,
    up_to: int | None = None,
) -> Program[Placement]:
    """Walk the known log from ``published`` on, and sort its entries into the lake's and foreign.

    Only entries and commit objects that are not cached are requested from the store.
    ``up_to`` is the last version of the walk: a transaction that is bound to a state reads no newer
    entry.
    """
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if state is not None:
        refuse_unknown(f"table {location}", state.needs)
    tip = tail.tip if up_to is None else min(up_to, tail.tip)
    if head is None:
        return Placement(logged=tip, overlay=())
    application = application_id(head)
    if state is None or (state.dropped and tip < 0):
        # A newer HEAD may have added a table that this HEAD lacks: then the table's log belongs to
        # newer states than that to which the transaction is bound.
        seen = None if tail.tip < 0 else tail.snapshot.application_version(application)
        return Placement(tip, (), stale=seen is not None and seen > head.sequence)
    newest = state.pending[-1].sequence if state.pending else -1
    # HEAD lags behind publishing, mostly by one entry, which need not be read then. This is safe:
    # the state at ``published`` has none of the pending commits, so all that the tip has of them
    # were added by the one version after, whose writer had published all earlier commits.
    is_next = bool(state.pending) and tip == tail.tip == state.published + 1
    if is_next and tail.snapshot.application_version(application) == newest:
        return Placement(tip, ())
    versions = range(state.published + 1, tip + 1)
    if accept_hidden and len(versions) > len(state.pending):
        ours = yield from _own_versions(context, head, state, tail, versions)
        if ours is not None:
            return Placement(tip, (), tuple(one for one in versions if one not in ours))
    return (yield from _walked(context, head, state, tail, versions, accept_hidden=accept_hidden))


def _own_versions(
    context: Context, head: Head, state: TableState, tail: Tail, versions: range
) -> Program[set[int] | None]:
    """Return which versions are the lake's own, if all pending commits are published; else None.

    If clients commit by log entry, HEAD knows only a small part of a long log: not all entries are
    read. The state at the tip shows whether all commits are published, and a commit's entry is
    mostly the one after its base. None if a commit's entry is another one, or the log may have
    entries of a newer HEAD.
    """
    published = tail.snapshot.application_version(application_id(head))
    newest = state.pending[-1].sequence if state.pending else -1
    # If nothing is pending, all of the lake's own entries are at or below ``state.published``.
    if newest > (-1 if published is None else published):
        return None
    if published is not None and published > head.sequence:
        return None
    if not state.pending:
        return set()
    if versions.stop <= tail.tip:
        return None  # a pending commit may be published above the walked versions
    expected = sorted({ref.base + 1 for ref in state.pending if ref.base + 1 in versions})
    entries = yield from entries_at(context, tail, expected)
    found = [entry for entry in entries if entry is not None]
    ids = {txn_id for entry in found for txn_id in entry.txn_ids}
    if not ids.issuperset(ref.txn for ref in state.pending):
        return None
    own = application_id(head)
    return {entry.version for entry in found if own in entry.applications}


def _walked(
    context: Context,
    head: Head,
    state: TableState,
    tail: Tail,
    versions: range,
    *,
    accept_hidden: bool,
) -> Program[Placement]:
    """Place a table; read all log entries after ``published`` in one round."""
    application = application_id(head)
    newest = state.pending[-1].sequence if state.pending else -1
    entries: list[Entry] = []
    for entry in (yield from entries_at(context, tail, versions)):
        if entry is None:
            return (yield from _place_unreadable(context, head, state, tail, versions[-1]))
        entries.append(entry)
    # Commits that are published further on did fit: their publishers had read all entries below.
    # Only commits that are not published yet are checked against foreign entries. An entry of a
    # newer HEAD does not prove that a commit did fit: it may be the reconcile commit that
    # has replaced the commit.
    published = (entry.applications.get(application, -1) for entry in entries)
    done = max((sequence for sequence in published if sequence <= head.sequence), default=-1)
    logged, waiting = state.published, state.pending
    hidden: list[int] = []
    for entry in entries:
        version = entry.version
        sequence = entry.applications.get(application)
        if sequence is not None:
            if sequence > max(newest, head.sequence):
                return Placement(logged, waiting, tuple(hidden), stale=True)
            waiting = tuple(ref for ref in waiting if ref.sequence > sequence)
            logged = version
            continue
        undone = [ref for ref in waiting if ref.sequence > done]
        parts = yield from pending_parts(context, tail.location, undone)
        if (yield from _breaks_any(context, tail, entry, parts)):
            return Placement(logged, waiting, tuple(hidden), unfit_from=version)
        if not accept_hidden:
            break
        hidden.append(version)
        logged = version
    return Placement(logged, waiting, tuple(hidden))


def _place_unreadable(
    context: Context, head: Head, state: TableState, tail: Tail, tip: int
) -> Program[Placement]:
    """Place a table if clean-up has removed entries after ``published`` (hazards 10, 26).

    The ``txn`` action of the tip's state, which survives clean-up, shows which pending commits
    were published. The removed entries can't be distinguished, so all of them count as hidden. If
    they have made a pending commit unfit, the log is used only up to ``published``: the pending
    commits can't be laid over a state in which other clients have changed their files, and HEAD may
    not include such changes without a commit that describes them.
    """
    snapshot = yield from snapshot_at(context, tail, tip)
    done = snapshot.application_version(application_id(head))
    if done is not None and done > head.sequence:
        return Placement(state.published, state.pending, stale=True)
    waiting = tuple(ref for ref in state.pending if done is None or ref.sequence > done)
    parts = yield from pending_parts(context, tail.location, waiting)
    for index, part in enumerate(parts):
        if (yield from breaks_unseen(snapshot, parts[:index], part)):
            return Placement(state.published, state.pending, unfit_from=state.published + 1)
    return Placement(tip, waiting, tuple(range(state.published + 1, tip + 1)))


def build_view(
    context: Context,
    head: Head | None,
    location: str,
    tail: Tail,
    *,
    accept_hidden: bool = True,
    up_to: int | None = None,
    revives: bool = False,
) -> Program[View]:
    """Return the table's state at ``head``, with the hidden versions that fit laid over it.

    ``revives``: a table that was dropped is opened, too, from its remaining log.

    Raises
    ------
    TableNotFound
        HEAD has a tombstone for the table, there is no table, or it is another one by now.
    """
    yield from load_tables(head, [location])
    state = None if head is None else head.tables.get(location)
    if state is not None and state.dropped:
        _check_left(location, state, tail, revives=revives)
    if state is not None and (yield from is_another(context, state, tail)):
        raise replaced(location, state, tail)
    placement = yield from place(
        context, head, location, tail, accept_hidden=accept_hidden, up_to=up_to
    )
    if state is None and placement.logged < 0:
        raise TableNotFound(
            f"table {location} does not exist: `create_table` makes one", table=location
        )
    parts = yield from pending_parts(context, location, placement.overlay)
    try:
        base = yield from snapshot_at(context, tail, placement.logged)
    except VersionNotFound as error:
        if placement.logged <= tail.tip and placement.unfit_from is not None:
            raise VersionNotFound(
                f"the state of table {location} that HEAD names can't be read: another client has "
                f"cleaned up the log before version {tail.tip}, and version "
                f"{placement.unfit_from} made a decided commit inapplicable: `lakevilla recover` "
                "replays it on the present state",
                table=location,
            ) from error
        if placement.logged <= tail.tip:
            raise
        assert state is not None, "only HEAD can know more than the log"
        raise replaced(location, state, tail) from error
    if (
        state is not None
        and placement.logged == state.published >= 0
        and base.table_id != state.table_id
    ):
        # The state was just read from the store: another table's log has replaced the known one.
        raise replaced(location, state, tail)
    snapshot = base
    for part in parts:
        if not part.change.is_empty:
            snapshot = snapshot.apply(part.change)
    return View(location, state, placement, tuple(parts), base, snapshot, tail.tip)


def _check_left(location: str, state: TableState, tail: Tail, *, revives: bool) -> None:
    """Refuse a table that was dropped, unless it is to be revived and its data still exists."""
    if revives and (state.emptying or state.emptied_ms is not None or tail.tip < 0):
        raise TableNotFound(
            f"table {location} does not exist: it was dropped from this lake, and its data deleted",
            table=location,
        )
    if not revives:
        raise TableNotFound(
            f"table {location} does not exist: it was dropped from this lake; "
            "`register` revives it while its log exists",
            table=location,
        )


def is_another(context: Context, state: TableState, tail: Tail) -> Program[bool]:
    """Return whether the log belongs to another table than HEAD's, created in its place.

    The table id at version ``published`` decides. It is read only if the tip has another id than
    HEAD's entry: later entries may change the id of one and the same table (REPLACE).
    """
    if tail.tip < 0 or tail.snapshot.table_id == state.table_id:
        return False
    if state.published < 0:
        # The table's creation is decided, and HEAD does not know that it is published. If a client
        # without LakeVilla began the log first, publishing settles that. If LakeVilla began it, the
        # log belongs to another table unless its id is the same.
        first = yield from entry_at(context, tail, 0)
        if first is None or not first.txn_ids or first.change.metadata is None:
            return False
        return context.formats[state.format].table_id(first.change.metadata) != state.table_id
    if tail.tip < state.published:
        return True
    try:
        known = yield from snapshot_at(context, tail, state.published)
    except VersionNotFound:
        return True  # the state was cleaned up, so nothing shows that it is the same table
    return known.table_id != state.table_id


def replaced(location: str, state: TableState, tail: Tail) -> TableNotFound:
    """Return the error for a log that is not that of the table in HEAD, or not all of it."""
    if tail.tip < 0:
        return TableNotFound(
            f"table {location} was removed by another client: nothing is left of its log; restore "
            f"it if it was lost, or `lake.unregister({location!r})` takes the table out of the "
            "lake, and frees its name",
            table=location,
        )
    if tail.snapshot.table_id == state.table_id and tail.tip < state.published:
        return TableNotFound(
            f"table {location} was set back, as by an old backup: the lake knows version "
            f"{state.published}, and its log now ends at version {tail.tip}; restore the newer "
            "log, or `unregister` the table, then `register` it to go on from the older version",
            table=location,
        )
    return TableNotFound(
        f"table {location} was removed, or created again, by another client: the lake knows "
        f"version {state.published} of table {state.table_id}, its log now ends at version "
        f"{tail.tip}; `unregister` it, then `register` the new one",
        table=location,
    )
