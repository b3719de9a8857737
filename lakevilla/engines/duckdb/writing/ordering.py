"""The order of rows within a file, as the table has it: ORDER BY's terms.

DuckDB compares strings and bytes by their bytes, as Iceberg does (spec, "Sorting"). Floats
are sorted by their bits: DuckDB holds equal what Iceberg tells apart, zeros and NaNs of
either sign, and hands back another zero than it got if it sorts by the column itself.
"""

from __future__ import annotations

import pyarrow as pa

from lakevilla.engines.duckdb.sqltext import quote_name
from lakevilla.engines.transforms import transformed, transformed_type
from lakevilla.formats.layout import Layout


class Order:
    """A table's sort order; without one ``terms`` are none.

    Terms are over the table's columns and those that ``derived`` adds to the rows:
    ``derived_fields``, the values of transforms.
    """

    def __init__(self, layout: Layout) -> None:
        self.terms: list[str] = []
        self.derived_fields: list[pa.Field] = []
        self._made: list[tuple[str, str]] = []
        for number, field in enumerate(layout.sort_by):
            kind, name = layout.schema.field(field.column).type, field.column
            if field.transform != "identity":
                kind = transformed_type(field.transform, kind)
                name = f"__lakevilla_sort_{number}"
                self.derived_fields.append(pa.field(name, kind))
                self._made.append((field.column, field.transform))
            self.terms.append(_term(name, kind, field.descending, field.nulls_first))

    def derived(self, rows: pa.Table) -> pa.Table:
        """The rows with the values of transforms."""
        for added, (column, transform) in zip(self.derived_fields, self._made, strict=True):
            values = transformed(rows.column(column), transform)
            rows = rows.append_column(added, values.cast(added.type))
        return rows


def _term(name: str, kind: pa.DataType, descending: bool, nulls_first: bool) -> str:
    key = quote_name(name)
    if pa.types.is_floating(kind):
        integer = "INTEGER" if kind.bit_width == 32 else "BIGINT"
        bits, sign = f"CAST(CAST({key} AS BIT) AS {integer})", kind.bit_width - 1
        # Of negative numbers the larger bits are the smaller number.
        key = f"xor({bits}, ({bits} >> {sign}) & {(1 << sign) - 1})"
    return f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
