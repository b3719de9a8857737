"""A pyiceberg catalog that is nothing but directories of an object store.

Each table keeps its versions as ``metadata/v<N>.metadata.json`` and points at the newest
by ``version-hint.text``: what Spark's ``hadoop`` catalog, DuckDB's ``iceberg_scan`` and
pyiceberg's ``StaticTable`` read. The next version is created if it is absent, so writers
on a store with conditional writes never overwrite each other (hazard 8). It needs none
of LakeVilla's transactions, and may write beside them.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataUtil,
    TableMetadataV1,
    TableMetadataV2,
    TableMetadataV3,
    new_table_metadata,
)
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from lakevilla.clock import SystemClock
from lakevilla.errors import TableNotFound
from lakevilla.formats.iceberg import log
from lakevilla.formats.iceberg.catalog.fileio import StoreFileIO, runner_for
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.paths import (
    hint_key,
    metadata_key,
    metadata_version,
    place_of,
)
from lakevilla.ids import Ids
from lakevilla.store.base import ABSENT, ANY, Refused, Stored
from lakevilla.store.effects import delete, list_objects, put
from lakevilla.store.location import root_location
from lakevilla.store.probe import probe

#: Warehouses whose store was found to create only what is absent, by this process.
_PROBED: set[str] = set()


class ObjectStoreCatalog(MetastoreCatalog):
    """Tables of the directory ``warehouse``, by ``namespace.table``.

    Parameters
    ----------
    name : str
        The catalog's name in pyiceberg.
    warehouse : str or os.PathLike
        ``s3://bucket/path`` and the like, or a local directory.
    **properties : str
        pyiceberg's properties: credentials and the endpoint (``s3.endpoint``, ...).

    Notes
    -----
    A namespace is a directory: it is there as soon as a table is, and has no properties.
    Tables can't be renamed, since their files name the directory. ``drop_table`` deletes the
    metadata files, and ``purge_table`` all that the table has named too.
    """

    def __init__(self, name: str, *, warehouse: str | os.PathLike[str], **properties: str) -> None:
        warehouse = os.fspath(warehouse)
        super().__init__(name, warehouse=warehouse, **properties)
        self._place = root_location(warehouse)
        self._runner = runner_for(self._place.uri, self.properties)

    # -- tables --------------------------------------------------------------------

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table in its directory.

        Raises
        ------
        TableAlreadyExistsError
            There is one, or another writer was first.
        ValueError
            ``location`` is another directory than the identifier's.
        """
        path = self._path(identifier)
        self._check_location(path, location)
        converted: Any = self._convert_schema_if_needed(schema)
        metadata = new_table_metadata(
            location=self._uri(path),
            schema=converted,
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=dict(properties),
        )
        if self._runner.run(log.list_versions(path)):
            raise TableAlreadyExistsError(f"table {path} exists already")
        self._create(path, 0, metadata.model_dump_json().encode())
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The newest version of a table. Raises ``NoSuchTableError``."""
        path = self._path(identifier)
        version, document = self._newest(path)
        return self._table(path, version, document)

    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        """Make a metadata file that lies in the table's directory its first version here.

        Raises
        ------
        TableAlreadyExistsError
            The directory has a table already.
        ValueError
            The file is of a table elsewhere, or ``overwrite`` is asked for.
        """
        if overwrite:
            raise ValueError("a table's versions are never overwritten: drop the table first")
        path = self._path(identifier)
        body = self._io().new_input(metadata_location).open().read()
        metadata = TableMetadataUtil.parse_raw(body.decode())
        self._check_location(path, metadata.location)
        if self._runner.run(log.list_versions(path)):
            raise TableAlreadyExistsError(f"table {path} exists already")
        self._create(path, 0, body)
        return self.load_table(identifier)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Create the next version, on top of the newest.

        Raises
        ------
        CommitFailedException
            A requirement does not hold, or another writer took the version: load the table
            again and repeat.
        CommitStateUnknownException
            The store does not say whether it has the version: nothing is deleted.
        """
        path = self._path(table.name())
        current: Table | None
        try:
            version, document = self._newest(path)
            current = self._table(path, version, document)
        except NoSuchTableError:
            version, document, current = -1, None, None
        for requirement in requirements:
            requirement.validate(None if current is None else current.metadata)
        before = self._empty_table_metadata() if current is None else current.metadata
        after = update_table_metadata(
            base_metadata=before,
            updates=updates,
            enforce_validation=current is None,
            metadata_location=None if current is None else current.metadata_location,
        )
        if current is not None and after == current.metadata:
            return _response(after, current.metadata_location)
        self._check_location(path, after.location)
        body = after.model_dump_json().encode()
        self._create(path, version + 1, body if document is None else _kept(document, body))
        return _response(after, self._uri(metadata_key(path, version + 1)))

    def drop_table(self, identifier: str | Identifier) -> None:
        """Delete a table's metadata files, the newest last; its data stays.

        Raises ``NoSuchTableError``.
        """
        path = self._path(identifier)
        versions = self._runner.run(log.list_versions(path))
        if not versions:
            raise NoSuchTableError(f"table {path} does not exist")
        self._runner.run(delete(hint_key(path)))
        for version in versions:
            self._runner.run(delete(metadata_key(path, version)))

    def rename_table(
        self, from_identifier: str | Identifier, to_identifier: str | Identifier
    ) -> Table:
        """Refused: a table's files name its directory."""
        raise NotImplementedError(
            "a table of an ObjectStoreCatalog can't be renamed: its files name its directory"
        )

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The tables of a namespace: a LIST of all that lies below it."""
        parts = self.identifier_to_tuple(namespace)
        depth = len(parts) + 1
        return sorted(table for table in self._found(parts) if len(table) == depth)

    # -- namespaces: directories -----------------------------------------------------

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Nothing to do: a directory is there as soon as a table is in it."""
        if properties:
            raise NotImplementedError("a namespace of an ObjectStoreCatalog has no properties")
        self._path((*self.identifier_to_tuple(namespace), "table"))

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Nothing to do, if it is empty. Raises ``NamespaceNotEmptyError``."""
        if self._found(self.identifier_to_tuple(namespace)):
            raise NamespaceNotEmptyError(f"namespace {namespace} is not empty")

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """The directories below that have tables: a LIST of all that lies below."""
        parts = self.identifier_to_tuple(namespace)
        depth = len(parts) + 1
        return sorted({table[:depth] for table in self._found(parts) if len(table) > depth})

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Where the namespace is."""
        parts = self.identifier_to_tuple(namespace)
        if not parts:
            raise NoSuchNamespaceError("a namespace has a name")
        return {"location": self._uri("/".join(parts))}

    def update_namespace_properties(
        self,
        namespace: str | Identifier,
        removals: set[str] | None = None,
        updates: Properties = EMPTY_DICT,
    ) -> PropertiesUpdateSummary:
        """Refused: directories have no properties."""
        raise NotImplementedError("a namespace of an ObjectStoreCatalog has no properties")

    # -- views: none -------------------------------------------------------------------

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        return False

    def drop_view(self, identifier: str | Identifier) -> None:
        raise NotImplementedError("an ObjectStoreCatalog has no views")

    def load_view(self, identifier: str | Identifier) -> Any:
        raise NotImplementedError("an ObjectStoreCatalog has no views")

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> Any:
        raise NotImplementedError("an ObjectStoreCatalog has no views")

    # -- helpers -----------------------------------------------------------------------

    def _path(self, identifier: str | Identifier) -> str:
        parts = self.identifier_to_tuple(identifier)
        for part in parts:
            if not part or part in (".", "..") or "/" in part or part.startswith("_"):
                raise ValueError(
                    f"{part!r} can't be part of the name of a table or namespace: it names a "
                    "directory, and those that begin with _ are hidden"
                )
        return "/".join(parts)

    def _uri(self, path: str) -> str:
        return f"{self._place.uri.rstrip('/')}/{path}"

    def _check_location(self, path: str, location: str | None) -> None:
        if location is not None and place_of(location) != place_of(self._uri(path)):
            raise ValueError(
                f"table {path} lies at {self._uri(path)} in this catalog, not at {location}"
            )

    def _newest(self, path: str) -> tuple[int, Metadata]:
        try:
            version = self._runner.run(log.newest_version(path, path))
        except TableNotFound:
            raise NoSuchTableError(f"table {path} does not exist") from None
        document = self._runner.run(log.read_metadata(path, path, version))
        if document is None:
            raise NoSuchTableError(f"table {path} does not exist any more")
        return version, document

    def _table(self, path: str, version: int, document: Metadata) -> Table:
        return Table(
            identifier=tuple(path.split("/")),
            metadata=TableMetadataUtil.parse_raw(document.encode().decode()),
            metadata_location=self._uri(metadata_key(path, version)),
            io=self._io(),
            catalog=self,
        )

    def _io(self) -> FileIO:
        return StoreFileIO(self.properties, self._runner)

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        return self._io()

    def _create(self, path: str, version: int, body: bytes) -> None:
        """Create a version if it is absent, and point the hint at it."""
        if self._place.uri not in _PROBED:
            self._runner.run(probe(Ids(SystemClock())))
            _PROBED.add(self._place.uri)
        outcome = self._runner.run(put(metadata_key(path, version), body, ABSENT))
        if isinstance(outcome, Refused):
            if version == 0:
                raise TableAlreadyExistsError(f"table {path} exists already")
            raise CommitFailedException(
                f"version {version} of table {path} was taken by another writer: load the table "
                "again and repeat"
            )
        if not isinstance(outcome, Stored):
            raise CommitStateUnknownException(
                f"could not find out whether version {version} of table {path} is stored "
                f"({outcome.reason}): load the table and look"
            )
        self._runner.run(put(hint_key(path), str(version + 1).encode(), ANY))

    def _found(self, parts: Identifier) -> set[Identifier]:
        prefix = "/".join(parts)
        listed = self._runner.run(list_objects(prefix))
        found = set()
        for info in listed:
            directory, _, name = info.key.rpartition("/")
            table, _, last = directory.rpartition("/")
            if last == "metadata" and table and metadata_version(name) is not None:
                found.add(tuple(table.split("/")))
        return found


def _response(metadata: TableMetadata, location: str) -> CommitTableResponse:
    return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": location})


def _kept(before: Metadata, body: bytes) -> bytes:
    """``body`` with the top-level parts of ``before`` that pyiceberg's models do not know."""
    parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    rest = {name: raw for name, raw in before.parts.items() if name not in _KNOWN}
    return msgspec.json.encode({**rest, **parts})


_KNOWN = {
    field.alias or name
    for model in (TableMetadataV1, TableMetadataV2, TableMetadataV3)
    for name, field in model.model_fields.items()
}
