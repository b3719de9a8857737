"""What ``alter`` is asked for: looked at as a whole before a table is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from lakevilla.api.checks import check_names, check_texts
from lakevilla.api.properties import property_names, property_texts
from lakevilla.errors import InvalidOperation
from lakevilla.settings import shown

__all__ = ["alteration"]

_CHECKS: Mapping[str, Callable[[str, object], object]] = {
    "drop_columns": check_names,
    "rename_columns": check_texts,
    "drop_not_null": check_names,
    "add_constraints": check_texts,
    "drop_constraints": check_names,
    "set_properties": property_texts,
    "unset_properties": property_names,
}


def alteration(*, add_columns: object, **given: object) -> tuple[dict[str, object], bytes | None]:
    """The changes asked for by name, and the schema of new columns as Arrow serializes it.

    Raises
    ------
    InvalidOperation
        An argument is of the wrong kind, nothing is asked for, or something and its contrary.
    """
    checked = {name: _CHECKS[name](name, value) for name, value in given.items()}
    request = {name: value for name, value in checked.items() if value}
    if not request and add_columns is None:
        raise InvalidOperation("nothing to change was given: name at least one change")
    _refuse_contraries(checked)
    if add_columns is None:
        return request, None
    if not isinstance(add_columns, pa.Schema):
        raise InvalidOperation(f"add_columns must be a pyarrow.Schema, not {shown(add_columns)}")
    return request, add_columns.serialize().to_pybytes()


def _refuse_contraries(request: Mapping[str, object]) -> None:
    set_, unset = request["set_properties"], request["unset_properties"]
    assert isinstance(set_, dict)
    assert isinstance(unset, list)
    for name in unset:
        if name in set_:
            raise InvalidOperation(f"property {name!r} is set and unset in one alter: choose one")
