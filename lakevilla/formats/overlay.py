"""The files that changes added and removed on top of a file list, newest last.

The tail is a chain of nodes, one per commit, shared between snapshots: laying a commit over
a state makes one node. When the files of a node are first requested, the node is folded into
the sum of all nodes before it, and drops its references to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile, FileRef, Masks, RemovedFile, by_path, is_masked


@dataclass(frozen=True)
class Folded:
    """The sum of a tail: files that it added and that are live, and files that it removed."""

    adds: Mapping[FileRef, DataFile]
    removes: Mapping[FileRef, RemovedFile]

    @property
    def count(self) -> int:
        """The number of files that it names."""
        return len(self.adds) + len(self.removes)

    def spoken_of(self) -> Masks:
        """Return the files that a commit of the tail names, by their whole identity.

        The result is not cached: only a checkpoint requests it, and is larger than all the rest.
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
    """An immutable tail; ``with_change`` returns the next tail."""

    __slots__ = ("_state",)

    def __init__(self, state: Folded | _Link) -> None:
        self._state = state

    def with_change(self, change: Change) -> Overlay:
        """Return the tail that has one more commit."""
        if not change.adds and not change.removes:
            return self
        return Overlay(_Link(self, change))

    @property
    def is_empty(self) -> bool:
        folded = self._state
        return isinstance(folded, Folded) and not folded.adds and not folded.removes

    def live(self, ref: FileRef) -> bool | None:
        """Return whether a file is live; None if no commit of the tail names it."""
        folded = self.fold()
        if ref in folded.adds:
            return True
        return False if is_masked(ref, folded.masks) else None

    def fold(self) -> Folded:
        """Return the sum of the tail."""
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
