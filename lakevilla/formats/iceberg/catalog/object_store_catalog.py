"""A catalog of Iceberg tables on an object store."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog, PropertiesUpdateSummary, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
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
from requests.adapters import HTTPAdapter

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.clock import SystemClock
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.forked import lock
from lakevilla.formats.iceberg import log
from lakevilla.formats.iceberg.catalog.fileio import StoreFileIO, runner_for, storage_options
from lakevilla.formats.iceberg.catalog.redaction import reason, without_secrets
from lakevilla.formats.iceberg.catalog.trust import by_its_own_properties
from lakevilla.formats.iceberg.metadata.definition import (
    MOST_VERSION,
    hint_key,
    metadata_key,
    metadata_version,
    place_of,
)
from lakevilla.formats.iceberg.metadata.file import MAIN, Metadata, property_of
from lakevilla.formats.iceberg.metadata.schema import full_names
from lakevilla.ids import Ids
from lakevilla.store.backends.endpoints import azure_account
from lakevilla.store.base import ABSENT, ANY, Refused, Stored
from lakevilla.store.effects import delete, list_objects, put
from lakevilla.store.location import in_account, root_location, seconds_between_writes
from lakevilla.store.probe import probe

# -------------------- object store catalog
#
# A pyiceberg catalog that consists only of directories of an object store.
#
# Each table keeps its versions as ``metadata/v<N>.metadata.json`` and points at the newest
# by ``version-hint.text``: Spark's ``hadoop`` catalog, DuckDB's ``iceberg_scan`` and
# pyiceberg's ``StaticTable`` read these. The next version is created if it is absent, so writers
# on a store with conditional writes never overwrite each other (hazard 8). The catalog needs none
# of LakeVilla's transactions, and may write concurrently with them.


#: Warehouses for which this process found that the store creates only absent objects.
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
    A namespace is a directory: it exists as soon as a table does, and has no properties.
    Tables can't be renamed, since their files name the directory. ``drop_table`` deletes the
    metadata files, and ``purge_table`` also all files that the table has named.
    """

    def __init__(self, name: str, *, warehouse: str | os.PathLike[str], **properties: str) -> None:
        warehouse = os.fspath(warehouse)
        super().__init__(name, warehouse=warehouse, **properties)
        account = azure_account(storage_options(self.properties))
        self._place = in_account(root_location(warehouse), account)
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
            The table exists, or another writer was first.
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
        """Return the newest version of a table. Raises ``NoSuchTableError``."""
        path = self._path(identifier)
        version, document = self._newest(path)
        return self._table(path, version, document)

    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        """Make a metadata file that is stored in the table's directory its first version here.

        Raises
        ------
        TableAlreadyExistsError
            The directory has a table already.
        ValueError
            The file is of a table elsewhere, or ``overwrite`` is requested.
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
            The store does not report whether it has the version: nothing is deleted.
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
        """Refuse: a table's files name its directory."""
        raise NotImplementedError(
            "a table of an ObjectStoreCatalog can't be renamed: its files name its directory"
        )

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace: a LIST of all objects below it."""
        parts = self.identifier_to_tuple(namespace)
        depth = len(parts) + 1
        return sorted(table for table in self._found(parts) if len(table) == depth)

    # -- namespaces: directories -----------------------------------------------------

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Do nothing: a directory exists as soon as a table is in it."""
        if properties:
            raise NotImplementedError("a namespace of an ObjectStoreCatalog has no properties")
        self._path((*self.identifier_to_tuple(namespace), "table"))

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Do nothing if the namespace is empty. Raises ``NamespaceNotEmptyError``."""
        if self._found(self.identifier_to_tuple(namespace)):
            raise NamespaceNotEmptyError(f"namespace {namespace} is not empty")

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the directories below that have tables: a LIST of all objects below."""
        parts = self.identifier_to_tuple(namespace)
        depth = len(parts) + 1
        return sorted({table[:depth] for table in self._found(parts) if len(table) > depth})

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return the location of the namespace."""
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
        """Refuse: directories have no properties."""
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
                f"table {path} is at {self._uri(path)} in this catalog, not at {location}"
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
            self._runner.run(probe(Ids(SystemClock()), seconds_between_writes(self._place.scheme)))
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
                f"({outcome.reason}): load the table and check"
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
    """Return ``body`` with top-level parts of ``before`` that pyiceberg's models do not know."""
    # docs/upstream.md, "Parts of a metadata file that it does not know are lost"
    parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    rest = {name: raw for name, raw in before.parts.items() if name not in _KNOWN}
    return msgspec.json.encode({**rest, **parts})


_KNOWN = {
    field.alias or name
    for model in (TableMetadataV1, TableMetadataV2, TableMetadataV3)
    for name, field in model.model_fields.items()
}


# -------------------- commit request
#
# The request to a catalog for a table's next version: requirements, and updates.
#
# The catalog makes the metadata file. It may do so on top of another state than the one from
# which the request was made; the requirements name everything in that state on which the
# commit relies.


class CommitRequest(msgspec.Struct, frozen=True):
    """A commit in the terms of the REST specification, and the snapshot that it makes.

    ``snapshot_id`` identifies the commit, which can only follow ``parent_id``.
    """

    snapshot_id: int
    parent_id: int | None
    requirements: list[Any]
    updates: list[Any]


_requests = JsonDecoder(CommitRequest)


def decode_request(body: bytes) -> CommitRequest:
    return _requests.decode(body)


def commit_request(
    before: Metadata,
    definition: Mapping[str, Any] | None,
    snapshot: Mapping[str, Any],
    applications: Mapping[str, int],
) -> bytes:
    """Return the request for a version on top of ``before``, with a new current snapshot.

    Every commit has a snapshot, even one without a file: of all that a catalog compares, only the
    snapshot of the main branch distinguishes two commits of the lake from one that is made twice.
    """
    number, parent = int(snapshot["snapshot-id"]), before.current_id
    known = before.definition
    properties = {property_of(name): str(value) for name, value in applications.items()}
    changes: list[Any] = []
    removed: list[str] = []
    if definition is not None:
        changes = [
            *_upgrade(known, definition),
            *_schema_and_spec_updates(known, definition),
            *_order_updates(known, definition),
        ]
        old, new = known["properties"], definition["properties"]
        properties |= {name: value for name, value in new.items() if old.get(name) != value}
        removed = [name for name in old if name not in new]
    if properties:
        changes.append({"action": "set-properties", "updates": properties})
    if removed:
        changes.append({"action": "remove-properties", "removals": removed})
    changes.append({"action": "add-snapshot", "snapshot": snapshot})
    changes.append(
        {
            "action": "set-snapshot-ref",
            "ref-name": MAIN,
            "type": "branch",
            "snapshot-id": number,
            **_kept_by(before),
        }
    )
    requirements = [
        {"type": "assert-table-uuid", "uuid": before.table_id},
        {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": parent},
        {
            "type": "assert-last-assigned-field-id",
            "last-assigned-field-id": known["last-column-id"],
        },
        {"type": "assert-current-schema-id", "current-schema-id": known["current-schema-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": known["default-spec-id"]},
        {
            "type": "assert-default-sort-order-id",
            "default-sort-order-id": known["default-sort-order-id"],
        },
    ]
    if any(change["action"] == "add-spec" for change in changes):
        # A catalog may number a new spec itself, but the manifests name the spec already. It gets
        # the number in the manifests only if no other client has added a spec meanwhile.
        last = known["last-partition-id"]
        requirements.append(
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": last}
        )
    return msgspec.json.encode(CommitRequest(number, parent, requirements, changes))


def _upgrade(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Any]:
    version = new["format-version"]
    if version == old["format-version"]:
        return []
    return [{"action": "upgrade-format-version", "format-version": version}]


def _schema_and_spec_updates(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Any]:
    """Return updates that add new schemas and specs in the order of their numbers, and set the
    current ones.

    A catalog may number them itself; but the snapshot names its schema, and manifests name their
    spec, by the lake's numbers. A catalog checks a new spec against the schema that is current at
    that update: the schema with which the commit ends may lack the spec's columns.
    """
    schemas = sorted(new["schemas"], key=_schema_id)
    fresh = [one for one in schemas if _is_fresh(one, old["schemas"])]
    last = new["last-column-id"]
    changes: list[Any] = [
        {"action": "add-schema", "schema": one, "last-column-id": last} for one in fresh
    ]
    current, wanted = old["current-schema-id"], new["current-schema-id"]

    def go_to(schema: int) -> None:
        nonlocal current
        if schema != current:
            # -1 is the schema that was added last, whatever its number.
            is_last = bool(fresh) and schema == _schema_id(fresh[-1])
            number = -1 if is_last else schema
            changes.append({"action": "set-current-schema", "schema-id": number})
            current = schema

    known = {spec["spec-id"] for spec in old["partition-specs"]}
    specs = [spec for spec in new["partition-specs"] if spec["spec-id"] not in known]
    for spec in sorted(specs, key=lambda one: int(one["spec-id"])):
        go_to(_schema_for(spec, schemas, wanted))
        changes.append({"action": "add-spec", "spec": spec})
    go_to(wanted)
    default = new["default-spec-id"]
    if default != old["default-spec-id"]:
        # By its number, and not as the last one added: a catalog that gave the spec another number
        # refuses.
        changes.append({"action": "set-default-spec", "spec-id": default})
    return changes


def _schema_id(schema: Mapping[str, Any]) -> int:
    return int(schema.get("schema-id", 0))


def _is_fresh(schema: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a catalog lacks a schema; an equal schema may be spelled differently there."""
    names = list(full_names(schema["fields"]))
    return not any(
        _schema_id(one) == _schema_id(schema) and list(full_names(one["fields"])) == names
        for one in known
    )


def _schema_for(spec: Mapping[str, Any], schemas: Sequence[Mapping[str, Any]], wanted: int) -> int:
    """Return the schema to add a spec under: the wanted one, else the newest with its columns."""
    sources = {part["source-id"] for part in spec["fields"] if part["transform"] != "void"}
    having = [
        _schema_id(one)
        for one in schemas
        if sources <= {number for _, number in full_names(one["fields"])}
    ]
    return wanted if wanted in having or not having else having[-1]


def _order_updates(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Any]:
    known = {order["order-id"] for order in old["sort-orders"]}
    fresh = [order for order in new["sort-orders"] if order["order-id"] not in known]
    changes: list[Any] = [{"action": "add-sort-order", "sort-order": order} for order in fresh]
    current = new["default-sort-order-id"]
    if current != old["default-sort-order-id"]:
        changes.append({"action": "set-default-sort-order", "sort-order-id": current})
    return changes


def _kept_by(before: Metadata) -> dict[str, Any]:
    """Return the main branch's rules for keeping snapshots, where the table has some: they stay."""
    main = (before.get("refs") or {}).get(MAIN, {})
    return {name: value for name, value in main.items() if name not in ("snapshot-id", "type")}


# -------------------- catalogs
#
# pyiceberg's catalogs by name: each is made when it is first requested, and none may hang.


#: Errors that mean that the properties are wrong, at every attempt.
_MISTAKES = (ValueError, TypeError, KeyError, ImportError, AttributeError, NotInstalledError)


class Catalogs:
    """Catalogs by name. Thread-safe.

    Parameters
    ----------
    given : Mapping
        By name, catalogs, or the properties from which ``load_catalog`` makes one.
    timeout_seconds : float
        The time limit for making a catalog, and for a REST catalog's answers.
    """

    def __init__(
        self, given: Mapping[str, Catalog | Mapping[str, str]], timeout_seconds: float
    ) -> None:
        self._given = dict(given)
        self._timeout = timeout_seconds
        self._made: dict[str, Future[Catalog]] = {}
        self._lock = lock()

    def __getitem__(self, name: str) -> Catalog:
        """Return a catalog. Raises ``InvalidOperation`` for one unknown, or that can never be made.

        Any other error is pyiceberg's own, or a ``TimeoutError``.
        """
        given = self._given.get(name)
        if given is None:
            raise InvalidOperation(
                f"the catalog {name!r} is none that this lake was connected with: connect with "
                f"catalogs={{{name!r}: ...}}"
            )
        with self._lock:
            made = self._made.get(name)
            if made is None:
                made = self._made[name] = Future()
                # A REST catalog queries its server while it is made, with no time limit: the next
                # caller waits for the same catalog, and no longer than this caller does.
                threading.Thread(
                    target=self._make, args=(name, given, made), daemon=True, name="catalog"
                ).start()
        try:
            return made.result(self._timeout)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout:g} seconds") from None
        except _MISTAKES as error:
            words = without_secrets(str(error), properties_of(given))
        # Raised here, so that the catalog's error, whose frames have its properties, is not shown.
        raise InvalidOperation(
            f"the catalog {name!r} can't be made of its properties ({words}): see pyiceberg's "
            "documentation of load_catalog"
        )

    def reason(self, error: Exception) -> str:
        """Return an error of a catalog for messages, without the secrets of any of them."""
        given = {name: properties_of(one) for name, one in self._given.items()}
        return reason(error, given)

    def _make(self, name: str, given: Catalog | Mapping[str, str], made: Future[Catalog]) -> None:
        try:
            found = given if isinstance(given, Catalog) else load_catalog(name, **given)
            _limit(found, self._timeout)
        except BaseException as error:
            with self._lock:
                self._made.pop(name, None)  # the next caller tries again
            made.set_exception(error)
        else:
            made.set_result(by_its_own_properties(found))


def properties_of(given: Catalog | Mapping[str, str]) -> Mapping[str, str]:
    """Return a catalog's properties; ``given`` may be these already."""
    return given.properties if isinstance(given, Catalog) else given


def _limit(catalog: Catalog, seconds: float) -> None:
    """Give a REST catalog's session a time limit: pyiceberg sets none, and would hang."""
    # https://github.com/apache/iceberg-python/issues/2772
    session = getattr(catalog, "_session", None)
    for prefix, adapter in list(getattr(session, "adapters", {}).items()):
        if type(adapter) is HTTPAdapter and session is not None:
            session.mount(prefix, _Limited(seconds))


def most_version(catalog: Catalog) -> int:
    """Return the newest format version in which pyiceberg writes tables of a catalog.

    A REST server writes the metadata file itself. The other catalogs have pyiceberg serialize it,
    which raises for version 3. https://github.com/apache/iceberg-python/issues/1551
    """
    rest = sys.modules.get("pyiceberg.catalog.rest")  # loaded with the first such catalog
    return MOST_VERSION if rest is not None and isinstance(catalog, rest.RestCatalog) else 2


class _Limited(HTTPAdapter):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def send(self, request: Any, *given: Any, **named: Any) -> Any:
        if named.get("timeout") is None and len(given) < 2:
            named["timeout"] = self._seconds
        return super().send(request, *given, **named)
