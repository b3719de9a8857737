"""Iceberg tables, by pyiceberg's manifests and transforms (extra ``iceberg``).

Nothing is imported here: ``table_format`` needs pyiceberg, ``metadata.definition`` does not.
"""
