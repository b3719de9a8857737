"""An overlay: the changes above a file list, and the files that they add and remove in sum.

An overlay is a chain of nodes, one per commit, which snapshots share: a commit that is laid over a
state adds one node. When the files of a node are first requested, the node is replaced by the sum
of its change and of all changes before it, and drops its references to the earlier nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakevilla.formats.base import Change
from lakevilla.formats.files import (
    DataFile,
    FileRef,
    Masks,
    RemovedFile,
    by_path,
    files_from_structs,
    is_masked,
)


@dataclass(frozen=True)
class Folded:
    """The sum of the changes above a list: the live files added by them, and the files removed."""

    adds: Mapping[FileRef, DataFile]
    removes: Mapping[FileRef, RemovedFile]

    @property
    def count(self) -> int:
        """The number of files that the changes name."""
        return len(self.adds) + len(self.removes)

    def spoken_of(self) -> Masks:
        """Return the files that the changes above the list name, by their whole identity.

        The result is not cached: only the writer of a checkpoint requests it, and it is large.
        """
        return by_path((*self.adds, *self.removes))

    @cached_property
    def masks(self) -> Masks:
        """The files for which the list below is not authoritative any more.

        A path that was added again masks all earlier files of the path: its newest entry is the
        file, no matter which deletes applied to it.
        """
        return {**by_path(self.removes), **dict.fromkeys((path for path, _ in self.adds), None)}


@dataclass(frozen=True, slots=True)
class _Link:
    before: Overlay
    change: Change


class Overlay:
    """The changes above a file list. It is immutable: ``with_change`` returns a new overlay."""

    __slots__ = ("_state",)

    def __init__(self, state: Folded | _Link) -> None:
        self._state = state

    def with_change(self, change: Change) -> Overlay:
        """Return the overlay that has one more change above the list."""
        if not change.adds and not change.removes:
            return self
        return Overlay(_Link(self, change))

    @property
    def is_empty(self) -> bool:
        folded = self._state
        return isinstance(folded, Folded) and not folded.adds and not folded.removes

    def live(self, ref: FileRef) -> bool | None:
        """Return whether a file is live; None if no change above the list names it."""
        folded = self.fold()
        if ref in folded.adds:
            return True
        return False if is_masked(ref, folded.masks) else None

    def fold(self) -> Folded:
        """Return the sum of the changes above the list."""
        node: Overlay = self
        changes: list[Change] = []
        while True:
            # One read of one attribute: another thread may fold the node meanwhile,
            # which replaces its link by the equal sum.
            state = node._state
            if isinstance(state, Folded):
                break
            changes.append(state.change)
            node = state.before
        if not changes:
            return state
        adds, removes = dict(state.adds), dict(state.removes)
        live = dict(adds.keys())
        for change in reversed(changes):
            for removed in change.removes:
                ref = removed.ref
                adds.pop(ref, None)
                removes[ref] = removed
            for added in change.adds:
                ref = added.ref
                if ref[0] in live and live[ref[0]] != ref[1]:
                    # The rows of a path with two entries would be counted twice: its newest entry
                    # counts.
                    adds.pop((ref[0], live[ref[0]]), None)
                live[ref[0]] = ref[1]
                removes.pop(ref, None)
                adds[ref] = added
        folded = Folded(adds, removes)
        self._state = folded
        return folded


EMPTY_TAIL = Overlay(Folded({}, {}))


#: A list of files is copied into one piece if it has more pieces than this.
_MOST_PIECES = 64


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """The files that an overlay adds, as ``FILES_SCHEMA``.

    A transaction adds files statement by statement: the next list is made from the list before.
    """

    files: list[DataFile]
    table: pa.Table

    @classmethod
    def of(cls, folded: Folded, before: AddedFiles | None) -> AddedFiles:
        """Return the files of ``folded``; ``before`` are those of an earlier overlay."""
        files = list(folded.adds.values())
        count = 0 if before is None else len(before.files)
        # Lists compare identity first, so equal files are not compared by their values.
        if before is None or not count or files[:count] != before.files:
            return cls(files, files_from_structs(files))
        if count == len(files):
            return before
        table = pa.concat_tables([before.table, files_from_structs(files[count:])])
        pieces = table.column(0).num_chunks
        return cls(files, table.combine_chunks() if pieces > _MOST_PIECES else table)
