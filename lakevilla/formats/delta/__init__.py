"""Delta Lake: reading its log, describing and rendering its entries.

The package may import the store's effects, expressions and ``formats.base``. All code
that accesses the store is a program; engines handle rows.
"""

from lakevilla.formats.delta.table_format import DeltaFormat

__all__ = ["DeltaFormat"]
