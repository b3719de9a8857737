"""The updates of an Iceberg REST client, applied to the JSON of a metadata file.

``updated`` is one pure function, for who decides a commit and for who publishes it: the same
updates of the same file at the same time are the same file, whoever applies them. It makes no model
of the file: parts that this library does not know are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union

import msgspec

from lakevilla.errors import ConflictError, InvalidOperation, LakeVillaError
from lakevilla.formats.iceberg.metadata.file import MAIN
from lakevilla.formats.iceberg.metadata.schema import full_names, is_plain_type

#: The versions of the format that updates may make.
_VERSIONS = (2, 3)
#: In an update, the schema, spec or sort order that the same request has added last.
_LAST = -1
_NONE = -1
_LAST_PARTITION_ID = 999
#: Ids of fields are 32-bit numbers, of which the specification reserves the last 200.
_MOST_FIELD_ID = 2**31 - 201
#: The files of a table have numbers of 64 bits. Of sequence numbers and row ids, a request leaves
#: most to the commits after it: a commit that is decided must find one.
_MOST = 2**63 - 1
_MOST_GIVEN = 2**60
#: Lists, maps and structs within each other; engines need longer and longer for each level.
_MOST_DEPTH = 16
#: A request adds at most so many schemas, and as many specs and sort orders: each next version has
#: them all, and each reader.
_MOST_ADDED = 100
_DIRECTIONS, _NULL_ORDERS = ("asc", "desc"), ("nulls-first", "nulls-last")
#: Properties with this prefix are the lake's own: they record what it has published.
OWN_PREFIX = "lakevilla."
#: Updates of the specification that LakeVilla refuses, with the reason.
_REFUSED = {
    "add-encryption-key": "LakeVilla has no keys, and does not read encrypted tables",
    "remove-encryption-key": "LakeVilla has no keys, and does not read encrypted tables",
    "add-view-version": "it is an update of a view",
    "set-current-view-version": "it is an update of a view",
}

Parts = dict[str, Any]


def updated(
    before: Mapping[str, Any] | None,
    updates: Sequence[Mapping[str, Any]],
    now_ms: int,
    table: str,
) -> Parts:
    """Return the parts of the metadata file after ``before``, which is left unchanged.

    Its metadata log is that of ``before``: only who stores the file knows the other's place.

    Parameters
    ----------
    before : Mapping, optional
        The newest file's parts; None if the updates make the table.
    updates : Sequence of Mapping
        As the REST specification has them.
    now_ms : int
        The time of the commit. It is an argument, so that each client that publishes the commit
        makes the same file.
    table : str
        The table's name, for errors.

    Raises
    ------
    InvalidOperation
        An update is unknown or malformed, or does not fit the file.
    ConflictError
        A snapshot's sequence number or row ids were given out by others meanwhile.
    """
    draft = _Draft(_first(table) if before is None else dict(before), now_ms, table)
    if draft.parts["format-version"] not in _VERSIONS:
        raise draft.refused(
            f"it has format version {draft.parts['format-version']}, and an Iceberg client can't "
            "commit to it through a lake: upgrade it with `alter` to version 2"
        )
    for update in updates:
        _apply(draft, update)
    draft.finish()
    if before is None:
        _complete(draft)
    return draft.parts


def added_snapshots(updates: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the snapshots that updates add, as they are given."""
    found = (one.get("snapshot") for one in updates if one.get("action") == "add-snapshot")
    return [one for one in found if isinstance(one, Mapping)]


def adds_files(updates: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a client has stored files for updates, which it deletes if it is refused."""
    return bool(added_snapshots(updates))


# ------------------------------------------------------------------ the updates, as values


class _Update(msgspec.Struct, frozen=True, tag_field="action", rename="kebab"):
    """One update. Fields that the specification adds later are ignored."""


class _AssignUuid(_Update, frozen=True, tag="assign-uuid"):
    uuid: str


class _UpgradeFormatVersion(_Update, frozen=True, tag="upgrade-format-version"):
    format_version: int


class _SetLocation(_Update, frozen=True, tag="set-location"):
    location: str


class _SetProperties(_Update, frozen=True, tag="set-properties"):
    updates: dict[str, str]


class _RemoveProperties(_Update, frozen=True, tag="remove-properties"):
    removals: list[str]


class _AddSchema(_Update, frozen=True, tag="add-schema"):
    schema: dict[str, Any]
    last_column_id: int | None = None


class _SetCurrentSchema(_Update, frozen=True, tag="set-current-schema"):
    schema_id: int


class _RemoveSchemas(_Update, frozen=True, tag="remove-schemas"):
    schema_ids: list[int]


class _AddSpec(_Update, frozen=True, tag="add-spec"):
    spec: dict[str, Any]


class _SetDefaultSpec(_Update, frozen=True, tag="set-default-spec"):
    spec_id: int


class _RemoveSpecs(_Update, frozen=True, tag="remove-partition-specs"):
    spec_ids: list[int]


class _AddSortOrder(_Update, frozen=True, tag="add-sort-order"):
    sort_order: dict[str, Any]


class _SetDefaultSortOrder(_Update, frozen=True, tag="set-default-sort-order"):
    sort_order_id: int


class _AddSnapshot(_Update, frozen=True, tag="add-snapshot"):
    snapshot: dict[str, Any]


class _SetRef(_Update, frozen=True, tag="set-snapshot-ref"):
    ref_name: str
    snapshot_id: int
    type: Literal["branch", "tag"]
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None


class _RemoveRef(_Update, frozen=True, tag="remove-snapshot-ref"):
    ref_name: str


class _RemoveSnapshots(_Update, frozen=True, tag="remove-snapshots"):
    snapshot_ids: list[int]


class _SetStatistics(_Update, frozen=True, tag="set-statistics"):
    statistics: dict[str, Any]


class _RemoveStatistics(_Update, frozen=True, tag="remove-statistics"):
    snapshot_id: int


class _SetPartitionStatistics(_Update, frozen=True, tag="set-partition-statistics"):
    partition_statistics: dict[str, Any]


class _RemovePartitionStatistics(_Update, frozen=True, tag="remove-partition-statistics"):
    snapshot_id: int


class _Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """The parts of a new snapshot that the file's other parts must fit."""

    snapshot_id: int
    timestamp_ms: int
    manifest_list: str
    summary: dict[str, str]
    sequence_number: int = 0
    parent_snapshot_id: int | None = None
    first_row_id: int | None = None
    added_rows: int | None = None


_Any = Union[
    _AssignUuid,
    _UpgradeFormatVersion,
    _SetLocation,
    _SetProperties,
    _RemoveProperties,
    _AddSchema,
    _SetCurrentSchema,
    _RemoveSchemas,
    _AddSpec,
    _SetDefaultSpec,
    _RemoveSpecs,
    _AddSortOrder,
    _SetDefaultSortOrder,
    _AddSnapshot,
    _SetRef,
    _RemoveRef,
    _RemoveSnapshots,
    _SetStatistics,
    _RemoveStatistics,
    _SetPartitionStatistics,
    _RemovePartitionStatistics,
]
#: The updates that a client may send, by their names in the specification.
KNOWN_UPDATES = frozenset(str(kind.__struct_config__.tag) for kind in _Update.__subclasses__())

T = TypeVar("T")


class _Draft:
    """The parts of the next file, as far as they are made."""

    def __init__(self, parts: Parts, now_ms: int, table: str) -> None:
        self.parts = parts
        self.table = table
        #: Times in a file never go back (spec, "Table Metadata Fields").
        self.now_ms = max(now_ms, parts.get("last-updated-ms") or 0)
        #: By kind, the number of the schema, spec or sort order that was added last.
        self.last: dict[str, int] = {}
        #: By the names of their lists, the schemas, specs and sort orders that are compared.
        self.known: dict[str, _Known] = {}
        self.fresh: set[int] = set()
        self.forgotten = False

    def refused(self, why: str) -> InvalidOperation:
        return InvalidOperation(f"table {self.table}: {why}", table=self.table)

    def outdated(self, why: str) -> ConflictError:
        return ConflictError(f"table {self.table}: {why}; load the table again", table=self.table)

    def rows(self, name: str) -> list[Any]:
        return list(self.parts.get(name) or ())

    def number(self, given: int, kind: str) -> int:
        """Return a number as it is given, or that of what was added last."""
        if given != _LAST:
            return given
        if kind not in self.last:
            raise self.refused(f"the last added {kind} can't be set, as no {kind} was added")
        return self.last[kind]

    def remove(self, name: str, key: str, numbers: Iterable[int]) -> None:
        """Remove schemas or specs by their numbers."""
        gone = set(numbers)
        self.parts[name] = [one for one in self.rows(name) if one.get(key, 0) not in gone]
        if name in self.known:
            self.known[name].remove(gone)

    def check_known(self, name: str, key: str, number: int, kind: str) -> None:
        if all(one.get(key, 0) != number for one in self.rows(name)):
            raise self.refused(f"there is no {kind} {number}")

    def refs(self) -> Parts:
        return refs_of(self.parts)

    def finish(self) -> None:
        """Leave out of the history what the request itself has passed, and what it has removed.

        As a gap would mean that a state was current for longer than it was, all before a removed
        snapshot goes, too.
        """
        current = self.parts.get("current-snapshot-id", _NONE)
        passed = self.fresh - {current}
        kept: list[Any] = []
        known = {one["snapshot-id"] for one in self.rows("snapshots")}
        for entry in self.rows("snapshot-log"):
            if entry["snapshot-id"] not in known and self.forgotten:
                kept = []
            elif entry["snapshot-id"] not in passed:
                kept.append(entry)
        self.parts["snapshot-log"] = kept
        self.parts["last-updated-ms"] = self.now_ms


def _apply(draft: _Draft, update: Mapping[str, Any]) -> None:
    action = update.get("action")
    if isinstance(action, str) and action in _REFUSED:
        raise draft.refused(f"the update {action!r} can't be made: {_REFUSED[action]}")
    if not isinstance(action, str) or action not in KNOWN_UPDATES:
        known = ", ".join(sorted(KNOWN_UPDATES))
        raise draft.refused(f"the update {action!r} is none that this version knows: {known}")
    try:
        _check_numbers(update)
        one: _Any = msgspec.convert(update, _Any)
        _HOW[type(one)](draft, one)
    except LakeVillaError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise draft.refused(f"the update {action!r} is malformed: {said(error)}") from None


def said(error: Exception) -> str:
    """Return the fault of a client's request, without names of this library's objects."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    if isinstance(error, ValueError):
        return str(error).strip()
    return "a part is of another type than the specification says"


def _check_numbers(value: Any) -> None:
    """Refuse a number that no file of a table can have. Raises ``ValueError``."""
    if isinstance(value, Mapping):
        for one in value.values():
            _check_numbers(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_numbers(one)
    elif isinstance(value, int) and not -_MOST - 1 <= value <= _MOST:
        raise ValueError(f"the number {value:.3e} has more than 64 bits")


# ------------------------------------------------------------------ one update each


def _assign_uuid(draft: _Draft, update: _AssignUuid) -> None:
    known = draft.parts.get("table-uuid")
    if known and known.lower() != update.uuid.lower():
        raise draft.refused(f"its uuid is {known}, and can't be set to {update.uuid}")
    draft.parts["table-uuid"] = known or update.uuid


def _upgrade(draft: _Draft, update: _UpgradeFormatVersion) -> None:
    known, wanted = draft.parts["format-version"], update.format_version
    if wanted not in _VERSIONS:
        raise draft.refused(f"format version {wanted} is none that LakeVilla writes: {_VERSIONS}")
    if wanted < known:
        raise draft.refused(f"format version {known} can't be lowered to {wanted}")
    draft.parts["format-version"] = wanted
    if wanted >= 3:
        draft.parts.setdefault("next-row-id", 0)


def _set_location(draft: _Draft, update: _SetLocation) -> None:
    draft.parts["location"] = update.location.rstrip("/")


def _set_properties(draft: _Draft, update: _SetProperties) -> None:
    _refuse_own(draft, update.updates)
    draft.parts["properties"] = {**(draft.parts.get("properties") or {}), **update.updates}


def _remove_properties(draft: _Draft, update: _RemoveProperties) -> None:
    _refuse_own(draft, update.removals)
    known = draft.parts.get("properties") or {}
    gone = set(update.removals)
    draft.parts["properties"] = {name: known[name] for name in known if name not in gone}


def _refuse_own(draft: _Draft, names: Iterable[str]) -> None:
    for name in names:
        if name.startswith(OWN_PREFIX):
            raise draft.refused(f"the property {name} is the lake's own, and no client sets it")


def _add_schema(draft: _Draft, update: _AddSchema) -> None:
    schema = update.schema
    version = draft.parts["format-version"]
    _check_type({"type": "struct", "fields": schema["fields"]}, version, _MOST_DEPTH)
    fields = list(full_names(schema["fields"]))
    if not fields:
        raise draft.refused("a schema has no field")
    numbers = {number for _, number in fields}
    if len(numbers) < len(fields):
        raise draft.refused("two fields of a schema have one id")
    _check_ids([*numbers, update.last_column_id or 0], "a field")
    if not numbers.issuperset(_convert(schema.get("identifier-field-ids") or [], list[int])):
        raise draft.refused("a schema is identified by fields that it lacks")
    number = _numbered(
        draft, "schemas", "schema-id", schema, _schema_parts, schema.get("schema-id")
    )
    highest = max((number for _, number in fields), default=0)
    known = draft.parts["last-column-id"]
    draft.parts["last-column-id"] = max(known, highest, update.last_column_id or 0)
    draft.last["schema"] = number


def _check_type(kind: Any, version: int, depth: int) -> None:
    """Refuse a type that is none, or nested too deep. Raises ``ValueError``.

    A schema may become the current one later: then the table could not be read.
    """
    if isinstance(kind, str):
        if not is_plain_type(kind, version):
            raise ValueError(f"{kind[:80]!r} is no type of version {version}")
        return
    if depth < 0:
        raise ValueError(f"a type is nested more than {_MOST_DEPTH} deep")
    if kind["type"] == "struct":
        names = [_convert(field["name"], str) for field in kind["fields"]]
        if len(set(names)) < len(names):
            raise ValueError(f"two fields of a struct have one name: {', '.join(names)}")
        for field in kind["fields"]:
            _convert(field["required"], bool)
            _check_type(field["type"], version, depth - 1)
        return
    for part in {"list": ("element",), "map": ("key", "value")}[kind["type"]]:
        _check_type(kind[part], version, depth - 1)


def _check_ids(numbers: Iterable[Any], what: str) -> None:
    for number in numbers:
        if not 0 <= _convert(number, int) <= _MOST_FIELD_ID:
            raise ValueError(f"{what} has the id {number}, not one from 0 to {_MOST_FIELD_ID}")


def _convert(value: Any, kind: type[T]) -> T:
    return msgspec.convert(value, kind)


def _set_current_schema(draft: _Draft, update: _SetCurrentSchema) -> None:
    number = draft.number(update.schema_id, "schema")
    draft.check_known("schemas", "schema-id", number, "schema")
    draft.parts["current-schema-id"] = number


def _remove_schemas(draft: _Draft, update: _RemoveSchemas) -> None:
    if draft.parts["current-schema-id"] in update.schema_ids:
        raise draft.refused("its current schema can't be removed")
    draft.remove("schemas", "schema-id", update.schema_ids)


def _add_spec(draft: _Draft, update: _AddSpec) -> None:
    known = {
        (one["source-id"], one["transform"], one["name"]): one["field-id"]
        for spec in draft.rows("partition-specs")
        for one in spec["fields"]
        if "source-id" in one
    }
    last = draft.parts.get("last-partition-id") or _LAST_PARTITION_ID
    fields = []
    for field in update.spec["fields"]:
        number = field.get("field-id")
        if number is None:
            # The same value has the same id in all specs (spec, "Partition Evolution").
            number = known.get((field["source-id"], field["transform"], field["name"]), last + 1)
        last = max(last, number)
        fields.append({**field, "field-id": number})
    for key in ("name", "field-id"):
        if len({field[key] for field in fields}) < len(fields):
            raise draft.refused(f"two fields of a partition spec have one {key}")
    _check_ids([field["field-id"] for field in fields], "a partition field")
    _check_sources(draft, fields, "a partition spec")
    spec = {"spec-id": update.spec.get("spec-id", 0), "fields": fields}
    draft.last["partition spec"] = _numbered(
        draft, "partition-specs", "spec-id", spec, _spec_parts, update.spec.get("spec-id")
    )
    draft.parts["last-partition-id"] = last


def _set_default_spec(draft: _Draft, update: _SetDefaultSpec) -> None:
    number = draft.number(update.spec_id, "partition spec")
    draft.check_known("partition-specs", "spec-id", number, "partition spec")
    draft.parts["default-spec-id"] = number


def _remove_specs(draft: _Draft, update: _RemoveSpecs) -> None:
    if draft.parts["default-spec-id"] in update.spec_ids:
        raise draft.refused("its default partition spec can't be removed")
    draft.remove("partition-specs", "spec-id", update.spec_ids)


def _add_sort_order(draft: _Draft, update: _AddSortOrder) -> None:
    order = update.sort_order
    _check_sources(draft, order["fields"], "a sort order")
    for field in order["fields"]:
        if field["direction"] not in _DIRECTIONS or field["null-order"] not in _NULL_ORDERS:
            raise draft.refused("a sort order has fields of another direction or order of nulls")
    _convert(order.get("order-id") or 0, int)
    # No order at all has the number 0, and each other one a greater number (spec, "Sorting").
    wanted = (order.get("order-id") or 1) if order["fields"] else 0
    draft.last["sort order"] = _numbered(
        draft, "sort-orders", "order-id", {**order, "order-id": wanted}, _order_parts, wanted
    )


def _set_default_sort_order(draft: _Draft, update: _SetDefaultSortOrder) -> None:
    number = draft.number(update.sort_order_id, "sort order")
    draft.check_known("sort-orders", "order-id", number, "sort order")
    draft.parts["default-sort-order-id"] = number


def _numbered(
    draft: _Draft,
    name: str,
    key: str,
    added: Parts,
    what: Callable[[Mapping[str, Any]], Any],
    wanted: int | None,
) -> int:
    """Add a schema, spec or sort order; return its number, or that of an equal one.

    It keeps the client's number if that is free, as the client's manifests name it.
    """
    known = draft.known.get(name)
    if known is None:
        known = draft.known[name] = _Known()
        for one in draft.rows(name):
            known.add(_text(what(one)), int(one.get(key, 0)))
    text = _text(what(added))
    if text in known.numbers:
        return known.numbers[text]
    known.fresh += 1
    if known.fresh > _MOST_ADDED:
        raise draft.refused(f"a request adds at most {_MOST_ADDED} {name}: send several requests")
    free = wanted is not None and wanted >= 0 and wanted not in known.taken
    number = wanted if wanted is not None and free else max(known.taken, default=-1) + 1
    known.add(text, number)
    draft.parts[name] = [*draft.rows(name), {**added, key: number}]
    return number


class _Known:
    """The schemas, specs or sort orders of a file: their numbers, by what they say."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self.numbers: dict[bytes, int] = {}
        #: The number of those that the request has added.
        self.fresh = 0

    @property
    def taken(self) -> Collection[int]:
        return self._texts.keys()

    def add(self, text: bytes, number: int) -> None:
        self._texts[number] = text
        self.numbers.setdefault(text, number)

    def remove(self, numbers: Collection[int]) -> None:
        self._texts = {one: text for one, text in self._texts.items() if one not in numbers}
        self.numbers = {}
        for number, text in self._texts.items():
            self.numbers.setdefault(text, number)


def _text(parts: Any) -> bytes:
    """Return the one text that equal parts have."""
    return msgspec.json.encode(parts, order="deterministic")


def _schema_parts(schema: Mapping[str, Any]) -> Any:
    return _without_null(schema["fields"]), sorted(schema.get("identifier-field-ids") or ())


def _spec_parts(spec: Mapping[str, Any]) -> Any:
    return _without_null(spec["fields"])


def _order_parts(order: Mapping[str, Any]) -> Any:
    return _without_null(order["fields"])


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_null(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_null(one) for one in value]
    return value


def _check_sources(draft: _Draft, fields: Sequence[Mapping[str, Any]], what: str) -> None:
    """Refuse values of columns that the current schema does not have."""
    current = draft.parts["current-schema-id"]
    schemas = [one for one in draft.rows("schemas") if one.get("schema-id", 0) == current]
    known = {number for one in schemas for _, number in full_names(one["fields"])}
    for field in fields:
        sources = field.get("source-ids") or [field["source-id"]]
        if field["transform"] != "void" and not known.issuperset(sources):
            raise draft.refused(f"{what} is by column id {sources}, which its schema lacks")


def _add_snapshot(draft: _Draft, update: _AddSnapshot) -> None:
    parts = draft.parts
    one = msgspec.convert(update.snapshot, _Snapshot)
    if any(known["snapshot-id"] == one.snapshot_id for known in draft.rows("snapshots")):
        raise draft.refused(f"it has a snapshot {one.snapshot_id} already")
    if one.snapshot_id < 0:
        raise draft.refused(f"snapshot {one.snapshot_id} has a number below 0")
    if one.sequence_number > _MOST_GIVEN:
        raise draft.refused(f"snapshot {one.snapshot_id} leaves no sequence numbers for others")
    last = parts["last-sequence-number"]
    if one.sequence_number <= last and one.parent_snapshot_id is not None:
        raise draft.outdated(
            f"snapshot {one.snapshot_id} can't be added with sequence number "
            f"{one.sequence_number}, as the last one is {last}"
        )
    if one.sequence_number < 1:
        raise draft.refused(f"snapshot {one.snapshot_id} has no sequence number")
    parts["last-sequence-number"] = max(last, one.sequence_number)
    if parts["format-version"] >= 3:
        _give_out_row_ids(draft, one)
    parts["snapshots"] = [*draft.rows("snapshots"), update.snapshot]
    draft.fresh.add(one.snapshot_id)


def _give_out_row_ids(draft: _Draft, one: _Snapshot) -> None:
    if one.first_row_id is None or one.added_rows is None or one.added_rows < 0:
        raise draft.refused(
            f"snapshot {one.snapshot_id} does not say first-row-id and added-rows, as version 3 "
            "requires"
        )
    if one.first_row_id + one.added_rows > _MOST_GIVEN:
        raise draft.refused(f"snapshot {one.snapshot_id} leaves no row ids for others")
    mark = draft.parts.get("next-row-id") or 0
    if one.first_row_id < mark:
        raise draft.outdated(
            f"snapshot {one.snapshot_id} can't be added with first-row-id {one.first_row_id}, as "
            f"the next row id is {mark}"
        )
    draft.parts["next-row-id"] = one.first_row_id + one.added_rows


def _set_ref(draft: _Draft, update: _SetRef) -> None:
    name, number = update.ref_name, update.snapshot_id
    if all(one["snapshot-id"] != number for one in draft.rows("snapshots")):
        raise draft.refused(f"{update.type} {name} can't be set to unknown snapshot {number}")
    if name == MAIN and update.type != "branch":
        raise draft.refused(f"{MAIN} is a branch, and can't be made a tag")
    rules = {
        "min-snapshots-to-keep": update.min_snapshots_to_keep,
        "max-snapshot-age-ms": update.max_snapshot_age_ms,
        "max-ref-age-ms": update.max_ref_age_ms,
    }
    rules = {rule: value for rule, value in rules.items() if value is not None}
    if any(value is not None and value <= 0 for value in rules.values()):
        raise draft.refused(f"{update.type} {name} keeps snapshots by numbers above 0")
    if update.type == "tag" and rules.keys() - {"max-ref-age-ms"}:
        raise draft.refused(f"tag {name} is one snapshot, and keeps no others")
    draft.parts["refs"] = {
        **draft.refs(),
        name: {"snapshot-id": number, "type": update.type, **rules},
    }
    if name == MAIN and draft.parts.get("current-snapshot-id", _NONE) != number:
        draft.parts["current-snapshot-id"] = number
        entry = {"snapshot-id": number, "timestamp-ms": draft.now_ms}
        draft.parts["snapshot-log"] = [*draft.rows("snapshot-log"), entry]


def _remove_ref(draft: _Draft, update: _RemoveRef) -> None:
    refs = draft.refs()
    refs.pop(update.ref_name, None)
    draft.parts["refs"] = refs
    if update.ref_name == MAIN:
        draft.parts["current-snapshot-id"] = _NONE


def _remove_snapshots(draft: _Draft, update: _RemoveSnapshots) -> None:
    gone, parts = set(update.snapshot_ids), draft.parts
    parts["snapshots"] = [one for one in draft.rows("snapshots") if one["snapshot-id"] not in gone]
    refs = draft.refs()
    parts["refs"] = {name: one for name, one in refs.items() if one["snapshot-id"] not in gone}
    for name in ("statistics", "partition-statistics"):
        if parts.get(name):
            parts[name] = [one for one in parts[name] if one["snapshot-id"] not in gone]
    if parts.get("current-snapshot-id") in gone:
        parts["current-snapshot-id"] = _NONE
    draft.forgotten = True


def _set_statistics(draft: _Draft, update: _SetStatistics) -> None:
    _replace_statistics(draft, "statistics", update.statistics)


def _set_partition_statistics(draft: _Draft, update: _SetPartitionStatistics) -> None:
    _replace_statistics(draft, "partition-statistics", update.partition_statistics)


def _replace_statistics(draft: _Draft, name: str, one: Parts) -> None:
    number = _convert(one["snapshot-id"], int)
    if not _convert(one["statistics-path"], str):
        raise draft.refused(f"the {name} of snapshot {number} have no path")
    draft.parts[name] = [*_other_statistics(draft, name, number), one]


def _remove_statistics(draft: _Draft, update: _RemoveStatistics) -> None:
    draft.parts["statistics"] = _other_statistics(draft, "statistics", update.snapshot_id)


def _remove_partition_statistics(draft: _Draft, update: _RemovePartitionStatistics) -> None:
    name = "partition-statistics"
    draft.parts[name] = _other_statistics(draft, name, update.snapshot_id)


def _other_statistics(draft: _Draft, name: str, number: int) -> list[Any]:
    return [one for one in draft.rows(name) if one["snapshot-id"] != number]


_HOW: dict[type[_Update], Callable[[_Draft, Any], None]] = {
    _AssignUuid: _assign_uuid,
    _UpgradeFormatVersion: _upgrade,
    _SetLocation: _set_location,
    _SetProperties: _set_properties,
    _RemoveProperties: _remove_properties,
    _AddSchema: _add_schema,
    _SetCurrentSchema: _set_current_schema,
    _RemoveSchemas: _remove_schemas,
    _AddSpec: _add_spec,
    _SetDefaultSpec: _set_default_spec,
    _RemoveSpecs: _remove_specs,
    _AddSortOrder: _add_sort_order,
    _SetDefaultSortOrder: _set_default_sort_order,
    _AddSnapshot: _add_snapshot,
    _SetRef: _set_ref,
    _RemoveRef: _remove_ref,
    _RemoveSnapshots: _remove_snapshots,
    _SetStatistics: _set_statistics,
    _RemoveStatistics: _remove_statistics,
    _SetPartitionStatistics: _set_partition_statistics,
    _RemovePartitionStatistics: _remove_partition_statistics,
}


# ------------------------------------------------------------------ a table's first file


def _first(table: str) -> Parts:
    return {
        "format-version": 2,
        "table-uuid": "",
        "location": "",
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": 0,
        "current-schema-id": -1,
        "schemas": [],
        "default-spec-id": -1,
        "partition-specs": [],
        "last-partition-id": _LAST_PARTITION_ID,
        "default-sort-order-id": -1,
        "sort-orders": [],
        "properties": {},
        "current-snapshot-id": _NONE,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def _complete(draft: _Draft) -> None:
    """Refuse a first file that lacks what a table has; the spec and order may be the empty ones."""
    parts = draft.parts
    for name in ("table-uuid", "location", "schemas"):
        if not parts[name]:
            raise draft.refused(f"it is made, and the request does not say its {name}")
    if parts["current-schema-id"] < 0:
        raise draft.refused("it is made, and the request does not say its current schema")
    if not parts["partition-specs"]:
        parts["partition-specs"] = [{"spec-id": 0, "fields": []}]
    if not parts["sort-orders"]:
        parts["sort-orders"] = [{"order-id": 0, "fields": []}]
    if parts["default-spec-id"] < 0:
        parts["default-spec-id"] = parts["partition-specs"][0]["spec-id"]
    if parts["default-sort-order-id"] < 0:
        parts["default-sort-order-id"] = parts["sort-orders"][0]["order-id"]


def refs_of(parts: Mapping[str, Any]) -> Parts:
    """Return a file's branches and tags; an old file may say its main branch in another way."""
    current = parts.get("current-snapshot-id")
    main = (
        {}
        if current is None or current == _NONE
        else {MAIN: {"snapshot-id": current, "type": "branch"}}
    )
    return {**main, **(parts.get("refs") or {})}
