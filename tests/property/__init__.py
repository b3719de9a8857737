"""Predicates find the right rows, on tables of every history and by every path.

A seed draws a table (``plans``), which other clients' files make up (``delta_files``,
``iceberg_files``), and predicates over it (``predicates``) whose constants stand at, beside
and between its values (``values``). ``checks`` holds what the library finds against the
rows as they were written. ``python -m tests.property SEED`` replays one and makes it smaller.
"""
