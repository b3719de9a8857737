"""The view of a table by a reader of a bare format, whichever format it is.

The readers share no code with the library's own, so that the two can be compared with each other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class UnreadableTable(AssertionError):
    """A reader of the format cannot read the table."""


class BareTable(Protocol):
    """A table at a version, as a client without LakeVilla sees it."""

    @property
    def location(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def table_id(self) -> str: ...
    @property
    def live_files(self) -> Collection[str]:
        """Paths of the live data files, relative to the table."""

    @property
    def transactions(self) -> list[str]:
        """LakeVilla's transactions in the versions that still exist, in order."""

    @property
    def is_whole(self) -> bool:
        """True if every version from the first on still exists."""

    def sequence(self, lake_id: str) -> int:
        """Return the number up to which a lake's commits are published here; -1: none."""
