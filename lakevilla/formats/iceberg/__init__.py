"""Iceberg tables, by pyiceberg's manifests and expressions (extra ``iceberg``).

Nothing is imported here: engines use parts that do without pyiceberg.
"""
