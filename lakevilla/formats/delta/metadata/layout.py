"""The definition of a table by its metadata and protocol: layout, properties, allowed actions.

All snapshots between two metadata changes share one ``Definition``. Its
parts are computed when first requested: opening a table parses no schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.arrow.nesting import document
from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import VOIDED
from lakevilla.formats.delta.metadata.properties import (
    COMPRESSIONS,
    CONSTRAINT,
    LINEAGE,
    LINEAGE_PARTS,
    SUSPENDED,
    TRACKS,
    file_size,
    lineage_key,
)
from lakevilla.formats.delta.metadata.protocol import (
    VIEW,
    check_features_for_reading,
    check_features_for_writing,
    is_guarded,
    writer_features,
)
from lakevilla.formats.delta.metadata.schema import (
    ID,
    INVARIANT,
    PHYSICAL,
    Field,
    MappingMode,
    arrow_schema,
    check_columns_for_writing,
    invariant,
    leaf_paths,
    mapping_mode,
    parse_schema,
    walk,
)
from lakevilla.formats.layout import STATEMENTS, Constraint, Layout, contract_digest
from lakevilla.formats.views import VIEW_PROPERTY
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_constraint

#: The field metadata in which Spark keeps the type that it declares for a column of strings.
CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITED = re.compile(r"(?:var)?char\((?P<most>\d{1,9})\)")

#: Table properties that determine what a data file must contain.
_CONTRACT = (
    CONSTRAINT,
    "delta.columnMapping.",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.appendOnly",
    TRACKS,
    LINEAGE,
    VOIDED,
)
_SHAPE = ("id", "schemaString", "partitionColumns", "format")


class DeltaDefinition:
    """A table's ``metaData`` and ``protocol`` actions and what follows from them.

    Raises ``UnsupportedTableFeature`` when it is created, if the table may not be read.
    """

    def __init__(
        self,
        location: str,
        table: str,
        metadata: dict[str, Any],
        protocol: dict[str, Any],
        clustering: str | None = None,
    ) -> None:
        self.location = location
        self.table = table
        self.metadata = metadata
        self.protocol = protocol
        self.clustering = clustering
        if protocol:
            check_features_for_reading(protocol, table)

    @cached_property
    def contract(self) -> str:
        return contract_digest(contract_of(self.metadata))

    @cached_property
    def table_id(self) -> str:
        return str(self.metadata.get("id", ""))

    @cached_property
    def properties(self) -> Mapping[str, str]:
        found = self.metadata.get("configuration") or {}
        return {str(key): str(value) for key, value in found.items()}

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.metadata.get("partitionColumns") or ())

    @cached_property
    def fields(self) -> list[Field]:
        if not self.metadata:
            return []
        return parse_schema(self.metadata.get("schemaString"), self.table)

    @cached_property
    def features(self) -> frozenset[str]:
        return writer_features(self.protocol) if self.protocol else frozenset()

    @cached_property
    def mode(self) -> MappingMode:
        if self.protocol and "columnMapping" not in self.features:
            return "none"
        return mapping_mode(self.properties, self.table)

    @cached_property
    def guarded(self) -> bool:
        return bool(self.protocol) and is_guarded(self.protocol)

    @cached_property
    def append_only(self) -> bool:
        return "appendOnly" in self.features and self.flag("delta.appendOnly")

    @cached_property
    def in_commit_timestamps(self) -> bool:
        return "inCommitTimestamp" in self.features and self.flag("delta.enableInCommitTimestamps")

    @cached_property
    def row_tracking(self) -> bool:
        # Another client may have set both. Row ids that nobody reads harm less than rows without an
        # id.
        wanted = self.flag(TRACKS) or not self.flag(SUSPENDED)
        return "rowTracking" in self.features and wanted

    @cached_property
    def lineage(self) -> tuple[pa.Field, ...]:
        """The columns in which files keep row ids and commit versions; see ``Layout``."""
        keys = (lineage_key(part) for part in LINEAGE_PARTS)
        names = [self.properties[key] for key in keys if self.properties.get(key)]
        if not self.row_tracking or not self.flag(TRACKS) or len(names) < len(LINEAGE_PARTS):
            return ()
        # They are mapped neither by name nor by id.
        return tuple(pa.field(name, pa.int64()) for name in names)

    def flag(self, name: str) -> bool:
        """Return a boolean property, false where it is not set."""
        return self.properties.get(name, "").lower() == "true"

    @cached_property
    def layout(self) -> Layout:
        self._check_partitioning()
        self._check_mapping()
        return Layout(
            location=self.location,
            table=self.table,
            schema=self._schema,
            physical=arrow_schema(self.fields, physical=True, mode=self.mode),
            by_field_id=self.mode == "id",
            partition_by=self.partition_by,
            statistics_columns=self._statistics_columns(),
            constraints=self._constraints,
            properties=self.properties,
            change_data_feed="changeDataFeed" in self.features
            and self.flag("delta.enableChangeDataFeed"),
            marks_deletes=STATEMENTS if self._marks_deletes() else frozenset(),
            compression=self._compression(),
            target_file_size_bytes=file_size(self.properties.get("delta.targetFileSize")),
            lineage=self.lineage,
            view=self.properties.get(VIEW_PROPERTY) if VIEW in self.features else None,
        )

    def _marks_deletes(self) -> bool:
        return "deletionVectors" in self.features and self.flag("delta.enableDeletionVectors")

    def _check_partitioning(self) -> None:
        kinds = {field["name"]: field["type"] for field in self.fields}
        for name in self.partition_by:
            if isinstance(kinds.get(name), str):
                continue
            what = "a nested column" if name in kinds else "no column of its schema"
            raise CorruptObject(
                f"table {self.table} is partitioned by {name!r}, {what}; restore its log",
                table=self.table,
            )

    def _check_mapping(self) -> None:
        for path, field in walk(self.fields) if self.mode != "none" else ():
            metadata = field.get("metadata") or {}
            number, name = metadata.get(ID), metadata.get(PHYSICAL)
            if not isinstance(name, str) or not isinstance(number, int):
                raise CorruptObject(
                    f"table {self.table} maps columns by {self.mode}, and its column "
                    f"{'.'.join(path)!r} has the id {number!r} and the name {name!r} in files; "
                    "restore its log",
                    table=self.table,
                )

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self.fields, physical=False, mode=self.mode)

    def check_writable(self) -> None:
        """Raise ``UnsupportedTableFeature`` unless LakeVilla may write the table."""
        _ = self._is_writable

    @cached_property
    def _is_writable(self) -> bool:
        """True, or an error: a result found once holds for all states with this definition."""
        if not self.protocol:
            return True  # not created yet
        check_features_for_writing(self.protocol, self.table)
        if "delta.setTransactionRetentionDuration" in self.properties:
            raise UnsupportedTableFeature(
                f"table {self.table} has delta.setTransactionRetentionDuration set: the log would "
                "forget what LakeVilla has published; unset the property to write it",
                table=self.table,
            )
        check_columns_for_writing(self.fields, self.table)
        provider = (self.metadata.get("format") or {}).get("provider", "parquet")
        if provider != "parquet":
            raise UnsupportedTableFeature(
                f"table {self.table} keeps its data as {provider}, not parquet; write it with the "
                "client that made it",
                table=self.table,
            )
        for name, sql, text in self._constraint_texts():
            self._parse(name, sql, text)
        return True

    @cached_property
    def _constraints(self) -> tuple[Constraint, ...]:
        found = []
        for name, sql, text in self._constraint_texts():
            try:
                found.append(self._parse(name, sql, text))
            except UnsupportedTableFeature:
                # Only writers need constraints; ``check_writable`` refuses the table because of
                # them, and a reader must not lose the table to an expression that it never uses.
                continue
        return tuple(found)

    def _parse(self, name: str, sql: str | None, text: str) -> Constraint:
        try:
            if sql is None:
                raise InvalidOperation(
                    "the invariant is not stored in the form that the Delta protocol requires"
                )
            expression = bind(parse_constraint(sql), self._schema)
            return Constraint(name, expression, sql)
        except LakeVillaError as error:
            raise UnsupportedTableFeature(
                f"LakeVilla cannot check constraint {name!r} of table {self.table}, {text!r}: "
                f"{error}; drop the constraint or write with the client that set it",
                table=self.table,
            ) from None

    def _constraint_texts(self) -> Iterator[tuple[str, str | None, str]]:
        """Yield each constraint's name, the rule to check (None if unknown), and its text as
        written.
        """
        if "checkConstraints" in self.features:
            for key, sql in sorted(self.properties.items()):
                if key.startswith(CONSTRAINT):
                    yield key.removeprefix(CONSTRAINT), sql, sql
        for field in self.fields:
            # These lengths are no feature of the protocol, but Spark's own writer refuses longer
            # values.
            kind = str((field.get("metadata") or {}).get(CHAR_VARCHAR, ""))
            limit = _LIMITED.fullmatch(kind)
            if limit is not None:
                column = '"' + field["name"].replace('"', '""') + '"'
                rule = f"{column} IS NULL OR length({column}) <= {limit['most']}"
                yield f"{kind} of column {field['name']}", rule, rule
        if "invariants" not in self.features:
            return
        for path, field in walk(self.fields):
            text = (field.get("metadata") or {}).get(INVARIANT)
            if text is not None:
                condition = invariant(text)
                yield f"invariant of {'.'.join(path)}", condition, condition or str(text)

    def _statistics_columns(self) -> tuple[str, ...]:
        partitions = set(self.partition_by)
        data = [field for field in self.fields if field["name"] not in partitions]
        leaves = [(logical, ".".join(stored)) for logical, stored in leaf_paths(data)]
        named = self.properties.get("delta.dataSkippingStatsColumns")
        if named is not None:
            wanted = [_lower(path) for path in _column_list(named)]
            chosen = {
                stored
                for logical, stored in leaves
                if any(_lower(logical)[: len(path)] == path for path in wanted)
            }
        else:
            text = self.properties.get("delta.dataSkippingNumIndexedCols", "32")
            count = int(text) if re.fullmatch(r"-?\d+", text.strip()) else 32
            chosen = {stored for _, stored in (leaves if count < 0 else leaves[:count])}
        chosen.update(".".join(path) for path in self.clustering_paths)
        return tuple(stored for _, stored in leaves if stored in chosen)

    @cached_property
    def clustering_paths(self) -> tuple[tuple[str, ...], ...]:
        """The columns by which the table is clustered, as paths of the names in its files."""
        if self.clustering is None:
            return ()
        try:
            columns = msgspec.convert(
                document(self.clustering)["clusteringColumns"], list[list[str] | str]
            )
        except (ValueError, KeyError, TypeError):
            return ()
        # Older writers store a top-level name instead of a path.
        return tuple(tuple(path) if isinstance(path, list) else (path,) for path in columns)

    def _compression(self) -> str:
        codec = self.properties.get("delta.parquet.compression.codec", "snappy").lower()
        return codec if codec in COMPRESSIONS else "snappy"


def _lower(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


_COLUMN_PART = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.,]+?))\s*([.,]|$)")


def _column_list(text: str) -> list[tuple[str, ...]]:
    """Return a list of columns, such as ``a.b, `c d`.e``, as paths."""
    paths: list[tuple[str, ...]] = []
    path: list[str] = []
    for quoted, plain, end in _COLUMN_PART.findall(text):
        if not quoted and not plain:
            continue
        path.append(quoted.replace("``", "`") if quoted else plain)
        if end != ".":
            paths.append(tuple(path))
            path = []
    return paths


def same_contract(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Return whether data files written under ``before`` are valid under ``after``
    without a read.
    """
    return contract_of(before) == contract_of(after)


def contract_of(metadata: Mapping[str, object]) -> dict[str, object]:
    """Return the requirements that the metadata has for data files, and nothing else."""
    configuration = metadata.get("configuration") or {}
    assert isinstance(configuration, Mapping)
    properties = {k: v for k, v in configuration.items() if k.startswith(_CONTRACT)}
    return {**{name: metadata.get(name) for name in _SHAPE}, "configuration": properties}
