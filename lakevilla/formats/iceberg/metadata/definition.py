"""Definitions of Iceberg tables, their paths, and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.arrow.cast import value_in
from lakevilla.errors import CorruptObject, InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.base import VOIDED
from lakevilla.formats.files import DataFile, file_key
from lakevilla.formats.iceberg.metadata.partition_values import (
    UNKNOWN,
    PartitionTypes,
    default_text,
    partition_keys,
)
from lakevilla.formats.iceberg.metadata.properties import whole_number
from lakevilla.formats.iceberg.metadata.schema import (
    Field,
    LeafField,
    arrow_schema,
    current_schema,
    is_written,
    leaves,
    nested_fields,
    physical_schema,
    struct_paths,
    text_of_default,
    without_defaults,
)
from lakevilla.formats.layout import (
    STATEMENTS,
    Layout,
    PartitionField,
    SortField,
    contract_digest,
)
from lakevilla.store.location import (
    Location,
    account_of,
    azure_authorities,
    in_account,
    is_plain,
    parse_location,
    real_place,
)

# -------------------- definition
#
# The content of a table's definition: its layout, its properties, the allowed actions.
#
# All snapshots between two changes of the definition share it. Its parts are computed
# when they are first requested.


if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

#: The newest format version that LakeVilla reads and writes.
MOST_VERSION = 3
#: The greatest width of buckets and truncations: readers keep it in 32 bits.
MOST_WIDTH = 2**31 - 1

_MODE = "write.metadata.metrics.default"
_COLUMN_MODE = "write.metadata.metrics.column."
_MOST_COLUMNS = "write.metadata.metrics.max-inferred-column-defaults"
_TARGET_SIZE = "write.target-file-size-bytes"
_CODEC = "write.parquet.compression-codec"
_METADATA_CODEC = "write.metadata.compression-codec"
_CODECS = frozenset({"snappy", "zstd", "gzip", "lz4", "uncompressed", "brotli"})
_TRANSFORMS = ("identity", "year", "month", "day", "hour", "void")
_WITH_WIDTH = re.compile(r"(?:bucket|truncate)\[([1-9]\d{0,9})\]")

#: Parts of a definition that determine what a data file must contain.
_CONTRACT = (
    "table-uuid",
    "format-version",
    "location",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
)


def keeps_contract(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether data files written under ``before`` are valid under ``after``
    without a read.
    """
    return contract_of(before) == contract_of(after)


def contract_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requirements that the metadata has for data files, and nothing else."""
    voided = (metadata.get("properties") or {}).get(VOIDED)
    return {**{name: metadata.get(name) for name in _CONTRACT}, VOIDED: voided}


def _is_known(transform: str) -> bool:
    if transform in _TRANSFORMS:
        return True
    match = _WITH_WIDTH.fullmatch(transform)
    return match is not None and int(match[1]) <= MOST_WIDTH


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and kind.get("type") == "struct"


def _is_of_several(field: Mapping[str, Any]) -> bool:
    return "source-id" not in field or len(field.get("source-ids") or ()) > 1


def _as_pyiceberg_knows(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec in which transforms that this library does not know are named ``UNKNOWN``.

    Readers ignore these (spec, "Partition Transforms").
    """
    fields = []
    for field in spec["fields"]:
        source = field.get("source-id", next(iter(field.get("source-ids") or ()), -1))
        if _is_of_several(field) or not _is_known(str(field.get("transform"))):
            field = {**field, "source-id": source, "transform": UNKNOWN}
            field.pop("source-ids", None)
        fields.append(field)
    return {**spec, "fields": fields}


#: The columns in which files keep the ids of rows, and the sequence number of the commit that last
#: changed each (Iceberg spec, "Row Lineage").
_LINEAGE = (
    pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"}),
    pa.field(
        "_last_updated_sequence_number", pa.int64(), metadata={"PARQUET:field_id": "2147483539"}
    ),
)


class IcebergDefinition:
    """A definition (``metadata.definition_of``) and what follows from it.

    ``catalog`` is the key of the table's pointer; empty where it has no catalog.
    ``most_version`` is the newest format version in which the table can be written there.
    ``refuses``: why the catalog takes no commit to the table; empty if it may take one.

    Raises ``UnsupportedTableFeature`` when it is created, if the table may not be read.
    """

    def __init__(
        self,
        location: str,
        table: str,
        document: dict[str, Any],
        catalog: str = "",
        most_version: int = MOST_VERSION,
        refuses: str = "",
    ) -> None:
        self.location = location
        self.table = table
        self.document = document
        self.catalog = catalog
        self.most_version = most_version
        self.refuses = refuses
        if document:
            self._check_readable()

    def replaced(self, document: dict[str, Any]) -> IcebergDefinition:
        """Return the definition of the same table with other metadata."""
        return IcebergDefinition(
            self.location, self.table, document, self.catalog, self.most_version, self.refuses
        )

    @cached_property
    def contract(self) -> str:
        return contract_digest(contract_of(self.document))

    @cached_property
    def table_id(self) -> str:
        return str(self.document.get("table-uuid", ""))

    @cached_property
    def format_version(self) -> int:
        return int(self.document.get("format-version", 2))

    @property
    def has_row_ids(self) -> bool:
        """True if each row has an id (spec, "Row Lineage")."""
        return self.format_version >= 3

    @cached_property
    def place(self) -> TableAddress:
        return TableAddress(self.location, str(self.document.get("location", "")).rstrip("/"))

    @cached_property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.document.get("properties") or {}
        return found

    @cached_property
    def fields(self) -> list[Field]:
        return current_schema(self.document, self.table) if self.document else []

    @cached_property
    def identifier_ids(self) -> tuple[int, ...]:
        """The ids of the fields that identify a row."""
        wanted = self.document["current-schema-id"]
        current = (s for s in self.document["schemas"] if s.get("schema-id", 0) == wanted)
        return tuple(next(current).get("identifier-field-ids") or ())

    @cached_property
    def leaves(self) -> dict[int, LeafField]:
        """The leaves of all schemas by id, each as in the newest schema that has it."""
        schemas = sorted(self.document["schemas"], key=lambda schema: schema.get("schema-id", 0))
        found = {leaf.field_id: leaf for schema in schemas for leaf in leaves(schema["fields"])}
        return found | {leaf.field_id: leaf for leaf in leaves(self.fields)}

    @cached_property
    def schema(self) -> Schema:
        """The current schema as pyiceberg's type."""
        from pyiceberg.schema import Schema

        return Schema.model_validate(
            {
                "type": "struct",
                "schema-id": self.document["current-schema-id"],
                "fields": without_defaults(self.fields),
            }
        )

    def schema_of(self, spec_id: int) -> Schema:
        """Return the schema that makes a spec's partitions: the newest that has all its columns.

        A column can be dropped from the table once no new file is partitioned by it.
        """
        from pyiceberg.schema import Schema

        sources = {field.source_id for field in self.specs[spec_id].fields}
        if sources <= self.schema._lazy_id_to_field.keys():
            return self.schema
        known = sorted(self.document["schemas"], key=lambda one: one.get("schema-id", 0))
        for document in reversed(known):
            fields = without_defaults(document["fields"])
            schema = Schema.model_validate({**document, "fields": fields})
            if sources <= schema._lazy_id_to_field.keys():
                return schema
        return self.schema

    @cached_property
    def specs(self) -> dict[int, PartitionSpec]:
        """All partition specs as pyiceberg's type."""
        from pyiceberg.partitioning import PartitionSpec

        documents = [_as_pyiceberg_knows(spec) for spec in self.document["partition-specs"]]
        found = [PartitionSpec.model_validate(document) for document in documents]
        return {spec.spec_id: spec for spec in found}

    @cached_property
    def spec(self) -> PartitionSpec:
        return self.specs[self.document["default-spec-id"]]

    @cached_property
    def _keys(self) -> dict[int, dict[int, str]]:
        return partition_keys(self.document["partition-specs"])

    @cached_property
    def _types(self) -> dict[int, PartitionTypes]:
        return {}

    def partition_types(self, spec_id: int) -> PartitionTypes:
        """Return the fields of a spec, as manifests of it have their values."""
        found = self._types.get(spec_id)
        if found is None:
            spec, keys = self.specs[spec_id], self._keys[spec_id]
            found = self._types[spec_id] = PartitionTypes(spec, keys, self.leaves, self.table)
        return found

    def spec_of(self, file: DataFile) -> PartitionSpec:
        """Return the spec that a data file was partitioned by: that of its partition values' keys.

        A copied table, or an earlier state of one, has files of older specs: under another spec
        than its own, a file would be skipped by filters. Raises ``CorruptObject``.
        """
        if len(self.specs) == 1 and not any("-" in key for key in file.partition_values):
            return self.spec
        found = self._specs_by_keys.get(frozenset(file.partition_values))
        if found is None:
            raise CorruptObject(
                f"file {file.path} of table {self.table} has values of the partition fields "
                f"{', '.join(sorted(file.partition_values)) or '(none)'}, and no partition spec of "
                "the table has just these: write the rows to the table again",
                table=self.table,
            )
        return found

    @cached_property
    def _specs_by_keys(self) -> dict[frozenset[str], PartitionSpec]:
        """The specs by the keys of their fields; of equal specs the present one, else
        the newest.
        """
        newest = [self.specs[number] for number in sorted(self.specs)]
        return {frozenset(self._keys[spec.spec_id].values()): spec for spec in (*newest, self.spec)}

    @cached_property
    def layout(self) -> Layout:
        if not self.document:
            empty = pa.schema([])
            return Layout(self.location, self.table, empty, empty, True, (), (), (), {})
        schema = arrow_schema(self.fields, self.table)
        return Layout(
            location=self.location,
            table=self.table,
            schema=schema,
            physical=physical_schema(self.fields, self.table),
            by_field_id=True,
            partition_by=(),
            statistics_columns=self._statistics_columns(),
            constraints=(),
            properties=self.properties,
            marks_deletes=self._marks_deletes(),
            compression=self._compression(),
            target_file_size_bytes=self._target_size(),
            known_as=arrow_schema(self.fields, self.table, named=lambda f: str(f["id"])),
            partition_fields=self._partition_fields(),
            constants=self._constants(),
            constants_within=self._constants_within(),
            defaults=self._defaults(),
            uri=self.place.uri,
            data_directory="data",
            sort_by=self._sort_by,
            sort_order_id=self.document["default-sort-order-id"] if self._sort_by else None,
            identifier=tuple(
                self._paths[number] for number in self.identifier_ids if number in self._paths
            ),
            lineage=_LINEAGE if self.has_row_ids else (),
        )

    def _marks_deletes(self) -> frozenset[str]:
        """Return the statements that mark deleted rows, as the table's properties say to all
        clients.

        Version 2 has position delete files for that, and version 3 vectors.
        """
        if self.format_version < 2:
            return frozenset()
        modes = {one: self.properties.get(f"write.{one}.mode", "") for one in STATEMENTS}
        return frozenset(one for one, mode in modes.items() if mode.lower() == "merge-on-read")

    def check_writable(self) -> None:
        """Raise ``UnsupportedTableFeature`` unless LakeVilla may write the table."""
        if self.document and self.format_version < 2:
            raise UnsupportedTableFeature(
                f"table {self.table} has Iceberg format version {self.format_version}: LakeVilla "
                "reads it and writes versions 2 and 3; upgrade it with "
                "alter(set_properties={'format-version': '2'}), which no client can undo",
                table=self.table,
            )
        self.check_upgradable()

    def check_upgradable(self) -> None:
        """Do as ``check_writable``; but a table of version 1 passes, which ``alter`` upgrades."""
        _ = self._is_upgradable

    @cached_property
    def _is_upgradable(self) -> bool:
        """True, or an error: a result found once holds for all states with this definition."""
        if not self.document:
            return True  # not created yet
        if self.refuses:
            raise UnsupportedTableFeature(
                f"table {self.table} can't be written through its catalog: {self.refuses}; write "
                "it with another client, or through another catalog",
                table=self.table,
            )
        if self.format_version > self.most_version:
            raise UnsupportedTableFeature(
                f"table {self.table} has Iceberg format version {self.format_version}, and "
                f"pyiceberg writes at most version {self.most_version} in a catalog of this kind: "
                "register the table in a REST catalog, or write it with another client",
                table=self.table,
            )
        for leaf in leaves(self.fields):
            if not is_written(leaf.type):
                name = next(f["name"] for f in self.fields if str(f["id"]) == leaf.path[0])
                raise UnsupportedTableFeature(
                    f"table {self.table} has column {name} of the Iceberg type {leaf.type}, which "
                    "LakeVilla reads and does not write: write the table with the client that "
                    "made it",
                    table=self.table,
                )
        self._check_transforms()
        self._check_parts()
        codec = self.properties.get(_METADATA_CODEC, "none").lower()
        if codec != "none" and not self.catalog:
            raise UnsupportedTableFeature(
                f"table {self.table} compresses its metadata files ({_METADATA_CODEC} = {codec}): "
                "two writers could then take one version under two names; set it to none",
                table=self.table,
            )
        provider = self.properties.get("write.format.default", "parquet").lower()
        if provider != "parquet":
            raise UnsupportedTableFeature(
                f"table {self.table} keeps its data as {provider}, not parquet: write it with the "
                "client that made it",
                table=self.table,
            )
        if "write.data.path" in self.properties or "write.object-storage.enabled" in (
            name for name, value in self.properties.items() if value.lower() == "true"
        ):
            raise UnsupportedTableFeature(
                f"table {self.table} keeps its data files outside of its directory "
                "(write.data.path, write.object-storage.enabled): LakeVilla does not write there; "
                "unset the property",
                table=self.table,
            )
        return True

    def _check_parts(self) -> None:
        """Refuse a partition spec by which no manifest, or no data file, can be written."""
        names = [part.name for part in self.spec.fields]
        if len(set(names)) < len(names) or len({p.field_id for p in self.spec.fields}) < len(names):
            # No manifest can be written: a commit that is decided could not be published.
            raise UnsupportedTableFeature(
                f"table {self.table} is partitioned by {', '.join(names)}, of which two have one "
                "name or id: set another partition spec with the client that made it",
                table=self.table,
            )
        for part in self.spec.fields:
            if str(part.transform) != "void" and part.source_id not in self._paths:
                raise UnsupportedTableFeature(
                    f"table {self.table} is partitioned by {part.name}, a value of column id "
                    f"{part.source_id}, which its schema lacks or has within a list or a map: "
                    "change its partition spec with the client that made it",
                    table=self.table,
                )

    def _check_transforms(self) -> None:
        """Refuse to write partitions of unknown transforms (spec, "Partition Transforms")."""
        for spec in self.document["partition-specs"]:
            for field in spec["fields"]:
                transform = str(field.get("transform"))
                if _is_of_several(field):
                    raise UnsupportedTableFeature(
                        f"table {self.table} is partitioned by {field.get('name')}, a transform "
                        f"({transform}) of several columns (source-ids), which LakeVilla does not "
                        "know: it reads the table; write it with the client that made it",
                        table=self.table,
                    )
                if not _is_known(transform):
                    raise UnsupportedTableFeature(
                        f"table {self.table} is partitioned by the transform {transform} of "
                        f"{field.get('name')}, which LakeVilla does not know: it reads the table; "
                        "write it with the client that made it",
                        table=self.table,
                    )

    def _check_readable(self) -> None:
        self._check_names()
        if self.properties.get("encryption.key-id"):
            raise UnsupportedTableFeature(
                f"table {self.table} is encrypted (encryption.key-id), and LakeVilla has no keys: "
                "use the client that wrote it",
                table=self.table,
            )
        self._check_defaults()
        for leaf in leaves(self.fields):
            if leaf.type == "unknown" and len(leaf.path) > 1:
                raise UnsupportedTableFeature(
                    f"table {self.table} has a field of the Iceberg type unknown within a column, "
                    "which LakeVilla does not know: use the client that wrote it",
                    table=self.table,
                )

    def _check_defaults(self) -> None:
        """Refuse default values that are none of their type, and those of lists and maps."""
        for field in (*self.fields, *(one for _, one in nested_fields(self.fields))):
            kind = field["type"]
            for which in ("initial-default", "write-default"):
                default = field.get(which)
                if default is None or (default == {} and _is_struct(kind)):
                    continue
                if not isinstance(kind, str):
                    raise UnsupportedTableFeature(
                        f"table {self.table} has column {field['name']}, of type {kind['type']}, "
                        f"with the default value {default!r} ({which}), which LakeVilla does not "
                        "fill in: use the client that set it",
                        table=self.table,
                    )
                try:
                    arrow = arrow_schema([field], self.table).field(0)
                    value_in(text_of_default(kind, default), arrow.type)
                except (ValueError, TypeError, pa.ArrowException):
                    raise CorruptObject(
                        f"table {self.table}: the default value {default!r} of column "
                        f"{field['name']} is no {kind}: set it again with the client that wrote it",
                        table=self.table,
                    ) from None

    def _check_names(self) -> None:
        """Refuse names that no engine here distinguishes, and structs whose rows can't be kept."""
        fields = current_schema(self.document, self.table)
        named: dict[tuple[int, str], str] = {}
        for parent, field in [*((0, one) for one in fields), *nested_fields(fields)]:
            name = str(field["name"])
            other = named.setdefault((parent, name.lower()), name)
            if other is not name:
                raise UnsupportedTableFeature(
                    f"table {self.table} has columns {other} and {name}, whose names differ only "
                    "by case: LakeVilla would take one for the other; rename one with another "
                    "client",
                    table=self.table,
                )
            if isinstance(field["type"], dict) and field["type"].get("fields") == []:
                raise UnsupportedTableFeature(
                    f"table {self.table} has column {name}, a struct without fields, of which no "
                    "Parquet file holds a value: drop it, or add a field, with the client that "
                    "made it",
                    table=self.table,
                )

    def _statistics_columns(self) -> tuple[str, ...]:
        """Return the leaves for which files keep bounds: by the properties, the first hundred."""
        most = whole_number(self.properties, _MOST_COLUMNS, 100)
        default = self.properties.get(_MODE, "").lower()
        names = {str(field["id"]): str(field["name"]) for field in self.fields}
        found = []
        for index, leaf in enumerate(leaves(self.fields)):
            mode = self.properties.get(_COLUMN_MODE + names[leaf.path[0]], default).lower()
            if not leaf.is_repeated and mode != "none" and (index < most or mode):
                found.append(".".join(leaf.path))
        return tuple(found)

    def _partition_fields(self) -> tuple[PartitionField, ...]:
        return tuple(
            PartitionField(
                key=self._keys[self.spec.spec_id][field.field_id],
                name=field.name,
                path=self._paths[field.source_id],
                transform=str(field.transform),
            )
            for field in self.spec.fields
            if str(field.transform) not in ("void", UNKNOWN) and field.source_id in self._paths
        )

    @cached_property
    def _paths(self) -> dict[int, tuple[str, ...]]:
        """The names that lead to each column, and field of a struct, by id."""
        return {int(field["id"]): path for path, field in struct_paths(self.fields)}

    @cached_property
    def _sort_by(self) -> tuple[SortField, ...]:
        """The table's sort order; empty where it has none.

        It is also empty for an order by a nested column, or by a transform or several columns that
        later versions of the format may have: an order is not binding (spec, "Sorting"), so
        files are then written unsorted and not marked as sorted.
        """
        by_id = {int(field["id"]): field for field in self.fields}
        wanted = self.document.get("default-sort-order-id", 0)
        found = []
        for order in self.document.get("sort-orders", ()):
            for field in order["fields"] if order["order-id"] == wanted else ():
                source = by_id.get(field.get("source-id", -1))
                transform = str(field.get("transform"))
                if not _is_known(transform) or source is None or isinstance(source["type"], dict):
                    return ()
                found.append(
                    SortField(
                        column=str(source["name"]),
                        transform=transform,
                        descending=str(field.get("direction")).lower() == "desc",
                        nulls_first=str(field.get("null-order")).lower() == "nulls-first",
                    )
                )
        return tuple(field for field in found if field.transform != "void")

    def _constants(self) -> tuple[tuple[str, str], ...]:
        """Return the columns by whose values some spec partitions (``identity``): files may lack
        these.
        """
        by_id = {int(field["id"]): str(field["name"]) for field in self.fields}
        return tuple(
            sorted(
                {
                    (by_id[field.source_id], self._keys[spec.spec_id][field.field_id])
                    for spec in self.specs.values()
                    for field in spec.fields
                    if str(field.transform) == "identity" and field.source_id in by_id
                }
            )
        )

    def _constants_within(self) -> tuple[tuple[int, str], ...]:
        """Return the fields of structs by whose values some spec partitions (``identity``)."""
        return tuple(
            (field.source_id, self._keys[spec.spec_id][field.field_id])
            for spec in self.specs.values()
            for field in spec.fields
            if str(field.transform) == "identity" and len(self._paths.get(field.source_id, ())) > 1
        )

    def _defaults(self) -> tuple[tuple[str, str], ...]:
        """Return the values of columns in files written before them (spec, "Default values")."""
        return tuple(
            (str(field["name"]), default_text(str(field["type"]), default))
            for field in self.fields
            if (default := field.get("initial-default")) is not None
            and not _is_struct(field["type"])
        )

    def _compression(self) -> str:
        codec = self.properties.get(_CODEC, "zstd").lower()
        return codec if codec in _CODECS else "zstd"

    def _target_size(self) -> int | None:
        text = self.properties.get(_TARGET_SIZE, "")
        return max(1, int(text)) if text.isdigit() else None


# -------------------- validation
#
# The validity of a definition: what the rest of the code takes for granted about it.
#
# Checked once, when a metadata file is read: for a file that another program wrote wrongly, the
# error names the file, and does not come from the code that first fails on it.


def check_definition(definition: Mapping[str, Any], table: str) -> None:
    """Raise ``ValueError`` with the fault, or ``UnsupportedTableFeature``."""
    _number(definition, "last-column-id", "the table")
    schemas = {}
    for schema in _objects(definition, "schemas", "the table"):
        number = _number({"schema-id": 0, **schema}, "schema-id", "a schema")
        _check_fields(schema, f"schema {number}", table)
        schemas[number] = schema
    specs = {}
    for spec in _objects(definition, "partition-specs", "the table"):
        number = _number(spec, "spec-id", "a partition spec")
        for field in _objects(spec, "fields", f"partition spec {number}"):
            owner = f"a field of partition spec {number}"
            _text(field, "name", owner)
            _text(field, "transform", owner)
            _number(field, "field-id", owner)
            _source(field, owner)
        specs[number] = spec
    for order in _objects(definition, "sort-orders", "the table"):
        number = _number(order, "order-id", "a sort order")
        for field in _objects(order, "fields", f"sort order {number}"):
            _source(field, f"a field of sort order {number}")
    _named(definition, "current-schema-id", schemas)
    _named(definition, "default-spec-id", specs)


def _check_fields(part: Mapping[str, Any], owner: str, table: str) -> None:
    for field in _objects(part, "fields", owner):
        name = _text(field, "name", f"a field of {owner}")
        _number(field, "id", f"column {name!r} of {owner}")
        _check_type(field.get("type"), name, owner, table)


def _check_type(kind: Any, column: str, owner: str, table: str) -> None:
    if isinstance(kind, str):
        return
    if not isinstance(kind, dict):
        raise ValueError(f"column {column!r} of {owner} has no type")
    inner = f"column {column!r} of {owner}"
    match kind.get("type"):
        case "struct":
            _check_fields(kind, inner, table)
        case "list":
            _number(kind, "element-id", inner)
            _check_type(kind.get("element"), column, owner, table)
        case "map":
            for part in ("key", "value"):
                _number(kind, f"{part}-id", inner)
                _check_type(kind.get(part), column, owner, table)
        case other:
            raise UnsupportedTableFeature(
                f"table {table} has column {column} of the Iceberg type {other}, which LakeVilla "
                "does not know: use the client that wrote it",
                table=table,
            )


def _source(field: Mapping[str, Any], owner: str) -> None:
    """Check a field's source: one column, or several as version 3 allows."""
    several = field.get("source-ids")
    if several is None or "source-id" in field:
        _number(field, "source-id", owner)
    if several is not None and not (
        isinstance(several, list) and several and all(isinstance(one, int) for one in several)
    ):
        raise ValueError(f"source-ids of {owner} is {several!r}, no list of numbers")


def _named(definition: Mapping[str, Any], name: str, known: Mapping[int, Any]) -> None:
    if _number(definition, name, "the table") not in known:
        raise ValueError(f"it has {name} {definition[name]}, and holds {sorted(known)}")


def _objects(part: Mapping[str, Any], name: str, owner: str) -> list[dict[str, Any]]:
    found = part.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name} of {owner} is no list of objects")
    return found


def _number(part: Mapping[str, Any], name: str, owner: str) -> int:
    found = part.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{name} of {owner} is {found!r}, no number")
    return found


def _text(part: Mapping[str, Any], name: str, owner: str) -> str:
    found = part.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} of {owner} is {found!r}, no text")
    return found


# -------------------- paths
#
# Names in an Iceberg table: keys of its metadata, and data files as manifests spell them.
#
# Manifests name files by whole URIs, which begin with the table's ``location``; the
# library works with paths relative to the table. The same directory is spelled in several
# ways (``s3a://``, ``file:/``, a bare path), so a URI is compared with all of them.


_STATE = re.compile(r"state-[0-9a-f]{32}\.metadata\.json")
_METADATA = re.compile(r"v(\d{1,18})\.metadata\.json")
_COMPRESSED = re.compile(r"v(\d{1,18})(?:\.gz\.metadata\.json|\.metadata\.json\.gz)")
_JAVA_FILE = re.compile(r"file:/(?!/)")
_ALIASES = {
    "s3": ("s3", "s3a", "s3n"),
    "gs": ("gs", "gcs"),
    "az": ("abfss", "abfs", "az", "azure", "adl", "wasbs", "wasb"),
}


def metadata_directory(location: str) -> str:
    """Return the directory of a table's metadata, manifests and manifest lists."""
    return f"{location}/metadata"


def metadata_key(location: str, version: int) -> str:
    """Return the key of a version without a catalog: version 0 is ``v1.metadata.json``.

    Versions count from 0 as in Delta, while a ``hadoop`` catalog begins with 1.
    """
    return f"{location}/metadata/v{version + 1}.metadata.json"


def metadata_version(name: str) -> int | None:
    """Return the version that a metadata file's name gives; None for any other file."""
    match = _METADATA.fullmatch(name)
    return None if match is None or int(match[1]) == 0 else int(match[1]) - 1


def state_key(location: str, digest: str) -> str:
    """Return the key of a metadata file of a state that the table's log does not have.

    ``digest`` has 32 hexadecimal digits. Readers of the table's log pass over the file.
    """
    return f"{location}/metadata/state-{digest}.metadata.json"


def is_of_state(name: str) -> bool:
    """Return whether a metadata file's name is that of a state which no log has."""
    return _STATE.fullmatch(name) is not None


def compressed_key(location: str, version: int) -> str:
    """Return the key under which another writer keeps a version that it has compressed."""
    return f"{location}/metadata/v{version + 1}.gz.metadata.json"


def compressed_version(name: str) -> int | None:
    """Return the version that a compressed file holds; None for any other file."""
    match = _COMPRESSED.fullmatch(name)
    return None if match is None or int(match[1]) == 0 else int(match[1]) - 1


def hint_key(location: str) -> str:
    """Return the key of the hint at the newest version."""
    return f"{location}/metadata/version-hint.text"


@dataclass(frozen=True)
class TableAddress:
    """A table's address: ``location`` as the lake's keys begin, ``uri`` as its metadata says."""

    location: str
    uri: str

    def path(self, uri: str) -> str:
        """Return a file's path: relative to the table if it is in its directory, else absolute.

        A URI whose spelling no key can have (``t//a``, ``t/./a``) stays unchanged: in an object
        store it may be another object.
        """
        for prefix in self._prefixes:
            if uri.startswith(prefix) and is_plain(path := uri[len(prefix) :]):
                return path
        return _JAVA_FILE.sub("file:///", uri)

    def spelled(self, path: str) -> str:
        """Return a path as manifests and metadata spell it."""
        return file_key(self.uri, path)

    def key(self, path: str) -> str:
        """Return the key of an object in the store."""
        return file_key(self.location, path)

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        place = place_of(self.uri)
        if place.scheme == "file":
            return tuple(f"{start}{place.path}/" for start in ("file:///", "/", "file:/"))
        schemes = _ALIASES.get(place.scheme, (place.scheme,))
        _, _, rest = self.uri.partition("://")
        rests = {rest: None}  # the own spelling is the first
        if place.scheme == "az":
            rests |= {f"{one}/{place.path}": None for one in azure_authorities(place)}
        return tuple(f"{scheme}://{rest}/" for rest in rests for scheme in schemes)


def place_of(uri: str) -> Location:
    """Return the place that a URI in metadata names. Raises ``InvalidOperation``."""
    return parse_location(_JAVA_FILE.sub("file:///", uri))


def is_same_place(one: str, other: str) -> bool:
    """Return whether two URIs name one directory.

    Local ones are compared with links resolved. Of two on Azure, one without its account is in the
    account of the other.
    """
    try:
        a, b = place_of(one), place_of(other)
    except InvalidOperation:
        return False
    return real_place(in_account(a, account_of(b))) == real_place(in_account(b, account_of(a)))
