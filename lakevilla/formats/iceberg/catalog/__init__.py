"""Catalogs of Iceberg as objects of the store, a catalog of directories, and FileIO."""
