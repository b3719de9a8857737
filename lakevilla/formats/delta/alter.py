"""Changes of the metadata of a Delta table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import REPLACED, VOIDED, Change, replaced_between, replaced_once_more
from lakevilla.formats.delta.create import partition_columns
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.delta.metadata.properties import (
    CONSTRAINT,
    SUSPENDED,
    TRACKS,
    canonical_names,
    enablement,
    features_of,
    is_kept_by_itself,
    refuse_suspended,
    split_properties,
)
from lakevilla.formats.delta.metadata.protocol import (
    GUARD,
    VIEW,
    is_guarded,
    with_features,
    without_feature,
    writer_features,
)
from lakevilla.formats.delta.metadata.schema import (
    INVARIANT,
    MAX_COLUMN_ID,
    Field,
    arrow_schema,
    assign_ids,
    delta_fields,
    encode_schema,
    highest_id,
    invariant,
    keep_names,
    leaf_paths,
    mapping_mode,
    physical_name,
    walk,
)
from lakevilla.formats.layout import (
    DELTA,
    Nesting,
    NewDefinition,
    TableAlteration,
    check_widens,
    in_delta,
)
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_constraint, parse_predicate
from lakevilla.sql.expressions.tree import columns
from lakevilla.sql.expressions.types import INTEGERS, type_name

# -------------------- alter
#
# Changes of a table's schema, constraints and properties, as new metadata.
#
# Functions from a state and a request to a ``Change``; nothing is read or written.
# Names are looked up without regard to case, in the schema before the change.


_MODE = "delta.columnMapping.mode"
_WIDENING = "delta.enableTypeWidening"
#: Properties that a table keeps for good: they also apply to data that was written before.
_MAPPING = "delta.columnMapping."
_LASTING = (
    _MAPPING,
    TRACKS,
    "delta.rowTracking",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestamp",
    REPLACED,
    VOIDED,
)
_CLUSTER_ANEW = "cluster it by other columns, or by none, with the client that clustered it first"
#: The types that a field had before, so that readers know what old files may hold.
_CHANGES = "delta.typeChanges"


def alter_table(
    definition: DeltaDefinition,
    alteration: TableAlteration,
) -> Change:
    """Return the change that alters a table. Raises ``InvalidOperation``.

    The caller checks whether the existing rows satisfy a new constraint.
    """
    definition.check_writable()
    if alteration.defaults or alteration.set_defaults:
        raise InvalidOperation(
            f"table {definition.table} is a Delta table, for which LakeVilla sets no defaults of "
            "columns: leave them out, or keep the rows in an Iceberg table of format version 3",
            table=definition.table,
        )
    edit = _Edit(definition)
    edit.set_properties(dict(alteration.set_properties))
    edit.unset_properties(alteration.unset_properties)
    edit.drop_constraints(alteration.drop_constraints)
    for name in alteration.drop_not_null:
        edit.drop_not_null(name)
    for name, text in alteration.set_comments.items():
        edit.change_field(name, partial(_commented, text))
    edit.change_types(dict(alteration.change_types))
    # Names are those before the change: a renamed column is found by its old name.
    edit.drop_columns(alteration.drop_columns)
    edit.rename_columns(dict(alteration.rename_columns))
    if alteration.add_columns is not None:
        edit.add_columns(delta_fields(alteration.add_columns, definition.table))
    edit.add_constraints(dict(alteration.add_constraints))
    return edit.change()


def merge_schema(definition: DeltaDefinition, schema: pa.Schema) -> Change:
    """Return the change that adds the columns of ``schema`` that the table lacks, nested ones too.

    Columns present in both keep their type: the cast decides whether data fits.
    """
    definition.check_writable()
    edit = _Edit(definition)
    edit.fields = _merged(edit.fields, delta_fields(schema, definition.table))
    return edit.change()


def replace_schema(definition: DeltaDefinition, schema: pa.Schema) -> Change:
    """Return the change after which the table has the columns of ``schema`` and no rows."""
    definition.check_writable()
    edit = _Edit(definition)
    edit.replace_columns(delta_fields(schema, definition.table))
    return edit.change()


def replace_definition(definition: DeltaDefinition, wanted: NewDefinition) -> Change:
    """Return the change after which the table is like a new one, without rows."""
    definition.check_writable()
    edit = _Edit(definition)
    edit.replace_definition(wanted)
    return edit.change()


def _merged(fields: list[Field], new: list[Field]) -> list[Field]:
    by_name = {field["name"].lower(): field for field in new}
    merged = []
    for field in fields:
        other = by_name.pop(field["name"].lower(), None)
        if other is None:
            merged.append(field)
        else:
            merged.append({**field, "type": _merged_type(field["type"], other["type"])})
    merged.extend(_nullable(field) for field in new if field["name"].lower() in by_name)
    return merged


def _merged_type(kind: Any, new: Any) -> Any:
    if isinstance(kind, str) or isinstance(new, str) or kind["type"] != new["type"]:
        return kind
    if kind["type"] == "struct":
        return {**kind, "fields": _merged(kind["fields"], new["fields"])}
    parts = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
    return {**kind, **{part: _merged_type(kind[part], new[part]) for part in parts}}


def _nullable(field: Field) -> Field:
    # Files that were written before have no values for it.
    return {**field, "nullable": True}


class _Edit:
    """A table's metadata while it is being changed."""

    def __init__(self, definition: DeltaDefinition) -> None:
        self._before = definition
        self._table = definition.table
        self.fields = definition.fields
        self._partitions = list(definition.partition_by)
        self._properties = dict(definition.properties)
        self._features: set[str] = set()
        self._nesting = Nesting(definition.table, DELTA, {"nullable": True})

    def change(self) -> Change:
        before = self._before
        mode = mapping_mode(self._properties, self._table)
        if mode != "none":
            last = max(int(self._properties.get(MAX_COLUMN_ID, "0")), highest_id(self.fields))
            self.fields, last = assign_ids(self.fields, before.table_id, last)
            self._properties[MAX_COLUMN_ID] = str(last)
        metadata = {
            **before.metadata,
            "partitionColumns": self._partitions,
            "configuration": self._properties,
        }
        if self.fields != before.fields:
            metadata["schemaString"] = encode_schema(self.fields)
        needed = self._features | features_of(self.fields, self._properties)
        present, protocol = before.protocol, None
        if VIEW in writer_features(present) - needed:
            # A table takes the place of a view: no older version of it has rows to be read.
            protocol = present = without_feature(present, VIEW)
        if needed - writer_features(present):
            protocol = with_features(present, needed)
        unchanged = metadata == {**before.metadata, "configuration": dict(before.properties)}
        return Change(metadata=None if unchanged else metadata, protocol=protocol)

    # ------------------------------------------------------------------ columns

    def add_columns(self, new: list[Field]) -> None:
        for field in new:
            if not field["nullable"]:
                raise self._refused(
                    f"cannot get the column {field['name']!r} as NOT NULL: existing rows have no "
                    "value for it; add it as nullable"
                )
            self.fields = self._nesting.added(self.fields, field)

    def drop_columns(self, names: Sequence[str]) -> None:
        for name in names:
            path = self._path(name, "dropped")
            if path[0] in self._partitions:
                raise self._refused(f"is partitioned by {path[0]!r}, which cannot be dropped")
            self._refuse_used(path, "dropped")
            self._require_mapping("drop", name)
            self._refuse_clustered(path, "dropped")
            self.fields = self._nesting.edited(self.fields, {path: lambda field: None})
        if names and len(self.fields) <= len(self._partitions):
            raise self._refused("would be left without a column for its data files")
        self._nesting.refuse_twice(self.fields)

    def replace_columns(self, new: list[Field]) -> None:
        """Replace all columns; names of columns need no mapping, for no file stays."""
        mode = mapping_mode(self._properties, self._table)
        before = {field["name"].lower(): field for field in self.fields}
        types = {
            field.name.lower(): field.type
            for field in arrow_schema(self.fields, physical=False, mode=mode)
        }
        given = arrow_schema(new, physical=False, mode="none")
        fields = []
        for field, kind in zip(new, given.types, strict=True):
            old = before.get(field["name"].lower())
            stays = old is not None and types[field["name"].lower()] == kind
            fields.append(old if old is not None and stays else field)
        removed = [field for field in self.fields if field not in fields]
        kept = {field["name"].lower() for field in fields}
        for name in self._partitions:
            if name.lower() not in kept:
                raise self._refused(f"is partitioned by {name!r}, which the data lacks: add it")
        for field in removed:
            self._refuse_used((field["name"],), "replaced")
            self._refuse_clustered((field["name"],), "replaced")
        if len(fields) <= len(self._partitions):
            raise self._refused("would be left without a column for its data files")
        spelled = {field["name"].lower(): field["name"] for field in fields}
        self._partitions = [spelled[name.lower()] for name in self._partitions]
        self.fields = fields
        if removed:
            self._properties[REPLACED] = replaced_once_more(self._properties)

    def replace_definition(self, wanted: NewDefinition) -> None:
        """Give the table the definition of a new one, but keep the parts that it can't lose."""
        self._partitions = []
        self._properties = {
            key: value for key, value in self._properties.items() if key.startswith(_LASTING)
        }
        new = delta_fields(wanted.schema, self._table)
        kept: list[Field] = []
        self.replace_columns(new)
        # The new definition describes a column that stays, except for the ids that identify it.
        for field, given in zip(self.fields, new, strict=True):
            old = field.get("metadata") or {}
            ids = {key: value for key, value in old.items() if key.startswith(_MAPPING)}
            kept.append({**given, "type": field["type"], "metadata": given["metadata"] | ids})
        self.fields = kept
        self._partitions = list(partition_columns(self.fields, wanted.partition_by, self._table))
        if self._partitions and self._before.clustering_paths:
            raise self._refused(f"is clustered, so it can't be partitioned: {_CLUSTER_ANEW}")
        self.set_properties(wanted.properties)
        self.add_constraints(wanted.constraints)
        self._properties[REPLACED] = replaced_once_more(self._before.properties)

    def rename_columns(self, names: Mapping[str, str]) -> None:
        paths = {self._path(old, "renamed"): new for old, new in names.items()}
        for old in names:
            self._require_mapping("rename", old)
        for path in paths:
            self._refuse_used(path, "renamed")
        # All at once, so that two columns may swap names.
        edits = {path: partial(_called, new) for path, new in paths.items()}
        self.fields = self._nesting.edited(self.fields, edits)
        self._partitions = [paths.get((name,), name) for name in self._partitions]
        self._nesting.refuse_twice(self.fields)

    def change_field(self, name: str, change: Callable[[Field], Field]) -> None:
        path = self._path(name, "changed so")
        self.fields = self._nesting.edited(self.fields, {path: change})

    def drop_not_null(self, name: str) -> None:
        path = self._nesting.find(self.fields, name)
        self.fields = self._nesting.without_not_null(self.fields, path)

    def change_types(self, types: Mapping[str, str]) -> None:
        for name, new in types.items():
            path = self._path(name, "of another type")
            self._refuse_constrained(path, "get another type")
            edit = partial(self._widened, name, new)
            self.fields = self._nesting.edited(self.fields, {path: edit})
            if len(path) == 1 and path[0] in self._partitions and new not in INTEGERS:
                raise self._refused(
                    f"is partitioned by {name!r}, which may become a wider integer and nothing else"
                )
        # Checked last: for a type to which no table can be widened, the property would be set in
        # vain.
        if types and self._properties.get(_WIDENING, "").lower() != "true":
            raise self._refused(
                f"cannot get columns of wider types before the property {_WIDENING} = true is set: "
                "then only clients that know the table feature typeWidening read the table"
            )

    def _widened(self, name: str, new: str, field: Field) -> Field:
        mode = mapping_mode(self._properties, self._table)
        old = type_name(arrow_schema([field], physical=False, mode=mode).field(0).type)
        check_widens(self._table, name, old, new, in_delta)
        metadata = field.get("metadata") or {}
        changes = [*metadata.get(_CHANGES, []), {"fromType": field["type"], "toType": new}]
        return {**field, "type": new, "metadata": {**metadata, _CHANGES: changes}}

    def _path(self, name: str, verb: str) -> tuple[str, ...]:
        """Return a column by name, or a nested field by dotted path, as the schema spells it."""
        return self._nesting.find_field(self.fields, name, verb)

    def _require_mapping(self, verb: str, name: str) -> None:
        if mapping_mode(self._properties, self._table) == "none":
            raise self._refused(
                f"cannot {verb} the column {name!r} while its files name columns directly; set the "
                f"property {_MODE} = name first"
            )

    def _refuse_constrained(self, path: tuple[str, ...], what: str) -> None:
        for key, sql in self._properties.items():
            if key.startswith(CONSTRAINT) and _mentions(sql, path):
                name = key.removeprefix(CONSTRAINT)
                raise self._refused(
                    f"has the constraint {name!r} ({sql}) on column {'.'.join(path)!r}, which can "
                    f"then not {what}; drop the constraint first"
                )
        for where, field in walk(self.fields):
            text = (field.get("metadata") or {}).get(INVARIANT)
            if text is not None and _rules(str(text), where, path):
                raise self._refused(
                    f"has the invariant {text!r} on column {'.'.join(where)!r}, so column "
                    f"{'.'.join(path)!r} can't {what}; use the client that made the invariant"
                )

    def _refuse_used(self, path: tuple[str, ...], verb: str) -> None:
        self._refuse_constrained(path, f"be {verb}")
        for key in ("delta.dataSkippingStatsColumns",):
            if path[-1].lower() in self._properties.get(key, "").lower():
                raise self._refused(
                    f"names column {'.'.join(path)!r} in {key}, so that it cannot be {verb}; "
                    "change the property first"
                )

    def _refuse_clustered(self, path: tuple[str, ...], verb: str) -> None:
        """Raise if the table is clustered by this column, or by a field within it."""
        stored = _stored_path(self.fields, path)
        for column in self._before.clustering_paths:
            if column[: len(stored)] == stored:
                part = "" if column == stored else "a field of "
                raise self._refused(
                    f"is clustered by {part}{'.'.join(path)!r}, which can't be {verb}: "
                    f"{_CLUSTER_ANEW}"
                )

    # ------------------------------------------------- constraints and properties

    def add_constraints(self, constraints: Mapping[str, str]) -> None:
        if not constraints:
            return
        mode = mapping_mode(self._properties, self._table)
        schema = arrow_schema(self.fields, physical=False, mode=mode)
        for name, sql in constraints.items():
            if self._constraint_key(name) is not None:
                raise self._refused(f"already has a constraint {name!r}; drop it first")
            bind(parse_constraint(sql), schema)
            self._properties[CONSTRAINT + name] = sql

    def drop_constraints(self, names: Sequence[str]) -> None:
        for name in names:
            key = self._constraint_key(name)
            if key is None:
                known = [
                    key.removeprefix(CONSTRAINT)
                    for key in self._properties
                    if key.startswith(CONSTRAINT)
                ]
                raise self._refused(
                    f"has no constraint {name!r}; it has {', '.join(map(repr, known)) or 'none'}"
                )
            del self._properties[key]

    def _constraint_key(self, name: str) -> str | None:
        wanted = (CONSTRAINT + name).lower()
        return next((key for key in self._properties if key.lower() == wanted), None)

    def set_properties(self, wanted: Mapping[str, str]) -> None:
        configuration, features = split_properties(wanted, self._table)
        self._features |= features
        for key, value in configuration.items():
            if key.startswith(CONSTRAINT):
                raise self._refused(f"gets constraints by add_constraints, not by property {key}")
            if key == _MODE:
                self._set_mapping(value)
            is_on = value.lower() == "true"
            if key == TRACKS and is_on and not self._before.flag(key):
                raise self._refused(
                    f"can have {TRACKS} only from its creation: existing files have no row ids"
                )
            self._properties[key] = value
        if not (self._before.flag(TRACKS) and self._before.flag(SUSPENDED)):
            # A table that already has both properties stays open to other changes.
            refuse_suspended(self._properties, self._table)

    def _set_mapping(self, value: str) -> None:
        before = mapping_mode(self._properties, self._table)
        after = mapping_mode({_MODE: value}, self._table)
        if before == after:
            return
        if (before, after) != ("none", "name"):
            raise self._refused(f"cannot go from {_MODE} = {before} to {after}; only none to name")
        # The existing files name columns as the schema does: the physical names are the same.
        self.fields, last = keep_names(self.fields)
        self._properties[MAX_COLUMN_ID] = str(last)

    def unset_properties(self, names: Sequence[str]) -> None:
        for name in (*names, *canonical_names(names)):
            if name.startswith(CONSTRAINT):
                raise self._refused(f"loses constraints by drop_constraints, not by {name}")
            if name.startswith(_MAPPING) or is_kept_by_itself(name):
                raise self._refused(f"cannot do without the property {name}")
            self._properties.pop(name, None)

    def _refused(self, what: str) -> InvalidOperation:
        return InvalidOperation(f"table {self._table} {what}", table=self._table)


def _commented(text: str | None, field: Field) -> Field:
    metadata = {
        key: value for key, value in (field.get("metadata") or {}).items() if key != "comment"
    }
    return {**field, "metadata": metadata if text is None else {**metadata, "comment": text}}


def _called(name: str, field: Field) -> Field:
    return {**field, "name": name}


def _stored_path(fields: Sequence[Field], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a column's path by the names in data files."""
    field = next(field for field in fields if field["name"] == path[0])
    inner = field["type"].get("fields") if len(path) > 1 else None
    if inner is None:  # names within lists and maps stay: no table is clustered by fields there
        return (physical_name(field), *path[1:])
    return (physical_name(field), *_stored_path(inner, path[1:]))


def _has_stored(fields: Sequence[Field], path: tuple[str, ...]) -> bool:
    """Return whether the fields have a column at a path of names in data files."""
    found = next((field for field in fields if physical_name(field) == path[0]), None)
    if found is None or len(path) == 1:
        return found is not None
    kind = found["type"]
    return isinstance(kind, dict) and _has_stored(kind.get("fields", ()), path[1:])


def _rules(text: str, where: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Return whether the invariant of the column ``where`` depends on the column ``path``."""
    sql = invariant(text)
    if sql is not None:
        with suppress(InvalidOperation):
            return _mentions(sql, path)
    # the text has another grammar: it depends at least on its own column
    return where[: len(path)] == path


def _mentions(sql: str, path: tuple[str, ...]) -> bool:
    wanted = tuple(part.lower() for part in path)
    for column in columns(parse_predicate(sql)):
        named = tuple(part.lower() for part in column.path)
        if named[: len(wanted)] == wanted or wanted[: len(named)] == named:
            return True
    return False


# -------------------- redefine
#
# The change that defines a table again as one of its other states defines it.


def redefined(
    now: DeltaDefinition, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
) -> Change:
    """See ``formats.base.TableFormat.redefine``."""
    if metadata.get("id") != now.metadata.get("id"):
        raise InvalidOperation(
            f"table {now.table} has another id in that state: it was replaced since, and can't "
            "get its earlier definition back; read that state, and overwrite the table with it",
            table=now.table,
        )
    restored = DeltaDefinition(
        now.location, now.table, dict(metadata), dict(protocol), now.clustering
    )
    names = {stored: logical for logical, stored in leaf_paths(now.fields)}
    for column in now.clustering_paths:
        if not _has_stored(restored.fields, column) or restored.partition_by:
            raise InvalidOperation(
                f"table {now.table} is clustered by {'.'.join(names.get(column, column))!r}, which "
                f"that state can't be: {_CLUSTER_ANEW}",
                table=now.table,
            )
    present = now.metadata.get("configuration") or {}
    configuration = _counted_up(present, metadata.get("configuration") or {})
    wanted = {**metadata, "configuration": configuration}
    needed = _features(now.protocol, protocol)
    return Change(
        metadata=None if wanted == now.metadata else wanted,
        protocol=None if needed == now.protocol else needed,
    )


def _counted_up(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted properties; counters keep at least their present value."""
    found = dict(wanted)
    highest = max(
        (int(c[MAX_COLUMN_ID]) for c in (present, wanted) if MAX_COLUMN_ID in c), default=0
    )
    if MAX_COLUMN_ID in wanted:
        found[MAX_COLUMN_ID] = str(highest)
    if (times := replaced_between(present, wanted)) is not None:
        found[REPLACED] = times
    if VOIDED in present:
        found[VOIDED] = present[VOIDED]
    found = {key: value for key, value in found.items() if key not in enablement(found)}
    return found | enablement(present) | _row_tracking(present, wanted)


def _row_tracking(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of row tracking, which stays off once the table has switched it off.

    Files that were written while it was off have no row ids.
    """
    names = {key: value for key, value in present.items() if key.startswith("delta.rowTracking.")}
    is_on = all(one.get(TRACKS, "").lower() == "true" for one in (present, wanted))
    if is_on:
        return {**names, SUSPENDED: "false"} if SUSPENDED in wanted else names
    return names | ({TRACKS: "false"} if TRACKS in wanted else {})


def _features(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the wanted protocol with all present features, for the log may still need them.

    A guard is left unchanged.
    """
    features = writer_features(wanted) - {GUARD}
    if VIEW in writer_features(now) - features:
        now = without_feature(now, VIEW)
    unguarded = not is_guarded(now) and not is_guarded(wanted)
    if unguarded and writer_features(now) <= features:
        return dict(wanted)
    return with_features(now, features)
