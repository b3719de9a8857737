"""Refs: states of the lake that have a name and are kept (docs/design/0030-refs.md)."""
