"""What changes for a transaction that moves from one view of a table to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from lakevilla.formats.base import Change
from lakevilla.formats.files import ChangeFile, DataFile, FileRef, RemovedFile, removal, restored
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import entry_at
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import View
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class NetChange:
    """The difference between two views of a table.

    ``contract`` says that the metadata asks something else of data files, or
    that the difference can't be told, which comes to the same. ``untold``: rows changed
    in files that are in neither view, because they came and went in between: then what
    the others say of themselves (``dataChange``) does not tell whether rows changed.
    """

    adds: Mapping[FileRef, DataFile]
    removes: Mapping[FileRef, RemovedFile]
    contract: bool = False
    metadata: bool = False
    untold: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.adds or self.removes or self.contract or self.metadata)

    def only_moves(self, removed: Iterable[FileRef], added: Iterable[FileRef]) -> bool:
        """Whether these of its files went and came without a row that did."""
        return not (
            self.untold
            or any(self.removes[ref].data_change for ref in removed)
            or any(self.adds[ref].data_change for ref in added)
        )


_EVERYTHING = NetChange({}, {}, contract=True, metadata=True)


def net_change(context: Context, old: View, new: View, tail: Tail) -> Program[NetChange]:
    """What a transaction on ``old`` would see change if it moved to ``new``.

    The two may differ in how far they use the log and what they lay over it.
    Each file that either touched is looked at once: was it live, is it live.
    """
    if (
        new.placement.logged < old.placement.logged
        or new.snapshot.table_id != old.snapshot.table_id
    ):
        return _EVERYTHING
    between: list[Change] = []
    for version in range(old.placement.logged + 1, new.placement.logged + 1):
        entry = yield from entry_at(context, tail, version)
        if entry is None:
            return _EVERYTHING
        between.append(entry.change)
    between.extend(part.change for part in new.parts)
    before = _Touches(part.change for part in old.parts)
    after = _Touches(between)
    adds: dict[FileRef, DataFile] = {}
    removes: dict[FileRef, RemovedFile] = {}
    untold = False
    for ref in {**before.last, **after.last}:
        was_live = before.ends_live(ref, otherwise=after.began_live(ref))
        is_live = after.ends_live(ref, otherwise=before.began_live(ref))
        changed = ref in after.changed or ref in before.changed
        if is_live and not was_live:
            added = after.added.get(ref) or before.restored(ref)
            # Its rows are new, though whoever added it last did so for its statistics alone.
            adds[ref] = _changed(added) if changed else added
        elif was_live and not is_live:
            removes[ref] = after.removed.get(ref) or before.withdrawn(ref)
        elif not is_live:
            # Rows appended and then moved on, or moved here and then deleted; or deleted by a
            # commit that was voided since, and moved elsewhere by a client that never saw it.
            untold = untold or changed
    contract = not _same_contract(old, new)
    metadata = (
        old.snapshot.metadata != new.snapshot.metadata
        or old.snapshot.protocol != new.snapshot.protocol
    )
    return NetChange(adds, removes, contract, metadata, untold)


def _same_contract(old: View, new: View) -> bool:
    from_old, to_new = old.snapshot, new.snapshot
    return from_old.metadata == to_new.metadata or from_old.keeps_contract(to_new.metadata)


class _Touches:
    """The first and last thing that a run of changes did to each file."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self.first: dict[FileRef, bool] = {}
        self.last: dict[FileRef, bool] = {}
        self.added: dict[FileRef, DataFile] = {}
        self.removed: dict[FileRef, RemovedFile] = {}
        self.changed: set[FileRef] = set()
        for change in changes:
            self.changed.update(file.ref for file in change.removes if file.data_change)
            self.changed.update(file.ref for file in change.adds if file.data_change)
            # Within one commit a removal comes before an addition of the same path.
            for removed in change.removes:
                self.first.setdefault(removed.ref, False)
                self.last[removed.ref] = False
                self.removed[removed.ref] = removed
            for added in change.adds:
                self.first.setdefault(added.ref, True)
                self.last[added.ref] = True
                self.added[added.ref] = added

    def began_live(self, ref: FileRef) -> bool:
        """Whether the file was there before these changes: the first of them removed it."""
        return self.first.get(ref) is False

    def ends_live(self, ref: FileRef, *, otherwise: bool) -> bool:
        return self.last.get(ref, otherwise)

    def restored(self, ref: FileRef) -> DataFile:
        """A file whose removal is no longer part of the view; its statistics are not known."""
        return restored(self.removed[ref])

    def withdrawn(self, ref: FileRef) -> RemovedFile:
        """A file whose addition is no longer part of the view."""
        return removal(self.added[ref])


def compose(changes: Sequence[Change]) -> Change:
    """One change that does what ``changes`` do in order: files that come and go are left out.

    Readers of a change data feed take an entry's change files for all of its
    changes (hazard 32); ``feed.in_one_entry`` sees to it that they are. Where one change
    moves what another changes, ``dataChange`` is true of all: which of the files that are
    left hold the changed rows can't be told.
    """
    if len(changes) == 1:
        return changes[0]
    crossed = False
    adds: dict[FileRef, DataFile] = {}
    removes: dict[FileRef, RemovedFile] = {}
    change_files: list[ChangeFile] = []
    metadata = protocol = None
    domains: dict[str, dict[str, object]] = {}
    for change in changes:
        for removed in change.removes:
            added = adds.pop(removed.ref, None)
            if added is None:
                removes[removed.ref] = removed
            else:
                crossed = crossed or added.data_change != removed.data_change
        for added in change.adds:
            adds[added.ref] = added
        change_files.extend(change.change_files)
        metadata = change.metadata or metadata
        protocol = change.protocol or protocol
        for domain in change.domains:
            domains[domain["domain"]] = domain
    return Change(
        adds=tuple(_changed(file) if crossed else file for file in adds.values()),
        removes=tuple(_changed(file) if crossed else file for file in removes.values()),
        change_files=tuple(change_files),
        metadata=metadata,
        protocol=protocol,
        domains=tuple(domains.values()),
    )


_File = TypeVar("_File", DataFile, RemovedFile)


def _changed(file: _File) -> _File:
    return msgspec.structs.replace(file, data_change=True)
