"""The store below the catalog, and the log of its tables."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.iceberg.catalog.object_store_catalog import (
    Catalogs,
    CommitRequest,
    ObjectStoreCatalog,
    decode_request,
    most_version,
)
from lakevilla.formats.iceberg.catalog.trust import refusal
from lakevilla.formats.iceberg.metadata.definition import place_of
from lakevilla.formats.iceberg.metadata.file import (
    Cache,
    Metadata,
    Pointer,
    decode_metadata,
    decode_pointer,
    encode_pointer,
    identifier_of,
    name_in_catalog,
    number_of,
)
from lakevilla.store.base import (
    Condition,
    Failure,
    Found,
    GetOutcome,
    Match,
    Missing,
    ObjectInfo,
    Refused,
    Stored,
    Token,
)
from lakevilla.store.effects import Program, get

# -------------------- store
#
# Catalogs as objects of the store: a table's pointer is read, and replaced under a condition.
#
# ``catalog://<name>/<namespace>/<table>`` is an object whose body is a ``Pointer``, and whose
# token is the location of the table's metadata file. A put to it requests the catalog's own
# compare-and-swap: the body is a commit request. So the protocol's effects reach catalogs as
# they reach objects: counted, retried, and open to faults (docs/design/0016-catalogs.md).


T = TypeVar("T")


_REFUSED_ACCESS = (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError)
_requirements: TypeAdapter[list[TableRequirement]] = TypeAdapter(list[TableRequirement])
_updates: TypeAdapter[list[TableUpdate]] = TypeAdapter(list[TableUpdate])


class CatalogStore:
    """See ``store.base.Store``. Takes the arguments of ``Catalogs``; equally thread-safe."""

    def __init__(
        self,
        catalogs: Mapping[str, Catalog | Mapping[str, str]],
        *,
        timeout_seconds: float,
        admit: Callable[[str], object] = lambda directory: None,
    ) -> None:
        self._admit = admit
        self._catalogs = Catalogs(catalogs, timeout_seconds)
        self._tables: dict[str, Table] = {}

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        found = self._asked(lambda: self._load(key))
        if not isinstance(found, Table):
            return found
        token = _token(found)
        self._admit(str(token.e_tag).rpartition("/")[0])
        self._admit(place_of(found.metadata.location).uri)
        pointer = Pointer(
            str(token.e_tag),
            found.metadata.location,
            most_version(found.catalog),
            _refusal(found),
        )
        body = encode_pointer(pointer)
        return Found(body, token, len(body))

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        """Commit; the request holds the requirements, ``condition`` the state it was made from.

        Return ``Refused`` if the table differs from the state from which the request was made: then
        the request and one that is created again can't both take effect, however late.
        """
        request = decode_request(body)
        # A Table loaded earlier will do: it says which table is meant and with which rights, and
        # the catalog reads the present state itself.
        known = self._tables.get(key)
        table = self._asked(lambda: self._load(key)) if known is None else known
        if isinstance(table, Missing):
            return Refused()
        if isinstance(table, Failure):
            return table
        try:
            done = table.catalog.commit_table(
                table,
                tuple(_requirements.validate_python(request.requirements)),
                tuple(_updates.validate_python(request.updates)),
            )
        except (
            CommitFailedException,
            TableAlreadyExistsError,
            ValidationException,
            BadRequestError,
            ValueError,
        ) as error:
            return self._settle(key, request, condition, error)
        except (NoSuchTableError, NoSuchNamespaceError):
            return Refused()
        except Exception as error:
            if _is_rejection(error):
                return self._settle(key, request, condition, error)
            return _failure(error, self._catalogs.reason(error))
        return Stored(Token(place_of(done.metadata_location).uri))

    def put_file(self, key: str, path: str) -> Stored | Failure:
        raise InvalidOperation(f"{key} is a table's pointer in a catalog, and holds no file")

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        raise InvalidOperation(f"{key} is a table's pointer in a catalog, and holds no file")

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        found = self.get(key)
        if isinstance(found, Found):
            return ObjectInfo(key, found.size, found.token, 0.0)
        return found if isinstance(found, Failure) else Missing()

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        raise InvalidOperation(
            f"{prefix} is a table's pointer in a catalog: there are no files below it"
        )

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        """Return the namespaces, each with a slash behind it, and the tables of a namespace."""
        name, above = identifier_of(prefix)
        found = self._asked(lambda: _names_in(self._catalogs[name], above))
        return () if isinstance(found, Missing) else found

    def delete(self, key: str) -> Failure | None:
        raise InvalidOperation(
            f"{key} is a table's pointer in a catalog: drop the table with the catalog"
        )

    def local_path(self, key: str) -> str | None:
        return None

    def _settle(
        self, key: str, request: CommitRequest, condition: Condition, error: Exception
    ) -> Stored | Refused | Failure:
        """Return the outcome of a request that the catalog turned down.

        An attempt before it may have taken effect: then its snapshot exists. If the main branch has
        moved, no attempt can take effect any more. If something other than the branch has changed
        (a property, another branch, whose snapshot has taken the sequence number), the request must
        be created again from the present state; should an earlier attempt land after all, the new
        one finds the main branch moved. Otherwise the catalog does not accept such a request.
        """
        table = self._asked(lambda: self._load(key))
        reason = self._catalogs.reason(error)
        if isinstance(table, Failure):
            return Failure(f"{reason}, and then: {table.reason}", permanent=table.permanent)
        if not isinstance(table, Table):
            return Refused()
        if table.metadata.snapshot_by_id(request.snapshot_id) is not None:
            return Stored(_token(table))
        current = table.metadata.current_snapshot_id
        if (None if current == -1 else current) != request.parent_id:
            return Refused()
        if isinstance(condition, Match) and condition.token != _token(table):
            return Refused()
        if isinstance(error, CommitFailedException):
            return Failure(reason, ambiguous=False, conflict=True)
        rejected = _is_rejection(error)
        return Failure(reason, ambiguous=False, permanent=True, rejected=rejected)

    def _load(self, key: str) -> Table:
        name, identifier = identifier_of(key)
        table = self._tables[key] = _loaded(
            self._catalogs[name], identifier, key, self._catalogs.reason
        )
        return table

    def _asked(self, ask: Callable[[], T]) -> T | Missing | Failure:
        try:
            return ask()
        except (NoSuchTableError, NoSuchNamespaceError):
            return Missing()
        except (CorruptObject, InvalidOperation):
            raise
        except Exception as error:
            return _failure(error, self._catalogs.reason(error))


def _loaded(
    catalog: Catalog, identifier: tuple[str, ...], key: str, reason: Callable[[Exception], str]
) -> Table:
    """Return the table as its catalog has it now.

    Raises ``CorruptObject`` where two answers of the catalog name the same missing metadata file.
    In one answer it may be chance: a commit replaced the file, and deleted it, before it was read.
    """
    try:
        return catalog.load_table(identifier)
    except FileNotFoundError as error:
        missing = reason(error)
    try:
        return catalog.load_table(identifier)
    except FileNotFoundError as error:
        if reason(error) != missing:
            raise  # the runner treats it as a failed request, and repeats it
    table = name_in_catalog(key)
    raise CorruptObject(
        f"the catalog of table {table} points at a metadata file that is missing ({missing}): "
        "restore it, or have the catalog point at one that exists (`register_table`)",
        key=key,
        table=table,
    )


def _names_in(catalog: Catalog, above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names below a namespace, or below the catalog, as ``pointer_key`` escapes them."""
    below = [found for found in catalog.list_namespaces(above) if len(found) == len(above) + 1]
    tables = catalog.list_tables(above) if above else []
    return (
        *sorted(f"{quote(found[-1], safe='')}/" for found in below),
        *sorted(quote(found[-1], safe="") for found in tables),
    )


def _token(table: Table) -> Token:
    return Token(place_of(table.metadata_location).uri)


#: Answers of a REST catalog that the content of a request is wrong, or more than the server does.
_REJECTIONS = frozenset({400, 405, 413, 414, 415, 422, 501})


def _is_rejection(error: Exception) -> bool:
    """Return whether the same request can never succeed, whoever sends it.

    Answers about rights are none: another client may have the rights.
    """
    answer = getattr(error.__cause__, "response", None)
    if answer is not None:
        return getattr(answer, "status_code", None) in _REJECTIONS
    return isinstance(
        error, NotImplementedError | BadRequestError | ValidationException | ValueError
    )


def _refusal(table: Table) -> str:
    """Return the reason why the table's catalog takes no commit to it; empty if it may take one."""
    from pyiceberg.catalog.rest import Capability, RestCatalog

    catalog = table.catalog
    if isinstance(catalog, RestCatalog):
        if Capability.V1_UPDATE_TABLE not in catalog._supported_endpoints:
            return "its server lists no endpoint for commits to tables, so it can only be read"
        return ""
    if isinstance(catalog, ObjectStoreCatalog):
        return ""
    return refusal(catalog, table.metadata.properties, table.metadata.location)


def _failure(error: Exception, reason: str) -> Failure:
    """Return the failure of an attempt without a reliable answer: the catalog may have performed
    it.
    """
    if isinstance(error, _REFUSED_ACCESS):
        return Failure(reason, ambiguous=False, permanent=True)
    throttled = isinstance(error, TooManyRequestsError)
    return Failure(reason, ambiguous=not throttled, throttled=throttled)


# -------------------- log
#
# The versions of a table in a catalog: the metadata files to which the catalog has pointed.
#
# They are numbered by their names (``00012-<uuid>.metadata.json``), in every catalog that
# makes them with the libraries. The newest file's log names the ones before.


_GZIP = b"\x1f\x8b"


class InCatalog(NamedTuple):
    """A version of a table in a catalog, and the newest format version that is written there.

    ``refuses``: why the catalog takes no commit to the table; empty if it may take one.
    """

    version: int
    document: Metadata
    most_version: int
    refuses: str


def newest_in_catalog(pointer: str, table: str, documents: Cache[Metadata]) -> Program[InCatalog]:
    """Return the version to which the catalog points.

    Raises
    ------
    TableNotFound
        The catalog has no such table.
    UnsupportedTableFeature
        Its metadata file has no number.
    """
    outcome = yield from get(pointer)
    if not isinstance(outcome, Found):
        raise TableNotFound(
            f"table {pointer} does not exist in its catalog: it was dropped or renamed there, or "
            "never made; make it with the catalog, and register it again",
            table=table,
        )
    pointed = decode_pointer(outcome.body)
    uri = pointed.metadata
    version = number_of(uri)
    if version is None:
        raise UnsupportedTableFeature(
            f"the metadata file of table {table}, {uri}, has no number in its name: commit once "
            "with the client that registered it, so that the catalog gives it one",
            table=table,
        )
    document = yield from read_document(uri, table, documents)
    return InCatalog(version, document, pointed.most_version, pointed.refuses)


def version_in_catalog(
    newest: InCatalog, version: int, table: str, documents: Cache[Metadata]
) -> Program[Metadata]:
    """Return a version at or below the newest, found by the logs of later versions.

    Raises ``VersionNotFound`` if it is not kept.
    """
    number, document = newest.version, newest.document
    while number > version:
        uri = _towards(document, number, version)
        if uri is None:
            break
        try:
            document = yield from read_document(uri, table, documents)
        except CorruptObject:
            break  # clean-up has deleted it
        number = number_of(uri) or 0
    if number == version:
        return document
    raise VersionNotFound(
        f"table {table} has no version {version}, or no longer: its catalog is at "
        f"{newest.version}, and its metadata names no such file",
        table=table,
    )


def _towards(document: Metadata, number: int, version: int) -> str | None:
    """Return the file of the version, or of the oldest above it, that a metadata file names."""
    nearest = None
    for entry in reversed(document.get("metadata-log") or []):
        uri = place_of(str(entry["metadata-file"])).uri
        found = number_of(uri)
        if found is None or found < version:
            break
        if found < number:
            nearest, number = uri, found
    return nearest


def refuse_another_table(table: str, known: Metadata | None, newest: Metadata) -> None:
    """Refuse the catalog's version unless it is ``known`` or one of the versions before ``known``.

    A catalog may answer from an earlier read. Otherwise the table was dropped, and another table
    was made, or registered, in its place. Raises ``TableNotFound``.
    """
    if known is None:
        return
    log = [place_of(str(entry["metadata-file"])).uri for entry in known.get("metadata-log") or []]
    if newest.key not in (known.key, *log):
        raise TableNotFound(
            f"table {table} was replaced: its catalog has {newest.key} there, which {known.key} "
            "does not follow",
            table=table,
        )


def read_document(uri: str, table: str, documents: Cache[Metadata]) -> Program[Metadata]:
    """Return a metadata file: it never changes under its name."""
    known = documents.find(uri)
    if known is not None:
        return known
    outcome = yield from get(uri)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"metadata file {uri} of table {table} is missing: restore it, or have the catalog "
            "point at one that exists (`register_table`)",
            key=uri,
            table=table,
        )
    body = outcome.body
    if body.startswith(_GZIP):
        try:
            body = gzip.decompress(body)
        except (OSError, EOFError) as error:
            raise CorruptObject(
                f"metadata file {uri} of table {table} can't be unpacked ({error}): restore it "
                "from a copy",
                key=uri,
                table=table,
            ) from None
    document = decode_metadata(uri, table, body)
    documents.keep(uri, document, len(body))
    return document
