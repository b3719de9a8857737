"""Requests of ``alter``, each checked as a whole before a table is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lakevilla.api.arguments import check_names, check_texts, property_names, property_texts
from lakevilla.arrow import input
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown
from lakevilla.sql.expressions.tree import Literal
from lakevilla.sql.expressions.typenames import columns_of, describes_columns
from lakevilla.sql.expressions.types import type_name
from lakevilla.sql.expressions.values import literal

__all__ = ["alteration"]


def _type_names(name: str, given: object) -> dict[str, str]:
    """Return the new types by column, in the library's spelling."""
    if given is None or given == {}:
        return {}
    columns = given_schema(given)
    if columns is None:
        raise InvalidOperation(
            f"{name} must be a mapping of columns to types, such as {{'qty': 'bigint'}}, not "
            f"{shown(given)[:100]}"
        )
    return {field.name: type_name(field.type) for field in columns}


def _comments(name: str, given: object) -> dict[str, str | None]:
    """Return comments by column; None removes a comment."""
    if given is not None and not isinstance(given, Mapping):
        raise InvalidOperation(
            f"{name} must be a mapping of columns to text, or to None, not {shown(given)[:100]}"
        )
    found = dict(given or {})
    check_texts(name, {column: text for column, text in found.items() if text is not None})
    check_names(name, list(found))
    return found


def _defaults(name: str, given: object) -> dict[str, list[str | None] | None]:
    """Return default values by column, each as a literal's type and text; None removes one.

    ``{}`` stands for a struct whose fields have their own defaults.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidOperation(
            f"{name} must be a mapping of columns to constants, not {shown(given)[:100]}"
        )
    found: dict[str, list[str | None] | None] = {}
    for column, value in dict(given or {}).items():
        constant = Literal("struct", "{}") if value == {} else literal(value, f"{name}[{column!r}]")
        if not isinstance(constant, Literal):
            raise InvalidOperation(
                f"{name} of column {column!r} must be a constant that is no list and no mapping, "
                f"or {{}} for a struct, not {shown(value)[:100]}"
            )
        found[column] = None if value is None else [constant.type, constant.value]
    check_names(name, list(found))
    return found


_CHECKS: Mapping[str, Callable[[str, object], object]] = {
    "drop_columns": check_names,
    "rename_columns": check_texts,
    "change_types": _type_names,
    "drop_not_null": check_names,
    "set_comments": _comments,
    "defaults": _defaults,
    "set_defaults": _defaults,
    "add_constraints": check_texts,
    "drop_constraints": check_names,
    "set_properties": property_texts,
    "unset_properties": property_names,
}


def alteration(
    table: str, *, add_columns: object, **given: object
) -> tuple[dict[str, object], bytes | None]:
    """Return the requested changes by name, and the schema of new columns as Arrow serializes it.

    Raises
    ------
    InvalidOperation
        An argument is of the wrong kind, nothing is requested, or a change and its opposite are.
    """
    checked = {name: _CHECKS[name](name, value) for name, value in given.items()}
    request = {name: value for name, value in checked.items() if value}
    if not request and add_columns is None:
        raise InvalidOperation("nothing to change was given: name at least one change")
    _refuse_contraries(checked)
    if request.get("defaults") and add_columns is None:
        raise InvalidOperation(
            "defaults are those of columns that add_columns adds: set_defaults sets others"
        )
    if add_columns is None:
        return request, None
    columns = given_schema(add_columns)
    if columns is None or not len(columns):
        raise InvalidOperation(
            f"add_columns must be a pyarrow.Schema or a mapping of names to types with at least "
            f"one column, not {shown(add_columns)[:100]}"
        )
    input.schema_of(columns, table=table)  # raises for a type that no table can store
    return request, columns.serialize().to_pybytes()


def given_schema(given: object) -> pa.Schema | None:
    """Return the columns that a caller has described; None if ``given`` is no description.

    A description is a ``pyarrow.Schema``, an object of another library that exports an Arrow
    schema, a schema of pyiceberg, or a mapping of names to types.

    Raises
    ------
    InvalidOperation
        The description names a type that does not exist.
    """
    if isinstance(given, pa.Schema):
        return given
    is_data = hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")
    if is_data or isinstance(given, pa.Field | pa.DataType | type):
        return None
    if hasattr(given, "__arrow_c_schema__"):
        return pa.schema(given)
    if hasattr(given, "identifier_field_ids"):  # a Schema of pyiceberg
        return _of_pyiceberg(given)
    return columns_of(given) if describes_columns(given) else None


def _of_pyiceberg(given: Any) -> pa.Schema:
    if given.identifier_field_ids:
        raise InvalidOperation(
            "the schema names identifier fields, which LakeVilla does not set: leave them out, "
            "and set them by pyiceberg's update_schema() once the table exists"
        )
    schema: pa.Schema = given.as_arrow()
    return schema


def _refuse_contraries(request: Mapping[str, object]) -> None:
    set_, unset = request["set_properties"], request["unset_properties"]
    assert isinstance(set_, dict)
    assert isinstance(unset, list)
    for name in unset:
        if name in set_:
            raise InvalidOperation(f"property {name!r} is set and unset in one alter: choose one")
