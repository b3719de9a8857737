"""Engines: rows in, files and statistics out.

An engine reads and rewrites the rows of a table's files; it knows no log, no
transaction and no commit. It may import the store's effects, the table formats'
value types and the expressions.
"""
