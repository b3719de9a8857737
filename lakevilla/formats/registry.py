"""The table formats of a lake, and the choice of the format of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from lakevilla.errors import InvalidOperation, TableNotFound, VersionNotFound
from lakevilla.formats.base import FormatName, TableFormat, TableSnapshot
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.iceberg.log import newest_version
from lakevilla.formats.iceberg.metadata.definition import metadata_directory, metadata_version
from lakevilla.store.effects import Program, list_objects

#: The property of UniForm, which writes Iceberg metadata next to a Delta table's log for readers.
_UNIFORM = "delta.universalFormat.enabledFormats"


class Later(NamedTuple):
    """A format that is expensive to load: ``made`` loads it.

    ``newest_version`` makes the requests with which ``TableFormat.open`` begins; it returns the
    newest version of a table, or raises ``TableNotFound``.
    """

    made: Callable[[], TableFormat]
    newest_version: Callable[[str, str], Program[int]]


class Formats:
    """Formats by name, in the order in which a directory is checked for them.

    Those of ``later`` are loaded when they are first requested, or a table of theirs is found.
    """

    def __init__(
        self, *formats: TableFormat, later: Mapping[FormatName, Later] | None = None
    ) -> None:
        self._known = {one.name: one for one in formats}
        self._later = dict(later or {})

    def __getitem__(self, name: FormatName) -> TableFormat:
        """Return a format. Raises ``InvalidOperation`` for one that is not installed."""
        found = self._known.get(name)
        if found is None and name in self._later:
            # Two threads may both make one: they are alike, except for their caches.
            found = self._known.setdefault(name, self._later[name].made())
        if found is None:
            raise InvalidOperation(
                f"tables of format {name} need what is not installed here: "
                f"`pip install lakevilla[{name}]`"
            )
        return found

    def of(self, snapshot: TableSnapshot) -> TableFormat:
        return self[snapshot.format]

    def open(
        self,
        location: str,
        table: str,
        name: FormatName | None = None,
        catalog: str = "",
        at_least: int = -1,
    ) -> Program[TableSnapshot]:
        """Return the newest version of a table; without ``name`` the directory decides the format.

        ``catalog`` is the key of the pointer of a table in a catalog, ``at_least`` a version that
        its log is known to have had.

        Raises
        ------
        TableNotFound
            There is no table of any format.
        """
        if name is not None:
            return (yield from self[name].open(location, table, catalog=catalog, at_least=at_least))
        missing: list[str] = []
        for one in [*self._known, *(name for name in self._later if name not in self._known)]:
            try:
                return (yield from self._opened(one, location, table))
            except TableNotFound as error:
                missing.append(error.message)
        raise TableNotFound("; ".join(missing), table=table)

    def _opened(self, name: FormatName, location: str, table: str) -> Program[TableSnapshot]:
        """Open a table of a format, which is loaded only if the directory has a table of it."""
        if name in self._known:
            return (yield from self._known[name].open(location, table))
        version = yield from self._later[name].newest_version(location, table)
        try:
            return (yield from self[name].open_at(location, table, version))
        except VersionNotFound:  # cleaned up between the two requests
            return (yield from self[name].open(location, table))


def installed_formats(
    uri_of: Callable[[str], str], beginning: Callable[[str], bytes | None]
) -> Formats:
    """Return Delta, and Iceberg if pyiceberg is installed; Iceberg is loaded when it is needed.

    ``beginning`` is that of ``DeltaFormat``.
    """
    delta = DeltaFormat(beginning)
    if find_spec("pyiceberg") is None:
        return Formats(delta)

    def made() -> TableFormat:
        from lakevilla.formats.iceberg.table_format import IcebergFormat

        return IcebergFormat(uri_of)

    return Formats(delta, later={"iceberg": Later(made, newest_version)})


def refuse_two_tables(snapshot: TableSnapshot) -> Program[None]:
    """Refuse a directory that is both a Delta table and an Iceberg table.

    No client can know which of the two is meant, and each would take the other's files for
    garbage. The check costs a LIST, so it is made when a lake first includes a table, and not when
    one is opened. Metadata files that a catalog numbers (``00001-...``) are no second table,
    for they are found through the catalog alone. Neither are UniForm's files, which describe the
    same table a second time, for readers.
    """
    if snapshot.format != "delta" or snapshot.version < 0:
        return
    formats = snapshot.layout.properties.get(_UNIFORM, "")
    if "iceberg" in formats.lower():
        return
    directory = metadata_directory(snapshot.location)
    listed = yield from list_objects(directory, f"{directory}/v")
    names = [one.key[len(directory) + 1 :] for one in listed]
    found = [name for name in names if metadata_version(name) is not None]
    if found:
        raise InvalidOperation(
            f"table {snapshot.location} could mean two tables: its directory has a Delta log and "
            f"Iceberg metadata ({directory}/{found[-1]}); move one of the two elsewhere",
            table=snapshot.location,
        )
