"""Iceberg tables, by pyiceberg's manifests and expressions (extra ``iceberg``)."""

from __future__ import annotations

from lakevilla.formats.iceberg.table_format import IcebergFormat

__all__ = ["IcebergFormat"]
