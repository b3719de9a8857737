"""Columns and properties of a table, and their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from blake3 import blake3

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Column, Expr, Literal, columns, substitute
from lakevilla.sql.expressions.types import INTEGERS, decimal_parts, is_decimal, is_nested

# -------------------- layout
#
# The columns of a table, and the layout of its files.


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named CHECK constraint or invariant; rows for which it is not true are refused."""

    name: str
    expression: Expr
    sql: str


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One part of the common values of a file's rows: a value computed from one of their columns.

    ``key`` names its value in ``DataFile.partition_values``, ``name`` in directories. ``path``
    is the column, or leads to a field within it. ``transform`` is Iceberg's (``identity``,
    ``day``, ``bucket[16]``).
    """

    key: str
    name: str
    path: tuple[str, ...]
    transform: str

    @property
    def column(self) -> str:
        """The top-level column that contains the value."""
        return self.path[0]

    @property
    def spelled(self) -> str:
        """The spelling that ``create_table`` accepts: ``c``, ``day(c.d)``, ``bucket(16, c)``."""
        source = ".".join(self.path)
        if self.transform == "identity":
            return source
        kind, _, rest = self.transform.partition("[")
        return f"{kind}({rest[:-1]}, {source})" if rest else f"{kind}({source})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of the order of rows within a file: by a transform of a column."""

    column: str
    transform: str
    descending: bool
    nulls_first: bool


#: The statements that change rows of a table.
STATEMENTS = frozenset({"delete", "update", "merge"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table's rows in files: all that an engine needs to read and write them.

    Attributes
    ----------
    location : str
        Key prefix of the table; a file's key is ``location + "/" + path`` unless its path is a URI.
    table : str
        Name for messages.
    schema : pyarrow.Schema
        Logical columns in order, partition columns included, with nullability.
    physical : pyarrow.Schema
        The same fields in the same order under their physical names (equal to
        ``schema`` without column mapping), with ``PARQUET:field_id`` metadata
        where the table maps by id.
    by_field_id : bool
        Files are read by Parquet field id rather than by physical name.
    partition_by : tuple of str
        Logical names.
    statistics_columns : tuple of str
        Dotted physical names of the leaf columns for which statistics are kept.
    constraints : tuple of Constraint
        CHECK constraints and invariants. NOT NULL is in the schema.
    properties : Mapping
        The table's properties.
    change_data_feed : bool
        Rewrites must also write change files.
    marks_deletes : frozenset of str
        The statements (``STATEMENTS``) that may mark deleted rows of a file, instead of a rewrite
        of the file.
    compression : str
        Parquet compression codec.
    target_file_size_bytes : int, optional
        The number of bytes at which data files are cut, where the table sets it.
    known_as : pyarrow.Schema, optional
        The same fields under the names that statistics use for them, where these are
        not the physical ones.
    partition_fields : tuple of PartitionField
        Iceberg's partitioning of new files, whose columns are stored in the files too:
        ``partition_by`` is empty then.
    constants : tuple of (str, str)
        Columns, and keys of ``DataFile.partition_values``. A file whose footer shows that it
        lacks the column has the value under the key in all its rows.
    constants_within : tuple of (int, str)
        The same for fields within columns, by field id: files that lack one are not read.
    defaults : tuple of (str, str)
        Columns, and the value (in the text of partition values) of rows
        whose files lack the column and have no constant for it.
    uri : str
        The table's directory as the files of an Iceberg table spell it.
    data_directory : str
        The directory of new data files, below the table's directory.
    sort_by : tuple of SortField
        The order of rows within each new file.
    sort_order_id : int, optional
        The table's id of that order.
    identifier : tuple of paths
        The columns, or fields within them, that identify a row, as Iceberg's
        identifier fields define.
    lineage : tuple of two fields, or empty
        The columns of data files, in addition to the table's, in which rewritten rows keep their
        id, and the version of the commit that last changed them. Empty where rows have no ids.
    view : str or None
        The definition of a view, which has no rows of its own; None for a table.
    """

    location: str
    table: str
    schema: pa.Schema
    physical: pa.Schema
    by_field_id: bool
    partition_by: tuple[str, ...]
    statistics_columns: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    properties: Mapping[str, str]
    change_data_feed: bool = False
    marks_deletes: frozenset[str] = frozenset()
    compression: str = "snappy"
    target_file_size_bytes: int | None = None
    known_as: pa.Schema | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    constants_within: tuple[tuple[int, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    uri: str = ""
    data_directory: str = ""
    sort_by: tuple[SortField, ...] = ()
    sort_order_id: int | None = None
    identifier: tuple[tuple[str, ...], ...] = ()
    lineage: tuple[pa.Field, ...] = ()
    view: str | None = None

    @property
    def moved_schema(self) -> pa.Schema:
        """The columns that rows have on their way into other files: with their lineage."""
        return pa.schema([*self.schema, *self.lineage])

    @property
    def statistics_schema(self) -> pa.Schema:
        """The fields under the names that statistics use for them."""
        return self.physical if self.known_as is None else self.known_as


# -------------------- fields
#
# Columns as fields: the identity that a column keeps when names change.
#
# A name means a column only on one schema. A tree that outlives it is *tied* to fields once,
# and *located* in each layout on which it is evaluated (docs/design/0020-bound-to-fields.md).
# A field is identified by a path of ids: Delta's physical names, Iceberg's field ids, as
# statistics use them.


Path = tuple[str, ...]
#: The ids of a field, and of the fields that contain it, the outermost first.
Ids = tuple[str, ...]

#: The ids of a column that was never created: no field has them.
REMOVED: Ids = ("",)

_NULL = Literal("void")


def tied(expr: Expr, layout: Layout, *, table: str | None = None) -> Expr:
    """Return the tree with each column tied to its field; columns have their exact names.

    ``table``: the alias under which columns are the layout's, in a merge.
    A column that the layout lacks stays unchanged: binding refuses it.
    """

    def tie(column: Column) -> Expr:
        if column.table != table:
            return column
        return Column(column.path, table, ids_of(layout, column.path) or ())

    return substitute(expr, tie)


def located(expr: Expr, layout: Layout, *, nulls: bool = False) -> Expr:
    """Return the tree with the names that its fields have in ``layout``.

    A column that is not tied is found by its name. With ``nulls`` a field that the layout lacks is
    NULL.

    Raises
    ------
    InvalidOperation
        The table has no such field any more.
    """

    def locate(column: Column) -> Expr:
        if not column.ids:
            return column
        path = path_of(layout, column.ids)
        if path is not None:
            return Column(path, column.table)
        if nulls:
            return _NULL
        raise lacks(layout, column.path)

    return substitute(expr, locate)


def lacks(layout: Layout, path: Path) -> InvalidOperation:
    """Return the error for a field that was dropped."""
    return InvalidOperation(
        f"column {'.'.join(path)} of table {layout.table} was dropped, or created again, since it "
        "was named: run the statement again on its present columns",
        table=layout.table,
    )


def as_of(where: Expr | None, layout: Layout) -> Expr | None:
    """Return a predicate for a state that may lack some of its columns; None: all rows.

    A column that the state lacks was added after it, and is NULL in all of its rows.
    """
    if where is None:
        return None
    absent = any(column.ids and path_of(layout, column.ids) is None for column in columns(where))
    try:
        return bind(located(where, layout, nulls=True), layout.schema)
    except InvalidOperation:
        if absent:
            return None  # its type is not known, so it may not fit a function
        raise


def renumbered(expr: Expr, moved: Mapping[Ids, Ids]) -> Expr:
    """Return the tree with other ids in place of those in ``moved``, all at once."""

    def renumber(column: Column) -> Expr:
        return Column(column.path, column.table, moved.get(column.ids, column.ids))

    return substitute(expr, renumber)


def ids_of(layout: Layout, path: Path) -> Ids | None:
    """Return the ids of the field at an exact path of names; None if there is none."""
    return _follow(path, layout.schema, layout.statistics_schema)


def path_of(layout: Layout, ids: Ids) -> Path | None:
    """Return the names of a field in the layout; None if the layout lacks it."""
    return _follow(ids, layout.statistics_schema, layout.schema)


def _follow(path: Path, names: Any, others: Any) -> Path | None:
    """Return the names that ``others``, of the same shape as ``names``, has along a path."""
    found: list[str] = []
    for name in path:
        if found and not pa.types.is_struct(names):
            pairs = zip(_parts_of(names), _parts_of(others), strict=True)
            pair = next((pair for pair in pairs if pair[0].name == name), None)
            if pair is None:
                return None
            field, other = pair
        else:
            places = names.get_all_field_indices(name)
            if not places:
                return None
            field, other = names.field(places[0]), others.field(places[0])
        found.append(other.name)
        names, others = field.type, other.type
    return tuple(found)


def _parts_of(kind: pa.DataType) -> tuple[pa.Field, ...]:
    """Return the fields within a nested type: of a struct, or a list's or a map's parts."""
    if pa.types.is_struct(kind):
        return tuple(kind)
    if pa.types.is_map(kind):
        return (kind.key_field, kind.item_field)
    return (kind.value_field,) if pa.types.is_list(kind) else ()


def fields(layout: Layout) -> Iterator[tuple[Path, Ids]]:
    """Yield all columns and the fields within them, with their ids."""
    yield from _fields(layout.schema, layout.statistics_schema, (), ())


def _fields(
    names: Iterable[pa.Field], others: Iterable[pa.Field], path: Path, ids: Ids
) -> Iterator[tuple[Path, Ids]]:
    for named, other in zip(names, others, strict=True):
        here, its = (*path, named.name), (*ids, other.name)
        yield here, its
        yield from _fields(_parts_of(named.type), _parts_of(other.type), here, its)


def path_named(layout: Layout, name: str) -> Path | None:
    """Return the exact path of a column, or of a field within one, by its dotted name.

    It is found as ``Nesting`` finds it in a schema. None if there is none.
    """
    return _path_named(layout.schema, name)


def _path_named(fields: Iterable[pa.Field], name: str) -> Path | None:
    known = list(fields)
    for field in known:
        if field.name.lower() == name.lower():
            return (field.name,)
    for field in known:
        rest = _rest(name, field.name)
        inner = None if rest is None else _path_named(_parts_of(field.type), rest)
        if inner is not None:
            return (field.name, *inner)
    return None


# -------------------- defined
#
# The part of a table's definition that is common to all its states, in either format.


class Definition(Protocol):
    """The definition of a table, which stays from state to state until an alteration."""

    location: str
    table: str

    @property
    def table_id(self) -> str: ...

    @property
    def contract(self) -> str: ...

    @property
    def layout(self) -> Layout: ...

    def check_writable(self) -> None: ...


def contract_digest(requirements: Mapping[str, object]) -> str:
    """Return a short digest of the requirements for data files: equal exactly if they are."""
    return blake3(msgspec.json.encode(requirements, order="deterministic")).hexdigest(length=8)


D = TypeVar("D", bound=Definition)


class DefinedSnapshot(Generic[D]):
    """The part of ``formats.base.TableSnapshot`` that its definition answers."""

    __slots__ = ()
    definition: D

    @property
    def location(self) -> str:
        return self.definition.location

    @property
    def table(self) -> str:
        return self.definition.table

    @property
    def table_id(self) -> str:
        return self.definition.table_id

    @property
    def contract(self) -> str:
        return self.definition.contract

    @property
    def layout(self) -> Layout:
        return self.definition.layout

    def check_writable(self) -> None:
        self.definition.check_writable()

    def check_upgradable(self) -> None:
        self.check_writable()

    @property
    def limits(self) -> tuple[str, ...]:
        return ()

    @property
    def is_view(self) -> bool:
        return False

    @property
    def next_row_id(self) -> int | None:
        return None

    @property
    def held_bytes(self) -> int:
        """Zero: states share what they hold."""
        return 0

    def forget_files(self) -> None:
        """Do nothing: no list of files is cached."""


# -------------------- alteration
#
# The parts of a table that one ``alter`` may change, in any format.


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """The whole new definition of a table."""

    schema: pa.Schema
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = made_by(default_factory=dict)
    constraints: Mapping[str, str] = made_by(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableAlteration:
    """The changes of a table's schema, constraints and properties that are made together.

    Columns have their names from before it: a renamed column is found by its old name. A new column
    is a field within another one if its dotted name leads there (``Nesting``). Types have the names
    of ``expressions.types``.
    """

    add_columns: pa.Schema | None = None
    drop_columns: Sequence[str] = ()
    rename_columns: Mapping[str, str] = made_by(default_factory=dict)
    change_types: Mapping[str, str] = made_by(default_factory=dict)
    drop_not_null: Sequence[str] = ()
    #: Comments of columns; None removes the comment.
    set_comments: Mapping[str, str | None] = made_by(default_factory=dict)
    #: Constants by new column, and by any column: type and text of a literal; None removes one.
    defaults: Mapping[str, Sequence[str] | None] = made_by(default_factory=dict)
    set_defaults: Mapping[str, Sequence[str] | None] = made_by(default_factory=dict)
    add_constraints: Mapping[str, str] = made_by(default_factory=dict)
    drop_constraints: Sequence[str] = ()
    set_properties: Mapping[str, str] = made_by(default_factory=dict)
    unset_properties: Sequence[str] = ()


# -------------------- widening
#
# The types that a column may get in place of its own: types that hold all its values, and as
# which readers of the format can read old files.


Widens = Callable[[str, str], bool]

#: The types to which a type may be widened, for messages.
_DELTA = {
    **dict.fromkeys(
        ("byte", "short", "integer"), "a wider integer, double or decimal(p,s) with p - s >= 10"
    ),
    "long": "decimal(p,s) with p - s >= 20",
    "float": "double",
    "date": "timestamp_ntz",
    "decimal": "a decimal with as many digits before the point, or more, and after it",
}
_ICEBERG = {
    "integer": "long",
    "float": "double",
    "decimal": "a decimal of greater precision and the same scale",
    "void": "any plain type",
}


def in_delta(old: str, new: str) -> bool:
    """Return whether Delta's table feature typeWidening allows the change.

    See https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
    """
    if old in INTEGERS and new in INTEGERS:
        return INTEGERS[old] < INTEGERS[new]
    if is_decimal(new) and (old in INTEGERS or is_decimal(old)):
        precision, scale = decimal_parts(new)
        digits, places = decimal_parts(old)
        if old in INTEGERS:
            digits = 20 if old == "long" else 10
        return old != new and scale >= places and precision - scale >= digits - places
    return (old, new) in {
        ("byte", "double"),
        ("short", "double"),
        ("integer", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
    }


def in_iceberg(old: str, new: str) -> bool:
    """Return whether Iceberg allows the change.

    See https://iceberg.apache.org/spec/#schema-evolution.
    """
    if is_decimal(old) and is_decimal(new):
        (digits, places), (precision, scale) = decimal_parts(old), decimal_parts(new)
        return scale == places and precision > digits
    if old == "void":
        return new != "void" and not is_nested(new)
    return (old, new) in {("integer", "long"), ("float", "double")}


def check_widens(table: str, column: str, old: str, new: str, widens: Widens) -> None:
    """Refuse a type that can't hold the column's values, or to which the format can't widen.

    Raises
    ------
    InvalidOperation
    """
    if widens(old, new):
        return
    if old == new:
        raise InvalidOperation(
            f"column {column!r} of table {table} is {old} already: leave it out", table=table
        )
    known = _DELTA if widens is in_delta else _ICEBERG
    wider_types = known.get("decimal" if is_decimal(old) else old)
    format_ = "Delta" if widens is in_delta else "Iceberg"
    raise InvalidOperation(
        f"column {column!r} of table {table} is {old} and can't become {new}: "
        + (
            f"in {format_} it may become {wider_types}"
            if wider_types
            else f"{format_} widens no {old}"
        )
        + "; to change what is stored, add a column of the new type and `update` it",
        table=table,
    )


# -------------------- nested
#
# Fields at any depth of a schema, found and changed by their dotted names.
#
# A name leads through structs by the names of fields, through a list by ``element``, and through a
# map by ``value`` (``l.element.q``, ``m.value.q``), as in Spark. Names are looked up without regard
# to case. Both formats write schemas as objects; they differ in the words for lists and maps.


#: A field of a schema, as the format writes it.
Field = dict[str, Any]
#: Returns the field as it becomes; None: it is dropped.
Edit = Callable[[Field], Field | None]


@dataclass(frozen=True, slots=True)
class Part:
    """The words of a format for a part of lists or maps.

    ``key`` has the part's type, ``optional`` is what allows NULL there: nothing in a map's keys.
    """

    key: str
    optional: Mapping[str, bool]


Parts = Mapping[str, Mapping[str, Part]]

DELTA: Parts = {
    "array": {"element": Part("elementType", {"containsNull": True})},
    "map": {
        "key": Part("keyType", {}),
        "value": Part("valueType", {"valueContainsNull": True}),
    },
}
ICEBERG: Parts = {
    "list": {"element": Part("element", {"element-required": False})},
    "map": {"key": Part("key", {}), "value": Part("value", {"value-required": False})},
}


@dataclass(frozen=True, slots=True)
class Nesting:
    """The fields of one table's schema. All methods raise ``InvalidOperation``.

    ``optional`` is what allows NULL in a field, as the format writes it.
    """

    table: str
    parts: Parts
    optional: Mapping[str, bool]

    def find(self, fields: Sequence[Field], name: str) -> Path:
        """Return the path of a column, or of a field within one, that may be changed."""
        path = self._find(fields, name)
        if path is None:
            known = ", ".join(repr(str(field["name"])) for field in fields)
            raise self._refused(f"has no column {name!r}; it has {known}")
        if self._is_of_a_key(fields, path):
            raise self._refused(
                f"has {name!r} within the keys of a map, which can't change: equal keys would "
                "differ; add a column of another type, and `update` it"
            )
        return path

    def find_field(self, fields: Sequence[Field], name: str, verb: str) -> Path:
        """Return the path of a field that has a name of its own, unlike a list's elements."""
        path = self.find(fields, name)
        if self.ends_in_part(fields, path):
            raise self._refused(
                f"can't have {name!r} {verb}: the elements of a list and the values of a map "
                "are no column; name the list or map, or a field within"
            )
        return path

    def field(self, fields: Sequence[Field], path: Path) -> Field:
        """Return the field at a path."""
        kind: Any = {"type": "struct", "fields": fields}
        for name in path:
            if kind["type"] == "struct":
                field: Field = next(one for one in kind["fields"] if one["name"] == name)
                kind = field["type"]
            else:
                kind = kind[self.parts[kind["type"]][name].key]
        return field

    def ends_in_part(self, fields: Sequence[Field], path: Path) -> bool:
        """Return whether a path leads to the elements of a list or the values of a map."""
        return self._walked(fields, path)[-1] is not None

    def edited(self, fields: Sequence[Field], edits: Mapping[Path, Edit]) -> list[Field]:
        """Return the fields with those at the paths changed, all at once."""
        return self._edited(fields, edits, ())

    def without_not_null(self, fields: Sequence[Field], path: Path) -> list[Field]:
        """Return the fields with NULL allowed in the one at a path."""
        part = self._walked(fields, path)[-1]
        if part is None:
            return self.edited(fields, {path: lambda field: {**field, **self.optional}})

        def relaxed(kind: Any, rest: Path) -> Any:
            if kind["type"] == "struct":
                inner = next(one for one in kind["fields"] if one["name"] == rest[0])
                changed = {**inner, "type": relaxed(inner["type"], rest[1:])}
                return {**kind, "fields": [changed if o is inner else o for o in kind["fields"]]}
            own = self.parts[kind["type"]][rest[0]]
            if len(rest) == 1:
                return {**kind, **own.optional}
            return {**kind, own.key: relaxed(kind[own.key], rest[1:])}

        found: dict[str, Any] = relaxed({"type": "struct", "fields": list(fields)}, path)
        return list(found["fields"])

    def added(self, fields: Sequence[Field], new: Field) -> list[Field]:
        """Return the fields with a new one: within a column if its name leads into that column."""
        return self._added(fields, new, "")

    def refuse_twice(self, fields: Sequence[Field], within: str = "") -> None:
        """Refuse two fields of one name side by side, and structs without fields, at any depth."""
        seen: set[str] = set()
        for field in fields:
            name = str(field["name"])
            if name.lower() in seen:
                raise self._refused(
                    f"would have two columns {within + name!r} (case is ignored): choose another "
                    "name"
                )
            seen.add(name.lower())
            self._refuse_twice_in(field["type"], f"{within}{name}")

    # ------------------------------------------------------------------ inside

    def _find(self, fields: Sequence[Field], name: str) -> Path | None:
        for field in fields:
            if str(field["name"]).lower() == name.lower():
                return (field["name"],)
        for field in fields:
            rest = _rest(name, str(field["name"]))
            inner = None if rest is None else self._find_in(field["type"], rest)
            if inner is not None:
                return (field["name"], *inner)
        return None

    def _find_in(self, kind: Any, name: str) -> Path | None:
        if isinstance(kind, str):
            return None
        if kind["type"] == "struct":
            return self._find(kind["fields"], name)
        for label, part in self.parts.get(kind["type"], {}).items():
            if name.lower() == label:
                return (label,)
            rest = _rest(name, label)
            if rest is not None:
                inner = self._find_in(kind[part.key], rest)
                return None if inner is None else (label, *inner)
        return None

    def _walked(self, fields: Sequence[Field], path: Path) -> list[Part | None]:
        """Return the parts of lists and maps along a path; None for a field of a struct."""
        found: list[Part | None] = []
        kind: Any = {"type": "struct", "fields": fields}
        for name in path:
            if kind["type"] == "struct":
                kind = next(one for one in kind["fields"] if one["name"] == name)["type"]
                found.append(None)
            else:
                part = self.parts[kind["type"]][name]
                kind = kind[part.key]
                found.append(part)
        return found

    def _is_of_a_key(self, fields: Sequence[Field], path: Path) -> bool:
        return any(part is not None and not part.optional for part in self._walked(fields, path))

    def _edited(
        self, fields: Sequence[Field], edits: Mapping[Path, Edit], within: Path
    ) -> list[Field]:
        found = []
        for field in fields:
            path = (*within, field["name"])
            deeper = {one: edit for one, edit in edits.items() if one[: len(path)] == path}
            new: Field | None = field
            if any(len(one) > len(path) for one in deeper):
                new = {**field, "type": self._edited_type(field["type"], deeper, path)}
            if path in deeper and new is not None:
                new = deeper[path](new)
            if new is not None:
                found.append(new)
        return found

    def _edited_type(self, kind: Any, edits: Mapping[Path, Edit], within: Path) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": self._edited(kind["fields"], edits, within)}
        parts = self.parts.get(kind["type"], {})
        changed = {
            part.key: self._edited_type(kind[part.key], edits, (*within, label))
            for label, part in parts.items()
        }
        return {**kind, **changed}

    def _added(self, fields: Sequence[Field], new: Field, within: str) -> list[Field]:
        name = str(new["name"])
        for field in fields:
            if str(field["name"]).lower() == name.lower():
                raise self._refused(
                    f"already has a column {within + str(field['name'])!r} (case is ignored): "
                    "choose another name"
                )
        around = [
            (len(str(field["name"])), index)
            for index, field in enumerate(fields)
            if _rest(name, str(field["name"])) is not None and not isinstance(field["type"], str)
        ]
        if around:  # of columns with dots in their names, the longest name is meant
            _, index = max(around)
            field = fields[index]
            inner = {**new, "name": _rest(name, str(field["name"]))}
            kind = self._added_in(field["type"], inner, f"{within}{field['name']}")
            return [*fields[:index], {**field, "type": kind}, *fields[index + 1 :]]
        if within and "." in name:
            raise self._refused(
                f"can't get the column {within + name!r}: there is no struct, list or map "
                f"{within + name.rpartition('.')[0]!r} in it; add that first"
            )
        return [*fields, new]

    def _added_in(self, kind: Any, new: Field, within: str) -> Any:
        """Return a type with a new field, whose name leads on from ``within``."""
        if not isinstance(kind, str) and kind["type"] == "struct":
            return {**kind, "fields": self._added(kind["fields"], new, f"{within}.")}
        name = str(new["name"])
        labels = {} if isinstance(kind, str) else self.parts.get(kind["type"], {})
        for label, part in labels.items():
            rest = _rest(name, label)
            if rest is None and name.lower() != label:
                continue
            if not part.optional:
                raise self._refused(
                    f"can't get the column {within + '.' + name!r}: the keys of a map can't "
                    "change, for equal keys would differ"
                )
            if rest is not None:
                inner = self._added_in(kind[part.key], {**new, "name": rest}, f"{within}.{label}")
                return {**kind, part.key: inner}
        raise self._refused(
            f"can't get the column {within + '.' + name!r}: "
            + (
                f"{within!r} is no struct; write {_ways(within, labels)}"
                if labels
                else f"{within!r} is no struct"
            )
        )

    def _refuse_twice_in(self, kind: Any, within: str) -> None:
        if isinstance(kind, str):
            return
        if kind["type"] == "struct":
            if not kind["fields"]:
                raise self._refused(
                    f"would have no field left in {within!r}, and no file holds such a struct: "
                    "drop the whole"
                )
            self.refuse_twice(kind["fields"], f"{within}.")
            return
        for label, part in self.parts.get(kind["type"], {}).items():
            self._refuse_twice_in(kind[part.key], f"{within}.{label}")

    def _refused(self, what: str) -> InvalidOperation:
        return InvalidOperation(f"table {self.table} {what}", table=self.table)


def _rest(name: str, outer: str) -> str | None:
    """Return the rest of a dotted name after ``outer``; None if it does not begin with that."""
    prefix = f"{outer}."
    return name[len(prefix) :] if name.lower().startswith(prefix.lower()) else None


def _ways(within: str, labels: Mapping[str, Part]) -> str:
    changing = [label for label, part in labels.items() if part.optional]
    return " or ".join(f"{within}.{label}.<name>, if that is a struct" for label in changing)
