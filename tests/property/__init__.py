"""Test that predicates find the right rows, on tables of every history and by every path.

A seed draws a table (``plans``) whose files other clients have written (``delta_files``,
``iceberg_files``), and predicates over it (``predicates``) whose constants equal its values, are
neighbours of them or between them (``values``). ``checks`` compares what the library finds with the
rows as they were written. ``python -m tests.property SEED`` replays one seed and makes it smaller.
"""
