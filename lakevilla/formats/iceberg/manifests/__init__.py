"""Manifests of Iceberg: from bytes to columns and back."""
