"""The table formats of a lake, and which of them a table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.formats.base import FormatName, Snapshot, TableFormat
from lakevilla.store.effects import Program

__all__ = ["Formats"]


class Formats:
    """Formats by name, in the order in which a directory is asked for them.

    ``later`` makes those that are dear to load, when they are first asked for.
    """

    def __init__(
        self,
        *formats: TableFormat,
        later: Mapping[FormatName, Callable[[], TableFormat]] | None = None,
    ) -> None:
        self._known = {one.name: one for one in formats}
        self._later = dict(later or {})

    def __getitem__(self, name: FormatName) -> TableFormat:
        """Raises ``InvalidOperation`` for one that is not installed."""
        found = self._known.get(name)
        if found is None and name in self._later:
            # Two threads may both make one: they are alike, but for what they have cached.
            found = self._known.setdefault(name, self._later[name]())
        if found is None:
            raise InvalidOperation(
                f"tables of format {name} need what is not installed here: "
                f"`pip install lakevilla[{name}]`"
            )
        return found

    def of(self, snapshot: Snapshot) -> TableFormat:
        return self[snapshot.format]

    def open(self, location: str, table: str, name: FormatName | None = None) -> Program[Snapshot]:
        """The newest version of a table; without ``name`` the directory tells its format.

        Raises
        ------
        TableNotFound
            There is none, of any format.
        """
        if name is not None:
            return (yield from self[name].open(location, table))
        missing: list[str] = []
        for one in [*self._known, *(name for name in self._later if name not in self._known)]:
            try:
                return (yield from self[one].open(location, table))
            except TableNotFound as error:
                missing.append(error.message)
        raise TableNotFound("; ".join(missing), table=table)
