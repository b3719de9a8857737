"""What may go once HEAD has moved: of what was listed, what belongs to the fenced."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.bases import Base, load_base_tables, load_bases_by_ref, named_leaves
from lakevilla.global_log.head import CommitSummary, Head, find_commit
from lakevilla.global_log.inbox.proposal import is_over, number_of
from lakevilla.global_log.refs import parts_of
from lakevilla.global_log.repo import commits_since
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_of
from lakevilla.lake.fitness import needed_files, unpublished
from lakevilla.lake.frozen.kept import kept_by
from lakevilla.lake.frozen.lives import BranchLives
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tables.nested_tables import is_within, nested_tables
from lakevilla.maintenance.gc.dead_lives import left_of_branches
from lakevilla.maintenance.gc.listing import Listing, named_pages
from lakevilla.maintenance.gc.unreferenced_leaves import unreferenced_leaves
from lakevilla.maintenance.stale_places import still_there
from lakevilla.markers.marker import Listed, Marker, marker_key
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import staged_keys


def garbage(
    context: Context, head: Head, listed: Listing, *, dry_run: bool
) -> Program[tuple[list[str], list[str]]]:
    """The keys of what is to be deleted, when ``head`` is the lake's, and of what goes after that.

    What its refs hold stays. Safe beside whoever makes a ref: its base is of the HEAD that it
    replaces, which is this one or a later one, and a base that is not named yet has a later number.
    """
    by_ref = yield from load_bases_by_ref(head)
    bases = list(by_ref.values())
    still_named = set() if listed.history else (yield from named_pages(head))
    old_pages = [key for key in listed.pages if key not in still_named]
    # Without its pages, the commits in HEAD: fewer of the others' leftovers are known as such.
    kept: Sequence[CommitSummary] | None = head.commits
    if listed.history is None:
        kept = yield from commits_since(head, head.history_start)
    commits = listed.commits
    if kept is None:  # another gc is at work: whose they are is for that one to tell
        kept, commits = head.commits, []
    lives = yield from BranchLives.of(head)
    doomed: list[str] = []
    for location, files in listed.data.items():
        doomed.extend((yield from _orphans(context, head, lives, bases, location, files)))
    doomed.extend((yield from _old_commits(head, bases, kept, commits)))
    sources = yield from _sources(context, head)
    # Where a pending commit can't be read, what it needs may be any of them.
    for key, txn in listed.records if sources is not None else ():
        over = head.is_fenced(txn) or find_commit(kept, txn) is not None
        if over and key not in (sources or ()):
            doomed.append(key)
    doomed.extend(old_pages)
    doomed.extend(key for key in listed.proposals if _is_over(key, head))
    doomed.extend(_old_bases(head, {ref.key for ref in by_ref}, listed.bases))
    named = named_leaves(head, bases)
    doomed.extend((yield from unreferenced_leaves(context, head, named, listed, dry_run=dry_run)))
    ended = listed.ended | {commit.txn for commit in kept if commit.kind == "transaction"}
    doomed.extend((yield from _void_markers(head, listed.markers, ended)))
    of_branches, last = yield from left_of_branches(
        context, head, bases, named, listed.of_branches, listed.held_back
    )
    return [*doomed, *of_branches], last


def _is_over(key: str, head: Head) -> bool:
    """Whether a proposal can't be taken any more: HEAD tells, whatever became of its owner."""
    number = number_of(key)
    return number is not None and is_over(number, head)


def _old_bases(head: Head, named: Collection[str], listed: Iterable[str]) -> list[str]:
    """Bases that no ref names, and none ever will: HEAD has come past what they were made for."""
    old = [(key, parts_of(key)) for key in listed if key not in named]
    return [key for key, parts in old if parts is not None and parts[0] <= head.replacement]


def _orphans(
    context: Context,
    head: Head,
    lives: BranchLives,
    bases: Sequence[Base],
    location: str,
    files: Collection[tuple[str, str]],
) -> Program[list[str]]:
    """Files of fenced transactions that no entry of the log, and nothing pending, names."""
    # A table may have come into HEAD, inside of this one's directory, since the files were listed.
    nested = nested_tables(location, (), head)
    candidates = {
        path
        for path, txn in files
        if _is_nobodys(head, lives, path, txn) and not is_within(f"{location}/{path}", nested)
    }
    if not candidates:
        return []
    tail = yield from open_tail(context, location, missing_ok=True)
    tail = yield from probe(context, tail)
    # Who publishes what is pending stores manifests first, in the name of the last transaction:
    # they may be on their way. Once it is published that number is taken. A dropped table keeps
    # its pending commits for ever: the log tells which of them are published.
    waiting = {ref.txn for ref in unpublished(head, location, tail)}
    candidates -= {path for path, txn in files if path.endswith(".avro") and txn in waiting}
    named: set[str] = set()
    if tail.tip >= 0:
        live = yield from tail.snapshot.files()
        named.update(live["path"].to_pylist())
        named.update((yield from context.formats.of(tail.snapshot).named_in_log(tail.snapshot)))
    state = head.tables.get(location)
    if state is not None:
        named |= yield from needed_files(context, location, state.pending)
    orphans = {f"{location}/{path}" for path in candidates - named}
    if not orphans:
        return []
    kept = yield from kept_by(context, bases, location)
    # A state that can't be told any more may need any of them: they stay until its ref is deleted.
    return [] if kept.lost else sorted(orphans - kept.keys)


def _is_nobodys(head: Head, lives: BranchLives, path: str, txn: str) -> bool:
    """Whether nobody will commit a file any more. All that a branch has written is its own."""
    life = branch_of(path)
    return head.is_fenced(txn) if life is None else lives.is_dead(life)


def _sources(context: Context, head: Head) -> Program[set[str] | None]:
    """The sources of pending merges: a foreign change may yet ask for a replay (hazard 25).

    None if a pending commit can't be read.
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
    """Commit objects of fenced ids that neither the history, nor a table, nor a ref names."""
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


def _void_markers(
    head: Head, markers: Iterable[tuple[str, Listed, Marker]], ended: Container[str]
) -> Program[list[str]]:
    """Markers of transactions that can't commit any more, or have.

    They are listed once more: a number that was freed since may be another's by now.
    """
    doomed: dict[str, list[Listed]] = {}
    for table, listed, marker in markers:
        if marker.txn in ended or head.is_fenced(marker.txn):
            doomed.setdefault(table, []).append(listed)
    left = yield from parallel([still_there(table, some) for table, some in doomed.items()])
    return [
        marker_key(table, number)
        for table, numbers in zip(doomed, left, strict=True)
        for number in numbers
    ]
