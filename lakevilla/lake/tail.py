"""A table's log as far as this process has read it: a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakevilla.formats.base import Entry, TableSnapshot

_KEPT = 160


@dataclass(frozen=True, slots=True)
class Tail:
    """Entries up to ``tip`` and snapshots at some versions, the tip's among them.

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
        """This tail one entry on; the oldest are forgotten."""
        assert entry.version == self.tip + 1
        # Lists of all files would be a lot of memory, one a version. Who still reads at the last
        # one keeps his, and whoever goes on at an older one has it made once more.
        outdated = self.snapshots.get(self.tip - 1)
        if outdated is not None:
            outdated.forget_files()
        oldest = entry.version - _KEPT
        return Tail(
            self.location,
            entry.version,
            {**{v: s for v, s in self.snapshots.items() if v > oldest}, entry.version: snapshot},
            {**{v: e for v, e in self.entries.items() if v > oldest}, entry.version: entry},
            seen_at,
        )
