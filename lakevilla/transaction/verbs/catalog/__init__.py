"""Reads of the lake itself: its catalog tables, and EXPLAIN (docs/design/0035, 0040)."""
