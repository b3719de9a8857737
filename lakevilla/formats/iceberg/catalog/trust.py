"""Catalogs that take no orders from their tables: no code, no address, no place elsewhere.

pyiceberg takes the code that reaches a table's files, its endpoint, and the directory of new
metadata files from the table's properties, which whoever may commit to the table sets
(docs/design/0016-catalogs.md). The catalog's properties, which the caller gave, count alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import ValidationException
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.metadata.definition import place_of

_CODE = "write.py-location-provider.impl"
_METADATA = "write.metadata.path"


def by_its_own_properties(catalog: Catalog) -> Catalog:
    """Return the catalog, with the same state, as one that takes no orders from its tables."""
    kind = type(catalog)
    base: Any = kind

    class Own(base):  # type: ignore[misc]
        def _load_file_io(
            self, properties: Properties = EMPTY_DICT, location: str | None = None
        ) -> FileIO:
            found: FileIO = super()._load_file_io(EMPTY_DICT, location)
            return found

        def _update_and_stage_table(
            self,
            current_table: Table | None,
            table_identifier: Identifier,
            requirements: tuple[TableRequirement, ...],
            updates: tuple[TableUpdate, ...],
        ) -> StagedTable:
            if current_table is not None:
                _refuse(current_table, updates)
            staged: StagedTable = super()._update_and_stage_table(
                current_table, table_identifier, requirements, updates
            )
            return staged

    Own.__name__, Own.__qualname__, Own.__module__ = kind.__name__, kind.__qualname__, __name__
    found: Catalog = object.__new__(Own)
    found.__dict__ = catalog.__dict__
    return found


def refusal(catalog: Catalog, properties: Mapping[str, str], location: str) -> str:
    """Return why pyiceberg must not make the table's next metadata file; empty if it may."""
    if not isinstance(catalog, MetastoreCatalog):
        return ""  # its server makes the file
    if _CODE in properties:
        return (
            f"its property {_CODE} names Python code of whoever set it, which pyiceberg would run: "
            "remove the property"
        )
    path = properties.get(_METADATA)
    if path is not None and not _is_below(path, location):
        return (
            f"its property {_METADATA} has the metadata written outside of the table's directory, "
            f"to {path!r}: remove the property"
        )
    return ""


def _refuse(table: Table, updates: tuple[TableUpdate, ...]) -> None:
    """Refuse what ``refusal`` names, in the state on which the catalog builds right now."""
    properties = dict(table.metadata.properties)
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            properties |= update.updates
    reason = refusal(table.catalog, properties, table.metadata.location)
    if reason:
        raise ValidationException(reason)


def _is_below(path: str, location: str) -> bool:
    try:
        place, table = place_of(path), place_of(location)
    except InvalidOperation:
        return False
    return place.store == table.store and f"{place.path}/".startswith(f"{table.path}/")
