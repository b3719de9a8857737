"""What may be changed of a table by one ``alter``, in any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


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
