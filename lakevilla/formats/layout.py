"""Columns and properties of a table, and how they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from blake3 import blake3

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Column, Expr, Literal, columns, substitute
from lakevilla.sql.expressions.types import INTEGERS, decimal_parts, is_decimal

# -------------------- layout
#
# What a table's rows look like, and how its files are laid out.


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named CHECK constraint or invariant; rows for which it is not true are refused."""

    name: str
    expression: Expr
    sql: str


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One part of what a file's rows have in common: a value made of a column of theirs.

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
        """The column in which the value lies."""
        return self.path[0]

    @property
    def spelled(self) -> str:
        """As ``create_table`` takes it: ``c``, ``day(c.d)``, ``bucket(16, c)``."""
        source = ".".join(self.path)
        if self.transform == "identity":
            return source
        kind, _, rest = self.transform.partition("[")
        return f"{kind}({rest[:-1]}, {source})" if rest else f"{kind}({source})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of the order of rows within a file: by what a transform makes of a column."""

    column: str
    transform: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a table are laid out in files: all that an engine needs to read and write them.

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
    compression : str
        Parquet compression codec.
    target_file_size_bytes : int, optional
        Where the table says at how many bytes data files are cut.
    known_as : pyarrow.Schema, optional
        The same fields under the names by which statistics know them, where these are
        not the physical ones.
    partition_fields : tuple of PartitionField
        Iceberg's partitioning of new files, whose columns are in the files too:
        ``partition_by`` is empty then.
    constants : tuple of (str, str)
        Columns, and keys of ``DataFile.partition_values`` that have their value for all rows
        of a file which lacks the column, as its footer tells.
    constants_within : tuple of (int, str)
        The same of fields within columns, by field id: files that lack one are not read.
    defaults : tuple of (str, str)
        Columns, and the value (in the text of partition values) that rows have there whose
        files lack the column and have no constant for it.
    uri : str
        The table's directory as an Iceberg table's files spell it.
    data_directory : str
        Where new data files go, below the table's directory.
    sort_by : tuple of SortField
        The order of rows within each new file.
    sort_order_id : int, optional
        What the table calls that order.
    identifier : tuple of paths
        The columns, or fields within them, that tell one row from another, as Iceberg's
        identifier fields say.
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

    @property
    def statistics_schema(self) -> pa.Schema:
        """The fields under the names by which statistics know them."""
        return self.physical if self.known_as is None else self.known_as


# -------------------- fields
#
# Columns as the fields that they are: what stays theirs when names change.
#
# A name means a column only on one schema. A tree that outlives it is *tied* to fields once,
# and *located* in each layout on which it is evaluated (docs/design/0020-bound-to-fields.md).
# A field is told by a path of ids: Delta's physical names, Iceberg's field ids, as statistics
# know it.


Path = tuple[str, ...]
#: The ids of a field, and of those that it is within, the outermost first.
Ids = tuple[str, ...]

#: The ids of a column that never came to be: no field has them.
REMOVED: Ids = ("",)

_NULL = Literal("void")


def tied(expr: Expr, layout: Layout, *, table: str | None = None) -> Expr:
    """The tree with each column tied to its field; columns have their exact names.

    ``table``: the alias under which columns are the layout's, in a merge.
    A column that the layout lacks stays as it is: binding refuses it.
    """

    def tie(column: Column) -> Expr:
        if column.table != table:
            return column
        return Column(column.path, table, ids_of(layout, column.path) or ())

    return substitute(expr, tie)


def located(expr: Expr, layout: Layout, *, nulls: bool = False) -> Expr:
    """The tree in the names that its fields have in ``layout``; what is not tied goes by name.

    With ``nulls`` a field that the layout lacks is NULL.

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
    """What is told of a field that is gone."""
    return InvalidOperation(
        f"column {'.'.join(path)} of table {layout.table} was dropped, or created again, since it "
        "was named: run the statement again on its present columns",
        table=layout.table,
    )


def as_of(where: Expr | None, layout: Layout) -> Expr | None:
    """A predicate on a state that may not have all of its columns yet; None: all rows.

    What the state does not have was added after it, and is NULL in all of its rows.
    """
    if where is None:
        return None
    absent = any(column.ids and path_of(layout, column.ids) is None for column in columns(where))
    try:
        return bind(located(where, layout, nulls=True), layout.schema)
    except InvalidOperation:
        if absent:
            return None  # nothing is known of its type, so it may not go with a function
        raise


def renumbered(expr: Expr, moved: Mapping[Ids, Ids]) -> Expr:
    """The tree with other ids in place of those in ``moved``, all at once."""

    def renumber(column: Column) -> Expr:
        return Column(column.path, column.table, moved.get(column.ids, column.ids))

    return substitute(expr, renumber)


def ids_of(layout: Layout, path: Path) -> Ids | None:
    """The ids of the field at an exact path of names; None if there is none."""
    return _follow(path, layout.schema, layout.statistics_schema)


def path_of(layout: Layout, ids: Ids) -> Path | None:
    """The names by which the layout knows a field; None if it has none."""
    return _follow(ids, layout.statistics_schema, layout.schema)


def _follow(path: Path, names: Any, others: Any) -> Path | None:
    """The names that ``others``, of the same shape as ``names``, has along a path."""
    found: list[str] = []
    for name in path:
        if found and not pa.types.is_struct(names):
            return None
        places = names.get_all_field_indices(name)
        if not places:
            return None
        field, other = names.field(places[0]), others.field(places[0])
        found.append(other.name)
        names, others = field.type, other.type
    return tuple(found)


def fields(layout: Layout) -> Iterator[tuple[Path, Ids]]:
    """All columns and the fields within them that a name can reach, with their ids."""
    yield from _fields(layout.schema, layout.statistics_schema, (), ())


def _fields(
    names: Iterable[pa.Field], others: Iterable[pa.Field], path: Path, ids: Ids
) -> Iterator[tuple[Path, Ids]]:
    for named, other in zip(names, others, strict=True):
        here, its = (*path, named.name), (*ids, other.name)
        yield here, its
        if pa.types.is_struct(named.type):
            yield from _fields(named.type, other.type, here, its)


# -------------------- defined
#
# What a table's definition says of each of its states, in either format.


class Definition(Protocol):
    """What stays from state to state until somebody alters the table."""

    location: str
    table: str

    @property
    def table_id(self) -> str: ...

    @property
    def contract(self) -> str: ...

    @property
    def layout(self) -> Layout: ...

    def check_writable(self) -> None: ...


def contract_digest(asked: Mapping[str, object]) -> str:
    """A short name of what is asked of data files: the same if, and only if, the same is asked."""
    return blake3(msgspec.json.encode(asked, order="deterministic")).hexdigest(length=8)


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

    def forget_files(self) -> None:
        """Nothing is kept."""


# -------------------- alteration
#
# What may be changed of a table by one ``alter``, in any format.


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """All that a table is defined as from then on."""

    schema: pa.Schema
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    constraints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableAlteration:
    """The changes of a table's schema, constraints and properties that are made together.

    Columns are named as they are before it: what is renamed is found by its old name. One that
    is added is a field of a struct if its dotted name begins with the struct's. Types are named
    as by ``expressions.types``.
    """

    add_columns: pa.Schema | None = None
    drop_columns: Sequence[str] = ()
    rename_columns: Mapping[str, str] = field(default_factory=dict)
    change_types: Mapping[str, str] = field(default_factory=dict)
    drop_not_null: Sequence[str] = ()
    #: What is said of a column; None takes it back.
    set_comments: Mapping[str, str | None] = field(default_factory=dict)
    add_constraints: Mapping[str, str] = field(default_factory=dict)
    drop_constraints: Sequence[str] = ()
    set_properties: Mapping[str, str] = field(default_factory=dict)
    unset_properties: Sequence[str] = ()


# -------------------- widening
#
# Which type a column may get in place of its own: one that holds all its values, and that readers
# of the format know how to read old files as.


Widens = Callable[[str, str], bool]

#: What may become of a type, for messages.
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
}


def in_delta(old: str, new: str) -> bool:
    """Delta's table feature typeWidening: https://github.com/delta-io/delta/blob/master/PROTOCOL.md."""
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
    """Iceberg's schema evolution: https://iceberg.apache.org/spec/#schema-evolution."""
    if is_decimal(old) and is_decimal(new):
        (digits, places), (precision, scale) = decimal_parts(old), decimal_parts(new)
        return scale == places and precision > digits
    return (old, new) in {("integer", "long"), ("float", "double")}


def check_widens(table: str, column: str, old: str, new: str, widens: Widens) -> None:
    """Refuse a type that does not hold what the column has, or that the format can't widen to.

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
    may = known.get("decimal" if is_decimal(old) else old)
    format_ = "Delta" if widens is in_delta else "Iceberg"
    raise InvalidOperation(
        f"column {column!r} of table {table} is {old} and can't become {new}: "
        + (f"in {format_} it may become {may}" if may else f"{format_} widens no {old}")
        + "; to change what is stored, add a column of the new type and `update` it",
        table=table,
    )
