"""Faults of log entries that stay open until a later entry settles them.

Readers use the newest action for each thing. A definition that can't be read does not matter to
them once another has replaced it. The same holds for a file that an entry both adds and removes,
once a later entry adds or removes it. So a log is wrong only at the versions between.
"""

from __future__ import annotations

from lakevilla.errors import CorruptObject
from lakevilla.formats.base import Change
from lakevilla.formats.delta.actions import EntryFaults
from lakevilla.formats.files import FileRef


class Unsettled:
    """The faults that the entries read so far have left open."""

    def __init__(self) -> None:
        self._metadata: CorruptObject | None = None
        self._protocol: CorruptObject | None = None
        self._files: dict[FileRef, CorruptObject] = {}

    def follow(self, change: Change, faults: EntryFaults) -> None:
        """Follow the next entry: remove the faults that it settles, and add those that it leaves
        open.
        """
        if change.metadata is not None:
            self._metadata = None
        if change.protocol is not None:
            self._protocol = None
        if self._files:
            added = {file.path for file in change.adds}
            removed = {file.ref for file in change.removes}
            self._files = {
                ref: fault
                for ref, fault in self._files.items()
                if ref not in removed and ref[0] not in added
            }
        self._metadata = faults.metadata or self._metadata
        self._protocol = faults.protocol or self._protocol
        self._files |= faults.files

    def check(self) -> None:
        """Refuse the state if any fault is open.

        Raises
        ------
        CorruptObject
        """
        fault = EntryFaults(self._metadata, self._protocol, self._files).first()
        if fault is not None:
            raise fault
