"""The columns of dlt's tables, as a lake stores them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.libs.pyarrow import get_py_arrow_datatype
from dlt.common.schema import TColumnSchema
from dlt.destinations.impl.duckdb.factory import DuckDbTypeMapper

__all__ = ["LakeVillaTypeMapper", "fields_of"]


class LakeVillaTypeMapper(DuckDbTypeMapper):
    """dlt's types, and those of the lake's catalog, which are DuckDB's."""

    def from_destination_type(
        self, db_type: str, precision: int | None, scale: int | None
    ) -> dict[str, Any]:
        """Return the column type for a type such as ``DECIMAL(38,9)``."""
        name, _, numbers = db_type.partition("(")
        if name == "DECIMAL" and numbers:
            precision, scale = (int(part) for part in numbers.rstrip(")").split(","))
        return super().from_destination_type(name, precision, scale)  # type: ignore[no-any-return]


def fields_of(
    columns: Iterable[TColumnSchema], capabilities: DestinationCapabilitiesContext, format: str
) -> pa.Schema:
    """Return the fields of a table that is created, or is given these columns."""
    return pa.schema(
        [
            pa.field(
                column["name"],
                _stored(get_py_arrow_datatype(column, capabilities, "UTC"), format),
                nullable=column.get("nullable", True),
            )
            for column in columns
        ]
    )


def _stored(kind: pa.DataType, format: str) -> pa.DataType:
    """Return the type that a table of a format has for one of Parquet."""
    if pa.types.is_time(kind):
        return pa.time64("us") if format == "iceberg" else pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind
