"""The table formats of a lake, and which of them a table has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.formats.base import FormatName, TableFormat, TableSnapshot
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.iceberg.metadata.definition import metadata_directory, metadata_version
from lakevilla.store.effects import Program, list_objects

#: What a Delta table also tells readers of: UniForm writes Iceberg metadata beside its log.
_UNIFORM = "delta.universalFormat.enabledFormats"


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

    def of(self, snapshot: TableSnapshot) -> TableFormat:
        return self[snapshot.format]

    def open(
        self, location: str, table: str, name: FormatName | None = None, catalog: str = ""
    ) -> Program[TableSnapshot]:
        """The newest version of a table; without ``name`` the directory tells its format.

        ``catalog`` is the key of the pointer of a table in a catalog.

        Raises
        ------
        TableNotFound
            There is none, of any format.
        """
        if name is not None:
            return (yield from self[name].open(location, table, catalog=catalog))
        missing: list[str] = []
        for one in [*self._known, *(name for name in self._later if name not in self._known)]:
            try:
                return (yield from self[one].open(location, table))
            except TableNotFound as error:
                missing.append(error.message)
        raise TableNotFound("; ".join(missing), table=table)


def installed_formats(uri_of: Callable[[str], str]) -> Formats:
    """Delta, and Iceberg where pyiceberg is installed, which is loaded when it is needed."""
    if find_spec("pyiceberg") is None:
        return Formats(DeltaFormat())

    def iceberg() -> TableFormat:
        from lakevilla.formats.iceberg.table_format import IcebergFormat

        return IcebergFormat(uri_of)

    return Formats(DeltaFormat(), later={"iceberg": iceberg})


def refuse_two_tables(snapshot: TableSnapshot) -> Program[None]:
    """Refuse a directory that is a Delta table and an Iceberg table too.

    Which of the two is meant nobody can tell, and each would take the other's files for
    garbage. It costs a LIST, so it is asked when a lake first takes a table in, and not when
    one is opened. No second table are metadata files that a catalog numbers (``00001-...``),
    for they are found through the catalog alone; nor those of UniForm, which are the same
    table once more, for readers.
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
