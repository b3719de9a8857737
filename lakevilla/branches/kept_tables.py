"""The tables of a ref that are kept apart: files are copied, and states stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakevilla.branches.copies import Copies, removed_since, store_copies
from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.formats.files import data_files, files_from_structs
from lakevilla.global_log.bases import Base, load_base_tables
from lakevilla.global_log.refs import KeptTable, RefEntry
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import frozen_view
from lakevilla.lake.kept_state import kept_object, store_kept
from lakevilla.lake.table_log import in_passing, refresh
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class KeptTables:
    """All that a base keeps apart, the copies that were just made, and what there is to tell."""

    kept: dict[str, KeptTable]
    copies: Mapping[str, Copies]
    findings: tuple[Finding, ...]

    @property
    def report(self) -> Report:
        return Report(all(one.severity == "note" for one in self.findings), self.findings)


def keep_tables(
    context: Context, base: Base, entry: RefEntry, beside: Base | None = None
) -> Program[KeptTables]:
    """Keep apart each table of a base that has to be.

    ``beside``: what else the ref shows of these tables. Its files are copied, too.
    """
    yield from load_base_tables(base)
    kept = dict(base.kept)
    copies: dict[str, Copies] = {}
    findings: list[Finding] = []
    for location, state in sorted(base.tables.items()):
        if state.dropped:
            continue
        try:
            look = _kept_table(context, base, entry, location, beside)
            found = yield from in_passing(context, location, look)
        except StoreError:
            raise
        except LakeVillaError as error:
            message = f"table {location} can't be kept: {error.message}"
            findings.append(Finding("warning", "ref_lost", message, table=location))
            continue
        if found is not None:
            kept[location], copies[location], copied = found
            message = f"table {location} is kept apart: {copied} files were copied"
            findings.append(Finding("note", "kept", message, table=location))
    return KeptTables(kept, copies, tuple(findings))


def _kept_table(
    context: Context, base: Base, entry: RefEntry, location: str, beside: Base | None
) -> Program[tuple[KeptTable, Copies, int] | None]:
    """One table, if it has to be kept apart, or has lost more files since it was."""
    view = yield from frozen_view(context, base, location)
    snapshots = [view.snapshot]
    if beside is not None:
        yield from load_base_tables(beside, [location])
        there = beside.tables.get(location)
        if there is not None and not there.dropped and there.table_id == view.snapshot.table_id:
            snapshots.append((yield from frozen_view(context, beside, location)).snapshot)
    tail = yield from refresh(context, location)
    unsafe: dict[str, int] = {}
    for snapshot in snapshots:
        unsafe |= yield from removed_since(tail, snapshot)
    state = base.tables[location]
    if not unsafe:
        has_moved_on = bool(state.pending) or tail.tip != state.published
        if base.kept_of(location) is not None or not has_moved_on:
            return None
    copies = Copies(location, entry, unsafe)
    lists = []
    for snapshot in snapshots:
        files = data_files((yield from snapshot.files()))
        lists.append([copies.file(file) for file in files])
    copied = yield from store_copies(copies)
    table: pa.Table = files_from_structs(lists[0])
    digest, body = kept_object(view.snapshot, table)
    through = base.sequence if entry.kind == "branch" else None
    kept = KeptTable(entry.life, digest, through, state.table_id)
    if not (yield from store_kept(kept, body)):
        raise StoreError(f"could not store {kept.key}: keep it again")
    return kept, copies, copied
