"""The tables in which a lake shows its catalog, and the part of them that a query has read (note
35).

A *term* is a part of a query's condition that is sufficient by itself to leave rows out. Rows that
terms leave out could not be in the answer; rows that terms admit are checked again by the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
import pyarrow as pa

from lakevilla.errors import InvalidOperation

CatalogKind = Literal["tables", "files", "partitions", "columns", "statistics", "commits", "refs"]
Operator = Literal["=", "in", "<", "<=", ">", ">=", "prefix"]
Constant = str | int | float | bool

_TEXT, _NUMBER, _TIME = pa.string(), pa.int64(), pa.timestamp("us", "UTC")
_TEXTS = pa.map_(_TEXT, _TEXT)
_LIST = pa.list_(_TEXT)

#: The columns of each catalog table.
SCHEMAS: dict[CatalogKind, pa.Schema] = {
    "tables": pa.schema(
        [
            ("name", _TEXT),
            ("uri", _TEXT),
            ("format", _TEXT),
            ("table_id", _TEXT),
            ("guarded", pa.bool_()),
            ("log_version", _NUMBER),
            ("pending", _NUMBER),
            ("files", _NUMBER),
            ("rows", _NUMBER),
            ("bytes", _NUMBER),
            ("changed_version", _NUMBER),
        ]
    ),
    "files": pa.schema(
        [
            ("table", _TEXT),
            ("path", _TEXT),
            ("uri", _TEXT),
            ("size_bytes", _NUMBER),
            ("rows", _NUMBER),
            ("partition", _TEXTS),
            ("modified", _TIME),
            ("deletes", _NUMBER),
        ]
    ),
    "partitions": pa.schema(
        [
            ("table", _TEXT),
            ("name", _TEXT),
            ("partition", _TEXTS),
            ("files", _NUMBER),
            ("rows", _NUMBER),
            ("bytes", _NUMBER),
        ]
    ),
    "columns": pa.schema(
        [
            ("table", _TEXT),
            ("name", _TEXT),
            ("type", _TEXT),
            ("nullable", pa.bool_()),
            ("position", _NUMBER),
        ]
    ),
    "statistics": pa.schema(
        [
            ("table", _TEXT),
            ("path", _TEXT),
            ("column", _TEXT),
            ("type", _TEXT),
            ("min", _TEXT),
            ("max", _TEXT),
            ("nulls", _NUMBER),
        ]
    ),
    "commits": pa.schema(
        [
            ("version", _NUMBER),
            ("timestamp", _TIME),
            ("txn_id", _TEXT),
            ("kind", _TEXT),
            ("table", _TEXT),
            ("adds", pa.bool_()),
            ("removes", pa.bool_()),
            ("metadata_changed", pa.bool_()),
            ("merged", _TEXT),
            ("metadata", _TEXTS),
            ("members", _LIST),
        ]
    ),
    "refs": pa.schema(
        [
            ("name", _TEXT),
            ("kind", _TEXT),
            ("version", _NUMBER),
            ("base_version", _NUMBER),
            ("created", _TIME),
            ("created_by", _TEXT),
            ("protected", pa.bool_()),
            ("merged", _TEXT),
            ("metadata", _TEXTS),
        ]
    ),
}
#: The prefix of the names of catalog tables.
PREFIX = "lakevilla_"
#: The views of ``information_schema``, each with the catalog table from which it is made.
INFORMATION_SCHEMA: dict[str, CatalogKind] = {
    "schemata": "tables",
    "tables": "tables",
    "columns": "columns",
    "views": "tables",
}
#: The column with the name of a table, by catalog table.
NAMED_BY: dict[CatalogKind, str] = {
    "tables": "name",
    "files": "table",
    "partitions": "table",
    "columns": "table",
    "statistics": "table",
    "commits": "table",
}
#: Columns that have one value in all files of a partition.
_OF_BOTH = frozenset({"table", "partition"})
#: A suffix above every name with the same beginning: no path contains this code point.
HIGHEST = chr(0x10FFFF)


def is_reserved(name: str) -> bool:
    """Return whether a query reads the name as a catalog table."""
    reserved = {PREFIX + kind for kind in SCHEMAS}
    reserved |= {f"information_schema/{view}" for view in INFORMATION_SCHEMA}
    return name.lower() in reserved


def refuse_reserved(name: str) -> None:
    """Refuse a table name that a query reads as a catalog table. ``InvalidOperation``."""
    if is_reserved(name):
        raise InvalidOperation(
            f"{name} is the name of a catalog table that every lake has: give the table another",
            table=name,
        )


class Term(msgspec.Struct, frozen=True):
    """The comparison of ``column`` with constants. For a map, the column is ``partition.<key>``.

    ``prefix`` is ``LIKE 'p%'``. As in SQL, an unknown value fits no comparison.
    """

    column: str
    operator: Operator
    values: tuple[Constant, ...]

    def admits(self, value: Any) -> bool:
        """Return whether a row with this value may be in the result."""
        if value is None:
            return False
        one = self.values[0]
        if not all(_comparable(value, each) for each in self.values):
            return True  # SQL converts one to the other's type, or refuses: the query decides that
        match self.operator:
            case "=" | "in":
                return value in self.values
            case "<":
                return bool(value < one)
            case "<=":
                return bool(value <= one)
            case ">":
                return bool(value > one)
            case ">=":
                return bool(value >= one)
            case "prefix":
                return str(value).startswith(str(one))


def _comparable(value: Any, constant: Constant) -> bool:
    """Return whether Python orders the two as SQL does. (SQL has NaN above all numbers.)"""
    if isinstance(value, str) or isinstance(constant, str):
        return isinstance(value, str) and isinstance(constant, str)
    return isinstance(value, int | float) and constant == constant


class NameRange(msgspec.Struct, frozen=True):
    """The names from ``first`` to ``last`` (None: to the end).

    With ``exact``, only those among them that ``exact`` contains.
    """

    first: str = ""
    last: str | None = None
    exact: frozenset[str] | None = None

    def __contains__(self, name: str) -> bool:
        if self.exact is not None and name not in self.exact:
            return False
        return self.first <= name and (self.last is None or name <= self.last)

    @property
    def is_all(self) -> bool:
        return self == _EVERY


_EVERY = NameRange()


class CatalogRead(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of the catalog that the caller of a transaction has read.

    It has the rows of ``kind`` whose table's name is in ``names`` and which all of ``terms`` admit.
    ``columns``: the requested columns; None for all.
    """

    kind: CatalogKind
    names: NameRange = NameRange()
    terms: tuple[Term, ...] = ()
    columns: tuple[str, ...] | None = None

    @property
    def observed(self) -> CatalogRead:
        """The read as it is noted: partitions are made of files, so theirs is a read of files.

        Terms on what partitions alone have are left out: no single file decides them.
        """
        if self.kind != "partitions":
            return self
        terms = [one for one in self.terms if one.column.partition(".")[0] in _OF_BOTH]
        return CatalogRead("files", self.names, tuple(terms))

    def admits(self, row: Mapping[str, Any]) -> bool:
        """Return whether this part may contain a row, by the columns of the row that are given."""
        return all(
            term.admits(row[term.column]) for term in self.terms if term.column in row
        ) and not any(
            "." in term.column and not self._admits_part(term, row) for term in self.terms
        )

    @staticmethod
    def _admits_part(term: Term, row: Mapping[str, Any]) -> bool:
        column, _, key = term.column.partition(".")
        values = row.get(column)
        return column not in row or (values is not None and term.admits(values.get(key)))


def range_of(terms: Iterable[Term], column: str) -> NameRange:
    """Return the names that terms on ``column`` admit."""
    first, last, exact = "", None, None
    for term in terms:
        if term.column != column or not all(isinstance(value, str) for value in term.values):
            continue
        values = frozenset(str(value) for value in term.values)
        least, greatest = min(values), max(values)
        match term.operator:
            case "=" | "in":
                exact = values if exact is None else exact & values
                first, last = max(first, least), _least(last, greatest)
            case "<" | "<=":
                last = _least(last, least)
            case ">" | ">=":
                first = max(first, least)
            case "prefix":
                first, last = max(first, least), _least(last, least + HIGHEST)
    return NameRange(first, last, exact)


def _least(known: str | None, other: str) -> str:
    return other if known is None else min(known, other)
