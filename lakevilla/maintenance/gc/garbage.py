"""Decide which objects are garbage."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakevilla.errors import CorruptObject, StoreError, UnsupportedFormat, VersionNotFound
from lakevilla.formats.delta.deletion_vectors import vector_paths
from lakevilla.formats.files import delete_paths
from lakevilla.global_log.bases import Base, load_base_tables, load_bases_by_ref, named_leaves
from lakevilla.global_log.commits import CommitObject, commit_key
from lakevilla.global_log.head import CommitSummary, Head, find_commit
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.inbox.proposal import is_over, number_of
from lakevilla.global_log.leaves import LeafMark, is_mark, made_of
from lakevilla.global_log.refs import parts_of
from lakevilla.global_log.repo import (
    HeldHead,
    commits_since,
    load_commit,
    load_head,
    load_tables,
)
from lakevilla.lake.applicability import needed_files, unpublished
from lakevilla.lake.context import Context, branch_directory, branch_of, inner_branch_of
from lakevilla.lake.frozen.kept import BranchEpochs, kept_by
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tables.dropped import held_back, is_emptied, is_within, nested_tables
from lakevilla.maintenance.gc.listing import Listing, is_left_to, named_pages
from lakevilla.maintenance.stale_places import still_there
from lakevilla.markers.marker import Listed, Marker, marker_key
from lakevilla.store.base import ABSENT, ANY, Found, PutOutcome, Stored
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, Put, get, list_objects, parallel, put
from lakevilla.store.location import HOMES_PREFIX, at_home, is_external
from lakevilla.sublogs.operations import staged_keys
from lakevilla.sublogs.record import creates_key

# -------------------- garbage
#
# The garbage after HEAD has advanced: listed objects of fenced transactions.


def garbage(
    context: Context, head: Head, listed: Listing, *, dry_run: bool
) -> Program[list[list[str]]]:
    """Return the keys to delete now that ``head`` is the lake's HEAD, as rounds in order.

    Objects that a ref needs are not returned. This is safe while another client makes a ref: the
    new ref's base has the state of the HEAD that the client replaces, which is ``head`` or a later
    one, and a base that no HEAD names yet has a later number.
    """
    by_ref = yield from load_bases_by_ref(head)
    bases = list(by_ref.values())
    still_named = set() if listed.history else (yield from named_pages(head))
    old_pages = [key for key in listed.pages if key not in still_named]
    # If a page can't be read, use only the commits in HEAD: then gc knows fewer transactions to
    # have committed, and deletes fewer of their leftovers.
    kept: Sequence[CommitSummary] | None = head.commits
    if listed.history is None:
        kept = yield from commits_since(head, head.history_start)
    commits = listed.commits
    if kept is None:  # another gc has removed history meanwhile; it will delete the commit objects
        kept, commits = head.commits, []
    epochs = yield from BranchEpochs.of(head)
    to_delete: list[str] = []
    for location, files in listed.data.items():
        to_delete.extend((yield from _orphans(context, head, epochs, bases, location, files)))
    old_commits = yield from _old_commits(head, bases, kept, commits)
    if not dry_run:
        yield from _note_never_made(head, kept, commits, set(old_commits))
    to_delete.extend(old_commits)
    sources = yield from _sources(context, head)
    # If a pending commit can't be read, it may need any of the saved objects: delete none.
    for key, txn in listed.records if sources is not None else ():
        has_ended = head.is_fenced(txn) or find_commit(kept, txn) is not None
        if has_ended and key not in (sources or ()):
            to_delete.append(key)
    to_delete.extend(old_pages)
    to_delete.extend(key for key in listed.proposals if _is_over(key, head))
    to_delete.extend(_old_bases(head, {ref.key for ref in by_ref}, listed.bases))
    needed = named_leaves(head, bases)
    dead = yield from _dead_branches(epochs, listed)
    # The HEAD of a dead branch still needs the leaves that it names.
    named = needed.union(*(branch.leaves for branch in dead.values()))
    to_delete.extend(
        (yield from unreferenced_leaves(context, head, named, listed, dry_run=dry_run))
    )
    committed = (one for one in kept if one.kind == "transaction")
    ended = listed.ended.union(txn for one in committed for txn in one.transactions)
    to_delete.extend((yield from _void_markers(head, listed.markers, ended)))
    of_branches = yield from left_of_branches(context, head, bases, needed, dead, listed.held_back)
    return [[*to_delete, *of_branches[0]], *of_branches[1:]]


def _is_over(key: str, head: Head) -> bool:
    """Return whether HEAD shows that a proposal can't be included any more."""
    number = number_of(key)
    return number is not None and is_over(number, head)


def _old_bases(head: Head, named: Collection[str], listed: Iterable[str]) -> list[str]:
    """Return bases that no ref names or ever will, because HEAD has passed their numbers."""
    old = [(key, parts_of(key)) for key in listed if key not in named]
    return [key for key, parts in old if parts is not None and parts[0] <= head.replacement]


def _orphans(
    context: Context,
    head: Head,
    epochs: BranchEpochs,
    bases: Sequence[Base],
    location: str,
    files: Collection[tuple[str, str]],
) -> Program[list[str]]:
    """Return files of fenced transactions that no log entry, pending commit or ref names."""
    # Since the files were listed, a table inside this one's directory may have been added to HEAD.
    nested = nested_tables(location, (), head)
    candidates = {
        path
        for path, txn in files
        if _is_unowned(head, epochs, path, txn) and not is_within(f"{location}/{path}", nested)
    }
    if not candidates:
        return []
    tail = yield from open_tail(context, location, missing_ok=True)
    tail = yield from probe(context, tail)
    # A client that publishes pending commits stores manifests before the log entry, under the id of
    # the last transaction: another client may be doing that now, until the commits are in the log.
    # A dropped table keeps its pending commits, so the log decides which of them are unpublished.
    waiting = {ref.txn for ref in unpublished(head, location, tail)}
    candidates -= {path for path, txn in files if path.endswith(".avro") and txn in waiting}
    named: set[str] = set()
    if tail.tip >= 0:
        live = yield from tail.snapshot.files()
        named.update(live["path"].to_pylist())
        named.update(delete_paths(live))
        named.update(vector_paths(location, live))
    state = head.tables.get(location)
    if state is not None:
        named |= yield from needed_files(context, location, state.pending)
    if tail.tip >= 0 and not candidates <= named:
        # The whole log is read only for files that the newest state does not have.
        named.update((yield from context.formats.of(tail.snapshot).named_in_log(tail.snapshot)))
    orphans = {f"{location}/{path}" for path in candidates - named}
    if not orphans:
        return []
    if (
        state is not None
        and is_emptied(state)
        and not (yield from is_left_to(location, state, head))
    ):
        return []  # another lake has claimed the directory since it was listed
    # Tables of branches inside this directory are separate tables, which other states keep.
    inner = {f"{location}/{found[0]}" for path in candidates if (found := inner_branch_of(path))}
    for place in [location, *sorted(inner)]:
        kept = yield from kept_by(context, bases, place)
        # If a state can't be determined any more, it may need any of the files: they stay until its
        # ref is deleted.
        lost = {key for key in orphans if kept.lost and key.startswith(f"{place}/")}
        orphans -= kept.keys | lost
    return sorted(orphans)


def _is_unowned(head: Head, epochs: BranchEpochs, path: str, txn: str) -> bool:
    """Return whether no client can commit a file any more.

    A file that was written on a branch belongs to the branch's epoch. That includes files of a
    table that only the branch has, in a directory inside this table's.
    """
    inner = inner_branch_of(path)
    epoch = branch_of(path) if inner is None else inner[1]
    return head.is_fenced(txn) if epoch is None else epochs.is_dead(epoch)


def _sources(context: Context, head: Head) -> Program[set[str] | None]:
    """Return the stored sources of pending merges, which a replay after a foreign change needs
    (hazard 25).

    Return None if a pending commit can't be read.
    """
    keys: set[str] = set()
    for state in head.tables.values():
        for ref in state.pending:
            try:
                commit = yield from context.commit_object(ref.txn, ref.hash)
            except (CorruptObject, UnsupportedFormat):
                return None
            keys.update(key for operation in commit.operations for key in staged_keys(operation))
    return keys


def _old_commits(
    head: Head,
    bases: Iterable[Base],
    kept: Sequence[CommitSummary],
    listed: Iterable[tuple[str, str, str]],
) -> Program[list[str]]:
    """Return commit objects of fenced transactions that no history, table or ref names."""
    named = {(commit.txn, commit.hash) for commit in kept}
    refreshed = (state.refreshed for state in head.tables.values() if not state.dropped)
    named |= {(ref.txn, ref.hash) for ref in refreshed if ref is not None}
    named |= {(ref.txn, ref.hash) for state in head.tables.values() for ref in state.pending}
    for base in bases:
        yield from load_base_tables(base)
        named |= {(ref.txn, ref.hash) for state in base.tables.values() for ref in state.pending}
    return [
        key for key, txn, digest in listed if head.is_fenced(txn) and (txn, digest) not in named
    ]


def _note_never_made(
    head: Head,
    kept: Sequence[CommitSummary],
    listed: Iterable[tuple[str, str, str]],
    old: Container[str],
) -> Program[None]:
    """Note the places of tables that dead transactions were going to create, for the next gc to
    list.

    After their commit objects are deleted, only these notes say where the files are. A transaction
    whose id is not above ``forgotten`` may have committed, so its commit object is not read.
    """
    known = {commit.txn for commit in kept}
    dead = [(txn, digest) for key, txn, digest in listed if key in old and txn not in known]
    dead = [(txn, digest) for txn, digest in dead if txn > head.forgotten]
    loaded = yield from parallel([_sound(txn, digest) for txn, digest in dead])
    noted = {
        (txn, location)
        for (txn, _), commit in zip(dead, loaded, strict=True)
        for location in (() if commit is None else commit.tables)
        if not (location in head.tables or is_external(location))
    }
    outcomes: list[PutOutcome] = yield from parallel(
        [Put(creates_key(txn, location), b"{}", ANY) for txn, location in sorted(noted)]
    )
    if not all(isinstance(outcome, Stored) for outcome in outcomes):
        raise StoreError("gc could not note where dead transactions were to make tables: try again")


def _sound(txn: str, digest: str) -> Program[CommitObject | None]:
    try:
        return (yield from load_commit(txn, digest))
    except (CorruptObject, UnsupportedFormat, VersionNotFound):
        return None


def _void_markers(
    head: Head, markers: Iterable[tuple[str, Listed, Marker]], ended: Container[str]
) -> Program[list[str]]:
    """Return the markers of transactions that can't commit any more or have committed.

    The markers are listed again, because a number may have been freed and taken by another
    transaction since.
    """
    to_delete: dict[str, list[Listed]] = {}
    for table, listed, marker in markers:
        if marker.txn in ended or head.is_fenced(marker.txn):
            to_delete.setdefault(table, []).append(listed)
    left = yield from parallel([still_there(table, some) for table, some in to_delete.items()])
    return [
        marker_key(table, number)
        for table, numbers in zip(to_delete, left, strict=True)
        for number in numbers
    ]


# -------------------- dead epochs
#
# The remains of ended branches: their directories, and the files of tables that only they had.
#
# An epoch whose number HEAD has passed, and that no ref in HEAD names, has no owner and never will
# have one. Only the epoch's own HEAD names the tables that were created on the branch, so it is
# deleted after everything else; the leaves that it names are deleted after it, because the HEAD
# can't be read without them.


@dataclass(frozen=True, slots=True)
class _DeadBranch:
    """The objects of a dead epoch; ``is_known``: False if its tables can't be determined now."""

    keys: list[str]
    held: HeldHead | None
    is_known: bool

    @property
    def leaves(self) -> set[str]:
        """The leaves that the epoch's HEAD names: its own, and those of its base."""
        return set() if self.held is None else {ref.key for ref in self.held.head.tables.refs}


def _dead_branches(epochs: BranchEpochs, listed: Listing) -> Program[dict[str, _DeadBranch]]:
    """Return the dead epochs of which objects were listed; note those whose HEAD is unreadable."""
    by_epoch: dict[str, list[str]] = {}
    for key in listed.of_branches:
        epoch = key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0]
        if epochs.is_dead(epoch):
            by_epoch.setdefault(epoch, []).append(key)
    dead = {}
    for epoch, keys in sorted(by_epoch.items()):
        held, is_known = None, True
        try:
            held = yield from at_home(epoch, load_head())
            yield from at_home(epoch, load_tables(None if held is None else held.head))
        except (CorruptObject, UnsupportedFormat) as error:
            is_known = False
            listed.unknown[epoch] = error
        except VersionNotFound:
            is_known = False  # another gc has just deleted the epoch's HEAD, and deletes the rest
        dead[epoch] = _DeadBranch(keys, held, is_known)
    return dead


def left_of_branches(
    context: Context,
    head: Head,
    bases: Sequence[Base],
    named: Collection[str],
    dead: Mapping[str, _DeadBranch],
    left: dict[str, str],
) -> Program[list[list[str]]]:
    """Return what may be deleted of ended branches' directories and of tables that only they had.

    ``named`` are the leaves that HEAD and its bases need. Places where nothing may be deleted are
    added to ``left``, with the reasons. The result has three rounds of keys: most objects; then the
    epochs' HEADs; then the leaves that these HEADs name.

    If an epoch's tables can't be determined, all its objects stay: from them, a person may find out
    which files belong to it.
    """
    if not dead:
        return [[], [], []]
    kept = {*named, *(yield from _commits_of(bases)), *_kept_by_bases(bases)}
    first: list[str] = []
    heads: list[str] = []
    stay = set[str]()  # leaves of HEADs that are not deleted
    for epoch, branch in dead.items():
        if not branch.is_known:
            stay |= branch.leaves
            continue
        files, held = yield from _files(context, head, bases, epoch, branch.held, left)
        own = [key for key in branch.keys if is_head(key)]
        rest = [key for key in branch.keys if key not in kept and not is_head(key)]
        first += [*files, *rest]
        if held or len(rest) + len(own) < len(branch.keys):
            stay |= branch.leaves
        else:
            heads += own
    # A branch that was made of another branch names leaves of that branch's epoch.
    after = {key for branch in dead.values() for key in branch.leaves}
    leaves = [key for key in first if key in after and key not in stay]
    return [[key for key in first if key not in after], heads, leaves]


def _commits_of(bases: Iterable[Base]) -> Program[set[str]]:
    """Return the commit objects of branches' epochs that bases still need."""
    keys = set()
    for base in bases:
        yield from load_base_tables(base)
        for state in base.tables.values():
            keys |= {commit_key(ref.txn, ref.hash, ref.epoch) for ref in state.pending if ref.epoch}
    return keys


def _kept_by_bases(bases: Iterable[Base]) -> set[str]:
    """Return the tables' states that bases keep separately from the logs."""
    return {kept.key for base in bases for kept in base.kept.values()}


def _files(
    context: Context,
    head: Head,
    bases: Sequence[Base],
    epoch: str,
    held: HeldHead | None,
    left: dict[str, str],
) -> Program[tuple[list[str], bool]]:
    """Return deletable files of an epoch's tables that the lake lacks, and whether others are
    needed.

    ``held`` is the epoch's HEAD, with its tables loaded.
    """
    if held is None:
        return [], False
    to_delete: list[str] = []
    kept = False
    for location, state in held.head.tables.items():
        if location in head.tables:
            continue
        if why := (yield from held_back(context, head, location, state.table_id)):
            left[location] = why
            continue
        listed = yield from list_objects(branch_directory(location, epoch))
        needed = yield from kept_by(context, bases, location)
        keys = {info.key for info in listed}
        kept = kept or bool(needed.lost) or bool(keys & needed.keys)
        to_delete += [] if needed.lost else sorted(keys - needed.keys)
    return to_delete, kept


# -------------------- unreferenced leaves
#
# The unreferenced leaves that gc may delete (docs/design/0011-scale.md).
#
# A reader that is bound to an older HEAD may still need a leaf that the newest HEAD does not name.
# So a leaf is kept for ``max_age_seconds`` after HEAD has stopped naming it. A leaf does not record
# that time, so gc stores marks: lists of the leaves that HEAD names at the time of the mark. If a
# leaf was made before a mark that does not name it, HEAD stopped naming the leaf before the mark,
# or no HEAD ever named it.


def unreferenced_leaves(
    context: Context, head: Head, named: Iterable[str], listed: Listing, *, dry_run: bool
) -> Program[list[str]]:
    """Return the leaves and marks in ``listed`` that may be deleted; store a new mark if needed.

    ``listed`` was made before ``head`` was read, or stored. ``named`` are the leaves of ``head``
    and of the bases that it keeps. The age of a mark is by the store's clock.
    """
    keys = list(listed.leaves)
    now = _mark(context, head, named, listed.now)
    marks = yield from _marks([key for key in keys if is_mark(key)])
    leaves = [key for key in keys if not is_mark(key)]
    fallen = [key for key in leaves if _is_unreferenced(key, now)]
    if not fallen and not marks:
        return []
    max_age = context.settings.max_age_seconds
    made = {mark.key: listed.leaves[mark.key] for mark in marks}
    ripe = [mark for mark in marks if made[mark.key] <= listed.now - max_age]
    ripe += [now] if max_age == 0 else []
    ruling = max(ripe, key=lambda mark: mark.replacement, default=None)
    # One mark in each half of ``max_age`` is enough, so most runs store none, and marks stay few.
    halfway = listed.now - max_age / 2
    waiting = ruling is None or any(not _is_unreferenced(key, ruling) for key in fallen)
    may_mark = not (dry_run or listed.in_doubt)  # a mark says that HEAD has advanced to this number
    if waiting and may_mark and all(at <= halfway for at in made.values()):
        # Refused if another gc has stored a mark for this HEAD.
        yield from put(now.key, encode(now), ABSENT)
    if ruling is None:
        return []
    to_delete = [key for key in fallen if _is_unreferenced(key, ruling)]
    return to_delete + [mark.key for mark in marks if mark.replacement < ruling.replacement]


def _mark(context: Context, head: Head, named: Iterable[str], now: float) -> LeafMark:
    keys = tuple(sorted(named))
    return LeafMark(FORMAT, context.ids.nonce(), head.replacement, int(now * 1000), keys)


def _is_unreferenced(key: str, mark: LeafMark) -> bool:
    """Return whether neither the mark's HEAD nor any later one names the leaf.

    This is sure because a HEAD names only leaves that its own replacement has made, and leaves that
    the HEAD before it named; the same holds for the bases that it is the first to keep.
    """
    return made_of(key) <= mark.replacement and key not in mark.named


def _marks(keys: list[str]) -> Program[list[LeafMark]]:
    outcomes = yield from parallel([get(key) for key in keys])
    marks = []
    for key, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, Found):
            mark = decode(key, outcome.body, LeafMark)
            if mark.key != key:
                raise CorruptObject(
                    f"{key} holds the mark of replacement {mark.replacement}: it was copied there "
                    "by hand; delete it",
                    key=key,
                )
            marks.append(mark)
    return marks
