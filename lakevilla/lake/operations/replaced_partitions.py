"""Which rows an overwrite of partitions replaces: those of the partitions that its files lie in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakevilla.errors import InvalidOperation
from lakevilla.formats.file_statistics import partition_value
from lakevilla.formats.files import DataFile
from lakevilla.formats.layout import Layout, PartitionField
from lakevilla.sql.expressions.bind import type_of
from lakevilla.sql.expressions.tree import Call, Column, Expr, Literal
from lakevilla.sql.expressions.values import literal_of

_NONE = Literal("boolean", "false")


def check_replaceable(layout: Layout) -> None:
    """Refuse a table whose partitions are no values of columns.

    Raises
    ------
    InvalidOperation
    """
    table = layout.table
    fields = _fields(layout)
    if not fields:
        raise InvalidOperation(
            f"table {table} has no partitions that partitions='dynamic' could replace: leave it "
            "out to replace all rows, or say which ones by where=...",
            table=table,
        )
    for field in fields:
        type_ = type_of(Column(field.path), layout.schema)
        if field.transform != "identity" or type_ == "binary":
            raise InvalidOperation(
                f"table {table} is partitioned by {field.spelled} ({type_}), and "
                "partitions='dynamic' goes by plain columns that are no bytes: say which rows are "
                "replaced by where=...",
                table=table,
            )


def rows_replaced(layout: Layout, files: Iterable[DataFile]) -> Expr:
    """A predicate for the rows of every partition that has one of the files.

    Raises
    ------
    InvalidOperation
        A partition has a value that cannot be told in a predicate.
    """
    fields = _fields(layout)
    keys = {tuple(file.partition_values.get(field.key) for field in fields) for file in files}
    terms = [Column(field.path) for field in fields]
    types = [type_of(term, layout.schema) for term in terms]
    # Delta has "" for NULL.
    is_null = (None, "") if layout.partition_by else (None,)
    by_all_but_last: dict[tuple[Expr, ...], list[Expr]] = {}
    for key in sorted(keys, key=lambda key: [(text is not None, text or "") for text in key]):
        values = [
            Literal(type_) if text in is_null else _value(text, type_)
            for text, type_ in zip(key, types, strict=True)
        ]
        by_all_but_last.setdefault(tuple(values[:-1]), []).append(values[-1])
    found: list[Expr] = []
    for first, last in by_all_but_last.items():
        tests = [_equals(term, value) for term, value in zip(terms, first, strict=False)]
        found.append(_balanced("and", [*tests, _is_among(terms[-1], last)]))
    return _balanced("or", found) if found else _NONE


def _fields(layout: Layout) -> tuple[PartitionField, ...]:
    """The partition columns of either format; Iceberg's fields of no meaning left out."""
    if not layout.partition_by:
        return tuple(field for field in layout.partition_fields if field.transform != "void")
    places = [layout.schema.get_field_index(name) for name in layout.partition_by]
    keys = [layout.physical.field(place).name for place in places]
    return tuple(
        PartitionField(key, name, (name,), "identity")
        for key, name in zip(keys, layout.partition_by, strict=True)
    )


def _value(text: str | None, type_: str) -> Literal:
    if type_ in ("float", "double") and text is not None:
        return literal_of(type_, float(text))
    if type_ == "string":
        return Literal(type_, text)
    return literal_of(type_, partition_value(text, type_))


def _equals(term: Expr, value: Expr) -> Expr:
    if isinstance(value, Literal) and value.value is None:
        return Call("is_null", (term,))
    return Call("=", (term, value))


def _is_among(term: Expr, values: Sequence[Expr]) -> Expr:
    given = [value for value in values if not (isinstance(value, Literal) and value.value is None)]
    found: list[Expr] = [Call("is_null", (term,))] if len(given) < len(values) else []
    if len(given) == 1:
        found.append(_equals(term, given[0]))
    elif given:
        found.append(Call("in", (term, *given)))
    return _balanced("or", found)


def _balanced(name: str, parts: Sequence[Expr]) -> Expr:
    """All parts joined; no deeper than the logarithm of their number."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Call(name, (_balanced(name, parts[:middle]), _balanced(name, parts[middle:])))
