"""The requirements of an Iceberg REST client: what must be true of a table for its commit.

Their errors have the words of Iceberg's Java library, as clients compare and show them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import msgspec

from lakevilla.errors import ConflictError, InvalidOperation
from lakevilla.formats.iceberg.metadata.updates import refs_of


def check_requirements(
    parts: Mapping[str, Any] | None, requirements: Sequence[Mapping[str, Any]], table: str
) -> None:
    """Compare requirements with the parts of a table's newest file; None if there is no table.

    Raises
    ------
    ConflictError
        A requirement is not met.
    InvalidOperation
        A requirement is unknown or malformed.
    """
    for requirement in requirements:
        kind = requirement.get("type")
        if not isinstance(kind, str) or kind not in KNOWN_REQUIREMENTS:
            raise InvalidOperation(
                f"table {table}: the requirement {kind!r} is none that this version knows: "
                f"{', '.join(sorted(KNOWN_REQUIREMENTS))}",
                table=table,
            )
        try:
            one: _Any = msgspec.convert(requirement, _Any)
        except ValueError as error:
            raise InvalidOperation(
                f"table {table}: the requirement {kind!r} is malformed: {error}",
                table=table,
            ) from None
        why = _why_not(parts, one)
        if why:
            raise ConflictError(f"Requirement failed: {why}", table=table)


class _Requirement(msgspec.Struct, frozen=True, tag_field="type", rename="kebab"):
    """One requirement."""


class _Create(_Requirement, frozen=True, tag="assert-create"):
    pass


class _Uuid(_Requirement, frozen=True, tag="assert-table-uuid"):
    uuid: str


class _Ref(_Requirement, frozen=True, tag="assert-ref-snapshot-id"):
    ref: str
    snapshot_id: int | None = None


class _LastFieldId(_Requirement, frozen=True, tag="assert-last-assigned-field-id"):
    last_assigned_field_id: int


class _CurrentSchema(_Requirement, frozen=True, tag="assert-current-schema-id"):
    current_schema_id: int


class _LastPartitionId(_Requirement, frozen=True, tag="assert-last-assigned-partition-id"):
    last_assigned_partition_id: int


class _DefaultSpec(_Requirement, frozen=True, tag="assert-default-spec-id"):
    default_spec_id: int


class _DefaultSortOrder(_Requirement, frozen=True, tag="assert-default-sort-order-id"):
    default_sort_order_id: int


_Any = Union[
    _Create,
    _Uuid,
    _Ref,
    _LastFieldId,
    _CurrentSchema,
    _LastPartitionId,
    _DefaultSpec,
    _DefaultSortOrder,
]
#: The requirements that a client may send, by their names in the specification.
KNOWN_REQUIREMENTS = frozenset(
    str(kind.__struct_config__.tag) for kind in _Requirement.__subclasses__()
)


def _why_not(parts: Mapping[str, Any] | None, one: _Any) -> str:
    """Return why a requirement is not met; empty if it is."""
    if isinstance(one, _Create):
        return "" if parts is None else "table already exists"
    if parts is None:
        return "current table metadata is missing"
    if isinstance(one, _Uuid):
        known = str(parts.get("table-uuid") or "")
        if known.lower() == one.uuid.lower():
            return ""
        return f"UUID does not match: expected {known} != {one.uuid}"
    if isinstance(one, _Ref):
        return _why_not_ref(refs_of(parts).get(one.ref), one)
    name, words, wanted = _NUMBERS[type(one)](one)
    number = parts.get(name)
    return "" if number == wanted else f"{words} changed: expected id {wanted} != {number}"


def _why_not_ref(known: Mapping[str, Any] | None, one: _Ref) -> str:
    if known is None:
        if one.snapshot_id is None:
            return ""
        return f"branch or tag {one.ref} is missing, expected {one.snapshot_id}"
    kind = known.get("type", "branch")
    if one.snapshot_id is None:
        return f"{kind} {one.ref} was created concurrently"
    if known["snapshot-id"] == one.snapshot_id:
        return ""
    return f"{kind} {one.ref} has changed: expected id {one.snapshot_id} != {known['snapshot-id']}"


#: By kind, the part of the file, Java's words for it, and the number that it must have.
_NUMBERS: dict[type[_Requirement], Callable[[Any], tuple[str, str, int]]] = {
    _LastFieldId: lambda one: (
        "last-column-id",
        "last assigned field id",
        one.last_assigned_field_id,
    ),
    _CurrentSchema: lambda one: ("current-schema-id", "current schema", one.current_schema_id),
    _LastPartitionId: lambda one: (
        "last-partition-id",
        "last assigned partition id",
        one.last_assigned_partition_id,
    ),
    _DefaultSpec: lambda one: ("default-spec-id", "default partition spec", one.default_spec_id),
    _DefaultSortOrder: lambda one: (
        "default-sort-order-id",
        "default sort order",
        one.default_sort_order_id,
    ),
}
