"""Comparing rows one by one, to apply changes to a table whose files were rewritten since.

``merging`` decides what must be done to a row, and how that is done to a table; ``met`` has the
tasks of an engine do it too, where no process holds all rows.
"""
