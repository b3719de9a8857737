"""Metadata files of Iceberg, and the hint to the newest."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote, unquote

import msgspec

from lakevilla.arrow.nesting import JsonDecoder, document
from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.forked import lock
from lakevilla.formats.iceberg.metadata.definition import check_definition
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.store.location import CATALOG

# -------------------- file
#
# A table's metadata file: read unchanged, and the next one made from it.
#
# The file is kept as JSON text of its top-level parts. Parts that this library does not know are
# passed on unchanged (pyiceberg's model drops them), and a list of a thousand snapshots is
# neither parsed nor rendered to add one (docs/design/0015-iceberg.md).
# docs/upstream.md, "Parts of a metadata file that it does not know are lost"


MAIN = "main"
#: The parts with statistics of snapshots, each in a file of its own.
STATISTICS = ("statistics", "partition-statistics")
_NO_SNAPSHOT = -1

#: The parts of a state's definition: everything except its snapshots and its history.
_DEFINITION = (
    "format-version",
    "table-uuid",
    "location",
    "last-column-id",
    "current-schema-id",
    "schemas",
    "default-spec-id",
    "partition-specs",
    "last-partition-id",
    "default-sort-order-id",
    "sort-orders",
)
#: Parts of version 1 that later versions have in lists.
_OF_VERSION_1 = ("schema", "partition-spec")
#: Properties in which the lakes that write a table record what they have published.
_APPLICATION = "lakevilla."
_SEQUENCE = ".sequence"
_APPLICATIONS = "lakevilla.applications."
#: The last commit of a lake that made no snapshot: its transactions and nonce.
COMMIT_PROPERTY = "lakevilla.commit"

_KEPT_VERSIONS = "write.metadata.previous-versions-max"
_KEPT_DEFAULT = 100
_FIRST_PARTITION_ID = 1000

_NOTHING = re.compile(rb"null|\[\s*\]")
#: The number of elements that an array has beside its beginning.
_MOST_ADDED = 256

_parts = JsonDecoder(dict[str, msgspec.Raw])
_raws = JsonDecoder(list[msgspec.Raw])

T = TypeVar("T")


class GrowingArray:
    """A JSON array whose beginning the versions of a table share. Immutable."""

    __slots__ = ("_added", "_beginning")

    def __init__(self, beginning: msgspec.Raw, added: tuple[bytes, ...] = ()) -> None:
        self._beginning = beginning
        self._added = added

    def longer(self, element: bytes) -> GrowingArray:
        """Return the array with one more element, which is JSON."""
        if _NOTHING.fullmatch(memoryview(self._beginning)):
            return GrowingArray(msgspec.Raw(b"[" + element + b"]"))
        if len(self._added) < _MOST_ADDED:
            return GrowingArray(self._beginning, (*self._added, element))
        return GrowingArray(self.joined(), (element,))

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the text of the array, whose beginning is not copied."""
        yield memoryview(self._beginning)[:-1]
        for element in self._added:
            yield b","
            yield element
        yield memoryview(self._beginning)[-1:]

    def joined(self) -> msgspec.Raw:
        """Return the array in one piece."""
        return msgspec.Raw(b"".join(self.pieces())) if self._added else self._beginning

    @property
    def nbytes(self) -> int:
        """The length of the text."""
        return memoryview(self._beginning).nbytes + sum(len(one) + 1 for one in self._added)


#: A top-level part of a metadata file.
Part: TypeAlias = msgspec.Raw | GrowingArray


class _SnapshotId(msgspec.Struct, rename="kebab"):
    snapshot_id: int


_ids = JsonDecoder(list[_SnapshotId])


class Metadata:
    """One metadata file. Immutable; its parts are parsed when they are first requested.

    ``current`` is its current snapshot, where that is known without parsing all snapshots.
    """

    def __init__(
        self,
        key: str,
        table: str,
        parts: Mapping[str, Part],
        current: Mapping[str, Any] | None = None,
    ) -> None:
        self.key = key
        self.table = table
        self.parts = parts
        self._current = current

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metadata) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.key)

    def encode(self) -> bytes:
        pieces: list[bytes | memoryview] = []
        for name, part in self.parts.items():
            pieces += (b"," if pieces else b"{", msgspec.json.encode(name), b":")
            pieces += part.pieces() if isinstance(part, GrowingArray) else (memoryview(part),)
        # The text is large and made for each commit: it is copied once.
        return b"".join((*pieces, b"}")) if pieces else b"{}"

    def raw(self, name: str) -> msgspec.Raw | None:
        """Return a top-level part as JSON; None if it is absent."""
        part = self.parts.get(name)
        return part.joined() if isinstance(part, GrowingArray) else part

    def get(self, name: str) -> Any:
        """Return a top-level part, parsed; None if it is absent. Raises ``CorruptObject``."""
        part = self.raw(name)
        return None if part is None else self._read(name, document, part)

    def replaced(self, parts: Mapping[str, Any]) -> Metadata:
        """Return the metadata file with some of its parts replaced."""
        encoded = {name: _raw(value) for name, value in parts.items()}
        return Metadata(self.key, self.table, {**self.parts, **encoded})

    def parsed(self, name: str, kind: type[T]) -> T | None:
        """Return a top-level part as ``kind``; None if absent or null. Raises ``CorruptObject``."""
        part = self.raw(name)
        if part is None or bytes(memoryview(part)[:4]) == b"null":
            return None
        return self._read(name, JsonDecoder(kind).decode, part)

    def _read(self, name: str, decode: Callable[[msgspec.Raw], T], part: msgspec.Raw) -> T:
        try:
            return decode(part)
        except ValueError as error:
            raise CorruptObject(
                f"{name} in metadata file {self.key} of table {self.table} can't be read "
                f"({error}): restore the file from a copy",
                key=self.key,
                table=self.table,
            ) from None

    @cached_property
    def size(self) -> int:
        """The bytes of the parts together."""
        return sum(
            part.nbytes if isinstance(part, GrowingArray) else memoryview(part).nbytes
            for part in self.parts.values()
        )

    @cached_property
    def format_version(self) -> int:
        return int(self.get("format-version"))

    @cached_property
    def table_id(self) -> str:
        return str(self.get("table-uuid") or "")

    @cached_property
    def properties(self) -> dict[str, str]:
        """All properties, including those of the lakes."""
        return {str(name): str(value) for name, value in (self.get("properties") or {}).items()}

    @cached_property
    def definition(self) -> dict[str, Any]:
        return definition_of(self)

    @cached_property
    def applications(self) -> dict[str, int]:
        """The last version that each application has committed, including the lakes' own."""
        found = {}
        for name, value in self.properties.items():
            application = _application_of(name)
            if application is not None and value.lstrip("-").isdigit():
                found[application] = int(value)
        return found

    @cached_property
    def last_updated_ms(self) -> int:
        return int(self.get("last-updated-ms") or 0)

    @cached_property
    def last_sequence_number(self) -> int:
        return int(self.get("last-sequence-number") or 0)

    @cached_property
    def next_row_id(self) -> int:
        """The first id of a row that is not given out; 0 before version 3."""
        return int(self.get("next-row-id") or 0)

    @cached_property
    def current_id(self) -> int | None:
        found = self.get("current-snapshot-id")
        return None if found is None or found == _NO_SNAPSHOT else int(found)

    @cached_property
    def snapshots(self) -> dict[int, msgspec.Raw]:
        """The snapshots as JSON, by id, in the file's order."""
        raws = self.raw("snapshots") or msgspec.Raw(b"[]")
        ids = [each.snapshot_id for each in _ids.decode(raws)]
        return dict(zip(ids, _raws.decode(raws), strict=True))

    def snapshot(self, snapshot_id: int | None) -> dict[str, Any] | None:
        """Return one snapshot, parsed; None if the table lost it. Raises ``CorruptObject``."""
        raw = None if snapshot_id is None else self.snapshots.get(snapshot_id)
        return None if raw is None else self._read(f"snapshot {snapshot_id}", document, raw)

    @cached_property
    def current(self) -> Mapping[str, Any] | None:
        """The current snapshot; None if the table never had one.

        Raises
        ------
        CorruptObject
            The file names one that it does not hold.
        """
        if self.current_id is None or self._current is not None:
            return self._current
        found = self.snapshot(self.current_id)
        if found is None:
            raise CorruptObject(
                f"{self.key} of table {self.table} names snapshot {self.current_id} as the current "
                "one and does not hold it: restore the file from a copy",
                key=self.key,
                table=self.table,
            )
        return found


class StatisticsFile(msgspec.Struct, rename="kebab"):
    """The location of the statistics of a snapshot."""

    snapshot_id: int
    statistics_path: str


def statistics_in(metadata: Metadata, name: str) -> list[StatisticsFile]:
    """Return the statistics files of one of the parts ``STATISTICS``. Raises ``CorruptObject``."""
    return metadata.parsed(name, list[StatisticsFile]) or []


def decode_metadata(key: str, table: str, body: bytes) -> Metadata:
    """Decode a metadata file.

    Raises
    ------
    CorruptObject
        It is torn, or lacks what every metadata file has, or its parts do not fit together.
    UnsupportedTableFeature
        Its format version is not one of 1 to 3, it is encrypted, or a column has a nested type of
        no known kind.
    """
    try:
        metadata = Metadata(key, table, _parts.decode(body))
        version = metadata.get("format-version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValueError(f"its format-version is {version!r}, no number")
        if version not in (1, 2, 3):
            raise UnsupportedTableFeature(
                f"table {table} has Iceberg format version {version}: LakeVilla reads 1 to 3",
                table=table,
            )
        if metadata.get("encryption-keys"):
            raise UnsupportedTableFeature(
                f"table {table} is encrypted (encryption-keys), and LakeVilla has no keys: use the "
                "client that wrote it",
                table=table,
            )
        if version >= 3:
            _check_row_ids(metadata)
        _ = (
            metadata.current_id,
            metadata.format_version,
            metadata.properties,
            metadata.last_updated_ms,
            metadata.last_sequence_number,
            metadata.snapshots,
        )
        check_definition(metadata.definition, table)
        for name in ("snapshot-log", "metadata-log"):
            if bytes(memoryview(metadata.raw(name) or b"[]")[:1]) not in (b"[", b"n"):
                raise ValueError(f"its {name} is no list")
        refs = metadata.get("refs") or {}
        if not (isinstance(refs, dict) and all(isinstance(one, dict) for one in refs.values())):
            raise ValueError("its refs are not branches and tags by name")
        if not isinstance(metadata.get("location"), str) or not metadata.table_id:
            raise ValueError("it has no location or no table-uuid")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptObject(
            f"metadata file {key} of table {table} can't be read ({error}): restore it from a copy",
            key=key,
            table=table,
        ) from None
    return metadata


def _check_row_ids(metadata: Metadata) -> None:
    """Refuse a file of version 3 that does not say which ids of rows are given out."""
    mark = metadata.get("next-row-id")
    if not isinstance(mark, int) or isinstance(mark, bool) or mark < 0:
        raise ValueError(
            f"its next-row-id is {mark!r}, and version 3 requires a number that is not negative"
        )


def definition_of(metadata: Metadata) -> dict[str, Any]:
    """Return a table's definition, with the properties that are the user's.

    Version 1 tables may keep one schema and one spec under older names.
    """
    found = {name: metadata.get(name) for name in _DEFINITION}
    if found["format-version"] == 1:
        if not found["schemas"]:
            schema = metadata.get("schema")
            found["schemas"] = [{**schema, "schema-id": schema.get("schema-id", 0)}]
            found["current-schema-id"] = schema.get("schema-id", 0)
        if not found["partition-specs"]:
            fields = metadata.get("partition-spec") or []
            found["partition-specs"] = [{"spec-id": 0, "fields": fields}]
            found["default-spec-id"] = 0
        found["partition-specs"] = [_numbered(spec) for spec in found["partition-specs"]]
        if found["last-partition-id"] is None:
            listed = [field for spec in found["partition-specs"] for field in spec["fields"]]
            numbers = [field.get("field-id", 999) for field in listed]
            found["last-partition-id"] = max(numbers, default=999)
    if not found["sort-orders"]:  # some clients omit it in version 2 as well
        found["sort-orders"] = [{"order-id": 0, "fields": []}]
        found["default-sort-order-id"] = 0
    found["schemas"] = [_without_nothing(schema) for schema in found["schemas"] or ()]
    found["properties"] = {
        name: value for name, value in metadata.properties.items() if not _is_own(name)
    }
    return found


def _numbered(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a version 1 spec; fields without ids get ids counted from 1000 (spec)."""
    fields = enumerate(spec["fields"], _FIRST_PARTITION_ID)
    return {**spec, "fields": [{"field-id": number, **field} for number, field in fields]}


def _without_nothing(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema independently of its last writer: some clients add an empty identifier.

    Otherwise each commit of such a client would seem to change the table's definition.
    """
    empty = ("identifier-field-ids",)
    return {name: value for name, value in schema.items() if value or name not in empty}


def next_metadata(
    before: Metadata | None,
    key: str,
    table: str,
    previous_uri: str | None,
    *,
    definition: Mapping[str, Any] | None,
    snapshot: Mapping[str, Any] | None,
    applications: Mapping[str, int],
    commit: str | None,
    now_ms: int,
) -> Metadata:
    """Return the file after ``before`` (None: the table's first), which is at ``previous_uri``.

    Parameters
    ----------
    definition : Mapping, optional
        The new definition; None leaves it unchanged.
    snapshot : Mapping, optional
        The new current snapshot; None leaves the table's rows unchanged.
    applications : Mapping
        The new versions of the applications committed here.
    commit : str, optional
        The value of ``COMMIT_PROPERTY``, for a commit without a snapshot.
    """
    parts: dict[str, Part] = {} if before is None else dict(before.parts)
    if definition is not None:
        parts.update((n, _raw(v)) for n, v in definition.items() if n != "properties")
    own = {} if before is None else {n: v for n, v in before.properties.items() if _is_own(n)}
    own.update((property_of(name), str(value)) for name, value in applications.items())
    if commit is not None:
        own[COMMIT_PROPERTY] = commit
    if definition is None:
        assert before is not None, "the first file of a table has a definition"
        definition = before.definition
    of_table = definition["properties"]
    parts["properties"] = _raw({**of_table, **own})
    last = now_ms if before is None else max(now_ms, before.last_updated_ms)
    parts["last-updated-ms"] = _raw(last)
    if before is None:
        parts |= {
            "last-sequence-number": _raw(0),
            "current-snapshot-id": _raw(_NO_SNAPSHOT),
            "snapshots": _raw([]),
            "snapshot-log": _raw([]),
            "metadata-log": _raw([]),
            "refs": _raw({}),
        }
    elif previous_uri is not None:
        entry = {"metadata-file": previous_uri, "timestamp-ms": before.last_updated_ms}
        log = [*(before.parsed("metadata-log", list[msgspec.Raw]) or []), _raw(entry)]
        parts["metadata-log"] = _raw(log[-kept_versions(of_table) :])
    _upgrade(parts, before)
    if snapshot is not None:
        _add_snapshot(parts, before, snapshot, last)
    return Metadata(key, table, parts, snapshot)


def _upgrade(parts: dict[str, Part], before: Metadata | None) -> None:
    """Add the parts that the format version requires and an earlier one does not have."""
    version = Metadata("", "", parts).format_version
    if version >= 2 and before is not None and before.format_version < 2:
        for name in _OF_VERSION_1:
            parts.pop(name, None)
        parts.setdefault("last-sequence-number", _raw(0))
    if version >= 3:
        parts.setdefault("next-row-id", _raw(0))


def _add_snapshot(
    parts: dict[str, Part], before: Metadata | None, snapshot: Mapping[str, Any], now_ms: int
) -> None:
    number = snapshot["snapshot-id"]
    parts["snapshots"] = _longer(parts.get("snapshots"), snapshot)
    parts["current-snapshot-id"] = _raw(number)
    if "sequence-number" in snapshot:
        parts["last-sequence-number"] = _raw(snapshot["sequence-number"])
    if "first-row-id" in snapshot:
        parts["next-row-id"] = _raw(snapshot["first-row-id"] + snapshot["added-rows"])
    refs = {} if before is None else (before.get("refs") or {})
    main = {**refs.get(MAIN, {}), "snapshot-id": number, "type": "branch"}
    parts["refs"] = _raw({**refs, MAIN: main})
    entry = {"snapshot-id": number, "timestamp-ms": now_ms}
    parts["snapshot-log"] = _longer(parts.get("snapshot-log"), entry)


def kept_versions(properties: Mapping[str, str]) -> int:
    """Return the number of previous metadata files that a table's properties keep in its log."""
    return max(1, whole_number(properties, _KEPT_VERSIONS, _KEPT_DEFAULT))


def _is_own(name: str) -> bool:
    return name == COMMIT_PROPERTY or _application_of(name) is not None


def _application_of(name: str) -> str | None:
    """Return the application whose last version a property records; None for other properties."""
    if name.startswith(_APPLICATIONS):
        return name.removeprefix(_APPLICATIONS)
    if name.startswith(_APPLICATION) and name.endswith(_SEQUENCE):
        return "lakevilla/" + name[len(_APPLICATION) : -len(_SEQUENCE)]
    return None


def property_of(application: str) -> str:
    """Return the property that records an application's last version."""
    own = application.removeprefix("lakevilla/")
    if own != application:
        return f"{_APPLICATION}{own}{_SEQUENCE}"
    return _APPLICATIONS + application


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _longer(array: Part | None, value: Any) -> GrowingArray:
    """Return a JSON array with one more element; the others are neither copied nor parsed."""
    if not isinstance(array, GrowingArray):
        array = GrowingArray(msgspec.Raw(b"[]") if array is None else array)
    return array.longer(msgspec.json.encode(value))


# -------------------- cache
#
# Recently read objects that never change under their name (hazard 7).


class Cache(Generic[T]):
    """Objects by URI, up to a number of bytes; the least recently used is dropped. Thread-safe.

    Objects that the newest state of their table does not name have ``past_bytes`` of their own.
    """

    def __init__(self, most_bytes: int, past_bytes: int = 0) -> None:
        self._lock = lock()
        self._held: _Held[T] = _Held(most_bytes)
        self._past: _Held[T] = _Held(past_bytes)

    def find(self, uri: str) -> T | None:
        with self._lock:
            found = self._held.find(uri)
            return self._past.find(uri) if found is None else found

    def keep(self, uri: str, value: T, size: int) -> None:
        with self._lock:
            if uri not in self._past.found:
                self._held.add(uri, value, size)

    def leave(self, uris: Iterable[str]) -> None:
        """Note that the newest state of a table does not name these objects any more."""
        with self._lock:
            for uri in uris:
                found = self._held.remove(uri)
                if found is not None:
                    self._past.add(uri, *found)


class _Held(Generic[T]):
    """Objects in the order of their last use, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self.found: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def find(self, uri: str) -> T | None:
        if uri not in self.found:
            return None
        self.found.move_to_end(uri)
        return self.found[uri][0]

    def add(self, uri: str, value: T, size: int) -> None:
        if uri in self.found:
            return
        self.found[uri] = value, size
        self._bytes += size
        while self._bytes > self._most_bytes and len(self.found) > 1:
            self.remove(next(iter(self.found)))

    def remove(self, uri: str) -> tuple[T, int] | None:
        found = self.found.pop(uri, None)
        if found is not None:
            self._bytes -= found[1]
        return found


# -------------------- pointer
#
# A table's pointer in a catalog: its key here, and the catalog's answer.


_NUMBERED = re.compile(r"(\d{1,18})-[^/]*\.metadata\.json(?:\.gz)?")


class Pointer(msgspec.Struct, frozen=True):
    """The location of a table's newest metadata file, and of the table itself.

    ``most_version``: the newest format version in which the catalog's client writes tables.
    ``refuses``: why the catalog takes no commit to the table; empty if it may take one.
    """

    metadata: str
    location: str
    most_version: int
    refuses: str = ""


_pointers = JsonDecoder(Pointer)


def pointer_key(catalog: str, identifier: Sequence[str]) -> str:
    """Return ``catalog://<name>/<namespace>/<table>``, each part escaped as in a URI."""
    return f"{CATALOG}://" + "/".join(quote(part, safe="") for part in (catalog, *identifier))


def identifier_of(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the catalog's name, and the table's name in it."""
    name, *parts = (unquote(part) for part in key.partition("://")[2].split("/"))
    return name, tuple(parts)


def name_in_catalog(key: str) -> str:
    """Return the table's name as users spell it: ``catalog.namespace.table``."""
    catalog, identifier = identifier_of(key)
    return ".".join((catalog, *identifier))


def encode_pointer(pointer: Pointer) -> bytes:
    return msgspec.json.encode(pointer)


def decode_pointer(body: bytes) -> Pointer:
    return _pointers.decode(body)


def number_of(uri: str) -> int | None:
    """Return the version number in a metadata file's name; None if it has no number."""
    match = _NUMBERED.fullmatch(uri.rpartition("/")[2])
    return None if match is None else int(match[1])
