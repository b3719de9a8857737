"""Check whether reads of the catalog are still valid (docs/design/0035, phantoms).

Each commit since the bound state is checked by what HEAD knows of it: its tables, and by how much
they grew. If a read has terms on files, the commit object is read as well, which shows the files
that the commit added and removed. In doubt the check finds a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakevilla.errors import ConflictError
from lakevilla.formats.base import Change
from lakevilla.formats.catalog_rows import file_row, statistics_of
from lakevilla.formats.files import DataFile, restored
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import NOWHERE, CommitSummary, Head, TableState, application_id
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.refs import is_at
from lakevilla.global_log.repo import commits_since, load_names, load_tables
from lakevilla.lake.context import Tail
from lakevilla.lake.frozen.mounts import load_clones
from lakevilla.lake.table_log import entry_at, open_tail, refresh
from lakevilla.sql.catalog import CatalogRead
from lakevilla.store.effects import Program
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState, conflict

#: Columns of lakevilla_tables with the size of a table, as HEAD has it.
_SIZES = ("files", "rows", "bytes", "changed_version")


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of tables, in the newest HEAD and in the HEAD that was read."""

    heads: tuple[Head, ...]
    registered: dict[str, set[str]]

    def of(self, location: str) -> set[str]:
        found = set(self.registered.get(location, ()))
        for head in self.heads:
            state = head.tables.get(location)
            if state is not None and state.catalog:
                found.add(name_in_catalog(state.catalog))
        return found | {location}


def changed_catalog(
    txn: TransactionState, head: Head, examination: Examination, *, extending: bool
) -> Program[ConflictError | None]:
    """Return the conflict of a catalog read with a later commit; None if there is none."""
    reads = txn.work.catalog
    if not reads or (txn.options.isolation == "snapshot" and not extending):
        return None
    commits = yield from commits_since(head, txn.bound.sequence)
    if commits is None:
        return ConflictError(
            f"transaction {txn.id} is so old that the commits since it began are not kept any "
            "more: run it again",
            txn_id=txn.id,
        )
    names = yield from _names(txn, head, commits)
    renamed = yield from _renamed(names, reads)
    if renamed is not None:
        return conflict(txn, renamed, "it was renamed after the catalog was read")
    shown = yield from _shown_otherwise(txn, head, reads)
    if shown is not None:
        return conflict(txn, shown, "a clone was made or deleted after the catalog was read")
    for read in reads:
        for commit in commits:
            table = yield from _touched(txn, head, read, commit, names)
            if table is not None:
                return conflict(txn, table, _why(read, commit))
        if read.kind in ("files", "statistics"):
            table = yield from _beyond_head(txn, head, read, examination, names)
            if table is not None:
                return conflict(txn, table, _why(read, None))
    return None


def _why(read: CatalogRead, commit: CommitSummary | None) -> str:
    writer = "another client" if commit is None else f"commit {commit.sequence}"
    return f"{writer} has changed what was read in lakevilla_{read.kind}"


def _names(txn: TransactionState, head: Head, commits: Iterable[CommitSummary]) -> Program[_Names]:
    heads = (head,) if txn.head is None or txn.head is head else (txn.head, head)
    touched = {
        location for commit in commits for location in commit.tables
    } | txn.work.tables.keys()
    for one in heads:
        yield from load_names(one)
        yield from load_tables(one, touched)
    registered: dict[str, set[str]] = {}
    for one in heads:
        for name, location in one.names.items():
            registered.setdefault(location, set()).add(name)
    return _Names(heads, registered)


def _renamed(names: _Names, reads: Iterable[CatalogRead]) -> Program[str | None]:
    """Return a table whose name was read in the catalog and means another table now, if any."""
    yield from ()
    if len(names.heads) < 2:
        return None
    before, after = (dict(head.names.items()) for head in names.heads)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            for read in reads:
                if read.kind != "commits" and name in read.names:
                    locations = {before.get(name), after.get(name)} - {None, NOWHERE}
                    return min((location for location in locations if location), default=name)
    return None


def _shown_otherwise(
    txn: TransactionState, head: Head, reads: Iterable[CatalogRead]
) -> Program[str | None]:
    """Return a clone that was made or deleted since a catalog read of its path, if any.

    No commit shows that.
    """
    before, after = (yield from load_clones(txn.head)), (yield from load_clones(head))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        is_same = was is not None and now is not None and was.id == now.id
        if not is_same and any(read.kind != "commits" and _asks(read, name) for read in reads):
            return name
    return None


def _asks(read: CatalogRead, location: str) -> bool:
    """Return whether the range of names of a read has names at or below a path."""
    names = read.names
    if names.exact is not None:
        return any(is_at(one, location) for one in names.exact)
    return names.first <= f"{location}/{HIGHEST}" and (names.last is None or location <= names.last)


def _touched(
    txn: TransactionState, head: Head, read: CatalogRead, commit: CommitSummary, names: _Names
) -> Program[str | None]:
    """Return a table whose rows in the catalog a commit may have changed for a read; else None."""
    if read.kind == "commits":
        return _new_commit(read, commit, names)
    for location, touch in commit.tables.items():
        called = names.of(location)
        if not any(name in read.names for name in called):
            continue
        moved = touch.entered is not None or touch.left is not None
        if read.kind == "tables":
            reads_sizes = read.columns is None or not set(_SIZES).isdisjoint(read.columns)
            grew = touch.metadata or touch.adds or touch.removes or commit.kind == "reconcile"
            may_differ = moved or touch.metadata or (grew and reads_sizes)
            if may_differ and _row_changed(txn, head, read, location, called):
                return location
            continue
        if moved or touch.metadata or commit.kind == "reconcile":
            return location
        if read.kind == "columns" or not (touch.adds or touch.removes):
            continue
        if (yield from _files_changed(txn, head, read, commit, location, called)):
            return location
    return None


def _new_commit(read: CatalogRead, commit: CommitSummary, names: _Names) -> str | None:
    rows: list[dict[str, Any]] = [
        {
            "version": commit.sequence,
            "kind": commit.kind,
            "adds": touch.adds,
            "removes": touch.removes,
            "metadata_changed": touch.metadata,
            "location": location,
        }
        for location, touch in commit.tables.items()
    ]
    for row in rows:
        location = row.pop("location")
        if not any(name in read.names for name in names.of(location)):
            continue
        if read.admits(row):
            return str(location)
    whole = {"version": commit.sequence, "kind": commit.kind}
    if not rows and read.names.is_all and read.admits(whole):
        return ""
    return None


def _row_changed(
    txn: TransactionState, head: Head, read: CatalogRead, location: str, called: set[str]
) -> bool:
    """Return whether the table's row in lakevilla_tables has changed for the read."""
    before = txn.head
    if before is None or before.sequence != txn.bound.sequence:
        return True  # the transaction was resumed: the row that was read is not known any more
    old, new = _row(before, location), _row(head, location)
    if old is None or new is None:
        return (old is not None or new is not None) and any(
            read.admits({**one, "name": name})
            for one in (old, new)
            if one is not None
            for name in called
            if name in read.names
        )
    columns = [name for name in old if read.columns is None or name in read.columns]
    same = all(old[name] == new[name] and old[name] is not None for name in columns)
    return not same and (read.admits(old) or read.admits(new))


def _row(head: Head, location: str) -> dict[str, Any] | None:
    state = head.tables.get(location)
    if state is None or state.dropped:
        return None
    size: tuple[int | None, ...] = (None, None, None)
    if state.size is not None:
        size = state.size.files, state.size.rows, state.size.bytes
    return {
        "format": state.format,
        "table_id": state.table_id,
        "guarded": state.guarded,
        **dict(zip(("files", "rows", "bytes"), size, strict=True)),
        "changed_version": state.changed,
    }


# ------------------------------------------------------------------ files


def _files_changed(
    txn: TransactionState,
    head: Head,
    read: CatalogRead,
    commit: CommitSummary,
    location: str,
    called: set[str],
) -> Program[bool]:
    """Return whether a commit added or removed a file that a catalog read may show."""
    touch = commit.tables[location]
    working = txn.work.tables.get(location)
    if working is None:
        return True  # the table could not be opened when the catalog was read
    if commit.kind == "foreign" and touch.published <= working.view.placement.logged:
        return False  # the view had the entry already when the files were listed
    if not read.terms or all(term.column == "table" for term in read.terms):
        return True
    layout = working.view.snapshot.layout
    if commit.kind == "foreign":
        tail = yield from open_tail(txn.context, location)
        if tail.tip < touch.published:
            tail = yield from refresh(txn.context, location)
        if tail.tip < touch.published or touch.first is None:
            return True
        for version in range(touch.first, touch.published + 1):
            entry = yield from entry_at(txn.context, tail, version)
            if entry is None or may_be_seen(read, layout, called, entry.change):
                return True
        return False
    stored = yield from txn.context.commit_object(commit.txn, commit.hash)
    return may_be_seen(read, layout, called, stored.tables[location].change)


def _beyond_head(
    txn: TransactionState, head: Head, read: CatalogRead, examination: Examination, names: _Names
) -> Program[str | None]:
    """Return a table with a foreign commit that HEAD does not know and a read may show; or None."""
    application = application_id(head)
    for location, working in txn.work.tables.items():
        called = names.of(location)
        tail: Tail | None = examination.tails.get(location)
        if tail is None or not any(name in read.names for name in called):
            continue
        first = max(working.view.placement.logged, _published(head, location)) + 1
        for version in range(first, tail.tip + 1):
            entry = yield from entry_at(txn.context, tail, version)
            if entry is None:
                return location
            if application in entry.applications:
                continue  # it publishes commits of HEAD
            if may_be_seen(read, working.view.snapshot.layout, called, entry.change):
                return location
    return None


def _published(head: Head, location: str) -> int:
    state: TableState | None = head.tables.get(location)
    return -1 if state is None else state.published


def may_be_seen(read: CatalogRead, layout: Layout, called: Iterable[str], change: Change) -> bool:
    """Return whether the read's terms admit a file that a change adds or removes."""
    if change.metadata is not None:
        return True
    for removed in change.removes:
        if any(_admits(read, layout, name, restored(removed), known=False) for name in called):
            return True
    return any(
        _admits(read, layout, name, file, known=True) for file in change.adds for name in called
    )


def _admits(read: CatalogRead, layout: Layout, name: str, file: DataFile, *, known: bool) -> bool:
    """Return whether the read may show the file.

    ``known``: all columns of the file's row are known. For a removed file some are not: these may
    have any value.
    """
    if read.kind == "statistics":
        if not known:
            return read.admits({"table": name, "path": file.path})
        return any(read.admits(row) for row in statistics_of(name, layout, file))
    row = file_row("", name, layout, file)
    row.pop("uri")
    if not known:
        row = {
            key: row[key]
            for key in ("table", "path", "size_bytes", "rows", "partition")
            if row[key] not in (None, 0)
        }
    return read.admits(row)
