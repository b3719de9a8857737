"""Refs: named states of the lake, which are kept (docs/design/0030-refs.md)."""
