"""Footers of Parquet files, fetched once, and parts of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from lakevilla.engines.base import FilePart
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.file_system import literal_path, with_keys
from lakevilla.engines.duckdb.reading.constants import has_decimals, rounds
from lakevilla.engines.duckdb.sqltext import (
    ABSENT,
    any_of,
    has_bytes,
    is_bytes,
    is_text,
    is_utc,
    quote_text,
)
from lakevilla.errors import UnsupportedTableFeature
from lakevilla.formats.delta.metadata.schema import MAX_COLUMN_ID
from lakevilla.formats.iceberg.metadata.schema import names_of
from lakevilla.formats.layout import Layout

# -------------------- footers
#
# Contents of data files, as their footers describe them.
#
# Footers of any table show whether a column is text or bytes. Files of Impala and old Hive do not
# mark their text as text, and a column may have changed from one to the other since; in a table
# that has columns of bytes, only the footer shows it. Footers also show numbers that the table's
# type can't keep unchanged. DuckDB rounds them silently, and makes a wrong number of a decimal of
# more than 38 digits, which it reads as a double (https://github.com/duckdb/duckdb/pull/25058).
#
# Footers also show times of 96 bits, as Spark writes them, which DuckDB reads as times without a
# zone. Its cast to a time in UTC costs five times as much as reading them, so the cast is avoided
# where the file is known.
#
# Footers of an Iceberg table show more (spec, "Column Projection"). The field ids in a file decide
# which of the table's columns it has. DuckDB finds a column by its id, but a field within a column
# by its name alone, and a file may have other names there: names from before a rename, or names in
# Avro's spelling (``a-b`` is written ``a_x2Db``). The columns of a file without any ids are found
# by the table's name mapping. https://github.com/duckdb/duckdb/pull/9123 (no nested ids)
#
# The footers are those that the scan reads next: DuckDB keeps their bytes, so they cost no request.


#: With more files than this, footers are not read merely to make a statement faster.
_MANY_FILES = 256
#: The name of times of 96 bits in a footer.
_INT96 = "INT96"
#: The types that DuckDB reads annotated text as.
_TEXT = ("VARCHAR", "JSON")
#: DuckDB takes 3 ms to plan the groups of ``_ALIKE``; Python takes longer for more files.
_FEW_FILES = 16
_KIND = (
    "CASE WHEN precision > 38 THEN 'DECIMAL(' || precision || ',' || scale || ')' "
    "WHEN type = 'INT96' THEN type ELSE duckdb_type END"
)
_NODES = (
    "SELECT file_name, column_id, name, coalesce(num_children, 0), field_id, "
    f"{_KIND} FROM parquet_schema([{{paths}}])"
)
_ALIKE = (
    "SELECT list(file_name), names, children, ids, kinds FROM ("
    "SELECT file_name, list(name ORDER BY column_id) AS names, "
    "list(coalesce(num_children, 0) ORDER BY column_id) AS children, "
    "list(field_id ORDER BY column_id) AS ids, "
    f"list({_KIND} ORDER BY column_id) AS kinds "
    "FROM parquet_schema([{paths}]) GROUP BY file_name) GROUP BY names, children, ids, kinds"
)


@dataclass(frozen=True, slots=True)
class Called:
    """The names and types that a file has for the table's columns.

    ``names``: for a file without field ids, its names of the columns, None for a column that it
    lacks. ``kinds``: the columns' types, with the file's names for the fields within them, and with
    bytes for text, text for bytes or times without a zone where the file has these; None where they
    are the table's. ``lacks``: columns that the file does not have; ``lacks_within``: ids of fields
    within columns that it does not have, of those that partitions have a value for.
    """

    names: tuple[str | None, ...] | None = None
    kinds: tuple[pa.DataType, ...] | None = None
    lacks: frozenset[str] = frozenset()
    lacks_within: frozenset[int] = frozenset()


_AS_IN_TABLE = Called()


#: A node as an entry of a list of all nodes: its name, number of parts, field id and type.
_Flat: TypeAlias = tuple[str, int, int | None, str | None]


@dataclass(slots=True)
class _Node:
    """A node of a footer's tree."""

    name: str
    number: int | None
    kind: str | None = None
    parts: list[_Node] = field(default_factory=list)


def called_in(
    cursor: duckdb.DuckDBPyConnection,
    layout: Layout,
    paths: Sequence[str],
    *,
    named: bool = False,
) -> dict[str, Called]:
    """Return each file's names and types of the table's columns, by path.

    ``named``: columns without a field id are read too. DuckDB finds all columns of a file by id, or
    all by name, so then the names of a Delta table's file are returned, too.

    Raises
    ------
    UnsupportedTableFeature
        A file has no field ids and the table no name mapping, names within a column differ only by
        case, or numbers would be rounded.
    """
    of_iceberg = layout.known_as is not None
    mixed = any(map(has_bytes, layout.physical.types))
    doubtful = of_iceberg or mixed or any(map(has_decimals, layout.physical.types))
    doubtful = doubtful or _may_lack_a_struct(layout)
    times = len(paths) <= _MANY_FILES and any(
        any_of(kind, is_utc) for kind in layout.physical.types
    )
    named = named and layout.by_field_id and not of_iceberg
    if not paths or not (doubtful or times or named):
        return {}
    mapping = names_of(layout.properties, layout.table) if of_iceberg else None
    written = {literal_path(path): path for path in paths}
    with translated(layout.table):
        footers = _footers(cursor, paths)
    found: dict[str, Called] = {}
    for files, nodes in footers:
        # Without columns of bytes, all text is read as text, even if the file does not mark it.
        root = _tree(iter(nodes), mixed)
        if of_iceberg:
            called = _called(root, layout, mapping, with_keys(files[0]))
        else:
            called = _called_by_name(root, layout, with_keys(files[0]))
            if named:
                called = replace(called, names=_names_by_id(root, layout))
        found.update((written.get(path, path), called) for path in files)
    return found


def _may_lack_a_struct(layout: Layout) -> bool:
    """Return whether a Delta table's files may have no field of a struct that the table has.

    Columns are dropped only where they are mapped, and ids of columns are used once.
    """
    last = layout.properties.get(MAX_COLUMN_ID, "")
    mapped = layout.properties.get("delta.columnMapping.mode", "none").lower() != "none"
    if not (mapped and last.isdecimal()):
        return False
    named = sum(1 + _named_within(field.type) for field in layout.physical)
    return named > len(layout.physical) and int(last) > named


def _named_within(kind: pa.DataType) -> int:
    """Return how many fields the structs within a type have."""
    if pa.types.is_map(kind):
        return _named_within(kind.key_type) + _named_within(kind.item_type)
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    own = len(inner) if pa.types.is_struct(kind) else 0
    return own + sum(map(_named_within, inner))


def field_id(physical: pa.Field) -> int:
    """Return the id by which a file knows a column."""
    return int((physical.metadata or {})[b"PARQUET:field_id"])


def _footers(
    cursor: duckdb.DuckDBPyConnection, paths: Sequence[str]
) -> list[tuple[list[str], list[_Flat]]]:
    """Return the nodes of the files' footers; files with exactly the same nodes share one entry."""
    listed = ", ".join(map(quote_text, paths))
    if len(paths) > _FEW_FILES:
        alike = cursor.execute(_ALIKE.format(paths=listed)).fetchall()
        return [(files, list(zip(*columns, strict=True))) for files, *columns in alike]
    flat: dict[str, dict[int, _Flat]] = {}
    rows = cursor.execute(_NODES.format(paths=listed)).fetchall()
    for file, place, name, count, number, kind in rows:
        flat.setdefault(file, {})[place] = name, count, number, kind
    files_of: dict[tuple[_Flat, ...], list[str]] = {}
    for file, by_place in flat.items():
        nodes = tuple(by_place[place] for place in sorted(by_place))
        files_of.setdefault(nodes, []).append(file)
    return [(files, list(nodes)) for nodes, files in files_of.items()]


def _tree(nodes: Iterator[_Flat], mixed: bool) -> _Node:
    name, count, number, kind = next(nodes)
    parts = [_tree(nodes, mixed) for _ in range(count)]
    return _Node(name, number, "VARCHAR" if kind == "BLOB" and not mixed else kind, parts)


def _called_by_name(root: _Node, layout: Layout, file: str) -> Called:
    """Return the types of columns in a Delta table's file; DuckDB finds columns by name
    or by id.
    """
    by_name = _by_name(root)
    by_id = {node.number: node for node in root.parts}
    wanted, kinds = layout.physical.types, []
    for own, physical, kind in zip(layout.schema, layout.physical, wanted, strict=True):
        node = by_id.get(field_id(physical)) if layout.by_field_id else by_name(physical.name)
        with _explained(own.name, layout, file):
            kinds.append(kind if node is None else _as_held(kind, node))
    return _AS_IN_TABLE if _are_the_very(kinds, wanted) else Called(kinds=tuple(kinds))


def _names_by_id(root: _Node, layout: Layout) -> tuple[str | None, ...]:
    by_id = {node.number: node.name for node in root.parts if node.number is not None}
    return tuple(by_id.get(field_id(physical)) for physical in layout.physical)


def _are_the_very(kinds: Sequence[pa.DataType], wanted: Sequence[pa.DataType]) -> bool:
    """Return whether no type was changed: the objects are identical, not only equal.

    A schema makes new objects of its decimals each time they are read from it.
    """
    return all(a is b for a, b in zip(kinds, wanted, strict=True))


def _as_held(kind: pa.DataType, node: _Node) -> pa.DataType:
    """Return the type, with bytes for text or text for bytes where the file has these.

    If the file has the type unchanged, the very same object is returned. If the file has no field
    at all of a struct, the type takes one of the file's fields, as in ``_as_called``.
    """
    if not pa.types.is_nested(kind):
        return _leaf(kind, node)
    more: list[pa.Field] = []
    if pa.types.is_struct(kind):
        by_name = _by_name(node)
        pairs = [(by_name(one.name), one.type) for one in kind]
        if node.parts and all(part is None for part, _ in pairs):
            more = [pa.field(node.parts[0].name, pa.string())]
    else:
        pairs = list(_parts(node, kind))
    made = [inner if part is None else _as_held(inner, part) for part, inner in pairs]
    if not more and all(one is inner for one, (_, inner) in zip(made, pairs, strict=True)):
        return kind
    if pa.types.is_struct(kind):
        own = [one.with_type(new) for one, new in zip(kind, made, strict=True)]
        return pa.struct([*own, *more])
    return pa.map_(*made) if pa.types.is_map(kind) else pa.list_(*made)


def _by_name(node: _Node) -> Callable[[str], _Node | None]:
    """Return a lookup of a node's parts by name, as DuckDB does it: exact, else without case."""
    exact = {part.name: part for part in node.parts}
    loose = {part.name.lower(): part for part in reversed(node.parts)}
    return lambda name: exact.get(name) or loose.get(name.lower())


def _leaf(kind: pa.DataType, node: _Node) -> pa.DataType:
    if node.kind is not None and rounds(node.kind, kind):
        raise _Rounded(kind, node.kind)
    if is_text(kind) and node.kind == "BLOB":
        return pa.binary()
    if is_utc(kind) and node.kind == _INT96:
        return pa.timestamp("us")
    return pa.string() if is_bytes(kind) and node.kind in _TEXT else kind


class _Rounded(Exception):
    """The numbers of a file would change in the table's type."""

    def __init__(self, wanted: pa.DataType, held: str) -> None:
        self.wanted, self.held = wanted, held


@contextmanager
def _explained(column: str, layout: Layout, file: str) -> Iterator[None]:
    try:
        yield
    except _Rounded as error:
        raise UnsupportedTableFeature(
            f"column {column} of table {layout.table} has numbers of type {error.wanted}, and data "
            f"file {file} has {error.held.lower()} there, which can't be read without changing "
            "them: write the file again with a client that reads it",
            table=layout.table,
        ) from None


def _called(
    root: _Node, layout: Layout, mapping: Mapping[int, tuple[str, ...]] | None, file: str
) -> Called:
    names: tuple[str | None, ...] | None = None
    if all(node.number is None for node in _all(root)):
        if mapping is None:
            raise UnsupportedTableFeature(
                f"data file {file} of table {layout.table} has no field ids, and the table no "
                "name mapping (schema.name-mapping.default) that identifies its columns: set one "
                "with the client that added the file",
                table=layout.table,
            )
        _number(root.parts, layout.physical, mapping)
        by_id = {node.number: node.name for node in root.parts}
        names = tuple(by_id.get(field_id(field)) for field in layout.physical)
    top = {node.number: node for node in root.parts if node.number is not None}
    lacks, kinds, wanted = [], [], layout.physical.types
    for own, physical, kind in zip(layout.schema, layout.physical, wanted, strict=True):
        node = top.get(field_id(physical))
        if node is None:
            lacks.append(own.name)
        elif pa.types.is_nested(kind):
            _refuse_twins(node, own.name, layout, file)
        with _explained(own.name, layout, file):
            kinds.append(kind if node is None else _as_called(kind, node))
    same = _are_the_very(kinds, wanted)
    in_file = {node.number for node in _all(root)}
    within = frozenset(number for number, _ in layout.constants_within if number not in in_file)
    return Called(names, None if same else tuple(kinds), frozenset(lacks), within)


def _all(node: _Node) -> Iterator[_Node]:
    for part in node.parts:
        yield part
        yield from _all(part)


def _number(
    nodes: Sequence[_Node], fields: Iterable[pa.Field], mapping: Mapping[int, tuple[str, ...]]
) -> None:
    """Give the nodes of a file without ids the ids that the table's name mapping has for them."""
    by_name = {node.name: node for node in nodes}
    for one in fields:
        known = mapping.get(field_id(one), ())
        node = next((by_name[name] for name in known if name in by_name), None)
        if node is not None:
            node.number = field_id(one)
            _number_within(node, one.type, mapping)


def _number_within(node: _Node, kind: pa.DataType, mapping: Mapping[int, tuple[str, ...]]) -> None:
    if pa.types.is_struct(kind):
        _number(node.parts, kind, mapping)
    else:
        for part, inner in _parts(node, kind):
            _number_within(part, inner, mapping)


def _as_called(kind: pa.DataType, node: _Node) -> pa.DataType:
    """Return the type, with every field of a struct under the name that the file has for its id.

    If the file has the type unchanged, the very same object is returned. For a field that this file
    lacks, the type has a name that no file has: the field reads as NULL. If the file has no field
    at all of a struct, the type takes one of the file's fields, by which DuckDB decides whether the
    struct is NULL.
    """
    if pa.types.is_struct(kind):
        by_number = {part.number: part for part in node.parts if part.number is not None}
        fields, same = [], True
        for index, one in enumerate(kind):
            part = by_number.get(field_id(one))
            name = f"{ABSENT}{index}" if part is None else part.name
            own = one.type
            inner = own if part is None else _as_called(own, part)
            same = same and name == one.name and inner is own
            fields.append(pa.field(name, inner))
        if not any(field_id(one) in by_number for one in kind) and node.parts:
            fields.append(pa.field(node.parts[0].name, pa.string()))
        return kind if same else pa.struct(fields)
    if not pa.types.is_nested(kind):
        return _leaf(kind, node)
    parts = _parts(node, kind)
    if not parts:
        return kind
    made = [_as_called(inner, part) for part, inner in parts]
    if all(one is inner for one, (_, inner) in zip(made, parts, strict=True)):
        return kind
    return pa.map_(*made) if pa.types.is_map(kind) else pa.list_(*made)


def _parts(node: _Node, kind: pa.DataType) -> list[tuple[_Node, pa.DataType]]:
    """Return a file's nodes for the parts of a list or a map; none if its layout differs."""
    if pa.types.is_map(kind) and node.parts and len(node.parts[0].parts) == 2:
        key, value = node.parts[0].parts
        return [(key, kind.key_type), (value, kind.item_type)]
    if pa.types.is_list(kind) and node.parts:
        repeated = node.parts[0]
        # Old files have lists of two levels (Parquet, "Backward-compatibility rules").
        plain = len(repeated.parts) != 1 or repeated.name in ("array", f"{node.name}_tuple")
        return [(repeated if plain else repeated.parts[0], kind.value_type)]
    return []


def _refuse_twins(node: _Node, column: str, layout: Layout, file: str) -> None:
    """Refuse names that DuckDB can't distinguish."""
    for one in (node, *_all(node)):
        if len({part.name.lower() for part in one.parts}) < len(one.parts):
            raise UnsupportedTableFeature(
                f"column {column} of table {layout.table} has fields that differ only by case in "
                f"data file {file}: LakeVilla does not read them; rewrite the file with the "
                "client that wrote it",
                table=layout.table,
            )


# -------------------- parts
#
# Parts of large files: the rows of a part, by the positions of the file's row groups.
#
# The rows of a part are identified by their numbers in the file, so that deletion vectors and
# position deletes remain valid. DuckDB leaves out the row groups that have none of them. The
# footers that are read here are those that the scan reads next.


_ROW_GROUPS = (
    "SELECT DISTINCT row_group_id, row_group_num_rows FROM parquet_metadata({path}) "
    "ORDER BY row_group_id"
)


def rows_within(cursor: duckdb.DuckDBPyConnection, path: str, part: FilePart, table: str) -> str:
    """Return a condition on a row's number, ``file_row_number``, that is true in a file's part."""
    with translated(table):
        groups = cursor.execute(_ROW_GROUPS.format(path=quote_text(path))).fetchall()
    span = _span([rows for _, rows in groups], part)
    return "false" if span is None else f"file_row_number BETWEEN {span[0]} AND {span[1]}"


def _span(groups: Sequence[int], part: FilePart) -> tuple[int, int] | None:
    """Return the first and the last row of the row groups that begin in the part, if there are any.

    A group's first row decides, by its share of all rows: so each group belongs to one part.
    """
    whole, start = sum(groups), 0
    mine = []
    for rows in groups:
        if rows and start * part.count // whole == part.number:
            mine += [start, start + rows - 1]
        start += rows
    return (mine[0], mine[-1]) if mine else None
