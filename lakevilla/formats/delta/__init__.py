"""Delta Lake: reading its log, describing and rendering its entries.

May import the store's effects, expressions and ``formats.base``. Everything
that touches the store is a program; rows are the engines' business.
"""

from lakevilla.formats.delta.table_format import DeltaFormat

__all__ = ["DeltaFormat"]
